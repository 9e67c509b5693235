"""The documentation site, built as `make site` builds it: whole, true, and found by its search."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.draw.customization import HEADS, TAILS
from battlesnake_gym.mdp.observations import get
from battlesnake_gym.rules import MAPS
from tests.server.browser import Browser, browser
from tests.site.test_play_page import HERE, files_served
from tests.test_architecture import MODULES

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PACKAGES = (
    *("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server"),
    *("sagemaker_rl", "battlesnake_rl.mabs", "battlesnake_rl.onnx_export"),
    "battlesnake_rl.procgen",
)


GALLERIES = ("rules-and-maps", "observations", "rules-of-snakes")

QUESTIONS = {
    "compare two snakes": "how-to/compare-two-snakes",
    "train four players": "how-to/train-for-four-players",
    "resume training": "how-to/train-longer-and-resume",
    "use a GPU": "how-to/use-a-gpu",
    "change rewards": "how-to/change-rewards",
    "losing move": "how-to/find-the-losing-move",
    "run a league": "how-to/run-a-league",
    "VPS": "how-to/serve-on-a-vps",
    "several machines": "how-to/run-on-several-machines",
    "published experiment": "how-to/reproduce-the-published-experiment",
    "tutorial": "tutorials/",
    "deploy": "how-to/serve-on-lambda",
    "own snake": "how-to/play-your-own-snake",
    "starving snake eliminated": "project/code-map",
    "food appears": "project/code-map",
    "hazard plane": "reference/observations",
    "action mask": "reference/action-masks",
    "reward events": "reference/rewards",
    "filters and preferences": "reference/rules-of-snakes",
    "win probability": "how-to/find-the-losing-move",
    "export policy": "how-to/export-another-trainers-policy",
}
"""Questions of newcomers, as they type them into the search, and the page with the answer."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a warning of Sphinx would be an error here."""
    pytest.importorskip("myst_nb", reason="needs the extra dev")
    pytest.importorskip("ray", reason="needs the extra rllib")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "tools/build_site.py", folder], cwd=HERE, check=True)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with files_served(site) as address:
        yield f"{address}/docs"


def public_names() -> Iterator[str]:
    """Functions and classes without an underscore, where they are defined."""
    for name in MODULES:
        if name.startswith(PACKAGES) and not any(part.startswith("_") for part in name.split(".")):
            for member, value in vars(importlib.import_module(name)).items():
                own = inspect.isclass(value) or inspect.isfunction(value)
                if own and not member.startswith("_") and value.__module__ == name:
                    yield f"{name}.{member}"


def test_the_reference_has_every_public_name(site: Path) -> None:
    from sphinx.ext.autodoc.mock import mock  # type: ignore[attr-defined]
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        known = InventoryFile.load(file, "", lambda base, name: name)
    documented = {name for kind, names in known.items() if kind.startswith("py:") for name in names}
    with mock([] if find_spec("mxnet") else ["mxnet"]):
        public = set(public_names())
    assert len(public) > 500
    assert sorted(public - documented) == []


def test_the_gallery_shows_all_of_it(site: Path) -> None:
    reference = site / "docs" / "reference"
    pages = {name: (reference / f"{name}.html").read_text() for name in GALLERIES}
    planes = get("planes").planes
    for page, kind, names in (
        ("rules-and-maps", "map", MAPS),
        ("rules-and-maps", "head", HEADS),
        ("rules-and-maps", "tail", TAILS),
        ("observations", "plane", planes),
    ):
        shown = re.findall(rf'alt="{kind} ([^"]+)"', pages[page])
        assert shown == list(names)
    assert len(MAPS) == 25
    for name in snakes.names():
        assert f">{name}</span>" in pages["rules-of-snakes"], name
    duels = re.findall(
        r"strength=([\w-]+)&amp;seed=1&amp;moves=&amp;who=([\w-]+)", pages["rules-of-snakes"]
    )
    playable = {strength for strength, who in duels if who == "play"}
    assert {"champion", "hungry"} <= playable
    assert {(a, b) for a in playable for b in playable if a != b} == {
        duel for duel in duels if duel[1] != "play"
    }


@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("1_introduction", {"svg": 6, "png": 1, "gif": 1}),
        ("2_policy_training", {"png": 1, "gif": 1}),
        ("3_homogeneous", {"png": 1}),
        ("4_heterogeneous", {"png": 1, "gif": 1}),
        ("5_heuristics_developer", {"svg": 1}),
        ("6_hill_training", {"svg": 1, "png": 1, "gif": 1}),
        ("7_deploy_and_compete", {"gif": 1}),
        ("procgen_1_train", {"jpg": 1, "png": 1, "gif": 1}),
    ],
)
def test_a_notebook_shows_what_it_drew(site: Path, name: str, pictures: dict[str, int]) -> None:
    page = (site / "notebooks" / f"{name}.html").read_text()
    for kind, count in pictures.items():
        assert len(re.findall(rf"<img[^>]+_images/[^>]+\.{kind}", page)) >= count, kind
    for nothing in ("IPython.core.display.Image object", "widget-view"):
        assert nothing not in page
    if name == "5_heuristics_developer":
        assert page.count('aria-label="turn') >= 3  # widgets as the pictures that they showed


def first_hits(address: str, browser: Browser, query: str) -> list[str]:
    """Return the addresses of the first three hits of the site's search."""
    browser.open(f"{address}/../search.html?q={quote(query)}")
    browser.wait("/finished/.test(document.querySelector('.search-summary')?.innerText ?? '')")
    return browser.each("#search-results li > a", "new URL(part.href).pathname")[:3]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_page_is_among_the_first_three_hits(
    address: str, browser: Browser, question: str
) -> None:
    hits = first_hits(address, browser, question)
    assert any(f"docs/{QUESTIONS[question]}" in hit for hit in hits), hits


def test_search_finds_functions_behind_pages(address: str, browser: Browser) -> None:
    assert any("/_api/" in hit for hit in first_hits(address, browser, "save_gif"))


def test_links_and_pictures_lead_to_files_and_parts(site: Path) -> None:
    texts = {page: page.read_text() for page in site.rglob("*.html") if "/play/" not in str(page)}
    parts = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in texts.items()}
    for page, text in texts.items():
        base = re.search(r'<base href="([^"]+)"', text)
        folder = page.parent / base[1] if base else page.parent
        for link in re.findall(r'<(?:a|img|link|script)\b[^>]*?(?:href|src)="([^"]*)"', text):
            if re.match(r"\w+:|//", link):
                continue
            path, _, part = unescape(unquote(link)).partition("#")
            target = (folder / path.partition("?")[0]).resolve() if path else page
            assert target.exists(), f"{page}: {link}"
            if part and target in parts:
                assert part in parts[target], f"{page}: {link}"


def test_every_page_has_an_icon_a_description_and_a_preview(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert re.search(r'rel="(shortcut )?icon"', text), page
        if page.name != "search.html":
            assert re.search(r'<meta name="description" content="[^"]{20,}"', text), page
            (picture,) = re.findall(r'<meta property="og:image" content="([^"]+)"', text)
            base = re.search(r'<base href="([^"]+)"', text)
            folder = page.parent / base[1] if base else page.parent
            if url := os.environ.get("SITE_URL"):  # The addresses of pictures are absolute.
                folder, picture = site, picture.removeprefix(url.rstrip("/") + "/")
            assert (folder / picture).resolve().exists(), page


def test_the_game_of_the_start_page_receives_keys_while_it_is_visible(
    address: str, browser: Browser
) -> None:
    browser.open(f"{address}/index.html")
    turn = "document.querySelector('iframe').contentDocument?.querySelector('#turn')?.innerText"
    browser.wait(f"/0/.test({turn} ?? '')")
    browser.run("document.querySelector('iframe').scrollIntoView({block: 'center'})")
    # The page notices that the game is visible after the next frame.
    browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 500)))")
    browser.run("addEventListener('keydown', event => { window.taken = event.defaultPrevented; })")
    for _ in range(3):
        browser.press("ArrowUp")
    browser.wait(f"/[1-9]/.test({turn})")
    assert browser.run("taken") is True  # the page does not scroll
    browser.press("Escape", "ArrowUp")
    assert browser.run("taken") is False


def test_axe_finds_nothing(site: Path, address: str, browser: Browser) -> None:
    """On every page but the reference's 200, of which one in ten is looked at; light and dark."""
    reference = sorted(site.glob("docs/_api/*.html"))
    pages = {*site.rglob("*.html")} - {*reference} | {*reference[::10]}
    assert len(pages) > 50
    for dark in (False, True):
        browser.look(dark=dark)
        for page in sorted(pages):
            browser.open(f"{address}/../{page.relative_to(site)}")
            assert browser.violations() == [], (page, dark)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Scripts, styles and pictures are the site's own: it is read offline too."""
    outside = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+"')
    for page in site.rglob("*.html"):
        found = [tag for tag in outside.findall(page.read_text()) if 'rel="canonical"' not in tag]
        assert not found, page

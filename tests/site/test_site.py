"""The documentation site, built as `make site` builds it: whole, true, and found by its search."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.draw.customization import HEADS, TAILS
from battlesnake_gym.mdp.observations import get
from battlesnake_gym.rules import MAPS
from tests.server.browser import Browser, browser
from tests.site.test_play_page import HERE, files_served
from tests.test_architecture import MODULES

__all__ = ["browser"]

pytestmark = [pytest.mark.slow, pytest.mark.rllib, pytest.mark.timeout(3600)]

PACKAGES = (
    *("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server"),
    *("sagemaker_rl", "battlesnake_rl.mabs", "battlesnake_rl.onnx_export"),
    "battlesnake_rl.procgen",
)


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
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        known = InventoryFile.load(file, "", lambda base, name: name)
    documented = {name for kind, names in known.items() if kind.startswith("py:") for name in names}
    public = set(public_names())
    assert len(public) > 500
    assert sorted(public - documented) == []


def test_the_gallery_shows_all_of_it(site: Path) -> None:
    page = (site / "docs" / "reference" / "rules-and-maps.html").read_text()
    planes = get("planes").planes
    for kind, names in (("map", MAPS), ("head", HEADS), ("tail", TAILS), ("plane", planes)):
        shown = re.findall(rf'alt="{kind} ([^"]+)"', page)
        assert shown == list(names)
    assert len(MAPS) == 25
    for name in snakes.names():
        assert f">{name}</span>" in page, name


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


def test_search_finds_in_the_browser(address: str, browser: Browser) -> None:
    browser.open(f"{address}/../search.html?q=constrictor")
    browser.wait("document.querySelectorAll('#search-results li a').length > 3")
    first = str(browser.run("document.querySelector('#search-results li a').textContent"))
    assert first
    browser.open(f"{address}/../search.html?q=save_gif")
    browser.wait("[...document.querySelectorAll('#search-results li a')].some("
                 "found => found.textContent.includes('save_gif'))")  # fmt: skip


def test_the_navigation_leads_to_22_pages_and_to_the_game_before_notebooks(site: Path) -> None:
    page = (site / "docs" / "index.html").read_text()
    first = set(re.findall(r'<li class="toctree-l1[^"]*"><a class="[^"]*" href="([^"#]+)"', page))
    assert 15 < len(first) <= 22
    assert page.count('<iframe src="play/index.html"') == 1
    assert not [one for one in first if "notebooks/" in one]


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

"""Tests of the pages and reports of training runs in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_server.runs import report
from battlesnake_server.runs.run_view import RunsView
from battlesnake_server.web import runs_page as pages
from tests.server import training_runs, web_site
from tests.server.browser import Browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training") / "runs"
    training_runs.make(root, "long", 18, games=(6, 18))
    training_runs.make(root, "on", 6, "running", lr=2e-4)
    return root


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    app = pages.create_app(RunsView(folder))
    with web_site.serving(app) as address:
        yield address
    app.extensions["analyses"].close()


def hover(browser: Browser, fraction: float) -> str:
    """Return the first chart's tooltip at a fraction of its horizontal axis."""
    browser.run(
        "(chart => { const box = chart.getBoundingClientRect(); chart.dispatchEvent("
        "new PointerEvent('pointermove', {bubbles: true, clientX: box.left + box.width"
        f" * {fraction}, clientY: box.top + 5}})); }})(document.querySelector('svg[data-chart]'))"
    )
    return browser.text(".plot .readout")


def test_curve_selection_and_tooltip(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/", "document.querySelectorAll('svg[data-chart] polyline').length >= 4")
    box = quiet.run("document.querySelector('svg[data-chart]').getBoundingClientRect().height")
    assert box > 100
    told = hover(quiet, 0.3)
    assert re.match(r"0\.9 .*minutes: ", told)
    assert "long 800" in told
    assert "on 800" in told
    quiet.run("document.querySelector('input[value=on]').click()")
    quiet.wait("!document.querySelector('polyline[data-name=on]')")
    assert "run=long" in quiet.run("location.href")
    quiet.enter("select[name=axis]", "env_steps")
    quiet.wait("document.querySelector('svg[data-chart]').dataset.title === 'env steps'")


def test_page_follows_a_run(quiet: Browser, site: str, folder: Path) -> None:
    quiet.open(f"{site}/run/on", "document.body.innerText.includes('6 iterations')")
    quiet.wait("performance.getEntriesByType('resource').some(r => r.name.endsWith('on.json'))")
    training_runs.append(folder / "on", 7)
    training_runs.played(7).save(folder / "on" / "games" / "iteration-000007.jsonl.gz")
    quiet.wait("document.body.innerText.includes('7 iterations')")
    quiet.wait("document.querySelector('svg.thumbnail').children.length > 0")


def test_the_games_of_a_run_are_played(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/run/long", "document.querySelectorAll('svg.thumbnail .snake').length === 4")
    # Each card stays in its place of the grid, below its caption.
    assert quiet.run("""[...document.querySelectorAll('.games > li')].every(place => place
        .querySelector('a.game').getBoundingClientRect().bottom
        <= place.getBoundingClientRect().bottom + 1)""")
    quiet.run("document.querySelector('a.game').click()")
    quiet.wait("document.querySelectorAll('#board .snake').length === 2")
    assert quiet.text(".brand").strip() == "Runs"


@pytest.mark.parametrize("path", ["/", "/run/long"])
def test_page_fits_a_phone(quiet: Browser, site: str, path: str) -> None:
    quiet.look(390, 800)
    quiet.open(site + path, "document.querySelector('svg[data-chart]')")
    assert quiet.run("document.documentElement.scrollWidth") <= 390
    assert quiet.run("document.querySelector('svg[data-chart]').clientWidth") > 250


def test_report_is_self_contained(quiet: Browser, folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.html"
    alone.write_bytes(report.write(folder / "long").read_bytes())
    quiet.open(alone.as_uri(), "document.querySelectorAll('#board .snake').length === 2")
    quiet.wait("document.getElementById('shown').innerText === 'turn 6'")
    assert re.match("3 .*minutes: long 1,060", hover(quiet, 1.0))
    assert not re.search(r'(src|href)="', alone.read_text())
    loaded = quiet.run("performance.getEntriesByType('resource').map(r => r.name)")
    assert loaded == []

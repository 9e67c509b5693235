"""Tests of the pages and reports of training runs in a browser."""

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
    with web_site.serving(pages.create_app(RunsView(folder))) as address:
        yield address


def legend(browser: Browser, chart: int = 0) -> dict[str, str]:
    """Return the values in the legend of a chart, by name."""
    words = browser.run(f"document.querySelectorAll('.legend')[{chart}].innerText").splitlines()
    return dict(zip(words[::2], words[1::2], strict=True))


def hover(browser: Browser, fraction: float) -> dict[str, str]:
    """Return the legend for the pointer at a fraction of the horizontal axis."""
    browser.run(
        "(plot => { const box = plot.getBoundingClientRect(); plot.dispatchEvent("
        f"new MouseEvent('mousemove', {{clientX: box.left + box.width * {fraction}, "
        "clientY: box.top + 5})); })(document.querySelector('.u-over'))"
    )
    return legend(browser)


def test_curve_selection_and_tooltip(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/", "document.querySelectorAll('line-chart canvas').length >= 4")
    assert quiet.box("line-chart canvas")["height"] > 100
    assert legend(quiet) == {"training minutes": "3", "long": "1,060", "on": "820"}
    told = hover(quiet, 0.31)
    assert float(told.pop("training minutes")) == pytest.approx(0.93, abs=0.01)
    assert told == {"long": "800", "on": "800"}
    quiet.run("document.querySelector('input[value=on]').click()")
    quiet.wait("document.querySelectorAll('.plot:first-child .legend .dot').length === 1")
    assert "run=long" in quiet.run("location.href")
    quiet.enter("select[name=axis]", "env_steps")
    quiet.wait("document.querySelector('.legend').innerText.startsWith('env steps')")


def test_charts_share_range_and_pointer(quiet: Browser, site: str) -> None:
    ranges = "[...document.querySelectorAll('line-chart')].map(({plot}) => plot.scales.x)"
    quiet.open(
        f"{site}/?run=on&run=long", "document.querySelectorAll('line-chart canvas').length >= 4"
    )
    assert {(found["min"], found["max"]) for found in quiet.run(ranges)[:3]} == {(0, 3)}
    hover(quiet, 0.5)
    assert float(legend(quiet, 1)["training minutes"]) == pytest.approx(1.5, abs=0.01)
    quiet.run("document.querySelectorAll('line-chart')[1].focus()")
    quiet.press("ArrowLeft", "ArrowLeft")
    assert float(legend(quiet, 1)["training minutes"]) == pytest.approx(1.17, abs=0.01)
    assert legend(quiet)["long"] == "840"
    quiet.run("document.activeElement.blur()")
    assert legend(quiet)["training minutes"] == "3"


def test_arrow_keys_reach_every_point(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/run/long", "document.querySelectorAll('line-chart canvas').length >= 4")
    found = quiet.run("""(chart => { chart.focus();
        return JSON.parse(chart.dataset.chart).curves[0][3].toReversed().map((y) => {
            chart.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}));
            return [chart.parentElement.querySelectorAll('.legend b')[1].textContent,
                y.toLocaleString('en', {maximumSignificantDigits: 4})]; });
        })(document.querySelector('line-chart'))""")
    assert all(shown == value for shown, value in found), found


def test_a_lost_connection_is_shown_until_it_returns(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/run/long", "document.querySelectorAll('line-chart canvas').length >= 4")
    quiet.run("[window.kept = fetch, window.fetch = () => Promise.reject()].length")
    status = "document.getElementById('live-status').textContent"
    quiet.wait(f"{status} === 'the server does not respond'")
    quiet.run("[window.fetch = kept].length")
    quiet.wait(f"{status} === ''")


SCALE = "document.querySelectorAll('line-chart')[1].plot.scales.x"


def zoom(browser: Browser) -> None:
    """Drag the pointer over the first chart from one half to nine tenths of its width."""
    box = browser.box(".u-over")
    for kind, place in (("Moved", 0.5), ("Pressed", 0.5), ("Moved", 0.7), ("Moved", 0.9),
                        ("Released", 0.9)):  # fmt: skip
        event = {"type": f"mouse{kind}", "button": "left", "buttons": 1, "clickCount": 1}
        event |= {"x": box["left"] + place * box["width"], "y": box["top"] + 20}
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)


def test_zoom_of_a_chart(quiet: Browser, site: str) -> None:
    quiet.open(f"{site}/run/long", "document.querySelectorAll('line-chart canvas').length >= 4")
    zoom(quiet)
    quiet.wait(f"{SCALE}.min > 1.4")
    assert quiet.run(SCALE)["max"] == pytest.approx(2.7, abs=0.05)


def test_charts_follow_the_color_scheme(quiet: Browser, site: str) -> None:
    """The labels of the vertical axis have the color ``--pale`` of the scheme."""
    color = """(canvas => { const counts = {};
        const copy = new OffscreenCanvas(40, 99).getContext('2d', {willReadFrequently: true});
        copy.drawImage(canvas, 0, 0);
        const {data} = copy.getImageData(0, 0, 40, 99);
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) {
            const key = data.slice(i, i + 3).join(); counts[key] = (counts[key] ?? 0) + 1; }
        return Object.entries(counts).sort((a, b) => b[1] - a[1])[0][0];
        })(document.querySelector('line-chart canvas'))"""
    quiet.open(f"{site}/run/long", f"{color} === '102,112,133'")
    quiet.look(dark=True)
    quiet.wait(f"{color} === '148,161,184'")


def test_page_follows_a_run(quiet: Browser, site: str, folder: Path) -> None:
    quiet.open(f"{site}/run/on", "document.body.innerText.includes('6 iterations')")
    quiet.wait("performance.getEntriesByType('resource').some(r => r.name.endsWith('on.json'))")
    zoom(quiet)
    quiet.wait(f"{SCALE}.min > 0")
    zoomed = quiet.run(SCALE)["min"]
    quiet.run("document.querySelector('select[name=span]').focus()")
    training_runs.append(folder / "on", 7)
    training_runs.played(7).save(folder / "on" / "games" / "iteration-000007.jsonl.gz")
    quiet.wait("document.body.innerText.includes('7 iterations')")
    quiet.wait(f"{SCALE}.min === {zoomed}")
    assert quiet.run("document.activeElement.name") == "span"
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
    quiet.open(site + path, "document.querySelector('line-chart canvas')")
    assert quiet.run("document.documentElement.scrollWidth") <= 390
    assert quiet.run("document.querySelector('line-chart canvas').clientWidth") > 250


def test_report_is_self_contained(quiet: Browser, folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.html"
    alone.write_bytes(report.write(folder / "long").read_bytes())
    quiet.open(alone.as_uri(), "document.querySelectorAll('#board .snake').length === 2")
    quiet.wait("document.getElementById('shown').innerText === 'turn 6'")
    assert hover(quiet, 0.31)["long"] == "800"
    assert not re.search(r'(src|href)="', alone.read_text())
    loaded = quiet.run("performance.getEntriesByType('resource').map(r => r.name)")
    assert loaded == []

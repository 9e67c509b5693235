"""Tests of the pages behind a proxy that serves them below a path, such as Jupyter's."""

import contextlib
import re
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from flask import Flask
from werkzeug.exceptions import NotFound

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server.live.app import create_app
from battlesnake_server.runs.run_view import RunsView
from battlesnake_server.web import puzzle_pages, replay_pages, runs_page
from tests.processes import fetch_json
from tests.server import training_runs, web_site
from tests.server.browser import Browser

SITES = ("arena", "watch", "runs", "puzzles")
PREFIX = "/user/ann/proxy/8793"


@dataclass
class Proxy:
    """The address of the site behind the proxy, and the paths outside it that were requested."""

    address: str = ""
    outside: list[str] = field(default_factory=list)


@contextlib.contextmanager
def proxied(app: Flask) -> Iterator[Proxy]:
    """Serve a site below `PREFIX`, and strip the path from its requests."""
    proxy, application = Proxy(), app.wsgi_app

    def strip(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if not path.startswith(f"{PREFIX}/"):
            proxy.outside.append(path)
            return NotFound()(environ, start)
        return application(environ | {"PATH_INFO": path.removeprefix(PREFIX)}, start)

    app.wsgi_app = strip  # type: ignore[assignment,method-assign]
    with web_site.serving(app) as address:
        proxy.address = address + PREFIX
        yield proxy


def site_behind_proxy(name: str, folder: Path) -> contextlib.AbstractContextManager[Proxy]:
    if name == "arena":
        app = web_site.make(folder, token="secret").app
    elif name == "watch":
        training_runs.played(1).save(folder / "one.jsonl.gz")
        training_runs.played(2).save(folder / "deep" / "er" / "two.jsonl.gz")
        app = replay_pages.create_app([folder])
    elif name == "runs":
        training_runs.make(folder / "runs", "a:b", games=(6,))
        app = runs_page.create_app(RunsView(folder / "runs"))
        app.config["TOKEN"] = "secret"
    else:
        board = Board.new(7, 7, 2, game=Game(seed=1))
        board.you_id = board.snakes[0].id
        app = puzzle_pages.create_app([Scenario("one", board, ("up",), "grade 1 of 3")])
    return proxied(app)


def linked(address: str, kind: str, text: str) -> tuple[set[str], set[str]]:
    """Return the addresses of the links, images and scripts, and those that scripts request."""
    if kind == "text/html":
        shown = re.findall(r'(?:href|src)="([^"#][^"]*)"', text)
        requested = re.findall(r'data-[\w-]+="(\.{0,2}/[^"]*)"', text)
    else:
        shown, requested = re.findall(r'^import .*?"([^"]+)";$', text, re.MULTILINE), []
    return {urljoin(address, link) for link in shown}, {urljoin(address, r) for r in requested}


@pytest.mark.parametrize("name", SITES)
def test_every_link_stays_below_the_path(name: str, tmp_path: Path) -> None:
    with site_behind_proxy(name, tmp_path) as proxy:
        found, waiting = set[str](), [f"{proxy.address}/"]
        while waiting:
            address = waiting.pop()
            with urllib.request.urlopen(address, timeout=120) as response:
                kind = response.headers.get_content_type()
                shown, requested = linked(address, kind, response.read().decode(errors="replace"))
            for link in shown | requested:
                assert urlsplit(link).path.startswith(f"{PREFIX}/"), f"{address} leads to {link}"
            new = {link.partition("#")[0] for link in shown} - found
            found |= new
            waiting += sorted(new)
        paths = {urlsplit(address).path.removeprefix(PREFIX) for address in found}
        assert {"/", "/static/style.css", "/static/board.js"} <= paths
        games = {"arena": "/game/", "watch": "/replay/deep/er/", "runs": "/run/a:b"}.get(name, "/")
        assert any(path.startswith(games) for path in paths)
        assert proxy.outside == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/?token=secret", "/"),
        ("/run/a:b?token=secret", "/run/a:b"),
        ("/replays", "/replays/"),
        ("/replays?page=1", "/replays/?page=1"),
    ],
)
def test_redirects_stay_below_the_path(path: str, expected: str, tmp_path: Path) -> None:
    with site_behind_proxy("runs", tmp_path) as proxy:
        with urllib.request.urlopen(proxy.address + path, timeout=120) as response:
            assert response.url == proxy.address + expected
        assert proxy.outside == []


def test_visitors_play_and_watch_behind_a_path(quiet: Browser, tmp_path: Path) -> None:
    with site_behind_proxy("arena", tmp_path) as proxy:
        start = f"{PREFIX}/"
        quiet.open(f"{proxy.address}/?token=secret", f"location.pathname === '{start}'")
        quiet.run("document.querySelector('.nav a[href$=\"/play\"]').click()")
        quiet.wait("document.querySelector('#preview .snake')")
        quiet.run("document.getElementById('start').click()")
        quiet.wait(f"location.pathname.startsWith('{start}game/')")
        quiet.wait("document.querySelector('#board [data-snake]')")
        quiet.press("ArrowUp")
        quiet.wait("parseInt(document.getElementById('turn').textContent) === 1")
        quiet.wait("document.getElementById('as-text').pathname.includes('/turn/')")
        text = quiet.run("fetch(document.getElementById('as-text').href).then(r => r.status)")
        assert text == 200
        quiet.open(f"{proxy.address}/replays/", "document.querySelector('.thumbnail .snake')")
        quiet.run("document.querySelector('a.game').click()")
        quiet.wait("document.querySelector('#board [data-snake]')")
        quiet.open(f"{proxy.address}/live", "document.readyState === 'complete'")
        quiet.open(f"{proxy.address}/lab", "document.querySelector('#board .snake')")
        assert proxy.outside == []


def test_runs_and_live_snake_behind_a_path(quiet: Browser, tmp_path: Path) -> None:
    with site_behind_proxy("runs", tmp_path) as proxy:
        quiet.open(f"{proxy.address}/", "document.querySelector('line-chart canvas')")
        quiet.run("document.querySelector('tbody th a').click()")
        quiet.wait("document.querySelector('svg.thumbnail .snake')")
        quiet.wait("performance.getEntriesByType('resource').some(r => r.name.endsWith('.json'))")
        quiet.run("document.querySelector('a.game').click()")
        quiet.wait("document.querySelector('#board [data-snake]')")
        assert proxy.outside == []
    with proxied(create_app({"SNAKE": "hungry"})) as proxy:
        quiet.open(f"{proxy.address}/", "document.querySelectorAll('#board .snake').length === 2")
        assert quiet.text("#address") == proxy.address
        assert proxy.outside == []
        assert fetch_json(f"{proxy.address}/now")["moves"]["num_moves"] == 0

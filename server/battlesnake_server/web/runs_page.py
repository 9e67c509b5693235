"""The page of ``battlesnake-gym runs --web``: runs in a table, their curves, their games, live.

Nothing is loaded and nothing is trained here: the pages read what runs leave in their folders, and
read on when a visitor looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template, request

from battlesnake_server.address_policy import open_listener
from battlesnake_server.replay_viewer.replay_library import Library
from battlesnake_server.runs import charts, run_view
from battlesnake_server.runs.run_view import Run, Runs, differing, left, state
from battlesnake_server.web import pages, replay_pages

_MOST_CARDS = 12
"""Games of a run that are shown with a picture."""

_AXIS, _SPAN = "minutes", 5

blueprint = Blueprint("runs", __name__)


class Shown(NamedTuple):
    """A game of a run, with what the list of games shows of it."""

    game: run_view.RecordedGame
    card: replay_pages.ReplayCard


def create_app(runs: Runs) -> Flask:
    """The application over a folder of runs."""
    app = pages.application("Runs", blueprint)
    replay_pages.mount(app, [runs.folder])
    app.extensions["runs"] = runs
    app.extensions["runs lock"] = threading.Lock()
    return app


@blueprint.get("/")
def index() -> str:
    """All runs in a table, and the curves of those that were chosen."""
    with _looking() as runs:
        names = request.args.getlist("run")
        chosen = [run for run in runs if run.name in names] or runs
        chosen = chosen[: charts.MAX_RUNS]
        counted = ((run.name, charts.deaths(run, _axis())) for run in chosen)
        return render_template(
            "runs.html",
            runs=runs,
            chosen=[run.name for run in chosen],
            differ=differing(runs),
            deaths=[(name, found) for name, found in counted if found is not None],
            most=charts.MAX_RUNS,
            **_drawn(chosen),
        )


@blueprint.get("/runs.json")
def as_json() -> Response:
    """The table for scripts; it changes whenever the page does."""
    with _looking() as runs:
        return jsonify([run.to_json() for run in runs])


@blueprint.get("/run/<name>")
def show(name: str) -> str:
    """One run: its curves, strength, games and settings."""
    with _looking() as runs:
        run = _find(runs, name)
        games = run.games()
        return render_template(
            "run.html",
            run=run,
            deaths=charts.deaths(run, _axis()),
            shown=_cards(games),
            without=[game.iteration for game in games if game.path is None],
            **_drawn([run]),
        )


@blueprint.get("/run/<name>.json")
def run_as_json(name: str) -> Response:
    """One run for scripts."""
    with _looking() as runs:
        run = _find(runs, name)
        return jsonify(run.to_json() | {"games": [game.iteration for game in run.games()]})


def _cards(games: list[run_view.RecordedGame]) -> list[Shown]:
    library = cast(Library, current_app.extensions["library"])
    entries = {entry.path: entry for entry in library.entries()}
    known = [game for game in games if game.path in entries][:_MOST_CARDS]
    cards = replay_pages.cards([entries[game.path] for game in known if game.path is not None])
    return [Shown(game, card) for game, card in zip(known, cards, strict=True)]


@contextmanager
def _looking() -> Iterator[list[Run]]:
    """All runs as they are now; one request at a time reads on in their files."""
    with current_app.extensions["runs lock"]:
        yield cast(Runs, current_app.extensions["runs"]).refresh()


def _find(runs: list[Run], name: str) -> Run:
    return next((run for run in runs if run.name == name), None) or abort(404)


def _drawn(runs: list[Run]) -> dict[str, Any]:
    """What both pages show of runs: their curves, as they were asked for, and their state."""
    axis, span = _axis(), _span()
    asked = {"axis": axis, "span": span, "axes": charts.AXES, "spans": charts.SPANS}
    return {"charts": charts.charts(runs, axis, span), "state": state, "left": left, **asked}


def _axis() -> str:
    asked = request.args.get("axis", _AXIS)
    return asked if asked in charts.AXES else _AXIS


def _span() -> int:
    asked = request.args.get("span", _SPAN, int)
    return asked if asked in charts.SPANS else _SPAN


def serve(runs: Runs, port: int, *, open_browser: bool) -> int:
    """Show the page on this machine until interrupted; raises ``ValueError`` for a taken port."""
    listener = open_listener("127.0.0.1", port)
    what = f"{len(runs.refresh())} runs"
    return pages.show(create_app(runs), listener, what, open_browser=open_browser)

"""Pages of ``battlesnake-gym runs --web``: runs, curves and recorded games.

The pages load new data on each request, and never write to the run directories.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template, request

from battlesnake_gym.common.command_line import plural
from battlesnake_server.runs import charts, run_view
from battlesnake_server.runs.run_view import RunsView, RunView, differing_settings
from battlesnake_server.web import pages, replay_pages

_MAX_CARDS = 12
"""Maximum number of a run's games that are shown as cards."""

_DEFAULT_AXIS, _DEFAULT_SPAN = "minutes", 5

blueprint = Blueprint("runs", __name__)


def create_app(runs: RunsView) -> Flask:
    """Create the application for a directory of runs."""
    app = pages.create_application("Runs", blueprint)
    replay_pages.add_replay_pages(app, [runs.directory])
    app.extensions["runs"] = runs
    app.extensions["runs lock"] = threading.Lock()
    return app


@blueprint.get("/")
def index() -> str:
    """Render the table of all runs, and the curves of the selected runs."""
    with _refreshed_runs() as runs:
        names = request.args.getlist("run")
        chosen = [run for run in runs if run.name in names] or runs
        chosen = chosen[: charts.MAX_RUNS]
        return render_template(
            "runs.html",
            runs=runs,
            chosen=[run.name for run in chosen],
            differ=differing_settings(runs),
            max_runs=charts.MAX_RUNS,
            **_chart_variables(chosen),
        )


@blueprint.get("/runs.json")
def as_json() -> Response:
    """Return the table as JSON.

    The page updates the table when the JSON changes.
    """
    with _refreshed_runs() as runs:
        return jsonify([run.to_dict() for run in runs])


@blueprint.get("/run/<name>")
def show(name: str) -> str:
    """Render the curves, the strength, the games and the settings of a run."""
    with _refreshed_runs() as runs:
        run = _find_run(runs, name)
        games = run.games()
        return render_template(
            "run.html",
            run=run,
            shown=_load_cards(games),
            unrecorded=[game.iteration for game in games if game.path is None],
            **_chart_variables([run]),
        )


@blueprint.get("/run/<name>.json")
def run_as_json(name: str) -> Response:
    """Return one run as JSON."""
    with _refreshed_runs() as runs:
        run = _find_run(runs, name)
        return jsonify(run.to_dict() | {"games": [game.iteration for game in run.games()]})


def _load_cards(
    games: list[run_view.RecordedGame],
) -> list[tuple[run_view.RecordedGame, replay_pages.ReplayCard]]:
    """Return the latest recorded games of a run with their cards."""
    entries = {entry.path: entry for entry in replay_pages.current_library().entries()}
    known = [game for game in games if game.path in entries][:_MAX_CARDS]
    cards = replay_pages.load_cards([entries[game.path] for game in known if game.path is not None])
    return list(zip(known, cards, strict=True))


@contextmanager
def _refreshed_runs() -> Iterator[list[RunView]]:
    """Refresh all runs, and yield their views.

    Only one request at a time reads the files.
    """
    with current_app.extensions["runs lock"]:
        yield cast(RunsView, current_app.extensions["runs"]).refresh()


def _find_run(runs: list[RunView], name: str) -> RunView:
    """Return the run with this name, or respond with status 404."""
    return next((run for run in runs if run.name == name), None) or abort(404)


def _chart_variables(runs: list[RunView]) -> dict[str, Any]:
    """Return the template variables of the charts, which both pages use.

    The query parameters ``?axis=`` and ``?span=`` select the axis and the moving average.
    """
    axis = request.args.get("axis")
    span = request.args.get("span", type=int)
    axis = axis if axis in charts.AXES else _DEFAULT_AXIS
    span = span if span in charts.SMOOTHING_SPANS else _DEFAULT_SPAN
    deaths = [(run.name, charts.build_cause_chart(run, axis)) for run in runs]
    return {
        "axis": axis,
        "span": span,
        "axes": charts.AXES,
        "spans": charts.SMOOTHING_SPANS,
        "charts": charts.build_charts(runs, axis, span),
        "deaths": [(name, chart) for name, chart in deaths if chart is not None],
    }


def serve(runs: RunsView, options: argparse.Namespace) -> int:
    """Serve the pages until interrupted.

    Args:
        runs: Runs to show.
        options: Parsed options of the command ``runs``.

    Raises:
        ValueError: If the port is in use.
    """
    return pages.serve(create_app(runs), plural(len(runs.refresh()), "run"), options)

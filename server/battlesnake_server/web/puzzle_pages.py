"""The page on which puzzles, positions with one saving move, are solved."""

from __future__ import annotations

import json

from flask import Blueprint, Flask, current_app, render_template

from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json
from battlesnake_server.web.pages import application

blueprint = Blueprint("puzzles", __name__)


def create_app(of: list[Scenario]) -> Flask:
    """The page on which these puzzles are solved by hand."""
    app = application("Puzzles", blueprint)
    app.config["PUZZLES"] = of
    return app


def describe(scenario: Scenario) -> dict[str, object]:
    """A puzzle as the page reads it."""
    board = scenario.board
    you = next(i for i, snake in enumerate(board.snakes) if snake.id == board.you.id)
    return {
        **replay_json.header(board),
        "frame": replay_json.frame(board),
        "you": you,
        "name": scenario.name,
        "note": scenario.note,
        "allowed": list(scenario.allowed),
    }


@blueprint.get("/")
def index() -> str:
    """All puzzles, one after the other."""
    puzzles = json.dumps([describe(scenario) for scenario in current_app.config["PUZZLES"]])
    return render_template("puzzles.html", puzzles=puzzles.replace("<", "\\u003c"), moves=MOVES)

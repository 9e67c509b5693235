"""Page of puzzles: positions with exactly one move that does not lose."""

from __future__ import annotations

import json

from flask import Blueprint, Flask, current_app, render_template

from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json
from battlesnake_server.web.pages import create_application

blueprint = Blueprint("puzzles", __name__)


def create_app(puzzles: list[Scenario]) -> Flask:
    """Create the application of the puzzles page."""
    app = create_application("Puzzles", blueprint)
    app.config["PUZZLES"] = puzzles
    return app


def puzzle_to_dict(scenario: Scenario) -> dict[str, object]:
    """Return a puzzle in the page's JSON format."""
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
    """Render the page with all puzzles."""
    puzzles = json.dumps([puzzle_to_dict(scenario) for scenario in current_app.config["PUZZLES"]])
    return render_template("puzzles.html", puzzles=puzzles.replace("<", "\\u003c"), moves=MOVES)

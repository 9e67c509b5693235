"""Page of puzzles: positions with exactly one move that does not lose."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template

from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.analysis.loss_analysis import CAUSE_PHRASES
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json
from battlesnake_server.web.pages import create_application

blueprint = Blueprint("puzzles", __name__)

_MAX_TURNS = 30
"""Maximum number of turns that are played out after a reply."""

_NODES = 2000
"""Node limit per snake and turn of the moves that are played out."""


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


@blueprint.get("/puzzle/<int:number>/<move>")
def reply(number: int, move: str) -> Response:
    """Return the frames after a reply to a puzzle, and the reason why the move loses or not."""
    puzzles = current_app.config["PUZZLES"]
    if number >= len(puzzles) or move not in MOVES:
        abort(404)
    return jsonify(play_out(puzzles[number], move))


def play_out(puzzle: Scenario, move: str) -> dict[str, Any]:
    """Play ``move`` and then the search's moves of all snakes, until the snake or the game ends."""
    board, you, analyzer = (
        puzzle.board.without_seed(),
        puzzle.board.you.id,
        PositionAnalyzer(_NODES),
    )
    frames: list[Any] = []
    while board.snake(you).alive and not board.is_over() and len(frames) < _MAX_TURNS:
        moves = {snake.id: analyzer.best_move(board, snake.id) for snake in board.living}
        board.advance(moves if frames else {**moves, you: move})
        frames.append(replay_json.frame(board))
    snake = board.snake(you)
    name = snake.name or snake.id
    if snake.alive:
        reason = f"{name} wins" if board.is_over() else f"{name} survives {len(frames)} turns"
    else:
        cause = CAUSE_PHRASES.get(snake.eliminated_cause, snake.eliminated_cause)
        reason = f"{name} {cause} after {len(frames)} turn{'s' if len(frames) > 1 else ''}"
    return {"frames": frames, "reason": reason}

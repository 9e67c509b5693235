"""Page of puzzles: positions with exactly one move that does not lose."""

from __future__ import annotations

import json
from typing import Any

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, render_template

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules.state import MOVES
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.analysis.puzzles import PuzzleGame
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json
from battlesnake_server.web.pages import create_application, query_integer

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


def render_site_page(games: list[PuzzleGame]) -> str:
    """Render the page of the documentation site, whose browsers play out the replies."""
    with create_app([]).test_request_context():
        return _render(
            [
                _puzzle_to_dict(puzzle.to_scenario(game.name))
                | {"source": {"seed": game.seed, "moves": game.moves_before(puzzle.board.turn)}}
                for game in games
                for puzzle in game.load_puzzles()
            ],
            on_site=True,
        )


def _puzzle_to_dict(scenario: Scenario) -> dict[str, object]:
    """Return a puzzle in the page's JSON format."""
    board = scenario.board
    you = next(i for i, snake in enumerate(board.snakes) if snake.id == board.you.id)
    return {
        **replay_json.position(board),
        "you": you,
        "name": scenario.name,
        "note": scenario.note,
        "allowed": list(scenario.allowed),
    }


def _render(puzzles: list[dict[str, object]], *, on_site: bool = False) -> str:
    """Render the page with puzzles in the page's JSON format."""
    text = json.dumps(puzzles).replace("<", "\\u003c")
    return render_template("puzzles.html", puzzles=text, moves=MOVES, on_site=on_site)


@blueprint.get("/")
def index() -> str:
    """Render the page with all puzzles."""
    return _render([_puzzle_to_dict(scenario) for scenario in current_app.config["PUZZLES"]])


@blueprint.get("/puzzle/<int:number>/<move>")
def reply(number: int, move: str) -> Response:
    """Return the frames after a reply to a puzzle, at most ``?turns=``."""
    puzzles = current_app.config["PUZZLES"]
    if number >= len(puzzles) or move not in MOVES:
        abort(404)
    turns = query_integer("turns", _MAX_TURNS, minimum=1, maximum=_MAX_TURNS)
    return jsonify(_play_out(puzzles[number], move, turns))


def _play_out(puzzle: Scenario, move: str, max_turns: int) -> list[dict[str, Any]]:
    """Play ``move`` and then the search's moves of all snakes, until the snake or the game ends."""
    board, you, first = puzzle.board.without_seed(), puzzle.board.you.id, puzzle.board.turn
    analyzer = PositionAnalyzer(_NODES)

    def choose(board: Board, seconds: float | None = None) -> Decision:
        forced = board.turn == first and board.you.id == you
        return Decision(move if forced else analyzer.best_move(board, board.you.id))

    players = dict.fromkeys((snake.id for snake in board.living), choose)
    frames = []
    for _ in snakes.play(board, players, max_turns=first + max_turns):
        frames.append(replay_json.frame(board))
        if not board.snake(you).alive:
            break
    return frames

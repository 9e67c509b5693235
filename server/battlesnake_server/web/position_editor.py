"""Page ``/lab``: edit a position, query a snake's move, and save a scenario."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from typing import Any

from flask import Blueprint, Response, abort, jsonify, render_template, request

from battlesnake_gym import rules
from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.common.untrusted_text import parse_json
from battlesnake_gym.rules import MAX_HEALTH, MOVES, Snake
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json
from battlesnake_server.replay_viewer import what_if
from battlesnake_server.web.game_manager import current_arena
from battlesnake_server.web.games_page import load_game
from battlesnake_server.web.pages import error_response, parse_body, query_integer

blueprint = Blueprint("lab", __name__)
blueprint.register_error_handler(ValueError, error_response)

_MAX_EDITOR_BOARD_SIZE = 25
_MAX_EDITOR_SNAKES = 16
_MAX_TIME_BUDGET_MS = 5000
"""Maximum time budget of a queried snake, in milliseconds."""

EXAMPLE_BOARD = """
. . . . . . . . . . .
. . . . . . . . . . .
. . * . . . . . . . .
. . . . . . . . . . .
. > > > v . . . * . .
. ^ . . A . . . . . .
. ^ . . . . . v . . .
. . . . . . B < . . .
. . . . . . . . . . .
. . * . . . . . . . .
. . . . . . . . . . .
A: health=60 you
B: health=90
"""


@blueprint.get("/lab")
def index() -> str:
    """Render the editor with an example or with a position of a game.

    ``?game=``, ``?turn=`` and ``?if=`` (see `what_if`) select the position; ``?you=`` selects the
    snake.
    """
    try:
        board = _load_requested_board()
    except (FileNotFoundError, ValueError) as error:
        abort(404, str(error))
    return render_template(
        "arena_position_editor.html",
        board=_board_to_dict(board),
        descriptions=current_arena().roster.descriptions,
        allow_urls=current_arena().roster.allow_urls,
        rulesets=list(rules.RULESETS),
        builtin=[(i, scenario.name) for i, scenario in enumerate(_load_builtin_scenarios())],
    )


@blueprint.get("/lab/shipped/<int:number>")
def builtin(number: int) -> Response:
    """Return a built-in scenario in the editor's JSON format."""
    known = _load_builtin_scenarios()
    if number >= len(known):
        return error_response(f"number must be less than {len(known)}, got {number}", 404)
    return jsonify(_scenario_to_dict(known[number]))


@blueprint.post("/lab/read")
def read() -> Response:
    """Parse a scenario, a text board, or the body of a ``/move`` request.

    The body of the request is ``{"text": ...}``.
    """
    try:
        text = json_fields.string(parse_body(), "text", "")
        return jsonify(_parse_text(text))
    except (TypeError, RecursionError) as error:
        return error_response(error)


@blueprint.post("/lab/ask")
def query() -> Response:
    """Return the move of ``snake`` on ``board`` within ``milliseconds``.

    ``board`` is the body of a ``/move`` request.
    """
    sent = parse_body()
    entrant = current_arena().roster.find(sent.get("snake"), "snake")
    milliseconds = json_fields.bounded_integer(
        sent, "milliseconds", "", 10, _MAX_TIME_BUDGET_MS, default=200
    )
    board = _parse_board(sent.get("board"), milliseconds)
    with what_if.acquire_search_slot():
        started = time.perf_counter()
        decision = entrant.decide(board, milliseconds / 1000)
        elapsed_ms = 1000 * (time.perf_counter() - started)
    answer = {"move": decision.move, "inferred": False, **replay_json.decision_to_dict(decision)}
    return jsonify(next=answer, shout=decision.shout, milliseconds=round(elapsed_ms, 1))


@blueprint.post("/lab/scenario")
def scenario() -> Response:
    """Return the text of a scenario file.

    The fields of the request are ``board``, ``name``, ``note`` and ``allowed``.
    """
    sent = parse_body()
    name, note = (_parse_line(sent, key) for key in ("name", "note"))
    allowed = tuple(map(str, json_fields.items(sent, "allowed", "")))
    board = _parse_board(sent.get("board"), 500)
    text = Scenario(name or "unnamed", board, allowed, note).to_text()
    scenarios.from_text(text)  # Return only text that `from_text` accepts.
    return Response(text, mimetype="text/plain")


def _board_to_dict(board: Board) -> dict[str, Any]:
    """Return a board in the editor's JSON format.

    The object contains the header and the frame in the player's JSON format. ``you`` is the id of
    the selected snake. ``newcomers`` are the customizations of snakes that the visitor may add.
    """
    newcomers = [Snake("", [])] * _MAX_EDITOR_SNAKES
    return {
        **replay_json.position(board),
        "damage": board.game.settings.hazard_damage_per_turn,
        "you": board.you_id or next((snake.id for snake in board.living), None),
        "newcomers": replay_json.customizations_to_dicts([*board.snakes, *newcomers])[
            len(board.snakes) :
        ],
    }


def _scenario_to_dict(scenario: Scenario) -> dict[str, Any]:
    """Convert a scenario to the editor's JSON format."""
    return {
        **_board_to_dict(scenario.board),
        "scenario": {
            "name": scenario.name, "note": scenario.note, "allowed": list(scenario.allowed),
        },
    }  # fmt: skip


def _load_builtin_scenarios() -> list[Scenario]:
    """Load the built-in scenarios."""
    return [scenario for path in scenarios.BUILTIN_SCENARIOS for scenario in scenarios.load(path)]


def _load_requested_board() -> Board:
    """Return the position of the query parameters, or the example."""
    game_id = request.args.get("game")
    if game_id is None:
        return Board.from_text(EXAMPLE_BOARD)
    boards = load_game(game_id).boards_until(query_integer("turn", 0), what_if.MAX_SEEN_TURNS)
    board = what_if.play_branch(boards, request.args.get("if", ""))[0][-1]
    you = request.args.get("you")
    if you is not None:
        board.you_id = board.snake(you).id
    return board


def _parse_text(text: str) -> dict[str, Any]:
    """Parse a position or a scenario, and return the editor's JSON."""
    if text.lstrip().startswith(("{", "[")):
        value = parse_json(text)
        if isinstance(value, dict) and "allowed" not in value:
            return _board_to_dict(_check_reachable(Board.from_api(value)))
        found = scenarios.from_json(value)
    elif any(line.startswith("scenario:") for line in text.splitlines()):
        found = scenarios.from_text(text)
    else:
        return _board_to_dict(_check_reachable(Board.from_text(text)))
    if not found:
        raise BoardError("text contains no scenario")
    _check_reachable(found[0].board)
    return _scenario_to_dict(found[0])


def _parse_board(sent: object, milliseconds: int) -> Board:
    """Parse and check the field ``board`` of a request."""
    request_body = dict(json_fields.mapping(sent, "board"))
    game = dict(json_fields.child(request_body, "game", ""))
    # Each request needs a new game id, because remote snakes may store state by game id.
    request_body["game"] = {**game, "id": f"lab-{uuid.uuid4()}", "timeout": milliseconds}
    board = _check_reachable(Board.from_api(request_body))
    if board.you_id is None or not board.you.alive:
        raise BoardError("you must be a living snake of the board; draw one and select it")
    return board


def _check_reachable(board: Board) -> Board:
    """Return ``board`` if a game can reach the position.

    Raises:
        BoardError: If no game can reach the position.
    """
    for key, side in (("width", board.width), ("height", board.height)):
        if side > _MAX_EDITOR_BOARD_SIZE:
            raise BoardError(f"board.{key} must be at most {_MAX_EDITOR_BOARD_SIZE}, got {side}")
    if len(board.snakes) > _MAX_EDITOR_SNAKES:
        raise BoardError(
            f"board.snakes: at most {_MAX_EDITOR_SNAKES} allowed, got {len(board.snakes)}"
        )
    if board.game.ruleset not in rules.RULESETS:
        known = ", ".join(rules.RULESETS)
        raise BoardError(
            f"game.ruleset.name must be one of {known}, got {format_value(board.game.ruleset)}"
        )
    for i, snake in enumerate(board.snakes):
        place = f"board.snakes[{i}]"
        if not 1 <= snake.health <= MAX_HEALTH:
            raise BoardError(f"{place}.health must be 1 to {MAX_HEALTH}, got {snake.health}")
        _check_body(board, snake.body, place)
    _check_cells(board, board.food, "board.food", once=True)
    _check_cells(board, board.hazards, "board.hazards", once=False)
    return board


def _check_body(board: Board, cells: list[tuple[int, int]], place: str) -> None:
    """Raise `BoardError` if a body has gaps or cells off the board."""
    if len(cells) > board.width * board.height * 2:
        raise BoardError(f"{place}.body has {len(cells)} cells, more than the board can hold")
    for i, cell in enumerate(cells):
        if not board.inside(cell):
            raise BoardError(f"{place}.body[{i}] is off the board: {cell}")
        if i == 0 or cell == cells[i - 1]:
            continue
        if cell not in {board.target(cells[i - 1], move) for move in MOVES}:
            raise BoardError(f"{place}.body[{i}] does not touch the cell before it: {cell}")


def _check_cells(board: Board, cells: list[tuple[int, int]], place: str, *, once: bool) -> None:
    """Raise `BoardError` if cells are off the board or occur too often."""
    counts = Counter(cells)
    for i, cell in enumerate(cells):
        # Some maps store state in hazards that lie off the board. Food is always on the board.
        if once and not board.inside(cell):
            raise BoardError(f"{place}[{i}] is off the board: {cell}")
        if once and counts[cell] > 1:
            raise BoardError(f"{place}[{i}] occurs twice: {cell}")
        if counts[cell] > 255:
            raise BoardError(f"{place}[{i}] occurs more than 255 times: {cell}")


def _parse_line(sent: dict[str, Any], key: str) -> str:
    """Return a single-line text field of a request."""
    value = json_fields.string(sent, key, "", "").strip()
    if len(value) > 200 or not value.isprintable():
        raise BoardError(
            f"{key} must be one line of at most 200 characters, got {format_value(value)}"
        )
    return value

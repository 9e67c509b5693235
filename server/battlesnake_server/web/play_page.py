"""Page ``/play``: start a game between snakes, or play against snakes."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, render_template, request, url_for

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules import MOVES
from battlesnake_server import replay_json
from battlesnake_server.web.game_manager import (
    DEFAULT_PAGE_TURNS,
    MAX_PAGE_TURNS,
    GameRequest,
    current_arena,
)
from battlesnake_server.web.pages import error_response, parse_body

blueprint = Blueprint("play", __name__)

_BOARD_SIZES = (7, 9, 11, 13, 15, 19, 25)
_TURN_LIMITS = (100, 300, DEFAULT_PAGE_TURNS, 1000, MAX_PAGE_TURNS)


@blueprint.get("/play")
def index() -> str:
    """Render the form for a new game."""
    maps = rules.known_maps()
    return render_template(
        "arena_play.html",
        allow_urls=current_arena().roster.allow_urls,
        rulesets=list(rules.RULESETS),
        maps=maps.values(),
        map_descriptions={name: known.description for name, known in maps.items()},
        sizes=_BOARD_SIZES,
        descriptions=current_arena().roster.descriptions,
        opponents=request.args.getlist("against") or ["hungry"],
        turns=_TURN_LIMITS,
        default_turns=DEFAULT_PAGE_TURNS,
    )


@blueprint.post("/play")
def start() -> tuple[Response, int]:
    """Start the requested game, and return the address of the game's page."""
    game_request = GameRequest.from_json(parse_body(), current_arena().roster)
    game = current_arena().start_game(game_request, request.remote_addr or "")
    key = game.key if game.keyboard_player else None
    page = url_for("games.show", game_id=game.id, key=key)
    return jsonify(game=game.id, page=page), 201


@blueprint.post("/play/preview")
def preview() -> Response:
    """Return the first position of the requested game.

    The default seed is 1.
    """
    game_request = GameRequest.from_json({"seed": 1, **parse_body()}, current_arena().roster)
    spec, game = game_request.game_spec, game_request.build_game("preview")
    board = Board.new(spec.width, spec.height, game_request.labels, game=game)
    return jsonify(replay_json.position(board))


@blueprint.post("/game/<game_id>/stop")
def stop(game_id: str) -> Response:
    """Stop a game that a visitor started."""
    parse_body()
    return jsonify(stopped=current_arena().stop_game(game_id))


@blueprint.post("/game/<game_id>/press")
def press(game_id: str) -> Response:
    """Set the next move of a keyboard player.

    The body is ``{"key": ..., "move": "up"}``; ``key`` is the secret of the game.
    """
    sent = parse_body()
    move = sent.get("move")
    if not isinstance(move, str) or move not in MOVES:
        raise BoardError(f"move must be one of {', '.join(MOVES)}, got {format_value(move)}")
    arena = current_arena()
    player = arena.find_keyboard_player(game_id, str(sent.get("key")))
    if player is not None:
        player.press(move)
    elif arena.is_running(game_id):
        return error_response("key does not belong to a player of this game", 403)
    return jsonify(over=player is None)  # A key may arrive after the last turn.

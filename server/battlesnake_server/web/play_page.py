"""The page ``/play``: start a game between snakes, or sit down at one."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, render_template, request, url_for

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules import MOVES
from battlesnake_server import replay_json
from battlesnake_server.web.context import arena
from battlesnake_server.web.game_manager import (
    DEFAULT_PAGE_TURNS,
    MAX_PAGE_TURNS,
    GameRequest,
    TooManyGamesError,
)
from battlesnake_server.web.pages import body, error_response

blueprint = Blueprint("play", __name__)

_SIZES = (7, 9, 11, 13, 15, 19, 25)
_TURNS = (100, 300, DEFAULT_PAGE_TURNS, 1000, MAX_PAGE_TURNS)


@blueprint.get("/play")
def index() -> str:
    """The form for a new game."""
    maps = rules.known_maps()
    return render_template(
        "arena_play.html",
        guests=arena().roster.guests,
        allow_urls=arena().roster.allow_urls,
        rulesets=list(rules.RULESETS),
        maps=maps.values(),
        map_abouts={name: known.description for name, known in maps.items()},
        sizes=_SIZES,
        about={guest.name: guest.description for guest in arena().roster.guests},
        against=request.args.getlist("against") or ["hungry"],
        turns=_TURNS,
        usual_turns=DEFAULT_PAGE_TURNS,
    )


@blueprint.post("/play")
def start() -> tuple[Response, int] | Response:
    """Begin the game of a `matches.GameRequest`; the answer has the address of its ``page``."""
    try:
        wish = GameRequest.read(body(), arena().roster)
        match = arena().hall.start(wish, request.remote_addr or "")
    except ValueError as error:
        return error_response(error)
    except TooManyGamesError as error:
        return error_response(error, 503)
    key = match.key if match.human else None
    page = url_for("games.show", game_id=match.id, key=key)
    return jsonify(game=match.id, page=page), 201


@blueprint.post("/play/preview")
def preview() -> Response:
    """How a game would begin that is asked for as in `start`, with some seed."""
    try:
        wish = GameRequest.read({"seed": 1, **body()}, arena().roster)
    except ValueError as error:
        return error_response(error)
    board = Board.new(wish.width, wish.height, wish.labels, game=wish.game("preview"))
    return jsonify({**replay_json.header(board), "frame": replay_json.frame(board)})


@blueprint.post("/game/<game_id>/stop")
def stop(game_id: str) -> Response:
    """End a game that was started here."""
    try:
        body()
    except ValueError as error:
        return error_response(error)
    return jsonify(stopped=arena().hall.stop(game_id))


@blueprint.post("/game/<game_id>/press")
def press(game_id: str) -> Response:
    """Steer a snake: ``{"key": ..., "move": "up"}`` with the key that `start` gave."""
    try:
        sent = body()
        move = sent.get("move")
        if not isinstance(move, str) or move not in MOVES:
            raise BoardError(f"move must be one of {', '.join(MOVES)}, got {format_value(move)}")
    except ValueError as error:
        return error_response(error)
    hall = arena().hall
    human = hall.human(game_id, str(sent.get("key")))
    if human is not None:
        human.press(move)
    elif hall.is_running(game_id):
        return error_response("key is not that of a seat in this game", 403)
    return jsonify(over=human is None)  # a key may well come after the last turn

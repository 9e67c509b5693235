"""The protocol of the official board's engine, so that the official viewer shows local games.

``GET /games/<id>`` tells of a game, the websocket ``/games/<id>/events`` sends its frames while it
is played or after, ``GET /games/<id>/frames`` gives them a page at a time. Keys are written as that
engine writes them. Any page of any site may read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, jsonify, request
from flask_sock import Sock
from simple_websocket import ConnectionClosed, Server

from battlesnake_gym import looks
from battlesnake_gym.board import Board
from battlesnake_gym.replay import ReplayError
from battlesnake_gym.rules import RULESETS
from battlesnake_gym.rules.state import Point, Snake
from server.web.context import refusal
from server.web.course import Course
from server.web.games import MissingError, course

MOST_FRAMES = 1000
"""Frames that one answer holds at most."""

WAIT = 5.0

blueprint = Blueprint("engine", __name__)
sockets = Sock()


@blueprint.get("/games/<game_id>")
def game(game_id: str) -> Response:
    """What stays the same during the game, and whether it is over."""
    try:
        found = course(game_id)
    except (MissingError, ReplayError) as error:
        return refusal(error, 404)
    return jsonify(Game=describe(found), LastFrame=frame(found.boards[-1]))


@blueprint.get("/games/<game_id>/frames")
def frames(game_id: str) -> Response:
    """The frames from ``?offset=`` on (below 0: from the end), at most ``?limit=``."""
    try:
        boards = course(game_id).boards[:]
    except (MissingError, ReplayError) as error:
        return refusal(error, 404)
    offset = request.args.get("offset", 0, int)
    limit = min(max(0, request.args.get("limit", 100, int)), MOST_FRAMES)
    start = max(0, len(boards) + offset) if offset < 0 else offset
    shown = boards[start : start + limit]
    return jsonify(Count=len(shown), Frames=[frame(board) for board in shown])


def events(socket: Server, game_id: str) -> None:
    """Every frame as it comes, then the end."""
    try:
        found = course(game_id)
    except (MissingError, ReplayError) as error:
        socket.close(1008, str(error)[:100])
        return
    try:
        for event in _events(found):
            socket.send(json.dumps(event))
        socket.close()
    except ConnectionClosed:
        return  # the viewer has seen enough


sockets.route("/games/<game_id>/events", bp=blueprint)(events)


def _events(found: Course) -> Iterator[dict[str, Any]]:
    sent = 0
    while True:
        over = found.over
        for board in found.boards[sent:]:
            yield {"Type": "frame", "Data": frame(board)}
            sent += 1
        if over:
            break
        found.wait(sent, WAIT)
    yield {"Type": "game_end", "Data": describe(found)}


def describe(found: Course) -> dict[str, Any]:
    """The ``Game`` object."""
    board = found.boards[0]
    game, settings = board.game, board.game.settings
    return {
        "ID": game.id,
        "Status": "complete" if found.over else "running",
        "Width": board.width,
        "Height": board.height,
        "Ruleset": {
            "name": game.ruleset,
            "foodSpawnChance": str(settings.food_spawn_chance),
            "minimumFood": str(settings.minimum_food),
            "hazardDamagePerTurn": str(settings.hazard_damage_per_turn),
            "damagePerTurn": str(settings.hazard_damage_per_turn),
            "shrinkEveryNTurns": str(settings.shrink_every_n_turns),
            "map": game.map,
        },
        "SnakeTimeout": game.timeout,
        "Source": game.source,
        "RulesetName": game.ruleset,
        "RulesStages": [stage.name for stage in RULESETS.get(game.ruleset, ())],
        "Map": game.map,
    }


def frame(board: Board) -> dict[str, Any]:
    """One position."""
    return {
        "Turn": board.turn,
        "Snakes": [
            _snake(snake, colour)
            for snake, colour in zip(board.snakes, looks.colours(board.snakes), strict=True)
        ],
        "Food": _points(board.food),
        "Hazards": _points(board.hazards),
    }


def _snake(snake: Snake, colour: str) -> dict[str, Any]:
    death = {
        "Cause": snake.eliminated_cause,
        "Turn": snake.eliminated_on,
        "EliminatedBy": snake.eliminated_by,
    }
    return {
        "ID": snake.id,
        "Name": snake.name or snake.id,
        "Body": _points(snake.body),
        "Health": snake.health,
        "Death": None if snake.alive else death,
        "Color": colour,
        "HeadType": snake.customizations.get("head", "default"),
        "TailType": snake.customizations.get("tail", "default"),
        "Latency": snake.latency,
        "Shout": snake.shout,
        "Squad": "",
        "Author": "",
        "StatusCode": 200,
        "Error": "",
        "IsBot": False,
        "IsEnvironment": False,
    }


def _points(cells: list[Point]) -> list[dict[str, int]]:
    return [{"X": x, "Y": y} for x, y in cells]

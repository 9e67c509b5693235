"""The protocol of the official board's engine, so that the official viewer shows local games.

``GET /games/<id>`` describes a game, the websocket ``/games/<id>/events`` sends its frames while it
is played or after, ``GET /games/<id>/frames`` gives them a page at a time. Keys are written as the
official board and its exporter declare them. Any page of any site may read them.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from flask import Blueprint, Flask, Response, jsonify

from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import looks
from battlesnake_gym.records.replay import ReplayError
from battlesnake_gym.rules import RULESETS
from battlesnake_gym.rules.state import Point, Snake
from battlesnake_server.http.websockets import Websocket
from battlesnake_server.web.games_page import MissingError, course
from battlesnake_server.web.pages import number, refusal
from battlesnake_server.web.timeline import Course

MOST_FRAMES = 1000
"""Frames that one answer holds at most."""

MOST_VIEWERS = 64
"""Websockets at a time."""

TICK = 0.1
"""Seconds between two looks at a game that is being played."""

blueprint = Blueprint("engine", __name__)


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
    offset = number("offset", 0, least=-len(boards))
    limit = number("limit", 100, most=MOST_FRAMES)
    start = max(0, len(boards) + offset) if offset < 0 else offset
    shown = boards[start : start + limit]
    return jsonify(count=len(shown), frames=[frame(board) for board in shown])


class Events:
    """The websockets ``/games/<id>/events`` of an application: every frame as it comes, the end."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._viewers = 0

    async def talk(self, path: str, viewer: Websocket) -> None:
        """Talk to one viewer until the game is over or the viewer gone."""
        self._viewers += 1
        try:
            if self._viewers > MOST_VIEWERS:
                viewer.end(1013, "too many look on; try again later")
                return
            found = await asyncio.to_thread(self._find, path)
            if isinstance(found, str):
                viewer.end(1008, found[:100])
                return
            await _tell(found, viewer)
        finally:
            self._viewers -= 1

    def _find(self, path: str) -> Course | str:
        """The game at a path, or why there is none."""
        asked = re.fullmatch("/games/([^/]+)/events", path)
        if asked is None:
            return "there is no such page in this arena"
        with self._app.app_context():
            try:
                return course(asked[1])
            except (MissingError, ReplayError) as error:
                return str(error)


async def _tell(found: Course, viewer: Websocket) -> None:
    sent = 0
    while not viewer.gone:
        over = found.over
        for board in found.boards[sent:]:
            await _send(viewer, {"Type": "frame", "Data": frame(board)})
            sent += 1
        if over:
            await _send(viewer, {"Type": "game_end", "Data": describe(found)})
            viewer.end(1000)
        else:
            await asyncio.sleep(TICK)


async def _send(viewer: Websocket, event: dict[str, Any]) -> None:
    await viewer.send(json.dumps(event))


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

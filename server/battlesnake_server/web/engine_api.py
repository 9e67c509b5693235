"""HTTP API of the official engine, for the arena's games.

With this API, tools for games of the official engine can also fetch the arena's games.
``GET /games/<id>`` returns the settings and the last frame of a game.
``GET /games/<id>/frames`` returns a range of the game's frames.
"""

from __future__ import annotations

import itertools
from typing import Any

from flask import Blueprint, Response, jsonify

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import VIEW_RADIUS_KEY
from battlesnake_gym.draw import customization
from battlesnake_gym.rules.stages import RULESETS
from battlesnake_gym.rules.state import Point, Snake
from battlesnake_server.web.game_manager import current_arena
from battlesnake_server.web.games_page import load_game
from battlesnake_server.web.pages import query_integer

_MAX_FRAMES = 1000
"""Maximum number of frames in one response."""

blueprint = Blueprint("engine", __name__)


@blueprint.get("/games/<game_id>")
def game(game_id: str) -> Response:
    """Return a game as the API's ``Game`` object, with the last frame."""
    replay = load_game(game_id)
    is_live = game_id in dict(current_arena().broadcast.live_games())
    status = "running" if is_live else "complete"
    return jsonify(
        Game={"Status": status, **_game_to_dict(replay.first)},
        LastFrame=_frame_to_dict(replay.last),
    )


@blueprint.get("/games/<game_id>/frames")
def frames(game_id: str) -> Response:
    """Return at most ``?limit=`` frames, starting at the index ``?offset=``.

    A negative offset counts from the end of the game.
    """
    replay = load_game(game_id)
    count = len(replay.turns) + 1
    offset = query_integer("offset", 0, minimum=-count)
    limit = query_integer("limit", 100, maximum=_MAX_FRAMES)
    start = offset + count if offset < 0 else offset
    shown = list(itertools.islice(replay.boards(), start, start + limit))
    return jsonify(count=len(shown), frames=[_frame_to_dict(board) for board in shown])


def _game_to_dict(board: Board) -> dict[str, Any]:
    """Return a game as the API's ``Game`` object, without the status."""
    game, settings = board.game, board.game.settings
    return {
        "ID": game.id,
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
        }
        | ({} if settings.view_radius is None else {VIEW_RADIUS_KEY: str(settings.view_radius)}),
        "SnakeTimeout": game.timeout,
        "Source": game.source,
        "RulesetName": game.ruleset,
        "RulesStages": list(RULESETS.get(game.ruleset, ())),
        "Map": game.map,
    }


def _frame_to_dict(board: Board) -> dict[str, Any]:
    """Return one position as a frame of the API."""
    return {
        "Turn": board.turn,
        "Snakes": [
            _snake_to_dict(snake, color)
            for snake, color in zip(
                board.snakes, customization.assign_colors(board.snakes), strict=True
            )
        ],
        "Food": _points_to_dicts(board.food),
        "Hazards": _points_to_dicts(board.hazards),
    }


def _snake_to_dict(snake: Snake, color: str) -> dict[str, Any]:
    """Convert a snake to the API's ``Snake`` object."""
    death = {
        "Cause": snake.eliminated_cause,
        "Turn": snake.eliminated_on,
        "EliminatedBy": snake.eliminated_by,
    }
    return {
        "ID": snake.id,
        "Name": snake.name or snake.id,
        "Body": _points_to_dicts(snake.body),
        "Health": snake.health,
        "Death": None if snake.alive else death,
        "Color": color,
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


def _points_to_dicts(cells: list[Point]) -> list[dict[str, int]]:
    """Convert cells to the API's ``Point`` objects."""
    return [{"X": x, "Y": y} for x, y in cells]

"""The Battlesnake API's JSON: reading and writing the body of ``/start``, ``/move`` and ``/end``.

Engines differ in what they send, so reading is tolerant where nothing is lost: unknown fields are
passed over, missing ones take the official command line's defaults, null lists are empty, a latency
may be text or number, eliminated snakes may be listed or not, ``you`` may be missing on the board,
the map may be empty and the ruleset unknown (it is then played as standard). What would make the
board another one (a cell without ``y``, a text where a number belongs, two snakes with one id) is
refused with a `BoardError` naming the JSON path, the value and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from battlesnake_gym import fields
from battlesnake_gym.fields import BoardError
from battlesnake_gym.rules.state import MAX_HEALTH, Game, Point, Settings, Snake, State

MAX_SIDE = 100
"""The longest side that is read: enough for any game, and no request can ask for a huge board."""

UNKNOWN_SEED = 0
"""``Game.seed`` of a board that came without one, as every request does."""


def read(request: object, seed: int | None = None) -> tuple[Game, State, str | None]:
    """The game, the position and the id of ``you`` (None where the request has no ``you``).

    ``seed`` is the game's seed where it is known; requests do not carry it.
    """
    root = fields.mapping(request, "")
    board = fields.child(root, "board", "")
    if not board:
        raise BoardError("board is missing; send the whole body of a /move request")
    state = State(
        turn=_at_least(0, fields.integer(root, "turn", "", 0), "turn"),
        width=_side(board, "width"),
        height=_side(board, "height"),
        snakes=[],
        food=fields.points(board, "food", "board"),
        hazards=fields.points(board, "hazards", "board"),
    )
    _read_snakes(board, state)
    you_id = _read_you(root, state)
    solo = sum(snake.alive for snake in state.snakes) < 2
    return _read_game(root, seed, solo), state, you_id


def write(game: Game, state: State, you: Snake | None) -> dict[str, Any]:
    """The request body that ``you`` is sent; without ``you`` that key is left out."""
    body: dict[str, Any] = {
        "game": write_game(game),
        "turn": state.turn,
        "board": {
            "height": state.height,
            "width": state.width,
            "snakes": [write_snake(snake) for snake in state.snakes if snake.alive],
            "food": _write_points(state.food),
            "hazards": _write_points(state.hazards),
        },
    }
    if you is not None:
        body["you"] = write_snake(you)
    return body


def write_game(game: Game) -> dict[str, Any]:
    """The ``game`` object of a request, with all keys that the official command line writes."""
    settings = game.settings
    return {
        "id": game.id,
        "ruleset": {
            "name": game.ruleset,
            "version": "cli",
            "settings": {
                "foodSpawnChance": settings.food_spawn_chance,
                "minimumFood": settings.minimum_food,
                "hazardDamagePerTurn": settings.hazard_damage_per_turn,
                "hazardMap": "",
                "hazardMapAuthor": "",
                "royale": {"shrinkEveryNTurns": settings.shrink_every_n_turns},
                "squad": {
                    "allowBodyCollisions": False,
                    "sharedElimination": False,
                    "sharedHealth": False,
                    "sharedLength": False,
                },
            },
        },
        "map": game.map,
        "timeout": game.timeout,
        "source": game.source,
    }


def write_snake(snake: Snake) -> dict[str, Any]:
    """A snake as it stands in ``board.snakes`` and in ``you``."""
    looks = snake.customizations
    return {
        "id": snake.id,
        "name": snake.name,
        "latency": snake.latency,
        "health": snake.health,
        "body": _write_points(snake.body),
        "head": {"x": snake.head[0], "y": snake.head[1]},
        "length": snake.length,
        "shout": snake.shout,
        "squad": "",
        "customizations": {key: looks.get(key, "") for key in ("color", "head", "tail")},
    }


def read_game(game: Mapping[str, Any], seed: int, solo: bool) -> Game:
    """The ``game`` object of a request or of the first line of a recorded game."""
    ruleset = fields.child(game, "ruleset", "game")
    path = "game.ruleset.settings"
    settings = fields.child(ruleset, "settings", "game.ruleset")
    royale = fields.child(settings, "royale", path)
    usual = Settings()
    name = fields.string(ruleset, "name", "game.ruleset", "standard") or "standard"
    return Game(
        ruleset=name,
        map=fields.string(game, "map", "game", ""),
        settings=Settings(
            food_spawn_chance=fields.integer(
                settings, "foodSpawnChance", path, usual.food_spawn_chance
            ),
            minimum_food=fields.integer(settings, "minimumFood", path, usual.minimum_food),
            hazard_damage_per_turn=fields.integer(
                settings, "hazardDamagePerTurn", path, usual.hazard_damage_per_turn
            ),
            shrink_every_n_turns=fields.integer(
                royale, "shrinkEveryNTurns", f"{path}.royale", usual.shrink_every_n_turns
            ),
        ),
        seed=seed,
        solo=solo or name == "solo",
        id=fields.string(game, "id", "game", ""),
        timeout=_at_least(0, fields.integer(game, "timeout", "game", 0), "game.timeout")
        or Game().timeout,
        source=fields.string(game, "source", "game", ""),
    )


def _read_game(root: Mapping[str, Any], seed: int | None, solo: bool) -> Game:
    return read_game(fields.child(root, "game", ""), UNKNOWN_SEED if seed is None else seed, solo)


def _read_snakes(board: Mapping[str, Any], state: State) -> None:
    seen: dict[str, int] = {}
    for i, value in enumerate(fields.items(board, "snakes", "board")):
        path = f"board.snakes[{i}]"
        snake = _read_snake(value, path, state)
        if snake is None:
            continue
        if snake.id in seen:
            raise BoardError(
                f"{path}.id {fields.shown(snake.id)} is also the id of "
                f"board.snakes[{seen[snake.id]}]; give every snake an id of its own"
            )
        seen[snake.id] = i
        state.snakes.append(snake)


def _read_you(root: Mapping[str, Any], state: State) -> str | None:
    """The id of ``you``; a snake that the board does not list is added to it."""
    you = fields.child(root, "you", "")
    if not you:
        return None
    you_id = fields.string(you, "id", "you")
    if any(snake.id == you_id for snake in state.snakes):
        return you_id
    snake = _read_snake(you, "you", state)
    if snake is None:
        return None
    if snake.alive:
        _eliminate_if_bitten(snake, state)
    state.snakes.append(snake)
    return you_id


def _read_snake(value: object, path: str, state: State) -> Snake | None:
    """One snake; None for one that is out and has no body left to show."""
    if not isinstance(value, Mapping):
        raise BoardError(f"{path} must be a JSON object, got {fields.shown(value)}")
    health = fields.integer(value, "health", path, MAX_HEALTH)
    body = fields.points(value, "body", path)
    if not body:
        if health <= 0:
            return None
        raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
    snake_id = fields.string(value, "id", path)
    snake = Snake(
        id=snake_id,
        body=body,
        health=min(health, MAX_HEALTH),
        name=fields.string(value, "name", path, ""),
        latency=_read_latency(value, path),
        shout=fields.string(value, "shout", path, ""),
        customizations=_read_customizations(value, path),
    )
    if health <= 0:
        _eliminate(snake, state, "out-of-health")
    elif not all(0 <= x < state.width and 0 <= y < state.height for x, y in body):
        _eliminate(snake, state, "wall-collision")
    return snake


def _read_latency(value: Mapping[str, Any], path: str) -> str:
    """Milliseconds as text, however they were sent; unknown is the empty text."""
    latency = value.get("latency")
    if latency is None:
        return ""
    if isinstance(latency, bool) or not isinstance(latency, str | int | float):
        raise BoardError(f"{path}.latency must be a text or a number, got {fields.shown(latency)}")
    return latency if isinstance(latency, str) else f"{latency:g}"


def _read_customizations(value: Mapping[str, Any], path: str) -> dict[str, str]:
    looks = fields.child(value, "customizations", path)
    return {key: text for key, text in looks.items() if isinstance(text, str) and text}


def _eliminate_if_bitten(snake: Snake, state: State) -> None:
    """An unlisted snake whose head lies on a body, its own or another's, is out."""
    if snake.head in snake.body[1:] and len(set(snake.body)) > 1:
        _eliminate(snake, state, "snake-self-collision")
        return
    for other in state.snakes:
        if other.alive and snake.head in other.body:
            cause = "head-collision" if snake.head == other.head else "snake-collision"
            _eliminate(snake, state, cause, other.id)
            return


def _eliminate(snake: Snake, state: State, cause: str, by: str = "") -> None:
    snake.eliminated_cause = cause
    snake.eliminated_by = by
    snake.eliminated_on = state.turn


def _side(board: Mapping[str, Any], key: str) -> int:
    side = fields.integer(board, key, "board")
    if not 1 <= side <= MAX_SIDE:
        raise BoardError(f"board.{key} must be between 1 and {MAX_SIDE}, got {side}")
    return side


def _at_least(least: int, value: int, path: str) -> int:
    if value < least:
        raise BoardError(f"{path} must be {least} or more, got {value}")
    return value


def _write_points(cells: list[Point]) -> list[dict[str, int]]:
    return [{"x": x, "y": y} for x, y in cells]

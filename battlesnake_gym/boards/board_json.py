"""The Battlesnake API's JSON: reading and writing the body of ``/start``, ``/move`` and ``/end``.

Engines differ in what they send, so reading is tolerant where nothing is lost: unknown fields are
ignored, missing ones take the official command line's defaults, null lists are empty, a latency
may be text or number, eliminated snakes may be listed or not (`boards.elimination_tracker`), ``you`` may be
missing on the board, the map may be empty and the ruleset unknown (it is then played as standard).
What would change the position (a cell without ``y``, a text where a number belongs, two snakes with
one id) is refused with a `BoardError` naming the JSON path, the value and the remedy; or noted and
passed over, for a snake that must answer whatever it is sent.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.rules.state import MAX_HEALTH, Game, Point, Settings, Snake, State

MAX_READABLE_BOARD_SIZE = 100
"""The longest side that is read: enough for any game, and no request can ask for a huge board."""

_MAX_SNAKES_READ = 64
"""The most snakes that are read where errors are passed over; four times as many as in any game."""

_MAX_INT = (1 << 31) - 1
"""No game has larger numbers; they would overflow the arithmetic."""

UNKNOWN_SEED = 0
"""``Game.seed`` of a board that came without one, as every request does."""

_T = TypeVar("_T")


def read(
    request: object,
    seed: int | None = None,
    corpses: EliminationTracker | None = None,
    unread: list[str] | None = None,
) -> tuple[Game, State, str | None]:
    """The game, the position and the id of ``you`` (None where the request has no ``you``).

    ``seed`` is the game's seed where it is known; requests do not carry it. ``corpses`` is what was
    seen of the game before. With ``unread``, only the board's size and ``you`` must be readable:
    all other errors are added to it, and defaults played.
    """
    reader = _Reader(unread)
    root = json_fields.mapping(request, "")
    board = json_fields.child(root, "board", "")
    if not board:
        raise BoardError("board is missing; send the whole body of a /move request")
    state = State(
        turn=reader.at_least(0, root, "turn", "", 0),
        width=_side(board, "width"),
        height=_side(board, "height"),
        snakes=[],
        food=reader.points(board, "food", "board"),
        hazards=reader.points(board, "hazards", "board"),
    )
    if unread is not None:
        state.food, state.hazards = _on_board(state.food, state), _on_board(state.hazards, state)
    reader.read_snakes(board, state)
    you_id, listed = reader.read_you(root, state)
    (EliminationTracker() if corpses is None else corpses).update(state, you_id if listed else None)
    solo = sum(snake.alive for snake in state.snakes) < 2
    game = reader.read_game(
        reader.child(root, "game", ""), UNKNOWN_SEED if seed is None else seed, solo
    )
    return game, state, you_id


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
    """A snake as it is written in ``board.snakes`` and in ``you``."""
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
    return _Reader(None).read_game(game, seed, solo)


class _Reader:
    """Reads the parts of a request: errors are raised, or noted in ``unread`` and passed over."""

    def __init__(self, unread: list[str] | None) -> None:
        self._unread = unread

    def record_error(self, error: BoardError) -> None:
        """Note ``error``; raise it where every one counts."""
        if self._unread is None:
            raise error
        self._unread.append(str(error))

    def attempt(self, read: Callable[[], _T], otherwise: _T) -> _T:
        """What ``read`` returns, or ``otherwise`` where it fails."""
        try:
            return read()
        except BoardError as error:
            self.record_error(error)
            return otherwise

    def child(self, parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
        return self.attempt(lambda: json_fields.child(parent, key, path), {})

    def text(self, parent: Mapping[str, Any], key: str, path: str) -> str:
        return self.attempt(lambda: json_fields.string(parent, key, path, ""), "")

    def integer(self, parent: Mapping[str, Any], key: str, path: str, default: int) -> int:
        return self.attempt(lambda: _sane(parent, key, path, default), default)

    def at_least(
        self, least: int, parent: Mapping[str, Any], key: str, path: str, default: int
    ) -> int:
        value = self.integer(parent, key, path, default)
        if value < least:
            self.record_error(
                BoardError(f"{json_fields.join(path, key)} must be {least} or more, got {value}")
            )
            return default
        return value

    def points(self, parent: Mapping[str, Any], key: str, path: str) -> list[Point]:
        """The cells under ``key``; of an unreadable list those that are readable."""
        try:
            return json_fields.points(parent, key, path)
        except BoardError as error:
            self.record_error(error)
        values = parent.get(key)
        if not isinstance(values, list | tuple):
            return []
        readable = []
        for value in values:
            with contextlib.suppress(BoardError):
                readable.append(json_fields.point(value, path))
        return readable

    def read_game(self, game: Mapping[str, Any], seed: int, solo: bool) -> Game:
        ruleset = self.child(game, "ruleset", "game")
        path = "game.ruleset.settings"
        settings = self.child(ruleset, "settings", "game.ruleset")
        royale = self.child(settings, "royale", path)
        usual = Settings()
        name = self.text(ruleset, "name", "game.ruleset") or "standard"
        return Game(
            ruleset=name,
            map=self.text(game, "map", "game"),
            settings=Settings(
                food_spawn_chance=self.integer(
                    settings, "foodSpawnChance", path, usual.food_spawn_chance
                ),
                minimum_food=self.integer(settings, "minimumFood", path, usual.minimum_food),
                hazard_damage_per_turn=self.integer(
                    settings, "hazardDamagePerTurn", path, usual.hazard_damage_per_turn
                ),
                shrink_every_n_turns=self.integer(
                    royale, "shrinkEveryNTurns", f"{path}.royale", usual.shrink_every_n_turns
                ),
            ),
            seed=seed,
            solo=solo or name == "solo",
            id=self.text(game, "id", "game"),
            timeout=self.at_least(0, game, "timeout", "game", 0) or Game().timeout,
            source=self.text(game, "source", "game"),
        )

    def read_snakes(self, board: Mapping[str, Any], state: State) -> None:
        """The snakes of the board."""
        seen: dict[str, int] = {}
        none: Sequence[Any] = ()
        values = self.attempt(lambda: json_fields.items(board, "snakes", "board"), none)
        if self._unread is not None and len(values) > _MAX_SNAKES_READ:
            self.record_error(
                BoardError(f"board.snakes has {len(values)} snakes; {_MAX_SNAKES_READ} are read")
            )
            values = values[:_MAX_SNAKES_READ]
        for i, value in enumerate(values):
            path = f"board.snakes[{i}]"
            snake = self.attempt(functools.partial(self._read_snake, value, path, state), None)
            if snake is None:
                continue
            if snake.id in seen:
                self.record_error(
                    BoardError(
                        f"{path}.id {json_fields.format_value(snake.id)} is also the id of "
                        f"board.snakes[{seen[snake.id]}]; give every snake an id of its own"
                    )
                )
                snake.id = path
            seen[snake.id] = i
            state.snakes.append(snake)

    def read_you(self, root: Mapping[str, Any], state: State) -> tuple[str | None, bool]:
        """The id of ``you``, and whether the board lists it; where not, it is added."""
        you = json_fields.child(root, "you", "")
        if not you:
            return None, False
        you_id = json_fields.string(you, "id", "you")
        listed = any(snake.id == you_id for snake in state.snakes)
        if self._unread is not None:
            self._read_asked(you, you_id, state)
            return you_id, True
        if listed:
            return you_id, True
        snake = self._read_snake(you, "you", state)
        if snake is None:
            return None, False
        if snake.alive:
            _eliminate_if_bitten(snake, state)
        state.snakes.append(snake)
        return you_id, False

    def _read_asked(self, you: Mapping[str, Any], you_id: str, state: State) -> None:
        """The snake asked for a move lives and is where ``you`` says, whatever the board says."""
        sent = json_fields.points(you, "body", "you")
        body = _on_board(sent, state)
        if not body:
            raise BoardError("you.body has no cell on the board; list its cells, head first")
        if len(body) < len(sent):
            self.record_error(BoardError("you.body leaves the board; its other cells are read"))
        snake = self._read_looks(you, "you", you_id, body)
        snake.health = max(1, min(snake.health, MAX_HEALTH))
        for seat, other in enumerate(state.snakes):
            if other.id == you_id:
                state.snakes[seat] = snake
                return
        state.snakes.append(snake)

    def _read_snake(self, value: object, path: str, state: State) -> Snake | None:
        """One snake; None for one that is out and has no body left to show."""
        if not isinstance(value, Mapping):
            raise BoardError(f"{path} must be a JSON object, got {json_fields.format_value(value)}")
        health = self.integer(value, "health", path, MAX_HEALTH)
        body = self.points(value, "body", path)
        if not body:
            if health <= 0:
                return None
            raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
        snake_id = self.attempt(lambda: json_fields.string(value, "id", path), path)
        snake = self._read_looks(value, path, snake_id, body)
        snake.health = min(health, MAX_HEALTH)
        if health <= 0:
            _eliminate(snake, state, "out-of-health")
        elif not all(0 <= x < state.width and 0 <= y < state.height for x, y in body):
            _eliminate(snake, state, "wall-collision")
        return snake

    def _read_looks(
        self, value: Mapping[str, Any], path: str, snake_id: str, body: list[Point]
    ) -> Snake:
        return Snake(
            id=snake_id,
            body=body,
            health=self.integer(value, "health", path, MAX_HEALTH),
            name=self.text(value, "name", path),
            latency=self.attempt(lambda: _read_latency(value, path), ""),
            shout=self.text(value, "shout", path),
            customizations=self.attempt(lambda: _read_customizations(value, path), {}),
        )


def _sane(parent: Mapping[str, Any], key: str, path: str, default: int) -> int:
    """A whole number of at most 32 bits: no game has larger ones, and they would overflow."""
    value = json_fields.integer(parent, key, path, default)
    if abs(value) > _MAX_INT:
        raise BoardError(
            f"{json_fields.join(path, key)} must be smaller, got {json_fields.format_value(value)}"
        )
    return value


def _read_latency(value: Mapping[str, Any], path: str) -> str:
    """Milliseconds as text, however they were sent; unknown is the empty text."""
    latency = value.get("latency")
    if latency is None:
        return ""
    if isinstance(latency, bool) or not isinstance(latency, str | int | float):
        raise BoardError(
            f"{path}.latency must be a text or a number, got {json_fields.format_value(latency)}"
        )
    if isinstance(latency, str):
        return latency
    return f"{latency:g}" if abs(latency) < _MAX_INT else ""


def _read_customizations(value: Mapping[str, Any], path: str) -> dict[str, str]:
    looks = json_fields.child(value, "customizations", path)
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


def _on_board(cells: list[Point], state: State) -> list[Point]:
    return [(x, y) for x, y in cells if 0 <= x < state.width and 0 <= y < state.height]


def _side(board: Mapping[str, Any], key: str) -> int:
    side = json_fields.integer(board, key, "board")
    if not 1 <= side <= MAX_READABLE_BOARD_SIZE:
        raise BoardError(f"board.{key} must be between 1 and {MAX_READABLE_BOARD_SIZE}, got {side}")
    return side


def _write_points(cells: list[Point]) -> list[dict[str, int]]:
    return [{"x": x, "y": y} for x, y in cells]

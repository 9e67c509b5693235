"""JSON bodies of the Battlesnake API requests ``/start``, ``/move`` and ``/end``.

Game engines differ in the fields of their requests. The parser accepts every deviation that loses
no information:

* Unknown fields are ignored.
* Missing fields take the defaults of the official CLI, and null lists count as empty.
* A latency may be text or a number.
* Eliminated snakes may be listed or not (see `boards.elimination_tracker`).
* ``you`` may be missing from the board.
* The map may be empty.
* An unknown ruleset is played as standard.
* The view may be limited (see `boards.limited_view`). Plausible cells then replace the hidden
  segments of opponents (see `boards.hidden_segments`), and opponents have full health.

An error that would change the position raises a `BoardError` with the JSON path, the value and a
remedy. Examples are a cell without ``y``, text instead of a number, and two snakes with the same
id. A server, which must respond to every request, can collect these errors instead and skip the
affected fields.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from battlesnake_gym.boards import hidden_segments, json_fields
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.boards.json_fields import MAX_INT32, BoardError
from battlesnake_gym.boards.limited_view import VIEW_RADIUS_KEY
from battlesnake_gym.rules.state import (
    MAX_HEALTH,
    START_LENGTH,
    Game,
    Point,
    Settings,
    Snake,
    State,
)

MAX_READABLE_BOARD_SIZE = 100
"""Maximum width and height of a board in a request, in cells.

The limit bounds the memory use of a malicious request.
"""

_MAX_READABLE_SNAKES = 64
"""Maximum number of snakes that are completed, and that are read if errors are collected.

The value is four times the limit for a game.
"""

_ASSUMED_VIEW_RADIUS = 5
"""View radius of a request with hidden segments but without a radius: that of the competition."""

UNKNOWN_SEED = 0
"""``Game.seed`` of a board without a known seed.

Requests never contain a seed.
"""

_T = TypeVar("_T")


def parse_request(
    request: object,
    seed: int | None = None,
    tracker: EliminationTracker | None = None,
    errors: list[str] | None = None,
) -> tuple[State, Game, str | None]:
    """Parse the body of a request.

    Args:
        request: Body of the request.
        seed: Seed of the game; None if unknown.
        tracker: Eliminations observed on earlier turns of the game.
        errors: If a list is passed, error messages are appended to the list and defaults are used.
            Only the board size and ``you`` must then be readable.

    Returns:
        The position, the game and the id of ``you`` (None if the request has no ``you``).

    Raises:
        BoardError: If a required field cannot be read.
    """
    reader = _RequestReader(errors)
    root = json_fields.mapping(request, "")
    board = json_fields.child(root, "board", "")
    if not board:
        raise BoardError("board is missing; send the complete body of a /move request")
    state = State(
        turn=reader.integer(root, "turn", "", 0, low=0),
        width=json_fields.bounded_integer(board, "width", "board", 1, MAX_READABLE_BOARD_SIZE),
        height=json_fields.bounded_integer(board, "height", "board", 1, MAX_READABLE_BOARD_SIZE),
        snakes=[],
        food=reader.points(board, "food", "board"),
        hazards=reader.points(board, "hazards", "board"),
    )
    if errors is not None:
        state.food = list(filter(state.inside, state.food))
        state.hazards = list(filter(state.inside, state.hazards))
    tracker = EliminationTracker() if tracker is None else tracker
    hides_segments = _has_hidden_segments(board)
    tracker.has_hidden_segments |= hides_segments
    game = reader.read_game(
        reader.child(root, "game", ""),
        UNKNOWN_SEED if seed is None else seed,
        tracker.has_hidden_segments,
    )
    is_limited = game.settings.view_radius is not None
    if is_limited:
        if hides_segments or not _shows_health_of_opponents(root, board):
            state.new_food = len(state.food)  # All food in the request is visible.
        root, board = _complete_view(reader, root, board, game, state)
    reader.read_snakes(board, state)
    you_id, listed = reader.read_you(root, state)
    if not is_limited:
        tracker.update(state, you_id if listed else None)
    if sum(snake.alive for snake in state.snakes) < 2:
        game = replace(game, solo=True)
    return state, game, you_id


def request_to_dict(game: Game, state: State, you: Snake | None) -> dict[str, Any]:
    """Return the JSON body of a request to the snake ``you``.

    If ``you`` is None, the body has no key ``you``.
    """
    body: dict[str, Any] = {
        "game": game_to_dict(game),
        "turn": state.turn,
        "board": {
            "height": state.height,
            "width": state.width,
            "snakes": [_snake_to_dict(snake) for snake in state.living],
            "food": _food_to_dicts(game, state),
            "hazards": _cells_to_dicts(state.hazards),
        },
    }
    if you is not None:
        body["you"] = _snake_to_dict(you)
    return body


def _food_to_dicts(game: Game, state: State) -> list[dict[str, int]]:
    """Return the food; with limited view, new food has the key ``spawn_turn``."""
    food = _cells_to_dicts(state.food)
    if game.settings.view_radius is not None:
        for cell in food[len(food) - state.new_food :]:
            cell["spawn_turn"] = state.turn
    return food


def game_to_dict(game: Game) -> dict[str, Any]:
    """Return the JSON object ``game`` of a request, with all keys of the official CLI."""
    settings, view_radius = game.settings, game.settings.view_radius
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
                **({} if view_radius is None else {VIEW_RADIUS_KEY: view_radius}),
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


def _snake_to_dict(snake: Snake) -> dict[str, Any]:
    """Return the JSON object of a snake, as in ``board.snakes`` and ``you``."""
    customizations = snake.customizations
    return {
        "id": snake.id,
        "name": snake.name,
        "latency": snake.latency,
        "health": snake.health,
        "body": _cells_to_dicts(snake.body),
        "head": {"x": snake.head[0], "y": snake.head[1]},
        "length": snake.length,
        "shout": snake.shout,
        "squad": "",
        "customizations": {key: customizations.get(key, "") for key in ("color", "head", "tail")},
    }


def parse_game(game: Mapping[str, Any], seed: int, solo: bool) -> Game:
    """Parse the ``game`` object of a request or of the first line of a recorded game."""
    read = _RequestReader(None).read_game(game, seed)
    return replace(read, solo=solo or read.solo)


class _RequestReader:
    """Reader of request fields that raises errors or collects error messages."""

    def __init__(self, errors: list[str] | None) -> None:
        self._errors = errors

    def record_error(self, error: BoardError) -> None:
        """Append the message of ``error`` to the list of errors.

        Raises:
            BoardError: If the reader has no list of errors.
        """
        if self._errors is None:
            raise error
        self._errors.append(str(error))

    def attempt(self, read: Callable[[], _T], default: _T) -> _T:
        """Return the result of ``read``, or ``default`` after a `BoardError`."""
        try:
            return read()
        except BoardError as error:
            self.record_error(error)
            return default

    def child(self, parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
        """Return the object under ``key``, or an empty object if ``key`` is unreadable."""
        return self.attempt(lambda: json_fields.child(parent, key, path), {})

    def text(self, parent: Mapping[str, Any], key: str, path: str) -> str:
        """Return the text under ``key``, or "" if the text is missing or unreadable."""
        return self.attempt(lambda: json_fields.string(parent, key, path, ""), "")

    def integer(
        self,
        parent: Mapping[str, Any],
        key: str,
        path: str,
        default: int,
        low: int = -MAX_INT32,
    ) -> int:
        """Return the integer under ``key``, or ``default`` if it is unreadable or below ``low``."""

        def read() -> int:
            return json_fields.bounded_integer(parent, key, path, low, MAX_INT32, default)

        return self.attempt(read, default)

    def points(self, parent: Mapping[str, Any], key: str, path: str) -> list[Point]:
        """Return the readable cells of the list under ``key``."""
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

    def _read_view_radius(
        self, settings: Mapping[str, Any], has_hidden_segments: bool
    ) -> int | None:
        """Read the view radius in cells; the result is None if the view is not limited.

        An unreadable radius is an error, and so is a missing radius of a board with hidden
        segments. If errors are collected, the radius of the competition is assumed.
        """
        value = settings.get(VIEW_RADIUS_KEY)
        if value is None and not has_hidden_segments:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
            return int(min(value, MAX_INT32))  # Distances are whole numbers.
        reason = "but a snake has hidden segments" if value is None else "not a valid radius"
        self.record_error(
            BoardError(
                f"game.ruleset.settings.{VIEW_RADIUS_KEY} is {json_fields.format_value(value)}, "
                f"{reason}; send the radius, at least 0 (assumed: {_ASSUMED_VIEW_RADIUS})"
            )
        )
        return _ASSUMED_VIEW_RADIUS

    def read_game(
        self, game: Mapping[str, Any], seed: int, has_hidden_segments: bool = False
    ) -> Game:
        """Read the ``game`` object of a request whose board may have hidden segments."""
        ruleset = self.child(game, "ruleset", "game")
        path = "game.ruleset.settings"
        settings = self.child(ruleset, "settings", "game.ruleset")
        royale = self.child(settings, "royale", path)
        defaults = Settings()
        name = self.text(ruleset, "name", "game.ruleset") or "standard"
        return Game(
            ruleset=name,
            map=self.text(game, "map", "game"),
            settings=Settings(
                food_spawn_chance=self.integer(
                    settings, "foodSpawnChance", path, defaults.food_spawn_chance
                ),
                minimum_food=self.integer(settings, "minimumFood", path, defaults.minimum_food),
                hazard_damage_per_turn=self.integer(
                    settings, "hazardDamagePerTurn", path, defaults.hazard_damage_per_turn
                ),
                shrink_every_n_turns=self.integer(
                    royale, "shrinkEveryNTurns", f"{path}.royale", defaults.shrink_every_n_turns
                ),
                view_radius=self._read_view_radius(settings, has_hidden_segments),
            ),
            seed=seed,
            solo=name == "solo",
            id=self.text(game, "id", "game"),
            timeout=self.integer(game, "timeout", "game", 0, low=0) or Game().timeout,
            source=self.text(game, "source", "game"),
        )

    def read_snakes(self, board: Mapping[str, Any], state: State) -> None:
        """Read ``board.snakes`` into ``state.snakes``."""
        seen: dict[str, int] = {}
        none: Sequence[Any] = ()
        values = self.attempt(lambda: json_fields.items(board, "snakes", "board"), none)
        if self._errors is not None and len(values) > _MAX_READABLE_SNAKES:
            self.record_error(
                BoardError(
                    f"board.snakes has {len(values)} snakes; the first "
                    f"{_MAX_READABLE_SNAKES} are read"
                )
            )
            values = values[:_MAX_READABLE_SNAKES]
        for i, value in enumerate(values):
            path = f"board.snakes[{i}]"
            snake = self.attempt(functools.partial(self._read_snake, value, path, state), None)
            if snake is None:
                continue
            if snake.id in seen:
                self.record_error(
                    BoardError(
                        f"{path}.id {json_fields.format_value(snake.id)} is also the id of "
                        f"board.snakes[{seen[snake.id]}]; give every snake a different id"
                    )
                )
                snake.id = path
            seen[snake.id] = i
            state.snakes.append(snake)

    def read_you(self, root: Mapping[str, Any], state: State) -> tuple[str | None, bool]:
        """Return the id of ``you`` and whether ``board.snakes`` contains the snake.

        A snake that ``board.snakes`` does not contain is added to ``state``.
        """
        you = json_fields.child(root, "you", "")
        if not you:
            return None, False
        you_id = json_fields.string(you, "id", "you")
        listed = any(snake.id == you_id for snake in state.snakes)
        if self._errors is not None:
            self._read_living_you(you, you_id, state)
            return you_id, True
        if listed:
            return you_id, True
        snake = self._read_snake(you, "you", state)
        if snake is None:
            return None, False
        if snake.alive:
            _eliminate_if_colliding(snake, state)
        state.snakes.append(snake)
        return you_id, False

    def _read_living_you(self, you: Mapping[str, Any], you_id: str, state: State) -> None:
        """Read ``you`` as a living snake, even if the position shows an eliminated snake."""
        sent = json_fields.points(you, "body", "you")
        body = list(filter(state.inside, sent))
        if not body:
            raise BoardError("you.body has no cell on the board; list its cells, head first")
        if len(body) < len(sent):
            self.record_error(BoardError("you.body has cells off the board; they are ignored"))
        snake = self._read_attributes(you, "you", you_id, body)
        snake.health = max(1, min(snake.health, MAX_HEALTH))
        for seat, other in enumerate(state.snakes):
            if other.id == you_id:
                state.snakes[seat] = snake
                return
        state.snakes.append(snake)

    def _read_snake(self, value: object, path: str, state: State) -> Snake | None:
        """Read one snake; return None for an eliminated snake without a body."""
        if not isinstance(value, Mapping):
            raise BoardError(f"{path} must be a JSON object, got {json_fields.format_value(value)}")
        health = self.integer(value, "health", path, MAX_HEALTH)
        body = self.points(value, "body", path)
        if not body:
            if health <= 0:
                return None
            raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
        snake_id = self.attempt(lambda: json_fields.string(value, "id", path), path)
        snake = self._read_attributes(value, path, snake_id, body)
        snake.health = min(health, MAX_HEALTH)
        if health <= 0:
            snake.eliminate("out-of-health", state.turn)
        elif not all(map(state.inside, body)):
            snake.eliminate("wall-collision", state.turn)
        return snake

    def _read_attributes(
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


def _is_placeholder(cell: object) -> bool:
    """Return whether ``cell`` stands for hidden segments, in either form."""
    return cell is None or (isinstance(cell, Mapping) and cell.get("x") == cell.get("y") == -1)


def _listed_snakes(board: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects in ``board.snakes``."""
    snakes = board.get("snakes")
    return [
        snake
        for snake in (snakes if isinstance(snakes, list | tuple) else ())
        if isinstance(snake, Mapping)
    ]


def _has_hidden_segments(board: Mapping[str, Any]) -> bool:
    bodies = (snake.get("body") for snake in _listed_snakes(board))
    return any(any(map(_is_placeholder, body)) for body in bodies if isinstance(body, list | tuple))


def _shows_health_of_opponents(root: Mapping[str, Any], board: Mapping[str, Any]) -> bool:
    """Return whether a request has the health of an opponent, which a limited view hides."""
    you_id = json_fields.child(root, "you", "").get("id")
    return any(snake.get("health") and snake.get("id") != you_id for snake in _listed_snakes(board))


def _read_sent_body(snake: object, path: str, reader: _RequestReader) -> list[Point | None]:
    """Return the body of a request with limited view, or an empty list without a body.

    Unreadable cells count as hidden.
    """
    if not isinstance(snake, Mapping) or not isinstance(snake.get("body"), list | tuple):
        return []
    return [
        None
        if _is_placeholder(cell)
        else reader.attempt(functools.partial(json_fields.point, cell, f"{path}.body[{i}]"), None)
        for i, cell in enumerate(snake["body"])
    ]


def _complete_view(
    reader: _RequestReader,
    root: Mapping[str, Any],
    board: Mapping[str, Any],
    game: Game,
    state: State,
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the request and its board with complete bodies, and with healthy opponents.

    Snakes without a body are not changed, so that the reader reports them. Snakes beyond the first
    `_MAX_READABLE_SNAKES` are not changed either.
    """
    you = json_fields.child(root, "you", "")
    own = _read_sent_body(you, "you", reader)
    snakes = board.get("snakes")
    if not own or own[0] is None or not isinstance(snakes, list | tuple):
        return root, board
    sent = [
        _read_sent_body(snake, f"board.snakes[{i}]", reader)
        for i, snake in enumerate(snakes[:_MAX_READABLE_SNAKES])
    ]
    bodies = hidden_segments.complete_bodies(game, state, own[0], sent)
    completed = []
    for snake, before, body in zip(snakes, sent, bodies, strict=False):
        if not before:
            completed.append(snake)
        elif snake.get("id") == you.get("id"):
            completed.append(_unstack(snake))
        elif body:
            health = {"health": MAX_HEALTH} if snake.get("health") == 0 else {}
            completed.append({**snake, **health, "body": _cells_to_dicts(body)})
    completed += snakes[_MAX_READABLE_SNAKES:]
    return {**root, "you": _unstack(you)}, {**board, "snakes": completed}


def _unstack(snake: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a snake whose body has ``length`` segments if at most `START_LENGTH` are missing.

    Some engines list stacked segments once. The last segments of a body are the stacked ones.
    """
    body, length = list(snake["body"]), snake.get("length")
    if type(length) is not int or not body or not 0 < length - len(body) <= START_LENGTH:
        return snake
    return {**snake, "body": body + body[-1:] * (length - len(body))}


def _read_latency(value: Mapping[str, Any], path: str) -> str:
    """Return the latency in milliseconds as text, or "" if the latency is unknown."""
    latency = value.get("latency")
    if latency is None:
        return ""
    if isinstance(latency, bool) or not isinstance(latency, str | int | float):
        raise BoardError(
            f"{path}.latency must be text or a number, got {json_fields.format_value(latency)}"
        )
    if isinstance(latency, str):
        return latency
    return f"{latency:g}" if abs(latency) < MAX_INT32 else ""


def _read_customizations(value: Mapping[str, Any], path: str) -> dict[str, str]:
    customizations = json_fields.child(value, "customizations", path)
    return {key: text for key, text in customizations.items() if isinstance(text, str) and text}


def _eliminate_if_colliding(snake: Snake, state: State) -> None:
    """Eliminate an unlisted ``snake`` whose head is on a body segment of any snake."""
    if snake.head in snake.body[1:] and len(set(snake.body)) > 1:
        snake.eliminate("snake-self-collision", state.turn)
        return
    for other in state.snakes:
        if other.alive and snake.head in other.body:
            cause = "head-collision" if snake.head == other.head else "snake-collision"
            snake.eliminate(cause, state.turn, other.id)
            return


def _cells_to_dicts(cells: list[Point]) -> list[dict[str, int]]:
    return [{"x": x, "y": y} for x, y in cells]

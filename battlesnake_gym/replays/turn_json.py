"""Conversion of games, positions and turns to the JSON objects of a replay file, and back."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.replays import limits
from battlesnake_gym.rules.state import CAUSES, Game, Point, Settings, Snake, State
from battlesnake_gym.snakes import Decision, Reason


@dataclass(slots=True)
class Turn:
    """One turn of a recorded game: all events between two consecutive positions.

    Attributes:
        moves: Moves that the living snakes sent, by snake id; an invalid move means the default
            move.
        snakes: Snakes after the turn, or None if the rules and the seed determine the snakes.
        food: Food after the turn, or None if the rules and the seed determine the food.
        hazards: Hazards after the turn, or None if the rules and the seed determine the hazards.
        inferred: Ids of the snakes whose move was inferred instead of recorded.
        latency: Latency by snake id, in milliseconds.
        shouts: Shouts by snake id.
        decisions: Decisions by snake id.
        problems: Reasons (``timeout``, ``connection``, ...) for missing moves, by id of the snakes
            without a valid move.
    """

    moves: dict[str, str]
    snakes: list[Snake] | None = None
    food: list[Point] | None = None
    hazards: list[Point] | None = None
    inferred: list[str] = field(default_factory=list)
    latency: dict[str, float] = field(default_factory=dict)
    shouts: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Convert the turn to a JSON object.

        The object contains the moves and all fields that differ from their defaults.
        """
        defaults = dataclasses.asdict(Turn(moves={}))
        written = dataclasses.asdict(self)
        return {
            k: _to_json_value(v) for k, v in written.items() if k == "moves" or v != defaults[k]
        }

    @classmethod
    def from_dict(cls, line: Mapping[str, Any], expected: int) -> Turn:
        """Parse a turn from its line of the replay file.

        Args:
            line: JSON object of the line.
            expected: Number of the turn, which the line must contain.

        Raises:
            BoardError: If a field is invalid.
        """
        number = json_fields.integer(line, "turn", "")
        if number != expected:
            raise BoardError(
                f"turn must be {expected}, got {number}; lines are missing or misplaced"
            )
        decisions = json_fields.child(line, "decisions", "")
        inferred = "inferred" if "inferred" in line else "guessed"  # Format 1 used another name.
        return cls(
            moves=_read_texts(line, "moves", ""),
            snakes=_read_snakes(line, "") if "snakes" in line else None,
            food=_read_cells(line, "food", "") if "food" in line else None,
            hazards=_read_cells(line, "hazards", "") if "hazards" in line else None,
            inferred=list(map(str, json_fields.items(line, inferred, ""))),
            latency=_read_numbers(line, "latency", ""),
            shouts=_read_texts(line, "shouts", ""),
            decisions={
                name: read_decision(
                    json_fields.child(decisions, name, "decisions"), f"decisions.{name}"
                )
                for name in decisions
            },
            problems=_read_texts(line, "problems", ""),
        )

    def play(self, board: Board) -> None:
        """Play this turn on ``board``, in place."""
        board.advance(self.moves)
        old_food = set(board.food[: len(board.food) - board.new_food])
        if self.snakes is not None:
            board.snakes = copy.deepcopy(self.snakes)
        if self.food is not None:
            # The recorder may list new food anywhere; in a `State`, new food is at the end.
            board.food = sorted(self.food, key=lambda cell: cell not in old_food)
            board.new_food = sum(cell not in old_food for cell in self.food)
        if self.hazards is not None:
            board.hazards = self.hazards[:]
        for snake in board.snakes:
            if snake.id in self.moves:
                snake.shout = self.shouts.get(snake.id, "")
            if snake.id in self.latency:
                snake.latency = f"{self.latency[snake.id]:.12g}"


def state_to_dict(state: Board) -> dict[str, Any]:
    """Convert a position to a JSON object."""
    written: dict[str, Any] = _to_json_value(dataclasses.asdict(state))
    del written["game"], written["you_id"], written["new_food"]  # The turns determine new food.
    return written


def result_to_dict(board: Board) -> dict[str, Any]:
    """Return the result after the last turn as a JSON object."""
    winner = board.winner
    return {
        "turn": board.turn,
        "winner": winner.id if winner else None,
        "snakes": [
            {
                "id": snake.id,
                "length": snake.length,
                "health": snake.health,
                "cause": snake.eliminated_cause,
                "by": snake.eliminated_by,
                "on": snake.eliminated_on,
            }
            for snake in board.snakes
        ],
    }


def _to_json_value(value: Any) -> Any:
    """Convert ``value`` to strict JSON; infinities become strings."""
    if isinstance(value, dict):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


def read_game(game: Mapping[str, Any]) -> Game:
    """Parse the constants of a game.

    Raises:
        BoardError: If a field is invalid.
    """
    defaults = Game()
    settings = json_fields.child(game, "settings", "game")
    names = [key.name for key in dataclasses.fields(Settings)]
    if settings.get("view_radius") is None:  # Older files lack the setting.
        names.remove("view_radius")
    path = "game.settings"
    return Game(
        ruleset=json_fields.string(game, "ruleset", "game", defaults.ruleset),
        map=json_fields.string(game, "map", "game", defaults.map),
        settings=Settings(**{key: limits.read_number(settings, key, path) for key in names}),
        seed=json_fields.integer(game, "seed", "game"),
        solo=game.get("solo") is True,
        id=json_fields.string(game, "id", "game", ""),
        timeout=json_fields.integer(game, "timeout", "game", defaults.timeout),
        source=json_fields.string(game, "source", "game", ""),
    )


def read_state(first: Mapping[str, Any]) -> State:
    """Parse the first position of a game.

    Raises:
        BoardError: If a field is invalid or exceeds a limit of `limits`.
    """
    memory = json_fields.child(first, "memory", "first")
    width, height = limits.read_size(first, "first")
    return State(
        turn=json_fields.bounded_integer(first, "turn", "first", 0, limits.MAX_NUMBER),
        width=width,
        height=height,
        snakes=_read_snakes(first, "first"),
        food=_read_cells(first, "food", "first"),
        hazards=_read_cells(first, "hazards", "first"),
        memory={
            key: _read_cells(memory, key, "first.memory")
            if isinstance(value, list)
            else limits.read_number(memory, key, "first.memory")
            for key, value in memory.items()
        },
    )


def _read_snakes(parent: Mapping[str, Any], path: str) -> list[Snake]:
    return [_read_snake(*found) for found in json_fields.objects(parent, "snakes", path)]


def _read_snake(value: Mapping[str, Any], path: str) -> Snake:
    body = _read_cells(value, "body", path)
    if not body:
        raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
    cause = json_fields.string(value, "eliminated_cause", path, "")
    if cause not in CAUSES:
        known = ", ".join(CAUSES[1:])
        raise BoardError(f"{path}.eliminated_cause must be empty or one of {known}, got {cause!r}")
    texts = ("eliminated_by", "name", "latency", "shout")
    return Snake(
        id=json_fields.string(value, "id", path),
        body=body,
        health=limits.read_number(value, "health", path),
        eliminated_cause=cause,
        eliminated_on=json_fields.integer(value, "eliminated_on", path, 0),
        customizations=_read_texts(value, "customizations", path),
        **{name: json_fields.string(value, name, path, "") for name in texts},
    )


def _read_cells(parent: Mapping[str, Any], key: str, path: str) -> list[Point]:
    cells = []
    for i, value in enumerate(json_fields.items(parent, key, path)):
        location = f"{json_fields.join_path(path, key)}[{i}]"
        if not isinstance(value, list) or len(value) != 2:
            raise BoardError(
                f"{location} must be a cell [x, y], got {json_fields.format_value(value)}"
            )
        cell = dict(zip("xy", value, strict=True))
        x, y = json_fields.integer(cell, "x", location), json_fields.integer(cell, "y", location)
        if abs(x) > limits.MAX_COORDINATE or abs(y) > limits.MAX_COORDINATE:
            raise BoardError(f"{location} is more than {limits.MAX_COORDINATE} cells off the board")
        cells.append((x, y))
    return cells


def _read_texts(parent: Mapping[str, Any], key: str, path: str) -> dict[str, str]:
    location = json_fields.join_path(path, key)
    texts = json_fields.child(parent, key, path)
    return {name: json_fields.string(texts, name, location, "") for name in texts}


def _read_numbers(parent: Mapping[str, Any], key: str, path: str) -> dict[str, float]:
    """Return the numbers under ``key``, keyed by name.

    Files contain infinities as strings.
    """
    numbers = {}
    for name, value in json_fields.child(parent, key, path).items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, OverflowError):
            location = f"{json_fields.join_path(path, key)}.{name}"
            raise BoardError(
                f"{location} must be a number, got {json_fields.format_value(value)}"
            ) from None
    return numbers


def read_decision(value: Mapping[str, Any], path: str) -> Decision:
    """Parse the decision of a strategy.

    Args:
        value: JSON object of the decision.
        path: JSON path of the decision.

    Raises:
        BoardError: If a field is invalid.
    """
    line, location = json_fields.child(value, "line", path), json_fields.join_path(path, "line")
    return Decision(
        move=json_fields.string(value, "move", path, ""),
        reasons=tuple(
            Reason(
                rule=json_fields.string(reason, "rule", at, ""),
                vetoed=tuple(map(str, json_fields.items(reason, "vetoed", at))),
                scores=_read_scores(reason, at),
                note=json_fields.string(reason, "note", at, ""),
            )
            for reason, at in json_fields.objects(value, "reasons", path)
        ),
        scores=_read_scores(value, path),
        shout=json_fields.string(value, "shout", path, ""),
        line={name: tuple(map(str, json_fields.items(line, name, location))) for name in line},
    )


def _read_scores(value: Mapping[str, Any], path: str) -> dict[str, float]:
    """Return the scores by move; in JSON for web pages, infinities are null."""
    scores = json_fields.child(value, "scores", path)
    known = {move: -math.inf if score is None else score for move, score in scores.items()}
    return _read_numbers({"scores": known}, "scores", path)

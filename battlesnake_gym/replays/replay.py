"""Recorded games, whose positions can be used in boards, tests and environments.

A `Replay` stores the game, the first position and the moves of each turn; the rules determine all
later positions. A replay also stores data that the rules do not determine: positions that the seed
does not reproduce, latencies, shouts and the reasons for decisions.

>>> replay = Replay(Board.from_text("A . . . B"))
>>> replay.append({"a": "right", "b": "left"}, shouts={"a": "hello"})
>>> replay.append({"a": "right", "b": "left"})
>>> print(replay.board(1))
turn=1
> A . B <
A: id=a health=99
B: id=b health=99
>>> replay.deaths()
[(2, 'a', 'head-collision'), (2, 'b', 'head-collision')]

A replay file is JSON Lines, compressed if the file name ends in ``.gz``. The file contains a
``replay`` line with the game and the first position, one ``turn`` line per turn, and an ``end``
line. The ``end`` line contains the result of every snake and detects damaged files. `Replay.load`
also reads output files of the official CLI, and `battlesnake_gym.replays.official_format` writes
these files.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.common.extras import load_module
from battlesnake_gym.common.temporary_dirs import temporary_dir
from battlesnake_gym.common.untrusted_text import path_text
from battlesnake_gym.replays import limits, official_format
from battlesnake_gym.replays.json_lines import ReplayError as ReplayError
from battlesnake_gym.replays.json_lines import (
    at_line,
    read_lines,
    warn_when_too_large,
    write_lines,
)
from battlesnake_gym.rules.state import CAUSES, Game, Point, Settings, Snake, State
from battlesnake_gym.snakes import Decision, Reason, Strategy

_FORMAT_VERSION = 2
"""Version of the file format, which the first line of a file contains."""

REPLAY_SUFFIXES = (".jsonl", ".jsonl.gz")
"""File suffixes of replays."""


def find_files(directory: Path) -> list[Path]:
    """Return all files under ``directory`` that may contain recorded games, sorted."""
    return sorted(path for path in directory.rglob("*") if path.name.endswith(REPLAY_SUFFIXES))


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

    def play(self, board: Board) -> None:
        """Play this turn on ``board``, in place."""
        board.advance(self.moves)
        if self.snakes is not None:
            board.snakes = copy.deepcopy(self.snakes)
        if self.food is not None:
            board.food = self.food[:]
        if self.hazards is not None:
            board.hazards = self.hazards[:]
        for snake in board.snakes:
            if snake.id in self.moves:
                snake.shout = self.shouts.get(snake.id, "")
            if snake.id in self.latency:
                snake.latency = f"{self.latency[snake.id]:.12g}"


@dataclass(slots=True)
class Replay:
    """A recorded game, which consists of the first position and all turns.

    ``Replay(board)`` starts a recording and `append` adds a turn. ``info`` contains further data of
    the recorder, as JSON values.
    """

    first: Board
    turns: list[Turn] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    _last: Board = field(init=False, compare=False, repr=False)
    _meter: limits.SizeMeter = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.first = Board.from_state(self.first, self.first.game)
        self._last = self.first.copy()
        self._meter = limits.SizeMeter()
        self._meter.add(self._last)
        for turn in self.turns:
            turn.play(self._last)
            self._meter.add(self._last)

    @property
    def game(self) -> Game:
        """Constants of the game: ruleset, map, settings and seed."""
        return self.first.game

    @property
    def last(self) -> Board:
        """Copy of the position after the last turn."""
        return self._last.copy()

    def append(
        self,
        moves: Mapping[str, str],
        *,
        after: State | None = None,
        inferred: list[str] | None = None,
        latency: Mapping[str, float] | None = None,
        shouts: Mapping[str, str] | None = None,
        decisions: Mapping[str, Decision] | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> None:
        """Record a turn.

        Args:
            moves: Moves of all living snakes, by id.
            after: Position after the turn; differences from the result of the rules are stored.
                None means that the rules and the seed of the game determine the position.
            inferred: Ids of the snakes whose move was inferred instead of recorded.
            latency: Latency by snake id, in milliseconds.
            shouts: Shouts by snake id.
            decisions: Decisions by snake id.
            problems: Reasons for missing moves, by id of the snakes without a valid move.

        Raises:
            rules.RulesError: If a living snake has no move.
        """
        turn = Turn(
            moves={snake.id: moves[snake.id] for snake in self._last.living if snake.id in moves},
            inferred=list(inferred or ()),
            latency=dict(latency or {}),
            shouts=dict(shouts or {}),
            decisions=dict(decisions or {}),
            problems=dict(problems or {}),
        )
        board = self._last.copy()
        turn.play(board)
        if after is not None:
            _store_differences(turn, board, after)
            board = self._last.copy()
            turn.play(board)
        self.turns.append(turn)
        self._last = board
        self._meter.add(board)

    def boards(self) -> Iterator[Board]:
        """Yield copies of all positions from the first to the last."""
        board = self.first.copy()
        yield board.copy()
        for turn in self.turns:
            turn.play(board)
            yield board.copy()

    def board(self, turn: int) -> Board:
        """Return the position after ``turn``.

        Raises:
            ReplayError: If the game does not have this turn.
        """
        start, end = self.first.turn, self.first.turn + len(self.turns)
        if not start <= turn <= end:
            raise ReplayError(f"turn must be between {start} and {end}, got {turn}")
        board = self.first.copy()
        for played in self.turns[: turn - start]:
            played.play(board)
        return board

    def snake_id(self, id_or_name: str) -> str:
        """Return the id of the snake that has this id or this unique name.

        Raises:
            ReplayError: If no snake matches, or if several snakes match.
        """
        snakes = self.first.snakes
        if any(snake.id == id_or_name for snake in snakes):
            return id_or_name
        named = [snake.id for snake in snakes if snake.name == id_or_name]
        if len(named) == 1:
            return named[0]
        shown = json_fields.format_value(id_or_name)
        if named:
            known = ", ".join(map(json_fields.format_value, named))
            raise ReplayError(f"several snakes have the name {shown}; give an id of {known}")
        known = ", ".join(dict.fromkeys(json_fields.format_value(s.name or s.id) for s in snakes))
        raise ReplayError(f"no snake has the name {shown}; use one of {known}")

    def deaths(self) -> list[tuple[int, str, str]]:
        """Return the turn, snake id and cause of each elimination, in order."""
        found = [
            (snake.eliminated_on, snake.id, snake.eliminated_cause)
            for snake in self._last.snakes
            if not snake.alive
        ]
        return sorted(found, key=lambda death: death[0])

    def to_gif(self, cell_size_px: int = 12) -> bytes:
        """Return the game as the bytes of an animated GIF."""
        from battlesnake_gym.draw import animation  # Imports the picture library.

        with temporary_dir("game") as folder:
            path = folder / "game.gif"
            animation.save_gif(self.boards(), path, cell_size_px)
            return path.read_bytes()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the replay to a file atomically.

        Files with the suffix ``.gz`` are compressed. The method warns if `load` would reject the
        file as too large (`battlesnake_gym.replays.limits`).
        """
        with warn_when_too_large():
            limits.check_position(self.first)
            self._meter.check()
        write_lines(path, self.to_lines())

    def to_lines(self) -> list[dict[str, Any]]:
        """Return the lines of the file as JSON objects."""
        head = {
            "replay": _FORMAT_VERSION,
            "game": dataclasses.asdict(self.game) | {"settings": self.game.settings.to_dict()},
            "first": _state_to_dict(self.first),
            "info": self.info,
        }
        numbered = enumerate(self.turns, self.first.turn + 1)
        body = [{"turn": number, **_turn_to_dict(turn)} for number, turn in numbered]
        return [head, *body, {"end": _result_to_dict(self._last)}]

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Replay:
        """Read a replay, or an output file of the official CLI.

        Raises:
            ReplayError: If the file cannot be read; the message names file, line and field.
            OSError: If the file does not exist.
        """
        replay, rest = Replay.stream(path)
        deque(rest, maxlen=0)
        return replay

    @staticmethod
    def fetch(source: str, *, ruleset: str = "", map: str = "") -> Replay:
        """Fetch a game from arena.battlesnake.com, an engine or this project's arena.

        The method needs the packages of the extra ``server``.

        Args:
            source: Id or URL of the game.
            ruleset: Ruleset, required if neither the engine nor the frames show the ruleset.
            map: Map, required if neither the engine nor the frames show the map.

        Raises:
            ReplayError: If the game does not exist, cannot be fetched, or is not over.
        """
        game_fetcher = load_module("battlesnake_server.replay_viewer.game_fetcher", "server")
        replay: Replay = game_fetcher.fetch(source, ruleset=ruleset, board_map=map)
        return replay

    @staticmethod
    def stream(path: str | os.PathLike[str]) -> tuple[Replay, Iterator[Turn]]:
        """Return a replay without turns, and an iterator that reads and appends the turns.

        Use this method to read only the first turns of a large file. The errors equal the errors of
        `load`. The iterator raises the errors of later lines.
        """
        lines, name = read_lines(path), path_text(Path(path).name)
        head = next(lines)
        if "replay" in head:
            return Replay._stream_lines(itertools.chain([head], lines), name)
        first, turns = official_format.parse_game_file(head, lines, name)
        replay = Replay(first)
        return replay, replay._append_inferred(turns)

    def _append_inferred(self, turns: Iterable[official_format.InferredTurn]) -> Iterator[Turn]:
        for turn in turns:
            self.append(turn.moves, after=turn.after, inferred=turn.inferred, latency=turn.latency)
            yield self.turns[-1]

    @staticmethod
    def from_play(
        board: Board,
        strategies: Mapping[str, Strategy],
        seconds: float | None = None,
        max_turns: int = 1000,
    ) -> Replay:
        """Play and record a game with `snakes.play`, with the reasons for all moves.

        Args:
            board: Start position.
            strategies: Strategies by snake id.
            seconds: Time budget of each move; None means no limit.
            max_turns: Maximum number of turns.
        """
        replay = Replay(board)
        for decisions in snakes.play(board.copy(), strategies, seconds, max_turns):
            moves = {snake_id: decision.move for snake_id, decision in decisions.items()}
            replay.append(moves, decisions=decisions)
        return replay

    @staticmethod
    def _stream_lines(lines: Iterable[dict[str, Any]], name: str) -> tuple[Replay, Iterator[Turn]]:
        numbered = enumerate(lines, 1)
        with at_line(name, 1):
            head = _expect_key(next(numbered, (1, None))[1], "replay")
            if head["replay"] not in (1, _FORMAT_VERSION):
                raise BoardError(
                    f"replay must be 1 to {_FORMAT_VERSION}, "
                    f"got {json_fields.format_value(head['replay'])}"
                )
            state = _read_state(json_fields.child(head, "first", ""))
            first = Board.from_state(state, _read_game(json_fields.child(head, "game", "")))
            limits.check_position(first)
            replay = Replay(first, info=dict(json_fields.child(head, "info", "")))
            replay._meter.check()
        return replay, replay._read_turns(numbered, name)

    def _read_turns(
        self, numbered: Iterator[tuple[int, dict[str, Any]]], name: str
    ) -> Iterator[Turn]:
        number, last = next(numbered, (1, None))
        for following, line in numbered:
            with at_line(name, number):
                turn = _read_turn(last or {}, self._last.turn + 1)
                turn.play(self._last)
                self._meter.count(self._last)
                self.turns.append(turn)
            yield turn
            number, last = following, line
        with at_line(name, number):
            if _expect_key(last, "end")["end"] != _result_to_dict(self._last):
                raise BoardError(
                    "end differs from the result of the turns above; the file is damaged "
                    "or was recorded with other rules"
                )


def _store_differences(turn: Turn, board: Board, after: State) -> None:
    """Store in ``turn`` the parts of ``after`` that differ from ``board``."""
    known = [(s.id, s.body, s.health, s.eliminated_cause) for s in board.snakes]
    if [(s.id, s.body, s.health, s.eliminated_cause) for s in after.snakes] != known:
        turn.snakes = copy.deepcopy(after.snakes)
    if after.food != board.food:
        turn.food = after.food[:]
    if after.hazards != board.hazards:
        turn.hazards = after.hazards[:]


def _state_to_dict(state: Board) -> dict[str, Any]:
    written: dict[str, Any] = _to_json_value(dataclasses.asdict(state))
    del written["game"], written["you_id"], written["new_food"]  # The turns determine new food.
    return written


def _turn_to_dict(turn: Turn) -> dict[str, Any]:
    """Convert a turn to a JSON object.

    The object contains the moves and all fields that differ from their defaults.
    """
    defaults = dataclasses.asdict(Turn(moves={}))
    written = dataclasses.asdict(turn)
    return {k: _to_json_value(v) for k, v in written.items() if k == "moves" or v != defaults[k]}


def _result_to_dict(board: Board) -> dict[str, Any]:
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


def _expect_key(line: dict[str, Any] | None, key: str) -> dict[str, Any]:
    if line is None or key not in line:
        raise BoardError(f"the {key!r} line is missing; the file is truncated or not a replay")
    return line


def _read_game(game: Mapping[str, Any]) -> Game:
    defaults = Game()
    settings = json_fields.child(game, "settings", "game")
    names = [key.name for key in dataclasses.fields(Settings)]
    if settings.get("view_radius") is None:  # Older files lack the setting.
        names.remove("view_radius")
    path = "game.settings"
    return Game(
        ruleset=json_fields.string(game, "ruleset", "game", defaults.ruleset),
        map=json_fields.string(game, "map", "game", defaults.map),
        settings=Settings(**{key: _read_bounded_int(settings, key, path) for key in names}),
        seed=json_fields.integer(game, "seed", "game"),
        solo=game.get("solo") is True,
        id=json_fields.string(game, "id", "game", ""),
        timeout=json_fields.integer(game, "timeout", "game", defaults.timeout),
        source=json_fields.string(game, "source", "game", ""),
    )


def _read_state(first: Mapping[str, Any]) -> State:
    memory = json_fields.child(first, "memory", "first")
    state = State(
        turn=json_fields.integer(first, "turn", "first"),
        width=json_fields.integer(first, "width", "first"),
        height=json_fields.integer(first, "height", "first"),
        snakes=_read_snakes(first, "first"),
        food=_read_cells(first, "food", "first"),
        hazards=_read_cells(first, "hazards", "first"),
        memory={key: _read_memory(memory, key) for key in memory},
    )
    limits.check_start(state)
    return state


def _read_memory(memory: Mapping[str, Any], key: str) -> Any:
    """Return a value in the memory of a map: a number or a list of cells."""
    if isinstance(memory[key], list):
        return _read_cells(memory, key, "first.memory")
    return _read_bounded_int(memory, key, "first.memory")


def _read_bounded_int(parent: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer under ``key``, after a check of the limits of replays."""
    return limits.check_number(
        json_fields.integer(parent, key, path), json_fields.join_path(path, key)
    )


def _read_snakes(parent: Mapping[str, Any], path: str) -> list[Snake]:
    values = enumerate(json_fields.items(parent, "snakes", path))
    location = json_fields.join_path(path, "snakes")
    return [
        _read_snake(json_fields.mapping(v, f"{location}[{i}]"), f"{location}[{i}]")
        for i, v in values
    ]


def _read_snake(value: Mapping[str, Any], path: str) -> Snake:
    body = _read_cells(value, "body", path)
    if not body:
        raise BoardError(f"{path}.body is missing or empty; list its cells, head first")
    cause = json_fields.string(value, "eliminated_cause", path, "")
    if cause not in CAUSES:
        known = ", ".join(CAUSES[1:])
        raise BoardError(f"{path}.eliminated_cause must be empty or one of {known}, got {cause!r}")
    return Snake(
        id=json_fields.string(value, "id", path),
        body=body,
        health=_read_bounded_int(value, "health", path),
        eliminated_cause=cause,
        eliminated_by=json_fields.string(value, "eliminated_by", path, ""),
        eliminated_on=json_fields.integer(value, "eliminated_on", path, 0),
        name=json_fields.string(value, "name", path, ""),
        latency=json_fields.string(value, "latency", path, ""),
        shout=json_fields.string(value, "shout", path, ""),
        customizations=_read_texts(value, "customizations", path),
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


def _read_turn(line: Mapping[str, Any], expected: int) -> Turn:
    number = json_fields.integer(line, "turn", "")
    if number != expected:
        raise BoardError(f"turn must be {expected}, got {number}; lines are missing or misplaced")
    decisions = json_fields.child(line, "decisions", "")
    return Turn(
        moves=_read_texts(line, "moves", ""),
        snakes=_read_snakes(line, "") if "snakes" in line else None,
        food=_read_cells(line, "food", "") if "food" in line else None,
        hazards=_read_cells(line, "hazards", "") if "hazards" in line else None,
        inferred=_read_inferred(line),
        latency=_read_numbers(line, "latency", ""),
        shouts=_read_texts(line, "shouts", ""),
        decisions={
            name: _read_decision(
                json_fields.child(decisions, name, "decisions"), f"decisions.{name}"
            )
            for name in decisions
        },
        problems=_read_texts(line, "problems", ""),
    )


def _read_inferred(line: Mapping[str, Any]) -> list[str]:
    """Return the ids under ``inferred``, which format 1 called ``guessed``."""
    key = "inferred" if "inferred" in line else "guessed"
    return [str(name) for name in json_fields.items(line, key, "")]


def _read_decision(value: Mapping[str, Any], path: str) -> Decision:
    reasons = [
        _read_reason(json_fields.mapping(item, f"{path}.reasons[{i}]"), f"{path}.reasons[{i}]")
        for i, item in enumerate(json_fields.items(value, "reasons", path))
    ]
    return Decision(
        move=json_fields.string(value, "move", path, ""),
        reasons=tuple(reasons),
        scores=_read_numbers(value, "scores", path),
        shout=json_fields.string(value, "shout", path, ""),
        line=_read_expected_line(value, path),
    )


def _read_expected_line(value: Mapping[str, Any], path: str) -> dict[str, tuple[str, ...]]:
    location = json_fields.join_path(path, "line")
    line = json_fields.child(value, "line", path)
    return {name: tuple(map(str, json_fields.items(line, name, location))) for name in line}


def _read_reason(value: Mapping[str, Any], path: str) -> Reason:
    return Reason(
        rule=json_fields.string(value, "rule", path, ""),
        vetoed=tuple(str(move) for move in json_fields.items(value, "vetoed", path)),
        scores=_read_numbers(value, "scores", path),
        note=json_fields.string(value, "note", path, ""),
    )

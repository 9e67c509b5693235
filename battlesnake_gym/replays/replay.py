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
from battlesnake_gym.replays import engine_frames, limits, official_format, turn_json
from battlesnake_gym.replays.engine_frames import EngineFrames
from battlesnake_gym.replays.json_lines import ReplayError as ReplayError
from battlesnake_gym.replays.json_lines import (
    at_line,
    read_lines,
    warn_when_too_large,
    write_lines,
)
from battlesnake_gym.replays.turn_json import Turn as Turn
from battlesnake_gym.rules.state import Game, Point, State
from battlesnake_gym.snakes import Decision, Strategy

_FORMAT_VERSION = 2
"""Version of the file format, which the first line of a file contains."""

REPLAY_SUFFIXES = (".jsonl", ".jsonl.gz")
"""File suffixes of replays."""


def find_files(directory: Path) -> list[Path]:
    """Return all files under ``directory`` that may contain recorded games, sorted."""
    return sorted(path for path in directory.rglob("*") if path.name.endswith(REPLAY_SUFFIXES))


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
        if after is not None:
            board = self._last.copy()
            turn.play(board)
            _store_differences(turn, board, after)
        self.append_turn(turn)

    def append_turn(self, turn: Turn) -> None:
        """Append a turn of another recording of the game.

        Raises:
            rules.RulesError: If a living snake has no move.
        """
        board = self._last.copy()
        turn.play(board)
        self.turns.append(turn)
        self._last = board
        self._meter.add(board)

    def append_frame(
        self, frame: State, last_heads: Mapping[str, Point], **known: Mapping[str, Any]
    ) -> None:
        """Record the turn that leads to ``frame``; the moves are inferred.

        Args:
            frame: Position after the turn, with the surviving snakes.
            last_heads: Known last head cells of eliminated snakes, by id.
            **known: The arguments ``latency``, ``shouts`` and ``problems`` of `append`.

        Raises:
            ValueError: If no moves lead to ``frame`` under the rules.
        """
        moves, inferred, after = official_format.infer_turn(self._last, frame, last_heads)
        self.append(moves, after=after, inferred=inferred, **known)

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
        self._check_turn(turn)
        board = self.first.copy()
        for played in self.turns[: turn - board.turn]:
            played.play(board)
        return board

    def boards_until(self, turn: int, count: int) -> list[Board]:
        """Return up to ``count`` consecutive positions, of which the last is after ``turn``.

        Raises:
            ReplayError: If the game does not have this turn.
        """
        self._check_turn(turn)
        first = self.first.turn
        boards = [self.board(max(first, turn - count + 1))]
        for played in self.turns[boards[0].turn - first : turn - first]:
            board = boards[-1].copy()
            played.play(board)
            boards.append(board)
        return boards

    def _check_turn(self, turn: int) -> None:
        start, end = self.first.turn, self.first.turn + len(self.turns)
        if not start <= turn <= end:
            raise ReplayError(f"turn must be between {start} and {end}, got {turn}")

    def set_default_view_radius(self, view_radius: int | None) -> int | None:
        """Set the view radius of a game whose settings have none.

        Returns:
            The view radius, or None if the settings have one.
        """
        if self.game.settings.view_radius is not None:
            return None
        settings = dataclasses.replace(self.game.settings, view_radius=view_radius)
        self.first.game = dataclasses.replace(self.game, settings=settings)
        return view_radius

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

    def to_gif(self) -> bytes:
        """Return the game as the bytes of an animated GIF, with cells of 12 pixels."""
        from battlesnake_gym.draw import animation  # Imports the picture library.

        with temporary_dir("game") as folder:
            path = folder / "game.gif"
            animation.save_gif(self.boards(), path, 12)
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
            "first": turn_json.state_to_dict(self.first),
            "info": self.info,
        }
        numbered = enumerate(self.turns, self.first.turn + 1)
        body = [{"turn": number, **turn.to_dict()} for number, turn in numbered]
        return [head, *body, {"end": turn_json.result_to_dict(self._last)}]

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Replay:
        """Read a replay, an output file of the official CLI, or a replay of Battlesnake Blackout.

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
    def from_engine_frames(
        parsed: EngineFrames, sent: Mapping[str, Any] | None, how: str = ""
    ) -> Replay:
        """Convert the frames of an engine to a replay of the complete game.

        Args:
            parsed: All frames.
            sent: The ``game`` object that the engine sent; if None, the rules are inferred.
            how: Source of ``sent``, recorded in ``info``.

        Raises:
            ReplayError: If the frames do not determine the rules, or contradict ``sent``.
        """
        replay, rest = Replay._stream_engine_frames(parsed, sent, how)
        deque(rest, maxlen=0)
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
        if isinstance(head.get("moves"), list):
            parsed = EngineFrames.from_blackout(head, name)
            return Replay._stream_engine_frames(
                parsed, engine_frames.BLACKOUT_GAME, "of Battlesnake Blackout"
            )
        first, turns, last_heads = official_format.parse_game_file(head, lines, name)
        replay = Replay(first)
        return replay, replay._append_frames(turns, last_heads, name, 3)

    def _append_frames(
        self,
        turns: Iterable[tuple[State, dict[str, Any]]],
        last_heads: dict[str, Point],
        name: str,
        first_line: int,
    ) -> Iterator[Turn]:
        for number, (frame, known) in enumerate(turns, first_line):
            with at_line(name, number):
                self.append_frame(frame, last_heads, **known)
            yield self.turns[-1]

    @staticmethod
    def _stream_engine_frames(
        parsed: EngineFrames, sent: Mapping[str, Any] | None, how: str
    ) -> tuple[Replay, Iterator[Turn]]:
        first = parsed.first_board(sent)
        info = {"fetched": parsed.name, "rules": how or "inferred from its frames"}
        replay = Replay(first, info=info)
        turns = parsed.turns(first.game.timeout)
        return replay, replay._append_frames(turns, parsed.last_heads, parsed.name, 2)

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
        deque(replay.play(strategies, seconds, max_turns), maxlen=0)
        return replay

    def play(
        self,
        strategies: Mapping[str, Strategy],
        seconds: float | None = None,
        max_turns: int = 1000,
    ) -> Iterator[Turn]:
        """Continue the game with `snakes.play`; record and yield each turn."""
        for decisions in snakes.play(self.last, strategies, seconds, max_turns):
            moves = {snake_id: decision.move for snake_id, decision in decisions.items()}
            self.append(moves, decisions=decisions)
            yield self.turns[-1]

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
            state = turn_json.read_state(json_fields.child(head, "first", ""))
            first = Board.from_state(
                state, turn_json.read_game(json_fields.child(head, "game", ""))
            )
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
                turn = Turn.from_dict(last or {}, self._last.turn + 1)
                turn.play(self._last)
                self._meter.count(self._last)
                self.turns.append(turn)
            yield turn
            number, last = following, line
        with at_line(name, number):
            if _expect_key(last, "end")["end"] != turn_json.result_to_dict(self._last):
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


def _expect_key(line: dict[str, Any] | None, key: str) -> dict[str, Any]:
    if line is None or key not in line:
        raise BoardError(f"the {key!r} line is missing; the file is truncated or not a replay")
    return line

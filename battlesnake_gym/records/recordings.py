"""Recorded games of the reference engine: one JSON object a line, plain or gzip'ed.

A game is a ``game`` line with all that decides it (size, seed, ruleset, map, settings, snakes), one
``t`` line for every position with the moves that led to it, and an ``end`` line. Cells are flat
lists ``x0, y0, x1, y1, ...``; a ``t`` line without hazards has those of the line before.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.rules import Game, Point, Settings, Snake, State

FORMAT = 1
SUFFIXES = (".jsonl", ".jsonl.gz")
REASONS = ("over", "cap", "panic")


class RecordingError(ValueError):
    """A file that does not hold recorded games: the message says where and what."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One position and the moves that led to it (of the snakes that lived before it)."""

    moves: dict[str, str]
    state: State


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded game.

    ``setup_exact`` says whether the first position follows from seed and map alone, and
    ``hazard_order_exact`` whether the order of hazards does. ``reason`` is why the recording ends:
    ``"over"``, ``"cap"`` (after ``max_turns`` turns, or before a state too large to record) or
    ``"panic"`` (the reference crashed on the next turn). ``alive`` are the survivors.
    """

    id: str
    game: Game
    width: int
    height: int
    snake_ids: tuple[str, ...]
    setup_exact: bool
    hazard_order_exact: bool
    max_turns: int
    reason: str
    alive: tuple[str, ...]
    frames: list[Frame] = field(repr=False)

    @property
    def turns(self) -> int:
        """How many turns were played."""
        return len(self.frames) - 1


def find_files(folder: Path) -> list[Path]:
    """All files under ``folder`` that may hold recorded games, sorted."""
    return sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))


def read_lines(path: Path) -> Iterator[list[str]]:
    """The lines of each game in a file, so that games can be handed on and parsed elsewhere.

    Raises `RecordingError` where the file does not end with an ``end`` line or is no text.
    """
    opener = gzip.open if path.name.endswith(".gz") else open
    lines: list[str] = []
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    lines.append(line)
                    if '"k":"end"' in line.replace(" ", ""):
                        yield lines
                        lines = []
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    if lines:
        raise RecordingError(f"{path} ends in the middle of a game: its last 'end' line is missing")


def read(path: Path) -> Iterator[Recording]:
    """The games of one file; raises `RecordingError` where it holds something else."""
    for lines in read_lines(path):
        yield parse(lines, str(path))


def parse(lines: Sequence[str], where: str) -> Recording:
    """One game from its lines; ``where`` names their origin in errors."""
    try:
        header, *turns, end = (json.loads(line) for line in lines)
        return _recording(header, turns, end)
    except RecordingError as error:
        raise RecordingError(f"{where}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise RecordingError(
            f"{where}: the game that begins with {lines[0][:60]!r} is not in the format of "
            f"recorded games ({type(error).__name__}: {error})"
        ) from error


def _recording(header: Any, turns: list[Any], end: Any) -> Recording:
    kinds = [header["k"], *{turn["k"] for turn in turns}, end["k"]]
    if kinds != ["game", "t", "end"]:
        raise RecordingError(f"a game needs lines of the kinds game, t, ..., end; got {kinds}")
    if header["format"] != FORMAT:
        raise RecordingError(f"format must be {FORMAT}, got {header['format']!r}")
    if end["reason"] not in REASONS:
        raise RecordingError(f"reason must be one of {REASONS}, got {end['reason']!r}")
    if end["t"] != turns[-1]["t"]:
        raise RecordingError(f"the end is at turn {end['t']}, the last state {turns[-1]['t']}")
    ids = tuple(header["snakes"])
    return Recording(
        id=header["id"],
        game=_game(header),
        width=header["w"],
        height=header["h"],
        snake_ids=ids,
        setup_exact=header["setupExact"],
        hazard_order_exact=header["hazardOrderExact"],
        max_turns=header["maxTurns"],
        reason=end["reason"],
        alive=tuple(end["alive"]),
        frames=list(_frames(turns, header["w"], header["h"], ids)),
    )


def _game(header: Any) -> Game:
    settings = header["settings"]
    return Game(
        ruleset=header["ruleset"],
        map=header["map"],
        settings=Settings(
            food_spawn_chance=settings["foodSpawnChance"],
            minimum_food=settings["minimumFood"],
            hazard_damage_per_turn=settings["hazardDamagePerTurn"],
            shrink_every_n_turns=settings["shrinkEveryNTurns"],
        ),
        seed=header["seed"],
        solo=header["solo"],
        id=header["id"],
    )


def _frames(turns: Iterable[Any], width: int, height: int, ids: Sequence[str]) -> Iterator[Frame]:
    hazards: list[Point] | None = None
    for turn in turns:
        if "hz" in turn:
            hazards = _points(turn["hz"])
        if hazards is None:
            raise RecordingError("the first state of a game needs its hazards, 'hz'")
        answers = zip(ids, turn.get("m", [None] * len(ids)), strict=True)
        yield Frame(
            moves={snake_id: answer for snake_id, answer in answers if answer is not None},
            state=State(
                turn=turn["t"],
                width=width,
                height=height,
                snakes=[_snake(i, snake) for i, snake in zip(ids, turn["s"], strict=True)],
                food=_points(turn["f"]),
                hazards=list(hazards),
            ),
        )


def _snake(snake_id: str, record: Any) -> Snake:
    return Snake(
        id=snake_id,
        body=_points(record["b"]),
        health=record["hp"],
        eliminated_cause=record.get("x", ""),
        eliminated_by=record.get("by", ""),
        eliminated_on=record.get("on", 0),
    )


def _points(flat: list[int]) -> list[Point]:
    return list(zip(flat[::2], flat[1::2], strict=True))

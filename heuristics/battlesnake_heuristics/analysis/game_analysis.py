"""The analysis of a whole recorded game, which lies in a file beside it and grows turn by turn.

`analyse` lets an `Analyst` look at every position, the last one first: mistakes are near the end.
What it finds is written beside the game every now and then, whole or not at all, so that it can be
stopped at any time and goes on where it was. The file holds its version, the hash of the game's
file and the time per position; where one of these does not fit, the analysis begins anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.json_lines import ReplayError, read_lines, write_lines
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules.state import MOVES
from battlesnake_heuristics.analysis.mistakes import Mark, mistakes, outcome
from battlesnake_heuristics.analysis.position_analysis import Analyst, Choice, Judgement
from battlesnake_heuristics.rating.match import cpu_clock
from battlesnake_heuristics.rating.process_pool import Pool, answers
from battlesnake_heuristics.search.evaluation import shipped

FORMAT = 2
"""The version of the file; another one is not read."""

LETTERS = {move[0]: move for move in MOVES}
SAVING = 30
"""Writing the file may take a thirtieth of the time."""

Tell = Callable[["Analysis"], object]


@dataclass(frozen=True, slots=True)
class Seen:
    """One analysed position: the judgement of each living snake, and what they then did."""

    judged: dict[str, Judgement]
    moves: dict[str, str]


@dataclass(slots=True)
class Analysis:
    """What is known of a game so far.

    ``game`` is the hash of its file, ``first`` and ``last`` are the turns with a move to judge,
    ``ends`` is what each snake got in the end (None: the game was stopped). ``seen`` are the
    positions by turn, in the order in which they were looked at; the ``marks`` of the mistakes come
    after all of them (None: not yet), in the order of the game.
    """

    game: str
    milliseconds: float
    first: int
    last: int
    ends: dict[str, float] | None
    by: str = ""
    seen: dict[int, Seen] = field(default_factory=dict)
    marks: list[Mark] | None = None

    def __post_init__(self) -> None:
        self.by = self.by or f"champion {shipped().facts['sha256'][:12]}"

    @property
    def complete(self) -> bool:
        """Whether every turn was looked at, and the mistakes were."""
        return self.marks is not None and len(self.seen) == self.last - self.first + 1

    def chances(self, turn: int) -> dict[str, float] | None:
        """The chances of the snakes on a turn; None where they are not known."""
        if turn in self.seen:
            return {name: judged.chance for name, judged in self.seen[turn].judged.items()}
        return self.ends if turn == self.last + 1 else None

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_lines(path, [self.head(), *itertools.starmap(write_seen, self.seen.items())])

    def head(self) -> dict[str, Any]:
        """What the file says of the analysis as a whole."""
        return {
            "analysis": FORMAT, "game": self.game, "by": self.by,
            "milliseconds": self.milliseconds, "first": self.first, "last": self.last,
            "ends": self.ends,
            "marks": self.marks and [dataclasses.asdict(mark) for mark in self.marks],
        }  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> Analysis:
        """Read a file; raises `ReplayError` for what is none, ``OSError`` if there is none."""
        lines = read_lines(path)
        try:
            head = next(lines)
            if head.get("analysis") != FORMAT:
                raise ReplayError(f"{path.name} is no analysis of version {FORMAT}")
            return cls(
                json_fields.string(head, "game", ""),
                float(head["milliseconds"]),
                json_fields.integer(head, "first", ""),
                json_fields.integer(head, "last", ""),
                head["ends"],
                json_fields.string(head, "by", ""),
                dict(map(_read_seen, lines)),
                head["marks"] and [Mark(**mark) for mark in head["marks"]],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ReplayError(f"{path.name} is a damaged analysis ({error})") from error


def path_of(game: Path) -> Path:
    """Where the analysis of a recorded game lies.

    >>> path_of(Path("games/final.jsonl.gz")).name
    'final.jsonl.gz.analysis.gz'
    """
    return game.with_name(game.name + ".analysis.gz")


def hash_of(game: Path) -> str:
    """The hash of a recorded game's file."""
    with game.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known(game: Path) -> Analysis | None:
    """The analysis that lies beside a game, if it is of this game as it is now."""
    try:
        found = Analysis.load(path_of(game))
    except (OSError, ReplayError):
        return None
    fresh = Analysis("", 0, 0, 0, None)
    return found if (found.game, found.by) == (hash_of(game), fresh.by) else None


def analyse(
    path: Path,
    milliseconds: float = 50,
    jobs: int = 1,
    tell: Tell = lambda analysis: None,
) -> Analysis:
    """Analyse the recorded game at ``path``, or go on with that, and keep it beside the game.

    Every living snake of every turn gets ``milliseconds`` of CPU time; what was thought about for
    as long or longer before is kept. The mistakes are looked for last (`analysis.mistakes`), in the
    same way whatever the time. ``tell`` is called after every turn, and at the end. Raises
    `ReplayError` for a file that is no recorded game, ``ValueError`` for one that no snake can win.
    """
    replay = Replay.load(path)
    analysis = _begun(path, replay, milliseconds)
    boards = list(replay.boards())
    start = analysis.first
    done = analysis.complete
    missing = [turn for turn in range(analysis.last, start - 1, -1) if turn not in analysis.seen]
    began = saved = time.monotonic()
    took = 0.0
    tell(analysis)
    try:
        positions = [(turn, boards[turn - start]) for turn in missing]
        with contextlib.closing(_judge(positions, milliseconds / 1000, jobs)) as judged:
            for turn, judgements in judged:
                analysis.seen[turn] = Seen(judgements, replay.turns[turn - start].moves)
                if time.monotonic() - saved > max(1.0, SAVING * took):
                    began = time.monotonic()
                    analysis.save(path_of(path))
                    saved = time.monotonic()
                    took = saved - began
                tell(analysis)
        if not done:
            found, _ = mistakes(replay, [snake.id for snake in replay.first.snakes])
            analysis.marks = sorted(found, key=lambda mark: mark.turn)
            tell(analysis)
    finally:
        if not done:
            analysis.save(path_of(path))
    return analysis


def _begun(path: Path, replay: Replay, milliseconds: float) -> Analysis:
    before = known(path)
    if before is not None and before.milliseconds >= milliseconds:
        return before
    if replay.game.solo or not replay.turns:
        raise ReplayError(
            f"{path.name}: a game needs two snakes and a turn to be analysed; give another one"
        )
    first = replay.first.turn
    last = first + len(replay.turns) - 1
    return Analysis(hash_of(path), milliseconds, first, last, outcome(replay.last))


def _judge(
    positions: Sequence[tuple[int, Board]], seconds: float, jobs: int
) -> Generator[tuple[int, dict[str, Judgement]], None, None]:
    """The turns, and what is thought of the board before each, the first ones first."""
    if jobs == 1:
        analyst = Analyst(seconds=seconds)
        with cpu_clock(True):
            yield from ((turn, analyst.judge(board)) for turn, board in positions)
        return
    work = functools.partial(_work, seconds)
    with Pool(jobs) as pool, contextlib.closing(answers(pool, work, positions)) as judged:
        yield from ((turn, judgements) for (turn, _), judgements in judged)


def _work(seconds: float, position: tuple[int, Board]) -> dict[str, Judgement]:
    with cpu_clock(True):
        return _analyst(seconds).judge(position[1])


_analyst = functools.cache(lambda seconds: Analyst(seconds=seconds))
"""In a process of a pool, which keeps it from position to position."""


# --- between objects and JSON -------------------------------------------------------------------


def write_seen(turn: int, seen: Seen) -> dict[str, Any]:
    """A line of the file: lines of moves are words of their first letters."""
    return {
        "turn": turn,
        "moves": seen.moves,
        "snakes": {name: write_judgement(judged) for name, judged in seen.judged.items()},
    }


def write_judgement(judged: Judgement) -> dict[str, Any]:
    """A judgement as JSON holds it."""
    return {
        "chance": round(judged.chance, 4),
        "choices": [
            {
                "move": choice.move,
                "chance": round(choice.chance, 4),
                "value": round(choice.value, 2),
                "line": {
                    name: "".join(move[0] for move in line) for name, line in choice.line.items()
                },
            }
            for choice in judged.choices
        ],
    }


def _read_seen(line: dict[str, Any]) -> tuple[int, Seen]:
    judged = {name: _read_judgement(value) for name, value in line["snakes"].items()}
    return json_fields.integer(line, "turn", ""), Seen(judged, dict(line["moves"]))


def _read_judgement(value: dict[str, Any]) -> Judgement:
    choices = [
        Choice(
            choice["move"],
            choice["chance"],
            choice["value"],
            {name: tuple(LETTERS[at] for at in line) for name, line in choice["line"].items()},
        )
        for choice in value["choices"]
    ]
    return Judgement(value["chance"], tuple(choices))

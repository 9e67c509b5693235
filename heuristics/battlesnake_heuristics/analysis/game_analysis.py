"""The analysis of a whole recorded game, which lies in a file beside it and grows turn by turn.

`analyze_game` lets an `PositionAnalyzer` look at every position, the last one first: mistakes are near the end.
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
from battlesnake_heuristics.analysis.mistakes import MoveAssessment, final_scores, find_mistakes
from battlesnake_heuristics.analysis.position_analysis import (
    CandidateMove,
    PositionAnalyzer,
    SnakeAssessment,
)
from battlesnake_heuristics.rating.match import searches_on_cpu_clock
from battlesnake_heuristics.rating.process_pool import ProcessPool, run_tasks
from battlesnake_heuristics.search.evaluation import load_builtin

_FORMAT = 2
"""The version of the file; another one is not read."""

MOVES_BY_LETTER = {move[0]: move for move in MOVES}
_SAVE_TIME_RATIO = 30
"""Writing the file may take a thirtieth of the time."""

Tell = Callable[["GameAnalysis"], object]


@dataclass(frozen=True, slots=True)
class AnalyzedPosition:
    """One analysed position: the judgement of each living snake, and what they then did."""

    assessments: dict[str, SnakeAssessment]
    moves: dict[str, str]


@dataclass(slots=True)
class GameAnalysis:
    """What is known of a game so far.

    ``game`` is the hash of its file, ``first`` and ``last`` are the turns with a move to judge,
    ``final_scores`` is what each snake got in the end (None: the game was stopped). ``seen`` are the
    positions by turn, in the order in which they were looked at; the ``mistakes`` of the mistakes come
    after all of them (None: not yet), in the order of the game.
    """

    game: str
    move_time_ms: float
    first: int
    last: int
    final_scores: dict[str, float] | None
    evaluation_id: str = ""
    positions: dict[int, AnalyzedPosition] = field(default_factory=dict)
    mistakes: list[MoveAssessment] | None = None

    def __post_init__(self) -> None:
        self.evaluation_id = (
            self.evaluation_id or f"champion {load_builtin().metadata['sha256'][:12]}"
        )

    @property
    def complete(self) -> bool:
        """Whether every turn was looked at, and the mistakes were."""
        return self.mistakes is not None and len(self.positions) == self.last - self.first + 1

    def chances(self, turn: int) -> dict[str, float] | None:
        """The chances of the snakes on a turn; None where they are not known."""
        if turn in self.positions:
            return {
                name: judged.win_probability
                for name, judged in self.positions[turn].assessments.items()
            }
        return self.final_scores if turn == self.last + 1 else None

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_lines(path, [self.head(), *itertools.starmap(write_seen, self.positions.items())])

    def head(self) -> dict[str, Any]:
        """What the file says of the analysis as a whole."""
        return {
            "analysis": _FORMAT, "game": self.game, "by": self.evaluation_id,
            "milliseconds": self.move_time_ms, "first": self.first, "last": self.last,
            "ends": self.final_scores,
            "marks": self.mistakes and [dataclasses.asdict(mark) for mark in self.mistakes],
        }  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> GameAnalysis:
        """Read a file; raises `ReplayError` for what is none, ``OSError`` if there is none."""
        lines = read_lines(path)
        try:
            head = next(lines)
            if head.get("analysis") != _FORMAT:
                raise ReplayError(f"{path.name} is no analysis of version {_FORMAT}")
            return cls(
                json_fields.string(head, "game", ""),
                float(head["milliseconds"]),
                json_fields.integer(head, "first", ""),
                json_fields.integer(head, "last", ""),
                head["ends"],
                json_fields.string(head, "by", ""),
                dict(map(_read_seen, lines)),
                head["marks"] and [MoveAssessment(**mark) for mark in head["marks"]],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ReplayError(f"{path.name} is a damaged analysis ({error})") from error


def analysis_path(game: Path) -> Path:
    """Where the analysis of a recorded game lies.

    >>> path_of(Path("games/final.jsonl.gz")).name
    'final.jsonl.gz.analysis.gz'
    """
    return game.with_name(game.name + ".analysis.gz")


def file_sha256(game: Path) -> str:
    """The hash of a recorded game's file."""
    with game.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_existing(game: Path) -> GameAnalysis | None:
    """The analysis that lies beside a game, if it is of this game as it is now."""
    try:
        found = GameAnalysis.load(analysis_path(game))
    except (OSError, ReplayError):
        return None
    fresh = GameAnalysis("", 0, 0, 0, None)
    return (
        found
        if (found.game, found.evaluation_id) == (file_sha256(game), fresh.evaluation_id)
        else None
    )


def analyze_game(
    path: Path,
    milliseconds: float = 50,
    jobs: int = 1,
    tell: Tell = lambda analysis: None,
) -> GameAnalysis:
    """Analyse the recorded game at ``path``, or go on with that, and keep it beside the game.

    Every living snake of every turn gets ``move_time_ms`` of CPU time; what was thought about for
    as long or longer before is kept. The mistakes are looked for last (`analysis.mistakes`), in the
    same way whatever the time. ``tell`` is called after every turn, and at the end. Raises
    `ReplayError` for a file that is no recorded game, ``ValueError`` for one that no snake can win.
    """
    replay = Replay.load(path)
    analysis = _begun(path, replay, milliseconds)
    boards = list(replay.boards())
    start = analysis.first
    done = analysis.complete
    missing = [
        turn for turn in range(analysis.last, start - 1, -1) if turn not in analysis.positions
    ]
    began = saved = time.monotonic()
    took = 0.0
    tell(analysis)
    try:
        positions = [(turn, boards[turn - start]) for turn in missing]
        with contextlib.closing(_judge(positions, milliseconds / 1000, jobs)) as judged:
            for turn, judgements in judged:
                analysis.positions[turn] = AnalyzedPosition(
                    judgements, replay.turns[turn - start].moves
                )
                if time.monotonic() - saved > max(1.0, _SAVE_TIME_RATIO * took):
                    began = time.monotonic()
                    analysis.save(analysis_path(path))
                    saved = time.monotonic()
                    took = saved - began
                tell(analysis)
        if not done:
            found, _ = find_mistakes(replay, [snake.id for snake in replay.first.snakes])
            analysis.mistakes = sorted(found, key=lambda mark: mark.turn)
            tell(analysis)
    finally:
        if not done:
            analysis.save(analysis_path(path))
    return analysis


def _begun(path: Path, replay: Replay, milliseconds: float) -> GameAnalysis:
    before = load_existing(path)
    if before is not None and before.move_time_ms >= milliseconds:
        return before
    if replay.game.solo or not replay.turns:
        raise ReplayError(
            f"{path.name}: a game needs two snakes and a turn to be analysed; give another one"
        )
    first = replay.first.turn
    last = first + len(replay.turns) - 1
    return GameAnalysis(file_sha256(path), milliseconds, first, last, final_scores(replay.last))


def _judge(
    positions: Sequence[tuple[int, Board]], seconds: float, jobs: int
) -> Generator[tuple[int, dict[str, SnakeAssessment]], None, None]:
    """The turns, and what is thought of the board before each, the first ones first."""
    if jobs == 1:
        analyst = PositionAnalyzer(seconds=seconds)
        with searches_on_cpu_clock(True):
            yield from ((turn, analyst.analyze(board)) for turn, board in positions)
        return
    work = functools.partial(_work, seconds)
    with ProcessPool(jobs) as pool, contextlib.closing(run_tasks(pool, work, positions)) as judged:
        yield from ((turn, judgements) for (turn, _), judgements in judged)


def _work(seconds: float, position: tuple[int, Board]) -> dict[str, SnakeAssessment]:
    with searches_on_cpu_clock(True):
        return _analyst(seconds).analyze(position[1])


_analyst = functools.cache(lambda seconds: PositionAnalyzer(seconds=seconds))
"""In a process of a pool, which keeps it from position to position."""


# --- between objects and JSON -------------------------------------------------------------------


def write_seen(turn: int, seen: AnalyzedPosition) -> dict[str, Any]:
    """A line of the file: lines of moves are words of their first letters."""
    return {
        "turn": turn,
        "moves": seen.moves,
        "snakes": {name: write_judgement(judged) for name, judged in seen.assessments.items()},
    }


def write_judgement(judged: SnakeAssessment) -> dict[str, Any]:
    """A judgement as JSON holds it."""
    return {
        "chance": round(judged.win_probability, 4),
        "choices": [
            {
                "move": choice.move,
                "chance": round(choice.win_probability, 4),
                "value": round(choice.value, 2),
                "line": {
                    name: "".join(move[0] for move in line) for name, line in choice.line.items()
                },
            }
            for choice in judged.candidates
        ],
    }


def _read_seen(line: dict[str, Any]) -> tuple[int, AnalyzedPosition]:
    judged = {name: _read_judgement(value) for name, value in line["snakes"].items()}
    return json_fields.integer(line, "turn", ""), AnalyzedPosition(judged, dict(line["moves"]))


def _read_judgement(value: dict[str, Any]) -> SnakeAssessment:
    choices = [
        CandidateMove(
            choice["move"],
            choice["chance"],
            choice["value"],
            {
                name: tuple(MOVES_BY_LETTER[at] for at in line)
                for name, line in choice["line"].items()
            },
        )
        for choice in value["choices"]
    ]
    return SnakeAssessment(value["chance"], tuple(choices))

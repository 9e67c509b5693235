"""The analysis of a recorded game, saved in a file next to the game.

`analyze_game` analyzes every position with a `PositionAnalyzer`. The analysis starts at the end of
the game, because mistakes tend to be near the end. The results are saved regularly and atomically,
so an interrupted analysis resumes. The file stores its format, the hash of the game file and the
time per move. If one of these values differs, the game is analyzed again.
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

_FORMAT = 3
"""Format of the analysis file; `GameAnalysis.load` converts files of format 2."""

_KEYS_OF_FORMAT_2 = {
    "by": "evaluation_id",
    "milliseconds": "move_time_ms",
    "ends": "final_scores",
    "marks": "mistakes",
    "better": "better_move",
    "before": "best_win_probability",
    "after": "played_win_probability",
    "chance": "win_probability",
    "choices": "candidates",
}
"""Keys of format 2, and the current names of these keys."""

MOVES_BY_LETTER = {move[0]: move for move in MOVES}
_SAVE_TIME_RATIO = 30
"""Saving takes at most 1/30 of the analysis time."""

_OnUpdate = Callable[["GameAnalysis"], object]


@dataclass(frozen=True, slots=True)
class AnalyzedPosition:
    """One analyzed position: an assessment per living snake, and the moves played."""

    assessments: dict[str, SnakeAssessment]
    moves: dict[str, str]


@dataclass(slots=True)
class GameAnalysis:
    """The analysis of a game so far.

    Attributes:
        game: SHA-256 hash of the game file.
        move_time_ms: CPU time per living snake and turn, in milliseconds.
        first: First turn with a move.
        last: Last turn with a move.
        final_scores: Final score of each snake; None if the game was stopped.
        evaluation_id: Name of the evaluation, with the start of its hash.
        positions: Analyzed positions by turn, in the order of their analysis.
        mistakes: Mistakes in game order; None until all positions are analyzed.
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
        """Whether all turns and all mistakes are analyzed."""
        return self.mistakes is not None and len(self.positions) == self.last - self.first + 1

    def win_probabilities(self, turn: int) -> dict[str, float] | None:
        """Return the win probabilities on a turn; None if the turn is not analyzed."""
        if turn in self.positions:
            return {
                name: assessment.win_probability
                for name, assessment in self.positions[turn].assessments.items()
            }
        return self.final_scores if turn == self.last + 1 else None

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        write_lines(
            path, [self.header(), *itertools.starmap(position_to_json, self.positions.items())]
        )

    def header(self) -> dict[str, Any]:
        """Return the first line of the file as JSON."""
        return {
            "analysis": _FORMAT, "game": self.game, "evaluation_id": self.evaluation_id,
            "move_time_ms": self.move_time_ms, "first": self.first, "last": self.last,
            "final_scores": self.final_scores,
            "mistakes": self.mistakes
            and [
                dataclasses.asdict(mistake) | {"annotation": mistake.annotation}
                for mistake in self.mistakes
            ],
        }  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> GameAnalysis:
        """Read an analysis file.

        Raises:
            ReplayError: If the file is not an analysis of a known format.
            OSError: If the file cannot be read.
        """
        lines = read_lines(path)
        try:
            header = next(lines)
            if header.get("analysis") == 2:
                header, lines = _header_from_format_2(header), map(_position_from_format_2, lines)
            elif header.get("analysis") != _FORMAT:
                raise ReplayError(f"{path.name} is not an analysis of format 2 or {_FORMAT}")
            return cls(
                json_fields.string(header, "game", ""),
                float(header["move_time_ms"]),
                json_fields.integer(header, "first", ""),
                json_fields.integer(header, "last", ""),
                header["final_scores"],
                json_fields.string(header, "evaluation_id", ""),
                dict(map(_position_from_json, lines)),
                header["mistakes"] and [_mistake_from_json(value) for value in header["mistakes"]],
            )
        except ReplayError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ReplayError(f"{path.name} is a damaged analysis ({error})") from error


def analysis_path(game: Path) -> Path:
    """Return the path of the analysis of a recorded game.

    >>> analysis_path(Path("games/final.jsonl.gz")).name
    'final.jsonl.gz.analysis.gz'
    """
    return game.with_name(game.name + ".analysis.gz")


def file_sha256(game: Path) -> str:
    """Return the SHA-256 hash of the file of a recorded game."""
    with game.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_existing(game: Path) -> GameAnalysis | None:
    """Return the saved analysis if the analysis is current, otherwise None.

    A current analysis matches the game file and the evaluation.
    """
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
    move_time_ms: float = 50,
    jobs: int = 1,
    on_update: _OnUpdate = lambda analysis: None,
) -> GameAnalysis:
    """Analyze the recorded game at ``path`` and save the result next to the game file.

    An unfinished analysis is resumed. Positions that were analyzed with at least the same time per
    move are kept. Mistakes are found last, independently of the time (`analysis.mistakes`).

    Args:
        path: Replay file.
        move_time_ms: CPU time per living snake and turn, in milliseconds.
        jobs: Number of processes.
        on_update: Called with the analysis at the start, after every turn, and at the end.

    Raises:
        ReplayError: If the file is not a recorded game of at least two snakes and one turn.
    """
    replay = Replay.load(path)
    analysis = _load_or_start(path, replay, move_time_ms)
    boards = list(replay.boards())
    start = analysis.first
    done = analysis.complete
    missing = [
        turn for turn in range(analysis.last, start - 1, -1) if turn not in analysis.positions
    ]
    saved = time.monotonic()
    save_s = 0.0
    on_update(analysis)
    try:
        positions = [(turn, boards[turn - start]) for turn in missing]
        with contextlib.closing(_assess_positions(positions, move_time_ms / 1000, jobs)) as results:
            for turn, assessments in results:
                analysis.positions[turn] = AnalyzedPosition(
                    assessments, replay.turns[turn - start].moves
                )
                if time.monotonic() - saved > max(1.0, _SAVE_TIME_RATIO * save_s):
                    began = time.monotonic()
                    analysis.save(analysis_path(path))
                    saved = time.monotonic()
                    save_s = saved - began
                on_update(analysis)
        if not done:
            found, _ = find_mistakes(replay, [snake.id for snake in replay.first.snakes])
            analysis.mistakes = sorted(found, key=lambda mistake: mistake.turn)
            on_update(analysis)
    finally:
        if not done:
            analysis.save(analysis_path(path))
    return analysis


def _load_or_start(path: Path, replay: Replay, move_time_ms: float) -> GameAnalysis:
    existing = load_existing(path)
    if existing is not None and existing.move_time_ms >= move_time_ms:
        return existing
    if replay.game.solo or not replay.turns:
        raise ReplayError(
            f"{path.name}: an analysis needs a game with two snakes and one turn; give another game"
        )
    first = replay.first.turn
    last = first + len(replay.turns) - 1
    return GameAnalysis(file_sha256(path), move_time_ms, first, last, final_scores(replay.last))


def _assess_positions(
    positions: Sequence[tuple[int, Board]], seconds: float, jobs: int
) -> Generator[tuple[int, dict[str, SnakeAssessment]], None, None]:
    """Yield each turn with the assessments of its position, in order."""
    if jobs == 1:
        analyzer = PositionAnalyzer(seconds=seconds)
        with searches_on_cpu_clock(True):
            yield from ((turn, analyzer.analyze(board)) for turn, board in positions)
        return
    work = functools.partial(_assess_in_worker, seconds)
    with ProcessPool(jobs) as pool, contextlib.closing(run_tasks(pool, work, positions)) as results:
        yield from ((turn, assessments) for (turn, _), assessments in results)


def _assess_in_worker(seconds: float, position: tuple[int, Board]) -> dict[str, SnakeAssessment]:
    with searches_on_cpu_clock(True):
        return _analyzer(seconds).analyze(position[1])


_analyzer = functools.cache(lambda seconds: PositionAnalyzer(seconds=seconds))
"""The analyzer of a pool process, which analyzes all positions of that process."""


def position_to_json(turn: int, position: AnalyzedPosition) -> dict[str, Any]:
    """Convert a position to a line of the file.

    Principal variations are written as first letters.
    """
    return {
        "turn": turn,
        "moves": position.moves,
        "snakes": {
            name: assessment_to_json(assessment)
            for name, assessment in position.assessments.items()
        },
    }


def assessment_to_json(assessment: SnakeAssessment) -> dict[str, Any]:
    """Convert an assessment to JSON."""
    return {
        "win_probability": round(assessment.win_probability, 4),
        "candidates": [
            {
                "move": candidate.move,
                "win_probability": round(candidate.win_probability, 4),
                "value": round(candidate.value, 2),
                "line": {
                    name: "".join(move[0] for move in line) for name, line in candidate.line.items()
                },
            }
            for candidate in assessment.candidates
        ],
    }


def _position_from_json(line: dict[str, Any]) -> tuple[int, AnalyzedPosition]:
    assessments = {name: _assessment_from_json(value) for name, value in line["snakes"].items()}
    position = AnalyzedPosition(assessments, dict(line["moves"]))
    return json_fields.integer(line, "turn", ""), position


def _assessment_from_json(value: dict[str, Any]) -> SnakeAssessment:
    candidates = [
        CandidateMove(
            candidate["move"],
            candidate["win_probability"],
            candidate["value"],
            {
                name: tuple(MOVES_BY_LETTER[at] for at in line)
                for name, line in candidate["line"].items()
            },
        )
        for candidate in value["candidates"]
    ]
    return SnakeAssessment(value["win_probability"], tuple(candidates))


def _mistake_from_json(value: dict[str, Any]) -> MoveAssessment:
    names = [field.name for field in dataclasses.fields(MoveAssessment)]
    return MoveAssessment(**{name: value[name] for name in names})


def _header_from_format_2(header: dict[str, Any]) -> dict[str, Any]:
    header = _rename_keys(header)
    header["mistakes"] = header["mistakes"] and list(map(_rename_keys, header["mistakes"]))
    return header


def _position_from_format_2(line: dict[str, Any]) -> dict[str, Any]:
    assessments = {name: _rename_keys(value) for name, value in line["snakes"].items()}
    for assessment in assessments.values():
        assessment["candidates"] = list(map(_rename_keys, assessment["candidates"]))
    return {**line, "snakes": assessments}


def _rename_keys(value: dict[str, Any]) -> dict[str, Any]:
    return {_KEYS_OF_FORMAT_2.get(key, key): item for key, item in value.items()}

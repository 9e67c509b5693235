"""The analysis of a recorded game, saved in a file next to the game.

`analyze_game` analyzes every position with a `PositionAnalyzer`. The analysis starts at the end of
the game, because mistakes tend to be near the end. `analyze_game` saves the results regularly and
atomically, so an interrupted analysis resumes. The file stores the format version, the hash of the
game file, the id of the evaluation and the node limit. If the game file or the evaluation
changes, the game is analyzed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.json_lines import ReplayError, read_lines, write_lines
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.mistakes import (
    MoveAssessment,
    Samples,
    final_scores,
    find_turn_mistakes,
    sample_turns,
)
from battlesnake_heuristics.analysis.position_analysis import (
    ANALYSIS_NODES,
    CandidateMove,
    PositionAnalyzer,
    SnakeAssessment,
)
from battlesnake_heuristics.rating.process_pool import ProcessPool, run_tasks
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import unsupported_reason

_FORMAT_VERSION = 6

_SAVE_TIME_RATIO = 30
"""Minimum ratio of the analysis time to the time of saving the analysis."""

_OnUpdate = Callable[["GameAnalysis"], object]
_Turn = tuple[Board, dict[str, str], Samples]


@dataclass(frozen=True, slots=True)
class _AnalyzedPosition:
    """One analyzed position: an assessment per living snake, the moves played, and the mistakes."""

    assessments: dict[str, SnakeAssessment]
    moves: dict[str, str]
    mistakes: list[MoveAssessment] = field(default_factory=list)

    def to_dict(self, turn: int) -> dict[str, Any]:
        """Convert the position to one line of the analysis file.

        The line contains each move of a principal variation as its first letter.
        """
        return {
            "turn": turn,
            "moves": self.moves,
            "snakes": {name: one.to_dict() for name, one in self.assessments.items()},
            "mistakes": [
                dataclasses.asdict(mistake) | {"annotation": mistake.annotation}
                for mistake in self.mistakes
            ],
        }


def _builtin_evaluation_id() -> str:
    """Return the name of the built-in evaluation, with the first digits of its SHA-256 hash."""
    return f"champion {load_builtin().metadata['sha256'][:12]}"


@dataclass(slots=True)
class GameAnalysis:
    """The complete or partial analysis of a game.

    Attributes:
        game: SHA-256 hash of the game file.
        nodes: Node limit per living snake and turn.
        first: First turn with a move.
        last: Last turn with a move.
        final_scores: Final score of each snake; None if the game was stopped.
        evaluation_id: Name of the evaluation, with the first digits of its SHA-256 hash.
        positions: Analyzed positions by turn, in the order of their analysis.
        view_radius: Assumed view radius; None if the game's settings have one, or for no limit.
    """

    game: str
    nodes: int
    first: int
    last: int
    final_scores: dict[str, float] | None
    evaluation_id: str = field(default_factory=_builtin_evaluation_id)
    positions: dict[int, _AnalyzedPosition] = field(default_factory=dict)
    view_radius: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all positions are analyzed."""
        return len(self.positions) == self.last - self.first + 1

    @property
    def mistakes(self) -> list[MoveAssessment]:
        """Mistakes of the analyzed positions, in game order."""
        return [one for turn in sorted(self.positions) for one in self.positions[turn].mistakes]

    def win_probabilities(self, turn: int) -> dict[str, float] | None:
        """Return the win probability of each snake on a turn.

        The result is None if the turn is not analyzed.
        """
        if turn in self.positions:
            return {
                name: assessment.win_probability
                for name, assessment in self.positions[turn].assessments.items()
            }
        return self.final_scores if turn == self.last + 1 else None

    def save(self, path: Path) -> None:
        """Write the analysis file atomically."""
        write_lines(
            path,
            [
                self.header_to_dict(),
                *(position.to_dict(turn) for turn, position in self.positions.items()),
            ],
        )

    def header_to_dict(self) -> dict[str, Any]:
        """Return the first line of the analysis file as a JSON object."""
        return {
            "analysis": _FORMAT_VERSION, "game": self.game, "evaluation_id": self.evaluation_id,
            "nodes": self.nodes, "first": self.first, "last": self.last,
            "final_scores": self.final_scores, "view_radius": self.view_radius,
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
            if header.get("analysis") != _FORMAT_VERSION:
                raise ReplayError(
                    f"{path.name} is not an analysis file in format {_FORMAT_VERSION}; "
                    "analyze the game again"
                )
            return cls(
                json_fields.string(header, "game", ""),
                json_fields.integer(header, "nodes", ""),
                json_fields.integer(header, "first", ""),
                json_fields.integer(header, "last", ""),
                header["final_scores"],
                json_fields.string(header, "evaluation_id", ""),
                dict(map(_position_from_dict, lines)),
                header.get("view_radius"),
            )
        except ReplayError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ReplayError(f"{path.name} is a damaged analysis ({error})") from error

    @classmethod
    def load_current(cls, game: Path) -> GameAnalysis | None:
        """Load the saved analysis of a game.

        The result is None if the analysis is missing or outdated. An analysis is outdated if the
        game file or the evaluation has changed.
        """
        try:
            found = cls.load(analysis_path(game))
        except (OSError, ReplayError):
            return None
        current = _file_sha256(game), _builtin_evaluation_id()
        return found if (found.game, found.evaluation_id) == current else None


def analysis_path(game: Path) -> Path:
    """Return the path of the analysis file of a recorded game.

    >>> analysis_path(Path("games/final.jsonl.gz")).name
    'final.jsonl.gz.analysis.gz'
    """
    return game.with_name(game.name + ".analysis.gz")


def _file_sha256(game: Path) -> str:
    """Return the SHA-256 hash of a game file in hexadecimal."""
    with game.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def analyze_game(
    path: Path,
    nodes: int = ANALYSIS_NODES,
    jobs: int = 1,
    on_update: _OnUpdate = lambda analysis: None,
    view_radius: int | None = None,
) -> GameAnalysis:
    """Analyze the recorded game at ``path`` and save the result next to the game file.

    An unfinished analysis with at least this node limit resumes with its own node limit.

    Args:
        path: Replay file.
        nodes: Node limit per living snake and turn.
        jobs: Number of processes.
        on_update: Called with the analysis at the start, after every turn, and at the end.
        view_radius: View radius if the game's settings have none; None for no limit.

    Raises:
        ReplayError: If the file is not a recorded game of at least two snakes and one turn.
    """
    replay = Replay.load(path)
    analysis = _load_or_start(path, replay, nodes, replay.set_default_view_radius(view_radius))
    snake_ids = [snake.id for snake in replay.first.snakes]
    missing = [
        turn for turn in sample_turns(replay, snake_ids) if turn[0].turn not in analysis.positions
    ]
    saved = time.monotonic()
    save_s = 0.0
    on_update(analysis)
    try:
        with contextlib.closing(_analyze_turns(missing[::-1], analysis.nodes, jobs)) as results:
            for turn, position in results:
                analysis.positions[turn] = position
                if time.monotonic() - saved > max(1.0, _SAVE_TIME_RATIO * save_s):
                    began = time.monotonic()
                    analysis.save(analysis_path(path))
                    saved = time.monotonic()
                    save_s = saved - began
                on_update(analysis)
    finally:
        if missing:
            analysis.save(analysis_path(path))
    return analysis


def _apply_rollouts(assessments: dict[str, SnakeAssessment], mistake: MoveAssessment) -> None:
    """Replace a snake's win probabilities by the scores of the rollouts.

    A position with a mistake then has one result. The win probabilities of the other snakes keep
    their proportions.
    """
    best = mistake.best_win_probability
    one = assessments[mistake.snake_id]
    scale = (1 - best) / max(1 - one.win_probability, 1e-9)
    for name, other in assessments.items():
        if name == mistake.snake_id:
            candidates = [
                _with_probability(at, mistake.scores.get(at.move)) for at in one.candidates
            ]
            candidates.sort(key=lambda candidate: -candidate.win_probability)
            assessments[name] = SnakeAssessment(best, tuple(candidates))
        else:
            assessments[name] = SnakeAssessment(
                other.win_probability * scale,
                tuple(_with_probability(at, at.win_probability * scale) for at in other.candidates),
            )


def _with_probability(candidate: CandidateMove, probability: float | None) -> CandidateMove:
    """Replace the win probability of a candidate, unless the new value is None."""
    if probability is None:
        return candidate
    return dataclasses.replace(candidate, win_probability=min(probability, 1.0))


def _load_or_start(path: Path, replay: Replay, nodes: int, view_radius: int | None) -> GameAnalysis:
    """Load the saved analysis if its node limit suffices, or start a new analysis.

    The saved analysis must have the same assumed ``view_radius``.
    """
    existing = GameAnalysis.load_current(path)
    if existing and existing.nodes >= nodes and existing.view_radius == view_radius:
        return existing
    if replay.game.is_solo or not replay.turns:
        raise ReplayError(
            f"{path.name}: an analysis needs a game with two snakes and one turn; give another game"
        )
    if reason := unsupported_reason(replay.first):
        raise ReplayError(f"{path.name}: {reason}; give another game")
    first = replay.first.turn
    last = first + len(replay.turns) - 1
    scores = final_scores(replay.last)
    return GameAnalysis(_file_sha256(path), nodes, first, last, scores, view_radius=view_radius)


def _analyze_turns(
    turns: Sequence[_Turn], nodes: int, jobs: int
) -> Generator[tuple[int, _AnalyzedPosition], None, None]:
    """Yield the number and the analysis of each turn, in the order of completion."""
    work = functools.partial(_analyze_turn, nodes)
    if jobs == 1:
        yield from map(work, turns)
        return
    with ProcessPool(jobs) as pool, contextlib.closing(run_tasks(pool, work, turns)) as results:
        yield from (analyzed for _, analyzed in results)


def _analyze_turn(nodes: int, turn: _Turn) -> tuple[int, _AnalyzedPosition]:
    """Return the number and the analysis of a turn, given its board, moves and samples."""
    board, moves, samples = turn
    assessments = PositionAnalyzer(nodes).analyze(board, samples)
    mistakes = find_turn_mistakes(board, moves, assessments, samples)
    for mistake in mistakes:
        _apply_rollouts(assessments, mistake)
    return board.turn, _AnalyzedPosition(assessments, moves, mistakes)


def _position_from_dict(line: dict[str, Any]) -> tuple[int, _AnalyzedPosition]:
    """Convert a line of the analysis file to a turn and a position."""
    assessments = {name: SnakeAssessment.from_dict(value) for name, value in line["snakes"].items()}
    names = [field.name for field in dataclasses.fields(MoveAssessment)]
    mistakes = [MoveAssessment(**{name: one[name] for name in names}) for one in line["mistakes"]]
    position = _AnalyzedPosition(assessments, dict(line["moves"]), mistakes)
    return json_fields.integer(line, "turn", ""), position

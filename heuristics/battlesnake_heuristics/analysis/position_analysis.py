"""Position analysis with alpha-beta search and the champion's evaluation.

A `PositionAnalyzer` searches a position from the perspective of each living snake. Equal positions
give equal results on any machine, also on the playable page (``docs/play/worker.js``).
`analysis.win_probability` explains `SnakeAssessment.win_probability`. `SnakeAssessment.candidates`
are the best moves, with values and lines. `analysis.mistakes` finds mistakes.

>>> from battlesnake_gym.boards.board import Board
>>> board = Board.from_text('''
... . . . . . . .
... . . . . . . .
... > > A . . . .
... > > > > v . .
... ^ < < . B . .
... . . . . . . .
... . . . . . . *
... ''')
>>> assessments = PositionAnalyzer(nodes=2000).analyze(board)
>>> round(sum(assessment.win_probability for assessment in assessments.values()), 9)
1.0
>>> assessments["b"].candidates[0].move in board.safe_moves("b")
True
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import is_visible
from battlesnake_gym.rules.state import MOVES
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.mistakes import Samples
from battlesnake_heuristics.analysis.win_probability import win_probabilities
from battlesnake_heuristics.search.beliefs import combine_decisions
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search, unsupported_reason

ANALYSIS_NODES = 10_000
"""Node limit per living snake of every analysis."""

_MAX_CANDIDATES = 3
MAX_LINE_TURNS = 20
"""Maximum number of turns in a line."""

MOVES_BY_LETTER = {move[0]: move for move in MOVES}

Line = dict[str, tuple[str, ...]]
"""The principal variation: the moves of each snake by id."""


@dataclass(frozen=True, slots=True)
class CandidateMove:
    """One of the best moves of a snake.

    Attributes:
        move: The move.
        win_probability: Win probability after the move, in [0, 1].
        value: Search value, in cells of territory.
        line: Expected moves of each snake by id, starting with this turn.
    """

    move: str
    win_probability: float
    value: float
    line: Line


@dataclass(frozen=True, slots=True)
class SnakeAssessment:
    """The assessment of one snake in a position.

    ``win_probability`` is in [0, 1]. ``candidates`` contains the best moves, best first.
    """

    win_probability: float
    candidates: tuple[CandidateMove, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert the assessment to a JSON object."""
        return {
            "win_probability": round(self.win_probability, 4),
            "candidates": [
                {
                    "move": candidate.move,
                    "win_probability": round(candidate.win_probability, 4),
                    "value": round(candidate.value, 2),
                    "line": {
                        name: "".join(move[0] for move in line)
                        for name, line in candidate.line.items()
                    },
                }
                for candidate in self.candidates
            ],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SnakeAssessment:
        """Convert a JSON object to an assessment."""
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
        return cls(value["win_probability"], tuple(candidates))


class PositionAnalyzer:
    """Analyzer of positions with a node limit per living snake."""

    def __init__(self, nodes: int = ANALYSIS_NODES) -> None:
        self._search = Search(evaluation=load_builtin(), nodes=nodes, exact_forced=True)

    def analyze(
        self, board: Board, samples: Samples = MappingProxyType({})
    ) -> dict[str, SnakeAssessment]:
        """Assess every living snake of ``board``.

        If the game is over, the winner has probability 1 and there are no candidates. The win
        probability after a move assumes that the values of all other snakes stay the same.

        Args:
            board: Position.
            samples: Positions that each snake considers possible (`mistakes.sample_turns`). A
                snake without samples is assessed on ``board``.

        Returns:
            The assessments by snake id.

        Raises:
            ValueError: If the game is a solo game, which has no winner, or if the search does not
                support the board.
        """
        if board.game.is_solo:
            raise ValueError("a solo game cannot be analyzed: it has no opponents")
        if reason := unsupported_reason(board):
            raise ValueError(f"the board cannot be analyzed: {reason}")
        board = board.without_seed()
        living = board.living
        if len(living) < 2:
            return {snake.id: SnakeAssessment(1.0) for snake in living}
        found = {
            snake.id: self._find_candidates(snake.id, samples.get(snake.id, {board: 1}))
            for snake in living
        }
        values = {snake_id: candidates[0][1] for snake_id, candidates in found.items()}
        learned = not load_builtin().unsupported_reason(board)
        probabilities = functools.partial(win_probabilities, turn=board.turn, learned=learned)
        now = probabilities(values)
        return {
            snake_id: SnakeAssessment(
                now[snake_id],
                tuple(
                    CandidateMove(
                        move, probabilities({**values, snake_id: value})[snake_id], value, line
                    )
                    for move, value, line in candidates
                ),
            )
            for snake_id, candidates in found.items()
        }

    def best_move(
        self, board: Board, snake_id: str, samples: Samples = MappingProxyType({})
    ) -> str:
        """Return the best move of one snake; see `analyze` for the samples."""
        positions = samples.get(snake_id, {board.without_seed(): 1})
        return self._find_candidates(snake_id, positions)[0][0]

    def _find_candidates(
        self, snake_id: str, samples: Mapping[Board, int]
    ) -> list[tuple[str, float, Line]]:
        """Return the best moves of a snake with values and lines, best first.

        The samples share the nodes. Each line comes from the first sample in which the move has a
        score, without the moves of snakes whose head the snake does not see.
        """
        found: list[tuple[Decision, int]] = []
        lines: dict[str, Line] = {}
        for sample, times in samples.items():
            position = sample.copy()
            position.you_id = snake_id
            nodes = max(1, self._search.nodes * times // sum(samples.values()))
            decision, stats = self._search.search(position, nodes=nodes)
            found.append((decision, times))
            lines = {
                move: _visible_line(line, position)
                for move, line in stats.lines_by_move(position).items()
            } | lines
        best = combine_decisions(found)
        scores = best.scores or {best.move: 0.0}  # A few nodes may not suffice for any score.
        moves = sorted(scores, key=lambda move: (move != best.move, -scores[move]))
        return [(move, scores[move], lines.get(move, {})) for move in moves[:_MAX_CANDIDATES]]


def _visible_line(line: Line, board: Board) -> Line:
    """Return up to `MAX_LINE_TURNS` moves of the snakes whose heads ``board.you`` sees."""
    radius = board.game.settings.view_radius
    return {
        name: moves[:MAX_LINE_TURNS]
        for name, moves in line.items()
        if radius is None or is_visible(board.snake(name).head, board.you.head, radius)
    }

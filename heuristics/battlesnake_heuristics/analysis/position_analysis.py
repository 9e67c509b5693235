"""Position analysis with the champion's search.

A `PositionAnalyzer` searches a position from the perspective of each living snake.
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
>>> sum(assessment.win_probability for assessment in assessments.values())
1.0
>>> assessments["b"].candidates[0].move in board.safe_moves("b")
True
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import grid
from battlesnake_gym.rules.state import Snake
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis import win_probability
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search

_MAX_CANDIDATES = 3
_MAX_LINE_TURNS = 20
"""Maximum number of turns in a line."""

Line = dict[str, tuple[str, ...]]
"""The principal variation: the moves of each snake by id."""

_MAX_FORCED_MOVES = 10

_PROVEN_VALUE_DECREASE_PER_TURN = 0.001
"""Decrease of a proven value per turn before the end of the game, in cells."""

_LOST_VALUE = -1000.0
_WON_VALUE = 1000.0


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


@dataclass(slots=True)
class PositionAnalyzer:
    """Analyzer of positions with a time limit or a node limit per living snake.

    Args:
        seconds: Search time per living snake, in seconds; None for the node limit.
        nodes: Node limit per living snake. Results with a node limit are reproducible on any
            machine.
    """

    seconds: float | None = None
    nodes: int = 20_000
    _search: Search = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._search = Search(evaluation=load_builtin())

    def analyze(self, board: Board) -> dict[str, SnakeAssessment]:
        """Assess every living snake of ``board``.

        If the game is over, the winner has probability 1 and there are no candidates.

        Returns:
            The assessments by snake id.

        Raises:
            ValueError: If the game is a solo game, which has no winner.
        """
        if board.game.solo or board.game.ruleset == "solo":
            raise ValueError("a solo game cannot be analyzed: it has no opponents")
        board = board.without_seed()
        living = board.living
        if len(living) < 2:
            return {snake.id: SnakeAssessment(1.0) for snake in living}
        found = {snake.id: self._find_candidates(board, snake) for snake in living}
        values = {snake_id: candidates[0][1] for snake_id, candidates in found.items()}
        probabilities = self._win_probabilities(board, values)
        return {
            snake_id: SnakeAssessment(
                probabilities[snake_id],
                tuple(
                    CandidateMove(
                        move,
                        self._win_probability_after(board, values, snake_id, value),
                        value,
                        line,
                    )
                    for move, value, line in candidates
                ),
            )
            for snake_id, candidates in found.items()
        }

    def win_probabilities(self, board: Board) -> dict[str, float]:
        """Return the win probabilities of the living snakes by id.

        The evaluation takes half of the time limit.
        """
        board = board.without_seed()
        values = {
            snake.id: self._evaluate_position(board, snake.id, 0.5)[0] for snake in board.living
        }
        return self._win_probabilities(board, values)

    def best_move(self, board: Board, snake_id: str) -> str:
        """Return the best move of one snake. The search uses the full time limit."""
        board = board.without_seed()
        board.you_id = snake_id
        self._search.nodes = self.nodes
        return self._search(board, self.seconds).move

    def uses_network(self, board: Board) -> bool:
        """Return whether the learned evaluation supports this position."""
        return not load_builtin().unsupported_reason(board)

    def _win_probabilities(self, board: Board, values: Mapping[str, float]) -> dict[str, float]:
        """Convert search values by snake id to win probabilities by snake id."""
        return win_probability.win_probabilities(values, board.turn, self.uses_network(board))

    def _win_probability_after(
        self, board: Board, values: Mapping[str, float], snake_id: str, value: float
    ) -> float:
        """Return the win probability of a snake after a move.

        The argument ``value`` is the search value of the move. The function assumes that the
        opponents gain equal parts of the search value that the snake loses.
        """
        gain = (values[snake_id] - value) / (len(values) - 1) if abs(value) < 900 else 0.0
        others = {
            name: known + gain if abs(known) < 900 else known for name, known in values.items()
        }
        return self._win_probabilities(board, {**others, snake_id: value})[snake_id]

    def _find_candidates(self, board: Board, snake: Snake) -> list[tuple[str, float, Line]]:
        """Return the best moves of a snake with values and lines, best first.

        One search yields the exact value of the best move, but only upper bounds for all other
        moves. The function therefore searches the positions after the other moves in the remaining
        time.
        """
        safe = board.safe_moves(snake.id)
        decision = None
        tried: list[tuple[str, float, Line]] = []
        bounds: Mapping[str, float] = {}
        if len(safe) != 1:  # The search stops immediately if there is a single move.
            board.you_id = snake.id
            decision = self._search_with_fraction(board, 0.5)
            bounds = decision.scores
            value = bounds[decision.move]
            tried.append((decision.move, value, _truncate_line(decision.line)))
        rest = [move for move in safe if decision is None or move != decision.move]
        rest.sort(key=lambda move: -bounds.get(move, _LOST_VALUE))
        rest = rest[: _MAX_CANDIDATES - len(tried)]
        fraction = (1.0 if decision is None else 0.5) / max(1, len(rest))
        for move in rest:
            value, line = self._evaluate_move(board, snake, move, fraction)
            if tried:  # The longer search preferred the first move: its value is an upper bound.
                value = min(value, tried[0][1])
            tried.append((move, value, _truncate_line(line)))
        tried[1:] = sorted(tried[1:], key=lambda choice: -choice[1])
        return tried

    def _evaluate_move(
        self, board: Board, snake: Snake, move: str, fraction: float
    ) -> tuple[float, Line]:
        """Return the value and the line of a move.

        The search assumes the nearest opponent's best reply.
        """
        replies = list(_iter_replies(board, snake))
        worst = _WON_VALUE + 1
        line: Line = {}
        for reply in replies:
            after = board.copy()
            after.advance({**reply, snake.id: move})
            value, expected = self._evaluate_position(after, snake.id, fraction / len(replies))
            if value < worst:
                worst = value
                line = _prepend_moves({**reply, snake.id: move}, expected)
            if worst < -win_probability.MIN_PROVEN_VALUE:
                break
        return worst, line

    def _evaluate_position(
        self, board: Board, snake_id: str, fraction: float, forced: int = 0
    ) -> tuple[float, Line]:
        """Return the value of a position for one snake, and the line.

        The snake may be eliminated. The search stops immediately if there is a single move. The
        function therefore plays up to `_MAX_FORCED_MOVES` forced moves first, against the best
        replies of the nearest opponent.
        """
        living = [snake.id for snake in board.living]
        if snake_id not in living:
            return (_LOST_VALUE if living else _LOST_VALUE / 2), {}
        if len(living) == 1:
            return _WON_VALUE, {}
        safe = board.safe_moves(snake_id)
        if len(safe) == 1 and forced < _MAX_FORCED_MOVES:
            moves = self._predict_replies(board, board.snake(snake_id), fraction / 4)
            moves[snake_id] = safe[0]
            after = board.copy()
            after.advance(moves)
            value, line = self._evaluate_position(after, snake_id, fraction * 3 / 4, forced + 1)
            if (
                abs(value) > win_probability.MIN_PROVEN_VALUE
            ):  # The game ends one turn after this position.
                value -= math.copysign(_PROVEN_VALUE_DECREASE_PER_TURN, value)
            return value, _prepend_moves(moves, line)
        board.you_id = snake_id
        decision = self._search_with_fraction(board, fraction)
        return decision.scores[decision.move], decision.line

    def _predict_replies(self, board: Board, snake: Snake, fraction: float) -> dict[str, str]:
        """Return one move for each opponent.

        The nearest opponent plays its best move, and all other opponents play default moves.
        """
        moves = {
            opponent.id: _default_move(board, opponent)
            for opponent in board.living
            if opponent.id != snake.id
        }
        board.you_id = _nearest_opponent(board, snake).id
        moves[board.you_id] = self._search_with_fraction(board, fraction).move
        return moves

    def _search_with_fraction(self, board: Board, fraction: float) -> Decision:
        """Search a position with ``fraction`` of the time limit and of the node limit."""
        self._search.nodes = max(50, round(self.nodes * fraction))
        seconds = None if self.seconds is None else max(self.seconds * fraction, 0.0005)
        return self._search(board, seconds)


def _iter_replies(board: Board, snake: Snake) -> Iterable[dict[str, str]]:
    """Yield the opponents' replies, one for each safe move of the nearest opponent.

    All other opponents play default moves.
    """
    nearest = _nearest_opponent(board, snake)
    default = {
        opponent.id: _default_move(board, opponent)
        for opponent in board.living
        if opponent.id != snake.id
    }
    for move in board.safe_moves(nearest.id) or [default[nearest.id]]:
        yield {**default, nearest.id: move}


def _nearest_opponent(board: Board, snake: Snake) -> Snake:
    """Return the living opponent with the smallest distance between the heads."""
    opponents = [opponent for opponent in board.living if opponent.id != snake.id]
    shape = grid(board.width, board.height, rules.wraps(board.game))
    return min(opponents, key=lambda opponent: shape.distance(snake.head, opponent.head))


def _prepend_moves(moves: Mapping[str, str], line: Mapping[str, tuple[str, ...]]) -> Line:
    """Prepend the moves of one turn to a line."""
    return {name: (move, *line.get(name, ())) for name, move in moves.items()}


def _default_move(board: Board, snake: Snake) -> str:
    """Return the straight move if that move is safe, otherwise the first safe move."""
    straight = rules.default_move(snake.body)
    safe = board.safe_moves(snake.id)
    return straight if straight in safe or not safe else safe[0]


def _truncate_line(line: Mapping[str, tuple[str, ...]]) -> Line:
    """Limit a line to `_MAX_LINE_TURNS` turns."""
    return {name: tuple(itertools.islice(moves, _MAX_LINE_TURNS)) for name, moves in line.items()}

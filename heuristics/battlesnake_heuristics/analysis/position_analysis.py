"""What the strongest search thinks of a position, for every snake: chances, best moves, lines.

An `PositionAnalyzer` looks at one position through the eyes of each living snake. `SnakeAssessment.chance` is how
likely the snake is to win (see `analysis.win_probability`), `SnakeAssessment.candidates` are its best moves with
what each is worth and the line that is expected after it. What a mistake is, `analysis.mistakes` says.

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
>>> judged = Analyst(positions=2000).judge(board)
>>> sum(judgement.chance for judgement in judged.values())
1.0
>>> judged["b"].choices[0].move in board.safe_moves("b")
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
"""Moves of each snake that are kept of a line."""

Line = dict[str, tuple[str, ...]]
"""The moves that are expected of each snake, by id."""

_MAX_FORCED_MOVES = 10

_PROVEN_VALUE_PER_TURN = 0.001
"""By how much less the value of a game that is won or lost a turn later is decided."""

_LOST = -1000.0
_WON = 1000.0


@dataclass(frozen=True, slots=True)
class CandidateMove:
    """One of the best moves of a snake: the chance to win after it, and the line it leads to.

    ``value`` is the search's, in cells of territory; ``line`` has the moves expected of each snake
    by id, this one first.
    """

    move: str
    win_probability: float
    value: float
    line: Line


@dataclass(frozen=True, slots=True)
class SnakeAssessment:
    """What is thought of one snake in one position; ``candidates`` are the best first."""

    win_probability: float
    candidates: tuple[CandidateMove, ...] = ()


@dataclass(slots=True)
class PositionAnalyzer:
    """Judges positions with ``seconds`` of search for each living snake.

    With ``seconds`` None it looks at ``positions`` for each snake: the same answer everywhere.
    """

    seconds: float | None = None
    positions: int = 20_000
    _search: Search = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._search = Search(evaluation=load_builtin())

    def analyze(self, board: Board) -> dict[str, SnakeAssessment]:
        """Judge every living snake of ``board``; the judgements by id.

        In a game that is over, the winner is certain and no snake has choices. Raises
        ``ValueError`` for a solo game, which has no winner.
        """
        if board.game.solo or board.game.ruleset == "solo":
            raise ValueError("a solo game cannot be analysed: there is no one to win against")
        board = board.without_seed()
        living = board.living
        if len(living) < 2:
            return {snake.id: SnakeAssessment(1.0) for snake in living}
        found = {snake.id: self._choices(board, snake) for snake in living}
        values = {snake_id: choices[0][1] for snake_id, choices in found.items()}
        chances = self._chances(board, values)
        return {
            snake_id: SnakeAssessment(
                chances[snake_id],
                tuple(
                    CandidateMove(
                        move, self._chance_of(board, values, snake_id, value), value, line
                    )
                    for move, value, line in choices
                ),
            )
            for snake_id, choices in found.items()
        }

    def win_probabilities(self, board: Board) -> dict[str, float]:
        """The chances of the living alone, with half of the time for each."""
        board = board.without_seed()
        values = {snake.id: self._value(board, snake.id, 0.5)[0] for snake in board.living}
        return self._chances(board, values)

    def best_move(self, board: Board, snake_id: str) -> str:
        """The best move of one snake, with all of its time for that."""
        board = board.without_seed()
        board.you_id = snake_id
        self._search.nodes = self.positions
        return self._search(board, self.seconds).move

    def uses_network(self, board: Board) -> bool:
        """Whether the learned evaluation values this position."""
        return not load_builtin().unsupported_reason(board)

    def _chances(self, board: Board, values: Mapping[str, float]) -> dict[str, float]:
        return win_probability.win_probabilities(values, board.turn, self.uses_network(board))

    def _chance_of(
        self, board: Board, values: Mapping[str, float], snake_id: str, value: float
    ) -> float:
        """The chance of a snake if its move is worth ``value``; others gain what it loses."""
        gain = (values[snake_id] - value) / (len(values) - 1) if abs(value) < 900 else 0.0
        others = {
            name: known + gain if abs(known) < 900 else known for name, known in values.items()
        }
        return self._chances(board, {**others, snake_id: value})[snake_id]

    def _choices(self, board: Board, snake: Snake) -> list[tuple[str, float, Line]]:
        """The best moves of a snake with their values and lines, the best first.

        Half of the time goes into the best move, whose value is exact. For the others the search
        only knows bounds; the rest of the time goes into their values, by looking at the positions
        after them.
        """
        safe = board.safe_moves(snake.id)
        decision = None
        tried: list[tuple[str, float, Line]] = []
        bounds: Mapping[str, float] = {}
        if len(safe) != 1:  # with a single move the search does not look ahead
            board.you_id = snake.id
            decision = self._think(board, 0.5)
            bounds = decision.scores
            value = bounds[decision.move]
            tried.append((decision.move, value, _cut(decision.line)))
        rest = [move for move in safe if decision is None or move != decision.move]
        rest.sort(key=lambda move: -bounds.get(move, _LOST))
        rest = rest[: _MAX_CANDIDATES - len(tried)]
        share = (1.0 if decision is None else 0.5) / max(1, len(rest))
        for move in rest:
            value, line = self._after(board, snake, move, share)
            if tried:  # the first was found to be the best with more thought
                value = min(value, tried[0][1])
            tried.append((move, value, _cut(line)))
        tried[1:] = sorted(tried[1:], key=lambda choice: -choice[1])
        return tried

    def _after(self, board: Board, snake: Snake, move: str, share: float) -> tuple[float, Line]:
        """What a move is worth if the nearest rival gives the worst answer, and the line then."""
        answers = list(_answers(board, snake))
        worst = _WON + 1
        line: Line = {}
        for answer in answers:
            after = board.copy()
            after.advance({**answer, snake.id: move})
            value, expected = self._value(after, snake.id, share / len(answers))
            if value < worst:
                worst = value
                line = _joined({**answer, snake.id: move}, expected)
            if worst < -win_probability.PROVEN_VALUE:
                break
        return worst, line

    def _value(
        self, board: Board, snake_id: str, share: float, forced: int = 0
    ) -> tuple[float, Line]:
        """The value of a position for one snake, which may be out, and the line from there.

        A search does not look ahead where there is a single move; so forced moves are played, up
        to `_MAX_FORCED_MOVES`, against the best answers of the nearest rival.
        """
        living = [snake.id for snake in board.living]
        if snake_id not in living:
            return (_LOST if living else _LOST / 2), {}
        if len(living) == 1:
            return _WON, {}
        safe = board.safe_moves(snake_id)
        if len(safe) == 1 and forced < _MAX_FORCED_MOVES:
            moves = self._answer(board, board.snake(snake_id), share / 4)
            moves[snake_id] = safe[0]
            after = board.copy()
            after.advance(moves)
            value, line = self._value(after, snake_id, share * 3 / 4, forced + 1)
            if abs(value) > win_probability.PROVEN_VALUE:  # the end is a turn later from here
                value -= math.copysign(_PROVEN_VALUE_PER_TURN, value)
            return value, _joined(moves, line)
        board.you_id = snake_id
        decision = self._think(board, share)
        return decision.scores[decision.move], decision.line

    def _answer(self, board: Board, snake: Snake, share: float) -> dict[str, str]:
        """What the rivals of a snake do: the nearest its best move, the others straight on."""
        moves = {rival.id: _usual(board, rival) for rival in board.living if rival.id != snake.id}
        board.you_id = _nearest(board, snake).id
        moves[board.you_id] = self._think(board, share).move
        return moves

    def _think(self, board: Board, share: float) -> Decision:
        """Search with a share of the time."""
        self._search.nodes = max(50, round(self.positions * share))
        seconds = None if self.seconds is None else max(self.seconds * share, 0.0005)
        return self._search(board, seconds)


def _answers(board: Board, snake: Snake) -> Iterable[dict[str, str]]:
    """What the rivals may answer: the nearest anything that is safe, the others straight on."""
    nearest = _nearest(board, snake)
    usual = {rival.id: _usual(board, rival) for rival in board.living if rival.id != snake.id}
    for move in board.safe_moves(nearest.id) or [usual[nearest.id]]:
        yield {**usual, nearest.id: move}


def _nearest(board: Board, snake: Snake) -> Snake:
    rivals = [rival for rival in board.living if rival.id != snake.id]
    shape = grid(board.width, board.height, rules.wraps(board.game))
    return min(rivals, key=lambda rival: shape.distance(snake.head, rival.head))


def _joined(moves: Mapping[str, str], line: Mapping[str, tuple[str, ...]]) -> Line:
    """The line that begins with these moves."""
    return {name: (move, *line.get(name, ())) for name, move in moves.items()}


def _usual(board: Board, snake: Snake) -> str:
    """Straight on where that is safe."""
    straight = rules.default_move(snake.body)
    safe = board.safe_moves(snake.id)
    return straight if straight in safe or not safe else safe[0]


def _cut(line: Mapping[str, tuple[str, ...]]) -> Line:
    return {name: tuple(itertools.islice(moves, _MAX_LINE_TURNS)) for name, moves in line.items()}

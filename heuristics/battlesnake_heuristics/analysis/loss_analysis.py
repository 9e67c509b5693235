"""Analysis of a lost game: the move that lost the largest expected score.

`analyze_loss` selects the worst mistake that `analysis.mistakes` finds. This mistake often precedes
the fatal collision by many turns. `find_puzzle` checks whether a position has exactly one good
move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.mistakes import (
    MIN_BETTER_SCORE,
    MISTAKE_LOSS,
    ROLLOUT_GAMES,
    MoveAssessment,
    find_mistakes,
    score_after_move,
)
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.analysis.win_probability import MIN_PROVEN_VALUE
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search

NODES_BY_GRADE = (100, 400, 1600)
"""Node limits with which a search solves a puzzle, for the grades 1, 2 and 3."""


@dataclass(frozen=True, slots=True)
class LossAnalysis:
    """The analysis of a lost game.

    Attributes:
        snake_id: Id of the snake that lost.
        eliminated_on: Turn of the snake's elimination.
        cause: Cause of the snake's elimination, as in the official API.
        mistake: The move that lost the game; None if no single move lost the game.
        board: Position before the mistake.
        better_moves: Expected scores of the better moves, best first.
        recorded: Recorded decision of the snake on the turn of the mistake, if any.
    """

    snake_id: str
    eliminated_on: int
    cause: str
    mistake: MoveAssessment | None = None
    board: Board | None = None
    better_moves: Mapping[str, float] = field(default_factory=dict)
    recorded: Decision | None = None

    @property
    def loss(self) -> float:
        """The win probability that the snake lost by the mistake, in [0, 1]."""
        return self.mistake.loss if self.mistake else 0.0

    @property
    def cause_text(self) -> str:
        """The cause of elimination as a phrase in English."""
        words = CAUSE_PHRASES.get(self.cause, self.cause)
        if self.mistake is None:
            return f"{words}, outplayed long before"
        return words if self.eliminated_on - self.mistake.turn <= 1 else f"{words}, trapped before"

    def to_scenario(self, name: str) -> Scenario:
        """Convert the position before the mistake to a scenario."""
        assert self.board is not None
        assert self.mistake is not None
        board = self.board.copy()
        board.you_id = self.snake_id
        cause = CAUSE_PHRASES.get(self.cause, self.cause)
        note = f"{self.mistake.move} lost: {cause} on turn {self.eliminated_on}."
        return Scenario(name, board, tuple(self.better_moves), note)


CAUSE_PHRASES = {
    "wall-collision": "hit the wall",
    "snake-self-collision": "bit itself",
    "snake-collision": "ran into a body",
    "head-collision": "lost head to head",
    "out-of-health": "starved",
    "hazard": "died of hazards",
}
"""Causes of elimination as phrases in English."""


def analyze_loss(replay: Replay, snake_id: str) -> LossAnalysis | None:
    """Analyze how a snake lost a game.

    Returns:
        The analysis, or None if the snake survived.
    """
    snake = replay.last.snake(snake_id)
    if snake.alive:
        return None
    eliminated = LossAnalysis(snake_id, snake.eliminated_on, snake.eliminated_cause)
    mistakes = find_mistakes(replay, [snake_id])
    if not mistakes:
        return eliminated
    mistake = mistakes[0]
    better_moves = {
        move: score
        for move, score in sorted(mistake.scores.items(), key=lambda item: -item[1])
        if move != mistake.move and score > mistake.best_win_probability - MISTAKE_LOSS
    }
    turn = replay.turns[mistake.turn - replay.first.turn]
    return dataclasses.replace(
        eliminated,
        mistake=mistake,
        board=replay.board(mistake.turn),
        better_moves=better_moves,
        recorded=turn.decisions.get(snake_id),
    )


def find_puzzle(board: Board) -> tuple[str, int] | None:
    """Return the only good move of ``board.you``, and the grade of the puzzle.

    The result is None if the position is not a puzzle. A position is not a puzzle in three cases:

    * All moves lose.
    * Rollouts show that several moves are good.
    * The good move wins immediately because the opponents are eliminated.

    Returns:
        The move, and the grade from 1 to 3. A search with the node limit of this grade in
        `NODES_BY_GRADE` finds the move.
    """
    safe = board.safe_moves()
    if len(safe) < 2:
        return None
    *easier, hardest = NODES_BY_GRADE
    only = _only_surviving_move(board, safe, hardest)
    if only is None:
        return None
    you, at = board.you.id, board.copy()
    moves = {}
    for at.you_id in (snake.id for snake in board.living):
        moves[at.you_id] = Search(evaluation=load_builtin(), nodes=hardest)(at).move
    for move in sorted(safe, key=only.__ne__):  # The rollouts of the only surviving move run first.
        score = score_after_move(board, you, move, moves, ROLLOUT_GAMES)
        if score < MISTAKE_LOSS if move == only else score > MIN_BETTER_SCORE:
            return None
    solving_grades = (
        grade
        for grade, nodes in enumerate(easier, 1)
        if _only_surviving_move(board, safe, nodes) == only
    )
    return only, next(solving_grades, len(NODES_BY_GRADE))


def _only_surviving_move(board: Board, safe: list[str], nodes: int) -> str | None:
    """Return the only safe move without a proven loss.

    The result is None if no move or several moves meet this condition. The search visits up to
    ``nodes`` nodes.
    """
    scores = Search(evaluation=load_builtin(), nodes=nodes)(board).scores
    held = [move for move in safe if scores.get(move, 0.0) > -MIN_PROVEN_VALUE]
    return held[0] if len(held) == 1 else None

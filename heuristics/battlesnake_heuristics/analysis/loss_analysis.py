"""Why a snake lost: the move after which it won the fewest games that another move wins.

`analyze_loss` takes the worst of the mistakes that `analysis.mistakes` finds, which often was made many
turns before the fatal collision.
`find_puzzle` asks the other way round whether a position has exactly one move that saves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.mistakes import (
    MIN_BETTER_SCORE,
    MISTAKE_LOSS,
    ROLLOUT_GAMES,
    SCREENING_GAMES,
    MoveAssessment,
    find_mistakes,
    score_after_move,
    scores_by_move,
)
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.analysis.win_probability import PROVEN_VALUE
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search

NODES_BY_GRADE = (100, 400, 1600)
"""Positions that a search needs to look at to solve a puzzle of grade 1, 2, 3."""


@dataclass(frozen=True, slots=True)
class LossAnalysis:
    """How a snake lost a game.

    ``died`` is the turn of its death and ``cause`` that of the rules; ``mark`` is the move that
    lost the game (None: no one move did), ``board`` the position then, ``better_moves`` the shares of
    games that the better moves win, the best first; ``seen`` turns were looked at.
    """

    snake_id: str
    died: int
    cause: str
    turns_analyzed: int
    mistake: MoveAssessment | None = None
    board: Board | None = None
    better_moves: Mapping[str, float] = field(default_factory=dict)
    recorded: Decision | None = None

    @property
    def loss(self) -> float:
        """The share of the game that the fatal move gave away."""
        return self.mistake.loss if self.mistake else 0.0

    @property
    def death_type(self) -> str:
        """What sort of death it was."""
        words = _CAUSE_PHRASES.get(self.cause, self.cause)
        if self.mistake is None:
            return f"{words}, outplayed long before"
        return words if self.died - self.mistake.turn <= 1 else f"{words}, trapped before"

    def scenario(self, name: str) -> Scenario:
        """The position before the fatal move, as a test of the snake."""
        assert self.board is not None
        assert self.mistake is not None
        board = self.board.copy()
        board.you_id = self.snake_id
        note = f"{self.mistake.move} lost: {_CAUSE_PHRASES.get(self.cause, self.cause)} on turn {self.died}."
        return Scenario(name, board, tuple(self.better_moves), note)


_CAUSE_PHRASES = {
    "wall-collision": "hit the wall",
    "snake-self-collision": "bit itself",
    "snake-collision": "ran into a body",
    "head-collision": "lost head to head",
    "out-of-health": "starved",
    "hazard": "died of hazards",
}


def analyze_loss(replay: Replay, snake_id: str, seconds: float = math.inf) -> LossAnalysis | None:
    """How this snake lost, with about ``seconds`` of CPU; None where it did not die."""
    snake = replay.last.snake(snake_id)
    if snake.alive:
        return None
    marks, seen = find_mistakes(replay, [snake_id], seconds)
    mark = next((mark for mark in marks if mark.best_win_probability >= MIN_BETTER_SCORE), None)
    if mark is None:
        return LossAnalysis(snake_id, snake.eliminated_on, snake.eliminated_cause, seen)
    board, turn = replay.board(mark.turn), replay.turns[mark.turn - replay.first.turn]
    won = scores_by_move(board, snake_id, turn.moves, ROLLOUT_GAMES, 1 + SCREENING_GAMES)
    won[mark.better] = mark.best_win_probability  # of these games or of more
    saving = {
        move: share
        for move, share in sorted(won.items(), key=lambda item: -item[1])
        if move != mark.move and share > mark.best_win_probability - MISTAKE_LOSS
    }
    return LossAnalysis(
        snake_id, snake.eliminated_on, snake.eliminated_cause, seen, mark, board, saving,
        turn.decisions.get(snake_id),
    )  # fmt: skip


def find_puzzle(board: Board) -> tuple[str, int] | None:
    """The one move that saves ``board.you`` and the grade, 1 to 3; None where it is no puzzle.

    The grade is how far one must look (`NODES_BY_GRADE`). It is no puzzle where every move loses or
    several hold, in games played on too, nor where the others lose at once, which anyone sees.
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
    for move in sorted(safe, key=only.__ne__):  # the one first
        share = score_after_move(board, you, move, moves, ROLLOUT_GAMES)
        if share < MISTAKE_LOSS if move == only else share > MIN_BETTER_SCORE:
            return None
    seen = (
        grade
        for grade, effort in enumerate(easier, 1)
        if _only_surviving_move(board, safe, effort) == only
    )
    return only, next(seen, len(NODES_BY_GRADE))


def _only_surviving_move(board: Board, safe: list[str], effort: int) -> str | None:
    """The one safe move that a search of ``effort`` positions does not call lost."""
    scores = Search(evaluation=load_builtin(), nodes=effort)(board).scores
    held = [move for move in safe if scores.get(move, 0.0) > -PROVEN_VALUE]
    return held[0] if len(held) == 1 else None

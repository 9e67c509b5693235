"""Analysis of a lost game: the move that lost the largest expected score.

`LossAnalysis.from_replay` selects the worst mistake that `analysis.mistakes` finds. This mistake
often precedes the fatal collision by many turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.mistakes import MISTAKE_LOSS, MoveAssessment, find_mistakes
from battlesnake_heuristics.analysis.scenarios import Scenario


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

    @classmethod
    def from_replay(cls, replay: Replay, snake_id: str) -> LossAnalysis | None:
        """Analyze how a snake lost a game.

        Returns:
            The analysis, or None if the snake survived.
        """
        snake = replay.last.snake(snake_id)
        if snake.alive:
            return None
        eliminated = cls(snake_id, snake.eliminated_on, snake.eliminated_cause)
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

    @property
    def loss(self) -> float:
        """The win probability that the snake lost by the mistake, in [0, 1]."""
        return self.mistake.loss if self.mistake else 0.0

    @property
    def cause_text(self) -> str:
        """The cause of elimination as a phrase in English."""
        words = _CAUSE_PHRASES.get(self.cause, self.cause)
        if self.mistake is None:
            return f"{words}, outplayed long before"
        return words if self.eliminated_on - self.mistake.turn <= 1 else f"{words}, trapped before"

    def to_scenario(self, name: str) -> Scenario:
        """Convert the position before the mistake to a scenario."""
        assert self.board is not None
        assert self.mistake is not None
        board = self.board.copy()
        board.you_id = self.snake_id
        cause = _CAUSE_PHRASES.get(self.cause, self.cause)
        note = f"{self.mistake.move} lost: {cause} on turn {self.eliminated_on}."
        return Scenario(name, board, tuple(self.better_moves), note)


_CAUSE_PHRASES = {
    "wall-collision": "hit the wall",
    "snake-self-collision": "bit itself",
    "snake-collision": "ran into a body",
    "head-collision": "lost head to head",
    "out-of-health": "starved",
    "hazard": "died of hazards",
}
"""Causes of elimination as phrases in English."""

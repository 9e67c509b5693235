"""Why a snake lost: the last move that would have saved it, by walking back from its death.

`lesson` looks at the positions before a death, the last one first, until the search finds a move
after which the game is not lost. That is where the game was lost, often many turns before the
fatal collision. `puzzle` asks the other way round whether a position has exactly one such move.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from battlesnake_gym.boards.board import Board
from battlesnake_gym.records.replay import Replay
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.judge.analysis import MISTAKE, Analyst, Choice
from battlesnake_heuristics.judge.calibration import DECIDED
from battlesnake_heuristics.judge.scenarios import Scenario
from battlesnake_heuristics.search.evaluation import shipped
from battlesnake_heuristics.search.search import Search

LONGEST_WALK = 80
"""Turns before a death that are looked at."""

HOPELESS = 0.03
"""With a smaller chance a position counts as lost."""

EFFORTS = (100, 400, 1600)
"""Positions that a search needs to look at to solve a puzzle of grade 1, 2, 3."""

SURE = 25_600
"""Positions after which the search must still say the same of a puzzle."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a snake lost a game.

    ``died`` is the turn of its death and ``cause`` that of the rules; ``turn`` is the last one on
    which a move would have saved it (None: there was none in the last ``walked`` turns), ``board``
    the position then, ``played`` what it did, ``choices`` the moves that were there.
    """

    snake_id: str
    died: int
    cause: str
    turn: int | None = None
    board: Board | None = None
    played: str = ""
    choices: tuple[Choice, ...] = ()
    recorded: Decision | None = None
    walked: int = LONGEST_WALK

    @property
    def saving(self) -> tuple[Choice, ...]:
        """The moves that would have saved it, the best first."""
        if not self.choices:
            return ()
        best = self.choices[0].chance
        return tuple(
            choice
            for choice in self.choices
            if choice.move != self.played and not _lost(choice) and choice.chance > best - MISTAKE
        )

    @property
    def cost(self) -> float:
        """The share of the game that the fatal move gave away."""
        return self.choices[0].chance if self.choices else 0.0

    @property
    def kind(self) -> str:
        """What sort of death it was."""
        words = _WORDS.get(self.cause, self.cause)
        if self.turn is None:
            return f"{words}, outplayed long before"
        return words if self.died - self.turn <= 1 else f"{words}, trapped before"

    def scenario(self, name: str) -> Scenario:
        """The position before the fatal move, as a test of the snake."""
        assert self.board is not None
        board = self.board.copy()
        board.you_id = self.snake_id
        allowed = tuple(choice.move for choice in self.saving)
        note = f"{self.played} lost: {_WORDS.get(self.cause, self.cause)} on turn {self.died}."
        return Scenario(name, board, allowed, note)


_WORDS = {
    "wall-collision": "hit the wall",
    "snake-self-collision": "bit itself",
    "snake-collision": "ran into a body",
    "head-collision": "lost head to head",
    "out-of-health": "starved",
    "hazard": "died of hazards",
}


def lesson(
    replay: Replay, snake_id: str, analyst: Analyst, seconds: float = math.inf
) -> Lesson | None:
    """How this snake lost; None where it did not die. The walk ends after ``seconds`` of CPU."""
    until = time.process_time() + seconds
    snake = replay.last.snake(snake_id)
    if snake.alive:
        return None
    died, cause, first = snake.eliminated_on, snake.eliminated_cause, replay.first.turn
    begun = max(first, died - LONGEST_WALK)
    boards = [board for board in replay.boards() if begun <= board.turn < died]
    for board in reversed(boards):
        played = replay.turns[board.turn - first]
        choices = analyst.judge(board)[snake_id].choices
        found = Lesson(
            snake_id, died, cause, board.turn, board, played.moves[snake_id], choices,
            played.decisions.get(snake_id),
        )  # fmt: skip
        if found.saving and not _lost(choices[0]):
            return found
        if time.process_time() > until:
            return Lesson(snake_id, died, cause, walked=died - board.turn)
    return Lesson(snake_id, died, cause)


def _lost(choice: Choice) -> bool:
    return choice.value < -DECIDED or choice.chance < HOPELESS


def puzzle(board: Board) -> tuple[str, int] | None:
    """The one move that saves ``board.you`` and the grade, 1 to 3; None where it is no puzzle.

    The grade is how far one must look (`EFFORTS`). It is no puzzle where every move loses or
    several hold, nor where the others lose at once, which anyone sees.
    """
    safe = board.safe_moves()
    if len(safe) < 2:
        return None
    *easier, hardest = EFFORTS
    only = _only(board, safe, hardest)
    if only is None or _only(board, safe, SURE) != only:
        return None
    seen = (grade for grade, effort in enumerate(easier, 1) if _only(board, safe, effort) == only)
    return only, next(seen, len(EFFORTS))


def _only(board: Board, safe: list[str], effort: int) -> str | None:
    """The one safe move that a search of ``effort`` positions does not call lost."""
    scores = Search(evaluation=shipped(), nodes=effort)(board).scores
    held = [move for move in safe if scores.get(move, 0.0) > -DECIDED]
    return held[0] if len(held) == 1 else None

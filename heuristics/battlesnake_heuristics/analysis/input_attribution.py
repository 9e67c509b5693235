"""What each input of a learned evaluation is worth in a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import (
    BOARD,
    SNAKE,
    SNAKES,
    Evaluation,
    Input,
    chance,
)
from battlesnake_heuristics.search.search import inputs


@dataclass(frozen=True, slots=True)
class Worth:
    """One input: whose it is ("board" or one of `SNAKES`), ``value`` and ``usual`` in its unit.

    ``worth`` is by how much it raises the chance to win, from 0 to 1: the difference that it makes
    to the evaluation whether it is ``value`` or ``usual``.
    """

    whose: str
    input: Input
    value: int
    usual: int
    worth: float


def worths(evaluation: Evaluation, board: Board, others: Sequence[Board]) -> list[Worth]:
    """All inputs of ``board``, the most important first.

    Usual is the mean over ``others``, positions of the same snake with as many alive. Raises
    ``ValueError`` where the evaluation was not trained for the game.
    """
    if objection := evaluation.objection(board):
        raise ValueError(f"the evaluation does not know this game: {objection}")
    row, living = inputs(board), len(board.living)
    like = [inputs(other) for other in others if len(other.living) == living]
    usual = np.rint(np.mean([*like, row], axis=0)).astype(np.int16)
    changed = np.repeat(row[None], len(row), axis=0)
    np.fill_diagonal(changed, usual)
    now, *without = _chances(evaluation, np.concatenate((row[None], changed)), living)
    names = [("board", one) for one in BOARD.values()]
    names += [(whose, one) for whose in SNAKES for one in SNAKE.values()]
    found = [
        Worth(whose, one, int(value), int(mean), float(now - other))
        for (whose, one), value, mean, other in zip(names, row, usual, without, strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.worth))


def static_chance(evaluation: Evaluation, board: Board) -> float:
    """What the evaluation alone, without search, gives ``board.you``: the share of a point."""
    return float(_chances(evaluation, inputs(board)[None], len(board.living))[0])


def _chances(evaluation: Evaluation, rows: np.ndarray, living: int) -> np.ndarray:
    values = _search.values_by(0, evaluation.numbers, np.ascontiguousarray(rows), living)
    assert values is not None  # plain code runs everywhere
    return np.array([chance(value / 1000) for value in np.frombuffer(values, np.int32)])

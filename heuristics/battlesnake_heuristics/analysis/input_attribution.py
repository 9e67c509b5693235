"""What each input of a learned evaluation is worth in a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import (
    BOARD_INPUTS,
    INPUT_GROUPS,
    SNAKE_INPUTS,
    Evaluation,
    NetworkInput,
    score_to_probability,
)
from battlesnake_heuristics.search.search import network_inputs


@dataclass(frozen=True, slots=True)
class InputAttribution:
    """One input: whose it is ("board" or one of `SNAKES`), ``value`` and ``baseline`` in its unit.

    ``attribution`` is by how much it raises the chance to win, from 0 to 1: the difference that it makes
    to the evaluation whether it is ``value`` or ``baseline``.
    """

    group: str
    input: NetworkInput
    value: int
    baseline: int
    attribution: float


def attribute_inputs(
    evaluation: Evaluation, board: Board, others: Sequence[Board]
) -> list[InputAttribution]:
    """All inputs of ``board``, the most important first.

    Usual is the mean over ``others``, positions of the same snake with as many alive. Raises
    ``ValueError`` where the evaluation was not trained for the game.
    """
    if objection := evaluation.unsupported_reason(board):
        raise ValueError(f"the evaluation does not know this game: {objection}")
    row, living = network_inputs(board), len(board.living)
    like = [network_inputs(other) for other in others if len(other.living) == living]
    usual = np.rint(np.mean([*like, row], axis=0)).astype(np.int16)
    changed = np.repeat(row[None], len(row), axis=0)
    np.fill_diagonal(changed, usual)
    now, *without = _chances(evaluation, np.concatenate((row[None], changed)), living)
    names = [("board", one) for one in BOARD_INPUTS.values()]
    names += [(whose, one) for whose in INPUT_GROUPS for one in SNAKE_INPUTS.values()]
    found = [
        InputAttribution(whose, one, int(value), int(mean), float(now - other))
        for (whose, one), value, mean, other in zip(names, row, usual, without, strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.attribution))


def static_win_probability(evaluation: Evaluation, board: Board) -> float:
    """What the evaluation alone, without search, gives ``board.you``: the share of a point."""
    return float(_chances(evaluation, network_inputs(board)[None], len(board.living))[0])


def _chances(evaluation: Evaluation, rows: np.ndarray, living: int) -> np.ndarray:
    values = _search.evaluate_batch(0, evaluation.network_bytes, np.ascontiguousarray(rows), living)
    assert values is not None  # plain code runs everywhere
    return np.array(
        [score_to_probability(value / 1000) for value in np.frombuffer(values, np.int32)]
    )

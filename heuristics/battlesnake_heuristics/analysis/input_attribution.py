"""Attribution: how much each network input contributes to an evaluation."""

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
class _InputAttribution:
    """The contribution of one network input to the win probability.

    Attributes:
        group: Group of the input: "board", or an entry of `INPUT_GROUPS`.
        input: Name of the network input.
        value: Value of the input in the position, in the unit of the input.
        baseline: Mean value of the input over comparable positions, in the unit of the input.
        attribution: Win probability with ``value`` minus win probability with ``baseline``.
    """

    group: str
    input: NetworkInput
    value: int
    baseline: int
    attribution: float


def attribute_inputs(
    evaluation: Evaluation, board: Board, others: Sequence[Board]
) -> list[_InputAttribution]:
    """Compute the attributions of all inputs, sorted by decreasing absolute value.

    Args:
        evaluation: Evaluation to explain.
        board: Position to explain, from the perspective of ``board.you``.
        others: Positions of the same snake, with or without ``board``. The baseline is the mean
            over ``board`` and the positions with as many living snakes as ``board``.

    Raises:
        ValueError: If the evaluation does not support the game.
    """
    if reason := evaluation.unsupported_reason(board):
        raise ValueError(f"the evaluation does not support this game: {reason}")
    row, living = network_inputs(board), len(board.living)
    same = (other for other in others if len(other.living) == living and other is not board)
    comparable = [*map(network_inputs, same), row]
    baseline = np.rint(np.mean(comparable, axis=0)).astype(np.int16)
    changed = np.repeat(row[None], len(row), axis=0)
    np.fill_diagonal(changed, baseline)
    now, *without = _win_probabilities(evaluation, np.concatenate((row[None], changed)), living)
    names = [("board", one) for one in BOARD_INPUTS.values()]
    names += [(group, one) for group in INPUT_GROUPS for one in SNAKE_INPUTS.values()]
    found = [
        _InputAttribution(group, one, int(value), int(mean), float(now - other))
        for (group, one), value, mean, other in zip(names, row, baseline, without, strict=True)
    ]
    return sorted(found, key=lambda one: -abs(one.attribution))


def static_win_probability(evaluation: Evaluation, board: Board) -> float:
    """Return the win probability of ``board.you`` without search, in [0, 1]."""
    return float(_win_probabilities(evaluation, network_inputs(board)[None], len(board.living))[0])


def _win_probabilities(evaluation: Evaluation, rows: np.ndarray, living: int) -> np.ndarray:
    """Evaluate network inputs.

    Args:
        evaluation: Network to evaluate.
        rows: Network inputs, int16 (N, inputs).
        living: Number of living snakes.

    Returns:
        Win probabilities, float64 (N,).
    """
    values = _search.evaluate_batch(0, evaluation.network_bytes, np.ascontiguousarray(rows), living)
    assert values is not None, "all processors support the portable kernel"
    scores = np.frombuffer(values, np.int32) / 1000
    return np.array([score_to_probability(score) for score in scores.tolist()])

"""Symmetries of a square board, applied to observations and actions.

The eight symmetries serve data augmentation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns

from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import MOVES

NUM_SYMMETRIES = 8
"""Number of symmetries of a square board, including the identity."""

_TRANSPOSE, _FLIP_VERTICAL, _FLIP_HORIZONTAL = 4, 1, 2
"""Bits of a symmetry's index; the transposition precedes the flips."""


def _transform_boards(boards: NDArray[Any], symmetry: int) -> NDArray[Any]:
    """Apply a symmetry to square boards.

    Args:
        boards: (..., H, W), any dtype, with H equal to W.
        symmetry: Index of the symmetry, in [0, `NUM_SYMMETRIES`).
    """
    if symmetry & _TRANSPOSE:
        boards = np.swapaxes(boards, -1, -2)
    if symmetry & _FLIP_VERTICAL:
        boards = np.flip(boards, -2)
    if symmetry & _FLIP_HORIZONTAL:
        boards = np.flip(boards, -1)
    return np.ascontiguousarray(boards)


_ACTION_BOARD = np.array([[-1, 1, -1], [2, -1, 3], [-1, 0, -1]])
"""Index of the action to each neighbor of the center; row 0 is the bottom of the board."""

ACTION_MAP = np.array(
    [
        [_ACTION_BOARD[_transform_boards(_ACTION_BOARD, symmetry) == action] for action in range(4)]
        for symmetry in range(NUM_SYMMETRIES)
    ]
).squeeze(-1)
"""``ACTION_MAP[symmetry, action]`` is the action on the transformed board."""


@cache
def _plane_order(symmetry: int, planes: tuple[str, ...]) -> list[int]:
    """Return the original index of each plane of a transformed observation.

    The observation covers one turn.
    """
    order = list(range(len(planes)))
    for old, name in enumerate(planes):
        move, _, rest = name.partition("_")
        if move in MOVES:
            order[planes.index(f"{MOVES[ACTION_MAP[symmetry, MOVES.index(move)]]}_{rest}")] = old
    return order


def transform_observations(
    frames: NDArray[Any], symmetry: int, observation: Observation
) -> NDArray[Any]:
    """Apply a symmetry to observations of square boards.

    If a plane belongs to a move, the function also changes the plane's position in the observation.

    Args:
        frames: (..., C, H, W), observations.
        symmetry: Index of the symmetry, in [0, `NUM_SYMMETRIES`).
        observation: Observation type of the games.
    """
    one = _plane_order(symmetry, tuple(observation.planes))
    order = [frame * len(one) + plane for frame in range(observation.frame_stack) for plane in one]
    boards = _transform_boards(frames, symmetry)
    return boards if order == sorted(order) else boards[..., order, :, :]


def transform_batch(
    columns: Mapping[str, NDArray[Any]],
    symmetry: int,
    per_move: Collection[str],
    observation: Observation,
) -> dict[str, NDArray[Any]]:
    """Apply a symmetry to a batch of positions or transitions.

    Args:
        columns: Arrays of the batch, by column name.
        symmetry: Index of the symmetry, in [0, `NUM_SYMMETRIES`).
        per_move: Names of the columns with one entry per move, such as the action mask.
        observation: Observation type of the games.
    """
    inverse = np.argsort(ACTION_MAP[symmetry])

    def transform(name: str, column: NDArray[Any]) -> NDArray[Any]:
        if name in (Columns.OBS, Columns.NEXT_OBS):
            return transform_observations(column, symmetry, observation)
        if name == Columns.ACTIONS:
            return np.asarray(ACTION_MAP[symmetry][column])
        return column[:, inverse] if name in per_move else column

    return {name: transform(name, column) for name, column in columns.items()}

"""The eight ways in which a square board can lie: what is right on one of them is right on all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns

from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import MOVES

NUM_SYMMETRIES = 8
_TRANSPOSE, _FLIP_VERTICAL, _FLIP_HORIZONTAL = 4, 1, 2
"""A way's number is a sum of some of these."""

_STEPS = {"up": (1, 0), "down": (-1, 0), "left": (0, -1), "right": (0, 1)}
"""Rows and columns that a move goes on."""


def _turned_move(way: int, move: str) -> int:
    rows, columns = _STEPS[move]
    if way & _TRANSPOSE:
        rows, columns = columns, rows
    if way & _FLIP_VERTICAL:
        rows = -rows
    if way & _FLIP_HORIZONTAL:
        columns = -columns
    return next(MOVES.index(name) for name, step in _STEPS.items() if step == (rows, columns))


ACTION_MAP = np.array(
    [[_turned_move(way, move) for move in MOVES] for way in range(NUM_SYMMETRIES)]
)
"""``ACTION_MAP[way, action]`` is the same move on the board that lies in another way."""


def transform_boards(boards: NDArray[Any], way: int) -> NDArray[Any]:
    """Square boards [..., H, W] as they lie in one of the `NUM_SYMMETRIES`."""
    if way & _TRANSPOSE:
        boards = np.swapaxes(boards, -1, -2)
    if way & _FLIP_VERTICAL:
        boards = np.flip(boards, -2)
    if way & _FLIP_HORIZONTAL:
        boards = np.flip(boards, -1)
    return np.ascontiguousarray(boards)


@cache
def _plane_order(way: int, planes: tuple[str, ...]) -> list[int]:
    """For each plane of one frame, which one it was before its board was turned."""
    order = list(range(len(planes)))
    for old, name in enumerate(planes):
        move, _, rest = name.partition("_")
        if move in MOVES:
            order[planes.index(f"{MOVES[ACTION_MAP[way, MOVES.index(move)]]}_{rest}")] = old
    return order


def transform_observations(
    frames: NDArray[Any], way: int, observation: Observation
) -> NDArray[Any]:
    """Observations [..., C, H, W] of square boards as they lie in one of the `NUM_SYMMETRIES`.

    A plane that is about a move is then about that move's new name.
    """
    one = _plane_order(way, tuple(observation.planes))
    order = [frame * len(one) + plane for frame in range(observation.frame_stack) for plane in one]
    boards = transform_boards(frames, way)
    return boards if order == sorted(order) else boards[..., order, :, :]


def transform_batch(
    columns: Mapping[str, NDArray[Any]], way: int, mask: str, observation: Observation
) -> dict[str, NDArray[Any]]:
    """A batch of transitions, all boards lying in another way; ``mask`` is its column of moves."""
    moves_back = np.argsort(ACTION_MAP[way])
    return {
        **columns,
        Columns.OBS: transform_observations(columns[Columns.OBS], way, observation),
        Columns.NEXT_OBS: transform_observations(columns[Columns.NEXT_OBS], way, observation),
        Columns.ACTIONS: ACTION_MAP[way][columns[Columns.ACTIONS]],
        mask: columns[mask][:, moves_back],
    }

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

WAYS = 8
TRANSPOSED, UPSIDE_DOWN, MIRRORED = 4, 1, 2
"""A way's number is a sum of some of these."""

_STEPS = {"up": (1, 0), "down": (-1, 0), "left": (0, -1), "right": (0, 1)}
"""Rows and columns that a move goes on."""


def _turned_move(way: int, move: str) -> int:
    rows, columns = _STEPS[move]
    if way & TRANSPOSED:
        rows, columns = columns, rows
    if way & UPSIDE_DOWN:
        rows = -rows
    if way & MIRRORED:
        columns = -columns
    return next(MOVES.index(name) for name, step in _STEPS.items() if step == (rows, columns))


ACTIONS = np.array([[_turned_move(way, move) for move in MOVES] for way in range(WAYS)])
"""``ACTIONS[way, action]`` is the same move on the board that lies in another way."""


def turned_boards(boards: NDArray[Any], way: int) -> NDArray[Any]:
    """Square boards [..., H, W] as they lie in one of the `WAYS`."""
    if way & TRANSPOSED:
        boards = np.swapaxes(boards, -1, -2)
    if way & UPSIDE_DOWN:
        boards = np.flip(boards, -2)
    if way & MIRRORED:
        boards = np.flip(boards, -1)
    return np.ascontiguousarray(boards)


@cache
def _order(way: int, planes: tuple[str, ...]) -> list[int]:
    """For each plane of one frame, which one it was before its board was turned."""
    order = list(range(len(planes)))
    for old, name in enumerate(planes):
        move, _, rest = name.partition("_")
        if move in MOVES:
            order[planes.index(f"{MOVES[ACTIONS[way, MOVES.index(move)]]}_{rest}")] = old
    return order


def turned_frames(frames: NDArray[Any], way: int, observation: Observation) -> NDArray[Any]:
    """Observations [..., C, H, W] of square boards as they lie in one of the `WAYS`.

    A plane that is about a move is then about that move's new name.
    """
    one = _order(way, tuple(observation.planes))
    order = [frame * len(one) + plane for frame in range(observation.frames) for plane in one]
    boards = turned_boards(frames, way)
    return boards if order == sorted(order) else boards[..., order, :, :]


def turned(
    columns: Mapping[str, NDArray[Any]], way: int, mask: str, observation: Observation
) -> dict[str, NDArray[Any]]:
    """A batch of transitions, all boards lying in another way; ``mask`` is its column of moves."""
    moves_back = np.argsort(ACTIONS[way])
    return {
        **columns,
        Columns.OBS: turned_frames(columns[Columns.OBS], way, observation),
        Columns.NEXT_OBS: turned_frames(columns[Columns.NEXT_OBS], way, observation),
        Columns.ACTIONS: ACTIONS[way][columns[Columns.ACTIONS]],
        mask: columns[mask][:, moves_back],
    }

"""``iterate_map_size``: cycle through board sizes 7, 11 and 19.

Each board size applies for ten iterations. The schedule comes from the SageMaker starter pack.
"""

from __future__ import annotations

import functools
from typing import Any

MAP_SIZES = (7, 11, 19)
OBSERVATION = "max-bordered-51s"
"""Observation of the starter pack's network, with the same shape for all boards."""


def board_size_after(iteration: int) -> int:
    """Return the board size after ``iteration`` iterations.

    >>> [board_size_after(count) for count in (1, 10, 11, 20, 21, 29, 30, 31, 41)]
    [7, 7, 11, 11, 19, 19, 7, 7, 11]
    """
    return MAP_SIZES[max(iteration % 30 - 1, 0) // 10]


def advance_board_size(*, algorithm: Any, **_: Any) -> None:
    """Set the board size of the next iteration on all env runners (RLlib callback)."""
    board_size = board_size_after(algorithm.training_iteration)
    algorithm.env_runner_group.foreach_env_runner(
        functools.partial(_play_on, board_size=board_size)
    )


def _play_on(runner: Any, board_size: int) -> None:
    """Set the board size of an env runner's next games.

    This project's env runners restart all games; RLlib's env runners finish the running games.
    """
    games = (
        [runner] if hasattr(runner, "board_size") else [env.unwrapped for env in runner.env.envs]
    )
    for one in games:
        one.board_size = board_size

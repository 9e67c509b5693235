"""``iterate_map_size``: cycle through board sizes 7, 11 and 19.

Each board size applies for ten iterations. The schedule originates from the SageMaker starter pack.
"""

from __future__ import annotations

from typing import Any

CYCLED_BOARD_SIZES = (7, 11, 19)
"""Widths and heights of the boards in the cycle, in cells."""

FIXED_SHAPE_OBSERVATION = "max-bordered-51s"
"""Observation of the starter pack's network, with the same shape for all boards."""


def _board_size_after(iteration: int) -> int:
    """Return the board size for the iteration after ``iteration``, in cells.

    >>> [_board_size_after(count) for count in (1, 10, 11, 20, 21, 29, 30, 31, 41)]
    [7, 7, 11, 11, 19, 19, 7, 7, 11]
    """
    return CYCLED_BOARD_SIZES[max(iteration % 30 - 1, 0) // 10]


def advance_board_size(*, algorithm: Any, **_: Any) -> None:
    """Set the board size of the next iteration on all env runners.

    RLlib calls this function as a callback.
    """
    size = _board_size_after(algorithm.training_iteration)
    algorithm.env_runner_group.foreach_env_runner(lambda runner: _set_board_size(runner, size))


def _set_board_size(runner: Any, board_size: int) -> None:
    """Set the board size of an env runner's next games.

    This project's env runners restart all games. RLlib's env runners finish the running games
    first.
    """
    games = (
        [runner] if hasattr(runner, "board_size") else [env.unwrapped for env in runner.env.envs]
    )
    for one in games:
        one.board_size = board_size

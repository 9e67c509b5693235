"""``iterate_map_size``: boards of 7, 11 and 19, ten iterations each, as the starter pack had."""

from __future__ import annotations

import functools
from typing import Any

MAP_SIZES = (7, 11, 19)
OBSERVATION = "max-bordered-51s"
"""What the starter pack's network saw: of one size, whatever the board's."""


def board_size_after(iteration: int) -> int:
    """The side of the boards once so many iterations are over; the first is on ``board_size``.

    >>> [board_size_after(count) for count in (1, 10, 11, 20, 21, 29, 30, 31, 41)]
    [7, 7, 11, 11, 19, 19, 7, 7, 11]
    """
    return MAP_SIZES[max(iteration % 30 - 1, 0) // 10]


def advance_board_size(*, algorithm: Any, **_: Any) -> None:
    """Let all runners play on the boards of the next iteration; one of RLlib's callbacks."""
    board_size = board_size_after(algorithm.training_iteration)
    algorithm.env_runner_group.foreach_env_runner(
        functools.partial(_play_on, board_size=board_size)
    )


def _play_on(runner: Any, board_size: int) -> None:
    """Of our runners all games begin anew, of RLlib's each when the one before it is over."""
    games = (
        [runner] if hasattr(runner, "board_size") else [env.unwrapped for env in runner.env.envs]
    )
    for one in games:
        one.board_size = board_size

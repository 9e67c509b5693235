"""Options of all environments and trainers, with their checks and defaults.

>>> EnvConfig.from_options({"width": 7, "height": 7}).width
7
>>> EnvConfig.from_options({"widht": 7})
Traceback (most recent call last):
    ...
ValueError: unknown option 'widht'; did you mean width?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import index
from typing import Any, Self

import numpy as np

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.game_spec import GameSpec, IntPerGame
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.rewards import RewardWeights
from battlesnake_gym.rules import State, start
from battlesnake_gym.rules.state import Point


@dataclass(frozen=True)
class EnvConfig(GameSpec[IntPerGame]):
    """Configuration of games, observations, action masks and rewards."""

    food_rng: str = "fast"
    """Random number stream of food: "fast" (this engine) or "official"."""
    start_positions: Sequence[Sequence[int]] | None = None
    """Start cell (x, y) of each seat; if None, the map chooses the start cells."""
    food_positions: Sequence[Sequence[int]] | None = None
    """Initial food cells (x, y); if None, the map chooses the food cells.

    This option requires ``start_positions``.
    """
    observation: str | Mapping[str, Any] | observations.Observation = observations.DEFAULT_NAME
    """Observation of each snake, in any form that `observations.get` accepts."""
    frame_stack: int | None = None
    """Number of stacked turns, 1 to 8; None uses the value in ``observation``, or 1."""
    rewards: RewardWeights | Sequence[RewardWeights] = "survival"
    """Reward preset, weights by event, or a list with one entry per seat.

    `rewards.get` explains the forms of an entry.
    """
    action_mask: str = "fatal"
    """Kind of action mask, or several kinds joined with ``+`` (`masks.KINDS`)."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any], extra_names: Iterable[str] = ()) -> Self:
        """Create an instance from a dictionary of options.

        Args:
            options: Values by field name.
            extra_names: Names of the caller's options, which error messages may suggest.

        Raises:
            ValueError: If a name is unknown.
        """
        known = [*(field.name for field in fields(cls)), *extra_names]
        for name in options:
            if name not in known:
                raise ValueError(unknown_name_message("option", name, known))
        return cls(**options)

    @property
    def start_state(self) -> State | None:
        """Start position with the configured cells, or None if the map chooses the position.

        Environments use the hazards of the map's position for the seed of each game, and without
        ``food_positions`` also the food.

        Raises:
            ValueError: If ``start_positions`` or ``food_positions`` are invalid.
        """
        if self.start_positions is None:
            if self.food_positions is not None:
                raise ValueError(
                    "food_positions requires start_positions; also set the snakes' start cells"
                )
            return None
        sizes = self.num_snakes, self.width, self.height
        if not all(isinstance(size, int) for size in sizes):
            raise ValueError(
                "start_positions requires one board size and one number of snakes for all games"
            )
        count, width, height = (int(np.max(size)) for size in sizes)
        heads = _parse_cells("start_positions", self.start_positions, width, height)
        if len(heads) != count:
            raise ValueError(
                f"start_positions has {len(heads)} cells for {count} snakes; give one per snake"
            )
        game = replace(self.game, seed=1)
        state = start(game, width, height, [f"snake_{seat}" for seat in range(count)])
        for snake, head in zip(state.snakes, heads, strict=True):
            snake.body = [head] * len(snake.body)
        if self.food_positions is not None:
            state.food = _parse_cells("food_positions", self.food_positions, width, height)
            if both := sorted(set(state.food) & set(heads)):
                raise ValueError(
                    f"food_positions has {both[0]}, a snake's start cell; choose another cell"
                )
        return state

    @property
    def observation_encoder(self) -> observations.Observation:
        """Observation encoder with ``frame_stack`` applied."""
        encoder = observations.get(self.observation)
        if self.frame_stack is None:
            return encoder
        return replace(encoder, frame_stack=self.frame_stack)


TRAINING_DEFAULTS = EnvConfig(rewards="survival-and-win", max_turns=500)
"""Default configuration of the trainers, which truncates every game at turn 500."""


def _parse_cells(name: str, cells: Any, width: int, height: int) -> list[Point]:
    try:
        points = [(index(x), index(y)) for x, y in cells]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a list of cells such as [[1, 1], [5, 5]], got {cells!r}"
        ) from None
    for x, y in points:
        if not (0 <= x < width and 0 <= y < height):
            raise ValueError(f"{name} has ({x}, {y}), which is off the board of {width}x{height}")
    if len(set(points)) < len(points):
        raise ValueError(f"{name} contains a cell twice: {points}; remove the duplicate")
    return points

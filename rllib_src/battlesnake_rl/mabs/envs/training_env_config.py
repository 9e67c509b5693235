"""Options of training games: an ``env_config``.

Configurations and checkpoints contain an ``env_config``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from battlesnake_gym.config import TRAINING_DEFAULTS, EnvConfig
from battlesnake_gym.env.opponent_names import check_fractions, seat_fractions
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.rewards import RewardWeights
from battlesnake_rl.mabs.envs.board_size_schedule import CYCLED_BOARD_SIZES, FIXED_SHAPE_OBSERVATION

ENV_NAME = "battlesnake"
"""Name of the environment in RLlib's registry."""


@dataclass(frozen=True)
class TrainingEnvConfig(EnvConfig):
    """Configuration of training games: the fields of `EnvConfig`, and the fields of training.

    ``frame_stack`` becomes a part of ``observation``, and a list of opponents becomes fractions.
    """

    rewards: RewardWeights | Sequence[RewardWeights] = TRAINING_DEFAULTS.rewards
    max_turns: int | None = TRAINING_DEFAULTS.max_turns
    curriculum: list[list[int]] = field(default_factory=list)
    """``[[env_steps, size], ...]``; each board size applies from ``env_steps`` on.

    If the curriculum is empty, the board size is always ``width`` x ``height``.
    """
    iterate_map_size: bool = False
    """Whether to cycle through board sizes 7, 11 and 19 (`board_size_schedule`)."""
    clip_rewards: bool = False
    """Whether RLlib's own algorithms receive the sign of each reward (starter pack)."""
    opponents: Any = field(default_factory=dict)
    """Fraction of seats by opponent, or a list of opponents (`opponent_names`)."""

    def __post_init__(self) -> None:
        if self.frame_stack is not None:
            seen = self.observation
            named = {"name": seen} if isinstance(seen, str) else observations.get(seen).to_dict()
            self._set("observation", named | {"frame_stack": self.frame_stack})
            self._set("frame_stack", None)
        self._set("settings", {} if self.settings is None else self.settings)
        self._set("opponents", seat_fractions(self.opponents))
        check_fractions(self.opponents)
        self._check_curriculum()
        if self.iterate_map_size:
            self._check_iterate_map_size()

    @property
    def observation_bytes(self) -> int:
        """Size of one observation in bytes."""
        size: Any = self.width, self.height
        return math.prod(self.observation_encoder.shape(*size))

    @property
    def head_plane(self) -> int | None:
        """Index of the plane ``own_body``, or None for no such plane.

        The maximum of this plane is at the own head.
        """
        planes = self.observation_encoder.planes
        return planes.index("own_body") if "own_body" in planes else None

    @property
    def board_sizes(self) -> list[list[int]]:
        """[width, height] of each board size used in training, smallest first."""
        smaller = CYCLED_BOARD_SIZES if self.iterate_map_size else [s for _, s in self.curriculum]
        sizes: Any = {(self.width, self.height), *((size, size) for size in smaller)}
        return [list(size) for size in sorted(sizes)]

    def curriculum_board_size(self, env_steps: int) -> int | None:
        """Return the curriculum's board size after ``env_steps`` env steps.

        If there is no curriculum, the method returns None.
        """
        sizes = [size for start, size in self.curriculum if start <= env_steps]
        return sizes[-1] if sizes else None

    def _set(self, name: str, value: Any) -> None:
        """Set a field of this frozen dataclass."""
        object.__setattr__(self, name, value)

    def _check_iterate_map_size(self) -> None:
        """Check that ``iterate_map_size`` is compatible with the other options."""
        seen = observations.get(self.observation)
        if len({seen.shape(size, size) for size in CYCLED_BOARD_SIZES}) > 1:
            raise ValueError(
                f"iterate_map_size needs an observation of fixed shape, such as "
                f"{FIXED_SHAPE_OBSERVATION}, got {seen.name}"
            )
        if self.curriculum:
            raise ValueError(
                "iterate_map_size and curriculum both set the board size; set only one option"
            )

    def _check_curriculum(self) -> None:
        """Check the entries of the curriculum."""
        if self.curriculum == []:
            return
        max_size = int(np.min([self.width, self.height]))
        with suppress(TypeError, ValueError):
            steps, sizes = zip(*self.curriculum, strict=True)
            fits = steps[0] == 0 and list(steps) == sorted({*steps}) and max(sizes) <= max_size
            if fits and all(type(number) is int and number >= 0 for number in (*steps, *sizes)):
                return
        raise ValueError(
            "curriculum must be a list of [env_steps, size] with ascending steps from 0 and sizes "
            f"of at most {max_size}, such as [[0, 7], [500000, 11]]; got {self.curriculum!r}"
        )


ENV_CONFIG_DEFAULTS: dict[str, Any] = dict(vars(TrainingEnvConfig()))
"""Default values of an ``env_config``."""


def env_options(env_config: Mapping[str, Any]) -> TrainingEnvConfig:
    """Return the configuration of training games.

    Raises:
        ValueError: If a key is unknown, if the games have several board sizes, or if the curriculum
            or the opponents are invalid.
    """
    for name in ("width", "height"):
        if not isinstance(env_config.get(name, 1), int | np.integer):
            raise ValueError(
                f"{name} must be one integer for all training games, got {env_config[name]!r}; "
                "curriculum sets several board sizes"
            )
    return TrainingEnvConfig.from_options(env_config)

"""Procgen games as a vectorized Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from battlesnake_rl.procgen.procgen_env_config import with_defaults
from battlesnake_rl.procgen.procgen_games import GAMES
from battlesnake_rl.procgen.providers import (
    FRAME_SHAPE,
    NUM_ACTIONS,
    Provider,
    ProviderStep,
    make_provider,
)
from sagemaker_rl.runs.progress import progress

PROCGEN_ENV_NAME = "procgen_env_wrapper"
"""Name of the environment in RLlib's registry."""

Infos = dict[str, NDArray[Any]]
"""Arrays of a step, keyed by name; each array has one entry per game."""


class VectorProcgen(VectorEnv[NDArray[np.uint8], NDArray[np.integer[Any]], NDArray[Any]]):
    """Vector environment of ``num_envs`` Procgen games that step together.

    Observations are uint8 (N, 64, 64, 3 * frame_stack), RGB, with the newest frame last. Actions
    are integers in [0, 14]; rewards are float32. A completed or lost level terminates the episode;
    a level that reaches the game's ``max_turns`` truncates it. The last observation of an episode
    is the last frame of the level. The next step ignores its action, has reward 0, and returns the
    first frame of the next level (``AutoresetMode.NEXT_STEP``).

    The dictionary ``infos`` contains these arrays:

    * ``level_seed``: int32 (N,), number of the current level;
    * ``prev_level_complete``: bool (N,), whether this step completed a level;
    * ``clock``: int64 (N,), number of steps since the games were created.

    Raises:
        ValueError: If ``env_config`` (keys: `procgen_env_config`) or ``num_envs`` is invalid.
        ImportError: If the package of the option ``provider`` is missing.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_snakes = 1
    """Number of seats per game; PPO's env runner reads it, and ``num_games``."""
    _provider: Provider | None = None

    def __init__(
        self, num_envs: int, env_config: Mapping[str, Any] | None = None, *, num_threads: int = 1
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.env_config = with_defaults(env_config or {})
        self.num_envs = self.num_games = num_envs
        self.max_turns = GAMES[self.env_config["env_name"]].max_turns
        height, width, channels = FRAME_SHAPE
        stack = self.env_config["frame_stack"]
        self.single_observation_space = Box(0, 255, (height, width, channels * stack), np.uint8)
        self.single_action_space = Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._num_threads = num_threads

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], Infos]:
        """Start new episodes in all games.

        With a ``seed``, the following episodes are also reproducible.

        Args:
            seed: One integer, from which every game derives its own seed; None retains the current
                seeds.
            options: Ignored.
        """
        if isinstance(seed, list):
            raise ValueError("seed must be one integer or None; each game derives its own seed")
        if seed is not None or self._provider is None:
            self.close()
            # Games with adjacent seeds would play the same levels with an offset. The seeds are
            # therefore far apart.
            seeds = np.random.SeedSequence(seed).generate_state(self.num_envs) >> 1
            self._provider = make_provider(
                self.env_config, [int(one) for one in seeds], self._num_threads
            )
            self._clock = np.zeros(self.num_envs, dtype=np.int64)
        step = self._provider.reset()
        self._turns = np.zeros(self.num_envs, dtype=np.int32)
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        self._stack: NDArray[np.uint8] | None = None
        return self._observe(step, np.ones(self.num_envs, dtype=np.bool_)), self._infos(step)

    def step(
        self, actions: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], Infos]:
        """Play one env step of all games with ``actions``, int (N,)."""
        if self._provider is None:
            raise RuntimeError("call reset() before step()")
        started = self._ended
        step = self._provider.step(np.asarray(actions, dtype=np.int32))
        self._clock = self._clock + 1
        progress.set_detail(f"played {self._clock[0]:,} steps of each of {self.num_envs} games")
        self._turns += 1
        self._turns[started] = 0
        truncations = step.done & (self._turns >= self.max_turns) & ~step.level_complete
        self._ended = step.done
        self._turns[step.level_complete] = 0
        observations = self._observe(step, started)
        return observations, step.rewards, step.done & ~truncations, truncations, self._infos(step)

    def close(self, **kwargs: Any) -> None:
        """Close the games; `reset` creates new games."""
        if self._provider is not None:
            self._provider.close()
        self._provider = None

    def _infos(self, step: ProviderStep) -> Infos:
        """Return the ``infos`` of a step; see the docstring of the class."""
        return {
            "level_seed": step.level_seeds,
            "prev_level_complete": step.level_complete,
            "clock": self._clock,
        }

    def _observe(self, step: ProviderStep, started: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the stacked frames, uint8 (N, 64, 64, 3 * frame_stack).

        At the start of an episode, all stacked frames equal the first frame.
        """
        count = self.env_config["frame_stack"]
        if count == 1:
            return step.frames
        repeated = np.tile(step.frames, (1, 1, 1, count))
        if self._stack is not None:
            channels = FRAME_SHAPE[-1]
            repeated[~started, :, :, :-channels] = self._stack[~started, :, :, channels:]
        self._stack = repeated
        return repeated


def make_env(context: Mapping[str, Any]) -> VectorProcgen:
    """Create the environment from RLlib's ``context``.

    RLlib adds ``num_envs``, the number of games, to the ``env_config``.
    """
    env_config = dict(context)
    return VectorProcgen(env_config.pop("num_envs"), env_config)

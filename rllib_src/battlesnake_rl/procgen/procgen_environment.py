"""Procgen's games as one Gymnasium environment: many in step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from battlesnake_rl.procgen.procgen_env_config import complete
from battlesnake_rl.procgen.procgen_games import GAMES
from battlesnake_rl.procgen.providers import (
    FRAME_SHAPE,
    NUM_ACTIONS,
    EnvpoolBatch,
    SequentialGames,
    Step,
    make_provider,
)

ENV_NAME = "procgen_env_wrapper"
"""Under this name the environment is registered with RLlib."""

Infos = dict[str, NDArray[Any]]


class VectorProcgen(VectorEnv[NDArray[np.uint8], NDArray[np.integer[Any]], NDArray[Any]]):
    """``num_envs`` games in step.

    Observations are uint8 (N, 64, 64, 3 * frame_stack), RGB, the newest frame last; actions are
    integers below 15; rewards are float32. A level that is completed or lost terminates the
    episode, one that has lasted for the game's ``max_turns`` truncates it; the observation is then
    the level's last frame, and the step after that ignores the action, has reward 0 and shows the
    next level (``AutoresetMode.NEXT_STEP``).

    ``infos``: ``level_seed`` int32 (N,), the number of the level that is played;
    ``prev_level_complete`` bool (N,), whether this step completed a level; ``clock`` int64 (N,),
    how many steps there have been since the games were made.

    Raises:
        ValueError: an impossible ``env_config`` (keys: `env_config.DEFAULTS`) or ``num_envs``.
        ImportError: envpool is missing.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    _provider: EnvpoolBatch | SequentialGames | None = None

    def __init__(
        self,
        num_envs: int,
        env_config: Mapping[str, Any] | None = None,
        *,
        num_threads: int = 1,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        self.env_config = complete(env_config or {})
        self.num_envs = num_envs
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
        """Begin new episodes; with ``seed`` all games start over and will repeat themselves.

        ``seed``: one integer, from which every game gets its own.
        """
        if isinstance(seed, list):
            raise ValueError("seed must be one integer or None; every game gets its own from it")
        if seed is not None or self._provider is None:
            self.close()
            # Seeds far apart: neighbours would play the same levels one game later.
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
        """Play one turn of all games; ``actions`` (N,)."""
        if self._provider is None:
            raise RuntimeError("call reset() before step()")
        begun = self._ended
        step = self._provider.step(np.asarray(actions, dtype=np.int32))
        self._clock = self._clock + 1
        self._turns += 1
        self._turns[begun] = 0
        truncations = step.done & (self._turns >= self.max_turns) & ~step.level_complete
        self._ended = step.done
        self._turns[step.level_complete] = 0
        observations = self._observe(step, begun)
        return observations, step.rewards, step.done & ~truncations, truncations, self._infos(step)

    def close(self, **kwargs: Any) -> None:
        """Let the games go; `reset` makes new ones."""
        if self._provider is not None:
            self._provider.close()
        self._provider = None

    def _infos(self, step: Step) -> Infos:
        return {
            "level_seed": step.level_seeds,
            "prev_level_complete": step.level_complete,
            "clock": self._clock,
        }

    def _observe(self, step: Step, begun: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """The newest frames, or the last ones; of a game that has just begun, its first alone."""
        count = self.env_config["frame_stack"]
        if count == 1:
            return step.frames
        repeated = np.tile(step.frames, (1, 1, 1, count))
        if self._stack is not None:
            channels = FRAME_SHAPE[-1]
            repeated[~begun, :, :, :-channels] = self._stack[~begun, :, :, channels:]
        self._stack = repeated
        return repeated


def make_env(context: Mapping[str, Any]) -> VectorProcgen:
    """What RLlib calls: as many games as its ``num_envs`` says."""
    env_config = dict(context)
    return VectorProcgen(env_config.pop("num_envs"), env_config)

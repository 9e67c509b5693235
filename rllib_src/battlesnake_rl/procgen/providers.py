"""Who computes the games: envpool's Procgen, or the original package where a user has it.

A provider plays N games in step. Where a level ends it shows the level's last frame; the step after
that ignores the action and shows the first frame of the next level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FRAME_SHAPE = (64, 64, 3)
NUM_ACTIONS = 15
NEXT_LEVEL = 997
"""In a sequence of levels, what is added to one's number to get the next one's."""


class Step(NamedTuple):
    """What N games show after a step."""

    frames: NDArray[np.uint8]
    """(N, 64, 64, 3), RGB."""
    rewards: NDArray[np.float32]
    done: NDArray[np.bool_]
    """The episode is over, for whatever reason."""
    level_complete: NDArray[np.bool_]
    """The step completed a level."""
    level_seeds: NDArray[np.int32]
    """The number of the level that is played."""


class Provider(Protocol):
    """N games in step."""

    def reset(self) -> Step:
        """Begin new episodes everywhere."""

    def step(self, actions: NDArray[np.int32]) -> Step:
        """Play ``actions``, (N,)."""

    def close(self) -> None:
        """Let the games go."""


def make_provider(
    env_config: Mapping[str, Any],
    seeds: Sequence[int],
    num_threads: int,
) -> Provider:
    """Build one game for each of ``seeds`` from a complete ``env_config``.

    ``num_threads`` is for envpool's batches; lanes are played one after the other.

    Raises:
        ImportError: the provider's package is missing, with what to install.
    """
    if env_config["provider"] == "procgen":
        return ProviderLanes([OriginalLane(env_config, seed) for seed in seeds])
    if env_config["use_sequential_levels"]:
        return ProviderLanes([SequentialLane(env_config, seed) for seed in seeds])
    return EnvpoolBatch(env_config, seeds, num_threads)


class EnvpoolBatch:
    """Games of envpool, stepped by its threads all at once."""

    def __init__(
        self, env_config: Mapping[str, Any], seeds: Sequence[int], num_threads: int
    ) -> None:
        try:
            import envpool
        except ImportError as error:
            raise ImportError(
                "Procgen's games need the package envpool, as the extra procgen installs it "
                "(or, where the original package procgen is installed, provider: procgen)"
            ) from error
        mode = env_config["distribution_mode"]
        try:
            self._pool = envpool.make_gymnasium(
                f"{env_config['env_name'].capitalize()}{mode.capitalize()}-v0",
                num_envs=len(seeds),
                env_seed=list(seeds),
                num_threads=num_threads,
                channel_first=False,
                num_levels=env_config["num_levels"],
                start_level=env_config["start_level"],
                paint_vel_info=env_config["paint_vel_info"],
                use_generated_assets=env_config["use_generated_assets"],
                center_agent=env_config["center_agent"],
            )
        except ImportError as error:
            raise ImportError(
                "envpool's Procgen needs the Qt 5 libraries: apt-get install libqt5gui5"
            ) from error

    def reset(self) -> Step:
        """Begin new episodes everywhere."""
        frames, infos = self._pool.reset()
        nothing = np.zeros(len(frames), dtype=np.bool_)
        return Step(
            frames, np.zeros(len(frames), np.float32), nothing, nothing, infos["level_seed"]
        )

    def step(self, actions: NDArray[np.int32]) -> Step:
        """Play ``actions``, (N,)."""
        frames, rewards, terminations, truncations, infos = self._pool.step(actions)
        return Step(
            frames,
            rewards,
            terminations | truncations,
            infos["prev_level_complete"] != 0,
            infos["level_seed"],
        )

    def close(self) -> None:
        """Let the games go."""
        self._pool.close()


class SequentialLane:
    """One game of envpool in which a completed level leads to the next one.

    envpool ends the episode there, so each next level is a game of its own that has just that one.
    """

    def __init__(self, env_config: Mapping[str, Any], seed: int) -> None:
        self._env_config = dict(env_config)
        self._first = EnvpoolBatch(env_config, [seed], num_threads=1)
        self._later: EnvpoolBatch | None = None
        self._ended = False

    def reset(self) -> Step:
        """Begin a new episode."""
        self._later, self._ended = None, False
        return self._first.reset()

    def step(self, actions: NDArray[np.int32]) -> Step:
        """Play ``actions``, (1,)."""
        if self._ended and self._later is not None:
            return self.reset()
        result = (self._later or self._first).step(actions)
        if result.level_complete[0]:
            number = (int(result.level_seeds[0]) + NEXT_LEVEL) % 2**31
            self._later = EnvpoolBatch(
                self._env_config | {"start_level": number, "num_levels": 1}, [0], num_threads=1
            )
            begun = self._later.reset()
            return result._replace(
                frames=begun.frames, done=begun.done, level_seeds=begun.level_seeds
            )
        self._ended = bool(result.done[0])
        return result

    def close(self) -> None:
        """Let the game go."""
        self._first.close()


class OriginalLane:
    """One game of the package ``procgen`` (0.10).

    It begins the next level in the same step and never shows the last frame of a level; the one
    before stands in for it.
    """

    def __init__(self, env_config: Mapping[str, Any], seed: int) -> None:
        try:
            from procgen import ProcgenGym3Env
        except ImportError as error:
            raise ImportError(
                "provider: procgen needs the original package procgen and its gym3; "
                "provider: envpool needs neither"
            ) from error
        self._game = ProcgenGym3Env(
            num=1,
            rand_seed=seed,
            num_threads=0,
            **{
                key: env_config[key]
                for key in (
                    *("env_name", "num_levels", "start_level", "paint_vel_info", "center_agent"),
                    *("use_generated_assets", "use_sequential_levels", "distribution_mode"),
                )
            },
        )
        self._untouched, self._next = True, self._observe()

    def reset(self) -> Step:
        """Begin a new episode."""
        if not self._untouched:
            # The original's word for "give up".
            self._game.act(np.array([-1], dtype=np.int32))
            self._next = self._observe()
        self._untouched = True
        self._last = self._begin()
        return self._last

    def step(self, actions: NDArray[np.int32]) -> Step:
        """Play ``actions``, (1,)."""
        if self._last.done[0]:
            self._last = self._begin()
            return self._last
        self._untouched = False
        self._game.act(actions)
        self._next = self._observe()
        if self._next.done[0]:
            self._last = self._next._replace(
                frames=self._last.frames, level_seeds=self._last.level_seeds
            )
        else:
            self._last = self._next
        return self._last

    def close(self) -> None:
        """Let the game go."""
        self._game.close()

    def _begin(self) -> Step:
        nothing = np.zeros(1, dtype=np.bool_)
        return self._next._replace(
            rewards=np.zeros(1, np.float32), done=nothing, level_complete=nothing
        )

    def _observe(self) -> Step:
        rewards, observation, first = self._game.observe()
        info = self._game.get_info()[0]
        return Step(
            observation["rgb"].copy(),
            rewards.copy(),
            first.copy(),
            np.array([bool(info["prev_level_complete"])]),
            np.array([info["level_seed"]], dtype=np.int32),
        )


class ProviderLanes:
    """Single games side by side."""

    def __init__(self, lanes: Sequence[Provider]) -> None:
        self._lanes = lanes

    def reset(self) -> Step:
        """Begin new episodes everywhere."""
        return _stack([lane.reset() for lane in self._lanes])

    def step(self, actions: NDArray[np.int32]) -> Step:
        """Play ``actions``, (N,)."""
        return _stack([lane.step(actions[i : i + 1]) for i, lane in enumerate(self._lanes)])

    def close(self) -> None:
        """Let the games go."""
        for lane in self._lanes:
            lane.close()


def _stack(steps: Sequence[Step]) -> Step:
    return Step(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))

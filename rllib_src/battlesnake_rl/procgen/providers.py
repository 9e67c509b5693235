"""Procgen games of envpool or of the original package, stepped as a batch of N games.

The last step of a level returns the level's last frame. The next step ignores its action and
returns the first frame of the next level.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FRAME_SHAPE = (64, 64, 3)
"""Height, width and color channels of a frame."""

NUM_ACTIONS = 15
"""Number of actions, which is the same in all games."""

_LEVEL_NUMBER_INCREMENT = 997
"""Difference between the numbers of consecutive levels.

The option ``use_sequential_levels`` uses this difference.
"""


class ProviderStep(NamedTuple):
    """Results of one step of N games."""

    frames: NDArray[np.uint8]
    """uint8 (N, 64, 64, 3), RGB frames."""
    rewards: NDArray[np.float32]
    done: NDArray[np.bool_]
    """bool (N,), whether the episode ended."""
    level_complete: NDArray[np.bool_]
    """bool (N,), whether the step completed a level."""
    level_seeds: NDArray[np.int32]
    """int32 (N,), number of the current level."""


def make_provider(
    env_config: Mapping[str, Any], seeds: Sequence[int], num_threads: int
) -> Provider:
    """Create a provider with one game for each of ``seeds``.

    Args:
        env_config: Complete options of the games.
        seeds: Random seeds of the games.
        num_threads: Number of threads of an envpool batch. Games with sequential levels and games
            of the original package do not step in parallel.

    Raises:
        ImportError: If the provider's package is missing; the message names the remedy.
    """
    if env_config["provider"] == "procgen":
        return _OriginalGames(env_config, seeds)
    if env_config["use_sequential_levels"]:
        return _SequentialGames(env_config, seeds)
    return _EnvpoolBatch(env_config, seeds, num_threads)


_LEVEL_OPTIONS = (
    "num_levels",
    "start_level",
    "paint_vel_info",
    "use_generated_assets",
    "center_agent",
)
"""Options that both packages have under the same names."""


class _EnvpoolBatch:
    """Batch of envpool games that envpool's threads step in parallel."""

    def __init__(
        self, env_config: Mapping[str, Any], seeds: Sequence[int], num_threads: int
    ) -> None:
        try:
            import envpool
        except ImportError as error:
            raise ImportError(
                "Procgen's games need the package envpool; install the extra procgen"
            ) from error
        mode = env_config["distribution_mode"]
        try:
            self._pool = envpool.make_gymnasium(
                f"{env_config['env_name'].capitalize()}{mode.capitalize()}-v0",
                num_envs=len(seeds),
                env_seed=list(seeds),
                num_threads=num_threads,
                channel_first=False,
                **{key: env_config[key] for key in _LEVEL_OPTIONS},
            )
        except ImportError as error:
            raise ImportError(
                "envpool's Procgen needs the Qt 5 libraries: apt-get install libqt5gui5"
            ) from error

    def reset(self) -> ProviderStep:
        """Start new episodes in all games."""
        frames, infos = self._pool.reset()
        nothing = np.zeros(len(frames), dtype=np.bool_)
        return ProviderStep(
            frames, np.zeros(len(frames), np.float32), nothing, nothing, infos["level_seed"]
        )

    def step(self, actions: NDArray[np.int32]) -> ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        frames, rewards, terminations, truncations, infos = self._pool.step(actions)
        return ProviderStep(
            frames,
            rewards,
            terminations | truncations,
            infos["prev_level_complete"] != 0,
            infos["level_seed"],
        )

    def close(self) -> None:
        """Close the games."""
        self._pool.close()


class _SequentialGames:
    """Games in which an episode continues with the next level after a completed level.

    envpool ends the episode after a completed level. The class therefore creates a separate envpool
    game for each level.
    """

    def __init__(self, env_config: Mapping[str, Any], seeds: Sequence[int]) -> None:
        self._env_config = dict(env_config)
        self._first = [_EnvpoolBatch(env_config, [seed], num_threads=1) for seed in seeds]

    def reset(self) -> ProviderStep:
        """Start new episodes in all games."""
        self._now, self._ended = list(self._first), [False] * len(self._first)
        return _concatenate_steps([game.reset() for game in self._first])

    def step(self, actions: NDArray[np.int32]) -> ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        return _concatenate_steps(
            [self._step_game(i, actions[i : i + 1]) for i in range(len(self._first))]
        )

    def _step_game(self, i: int, action: NDArray[np.int32]) -> ProviderStep:
        """Play one env step of game ``i``.

        A completed level continues with the next level.
        """
        if self._ended[i] and self._now[i] is not self._first[i]:
            self._now[i], self._ended[i] = self._first[i], False
            return self._first[i].reset()
        result = self._now[i].step(action)
        if not result.level_complete[0]:
            self._ended[i] = bool(result.done[0])
            return result
        number = (int(result.level_seeds[0]) + _LEVEL_NUMBER_INCREMENT) % 2**31
        next_level = self._env_config | {"start_level": number, "num_levels": 1}
        self._now[i] = _EnvpoolBatch(next_level, [0], num_threads=1)
        first = self._now[i].reset()
        return result._replace(frames=first.frames, done=first.done, level_seeds=first.level_seeds)

    def close(self) -> None:
        """Close the games."""
        for game in self._first:
            game.close()


_ORIGINAL_OPTIONS = (*_LEVEL_OPTIONS, "env_name", "use_sequential_levels", "distribution_mode")
"""Options of the original package; the other options are this project's."""

_GIVE_UP = np.array([-1], np.int32)
"""Action of the original package that ends the episode."""


class _OriginalGames:
    """Single games of the original package ``procgen`` 0.10.

    The original starts the next level in the step that ends a level, and does not show the level's
    last frame. This class repeats the previous frame instead, and returns the next level's first
    frame in the next step.
    """

    def __init__(self, env_config: Mapping[str, Any], seeds: Sequence[int]) -> None:
        make_game = _import_original()
        options = {key: env_config[key] for key in _ORIGINAL_OPTIONS}
        self._games = [make_game(num=1, rand_seed=seed, num_threads=0, **options) for seed in seeds]
        self._last: ProviderStep | None = None

    def reset(self) -> ProviderStep:
        """Start new episodes in all games."""
        if self._last is not None:
            for game in self._games:
                game.act(_GIVE_UP)
        nothing = np.zeros(len(self._games), np.bool_)
        rewards = np.zeros(len(self._games), np.float32)
        seen = self._observe()
        self._last = seen._replace(rewards=rewards, done=nothing, level_complete=nothing)
        return self._last

    def step(self, actions: NDArray[np.int32]) -> ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        assert self._last is not None
        last, playing = self._last, ~self._last.done
        for i in np.flatnonzero(playing):
            self._games[i].act(actions[i : i + 1])
        seen = self._observe()
        ended = seen.done & playing
        self._last = ProviderStep(
            np.where(ended[:, None, None, None], last.frames, seen.frames),
            seen.rewards * playing,
            ended,
            seen.level_complete & playing,
            np.where(ended, last.level_seeds, seen.level_seeds),
        )
        return self._last

    def _observe(self) -> ProviderStep:
        """Return the results of the games' latest actions; ``done`` marks new episodes."""
        rewards, frames, starts = zip(*(game.observe() for game in self._games), strict=True)
        infos = [game.get_info()[0] for game in self._games]
        return ProviderStep(
            np.concatenate([one["rgb"] for one in frames]),
            np.concatenate(rewards),
            np.concatenate(starts),
            np.array([one["prev_level_complete"] for one in infos], np.bool_),
            np.array([one["level_seed"] for one in infos], np.int32),
        )

    def close(self) -> None:
        """Close the games."""
        for game in self._games:
            game.close()


Provider = _EnvpoolBatch | _SequentialGames | _OriginalGames
"""Batch of games, of either package."""


def _import_original() -> Any:
    """Return the class ``ProcgenGym3Env`` of the original package.

    The package registers its environments with the abandoned package gym. An empty function
    replaces gym's during the import.
    """
    stub: Any = ModuleType("gym.envs.registration")
    stub.register = lambda **options: None
    names = ("gym", "gym.envs", "gym.envs.registration")
    replaced = [name for name in names if sys.modules.setdefault(name, stub) is stub]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # The package leaves a file open.
            from procgen import ProcgenGym3Env
    except ImportError as error:
        raise ImportError(
            f"provider: procgen needs the original package procgen ({error}); run "
            "`make procgen-original` in a clone (Python 3.11 or 3.12), or use provider: envpool"
        ) from error
    finally:
        for name in replaced:
            del sys.modules[name]
    return ProcgenGym3Env


def _concatenate_steps(steps: Sequence[ProviderStep]) -> ProviderStep:
    """Concatenate the steps of single games into one batched step."""
    return ProviderStep(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))

"""Procgen games as a vectorized Gymnasium environment."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from battlesnake_rl.procgen.procgen_env_config import with_defaults
from battlesnake_rl.procgen.procgen_games import GAMES
from sagemaker_rl.runs.progress import progress

FRAME_SHAPE = (64, 64, 3)
"""Height, width and color channels of a frame."""

_NUM_ACTIONS = 15
"""Number of actions, which is the same in all games."""

_LEVEL_NUMBER_INCREMENT = 997
"""Difference between the numbers of consecutive levels.

The option ``use_sequential_levels`` uses this difference.
"""


class _ProviderStep(NamedTuple):
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


def _make_provider(
    env_config: Mapping[str, Any], seeds: Sequence[int], num_threads: int
) -> _Provider:
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

    def reset(self) -> _ProviderStep:
        """Start new episodes in all games."""
        frames, infos = self._pool.reset()
        nothing = np.zeros(len(frames), dtype=np.bool_)
        return _ProviderStep(
            frames, np.zeros(len(frames), np.float32), nothing, nothing, infos["level_seed"]
        )

    def step(self, actions: NDArray[np.int32]) -> _ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        frames, rewards, terminations, truncations, infos = self._pool.step(actions)
        return _ProviderStep(
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

    def reset(self) -> _ProviderStep:
        """Start new episodes in all games."""
        self._now, self._ended = list(self._first), [False] * len(self._first)
        return _concatenate_steps([game.reset() for game in self._first])

    def step(self, actions: NDArray[np.int32]) -> _ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        return _concatenate_steps(
            [self._step_game(i, actions[i : i + 1]) for i in range(len(self._first))]
        )

    def _step_game(self, i: int, action: NDArray[np.int32]) -> _ProviderStep:
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
        self._last: _ProviderStep | None = None

    def reset(self) -> _ProviderStep:
        """Start new episodes in all games."""
        if self._last is not None:
            for game in self._games:
                game.act(_GIVE_UP)
        nothing = np.zeros(len(self._games), np.bool_)
        rewards = np.zeros(len(self._games), np.float32)
        seen = self._observe()
        self._last = seen._replace(rewards=rewards, done=nothing, level_complete=nothing)
        return self._last

    def step(self, actions: NDArray[np.int32]) -> _ProviderStep:
        """Play one env step of all games with ``actions``, int32 (N,)."""
        assert self._last is not None
        last, playing = self._last, ~self._last.done
        for i in np.flatnonzero(playing):
            self._games[i].act(actions[i : i + 1])
        seen = self._observe()
        ended = seen.done & playing
        self._last = _ProviderStep(
            np.where(ended[:, None, None, None], last.frames, seen.frames),
            seen.rewards * playing,
            ended,
            seen.level_complete & playing,
            np.where(ended, last.level_seeds, seen.level_seeds),
        )
        return self._last

    def _observe(self) -> _ProviderStep:
        """Return the results of the games' latest actions; ``done`` marks new episodes."""
        rewards, frames, starts = zip(*(game.observe() for game in self._games), strict=True)
        infos = [game.get_info()[0] for game in self._games]
        return _ProviderStep(
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


_Provider = _EnvpoolBatch | _SequentialGames | _OriginalGames
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


def _concatenate_steps(steps: Sequence[_ProviderStep]) -> _ProviderStep:
    """Concatenate the steps of single games into one batched step."""
    return _ProviderStep(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))


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
    _provider: _Provider | None = None

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
        self.single_action_space = Discrete(_NUM_ACTIONS)
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
            self._provider = _make_provider(
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

    def _infos(self, step: _ProviderStep) -> Infos:
        """Return the ``infos`` of a step; see the docstring of the class."""
        return {
            "level_seed": step.level_seeds,
            "prev_level_complete": step.level_complete,
            "clock": self._clock,
        }

    def _observe(self, step: _ProviderStep, started: NDArray[np.bool_]) -> NDArray[np.uint8]:
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

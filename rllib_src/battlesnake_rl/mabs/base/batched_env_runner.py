"""Env runner that plays a batch of games.

The env runner also controls the opponents, records game metrics and stores its state.
"""

from __future__ import annotations

import abc
import copy
import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import ray
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils import force_list
from ray.rllib.utils import metrics as names
from ray.rllib.utils.checkpoints import Checkpointable

from battlesnake_gym.common.exceptions import SnakeError
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seat_memory import ActFn, ScoreFn
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_rl.mabs.base.allocator import keep_freed_memory
from battlesnake_rl.mabs.base.game_metrics import EXTREME_METRICS, GameStatistics
from battlesnake_rl.mabs.envs.env_factory import make_vector_env, sample_opponents
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.policy_loader import greedy_policy
from sagemaker_rl.job.process_environment import limit_torch_threads

COMPONENT_PAST_SELVES = "past_selves"
"""Key of the past selves in the env runner's state (`env.past_selves.PastSelves`)."""


_EPISODE_CREATED, _EPISODE_START = "on_episode_created", "on_episode_start"
_EPISODE_STEP, _EPISODE_END = "on_episode_step", "on_episode_end"


def make_callbacks(config: Any) -> tuple[list[RLlibCallback], bool]:
    """Return the callback objects of a configuration, and whether a callback uses episodes."""
    objects = [make() for make in force_list(config.callbacks_class)]
    return objects, any(
        getattr(config, f"callbacks_{name}")
        or any(getattr(type(one), name) is not getattr(RLlibCallback, name) for one in objects)
        for name in (_EPISODE_CREATED, _EPISODE_START, _EPISODE_STEP, _EPISODE_END)
    )


class _Callbacks:
    """Callbacks of an env runner, and its games as RLlib episodes if a callback uses episodes.

    Args:
        runner: Env runner that plays the games.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._objects, self._use_episodes = make_callbacks(runner.config)
        self._running: dict[int, MultiAgentEpisode] = {}

    @functools.cached_property
    def _agents(self) -> list[str]:
        """Name of the agent at each seat."""
        return [f"snake_{seat}" for seat in range(self._runner.env.num_snakes)]

    def call(self, name: str, **arguments: Any) -> None:
        """Call all callbacks of the event ``name`` with keyword ``arguments``."""
        runner = self._runner
        arguments |= {"env_runner": runner, "metrics_logger": runner.metrics}
        functions = getattr(runner.config, f"callbacks_{name}")
        make_callback(name, self._objects, functions, kwargs=arguments)

    def start_episodes(self, observations: NDArray[np.uint8], infos: dict[str, Any]) -> None:
        """Start new episodes for the games in ``infos["reset"]``."""
        if not self._use_episodes:
            return
        env = self._runner.env
        for game in np.flatnonzero(infos["reset"]).tolist():
            episode = self._running[game] = MultiAgentEpisode(
                observation_space=dict.fromkeys(self._agents, env.single_observation_space),
                action_space=dict.fromkeys(self._agents, env.single_action_space),
                agent_to_module_mapping_fn=lambda agent, episode: DEFAULT_MODULE_ID,
            )
            self._call_callbacks(_EPISODE_CREATED, game, episode)
            seats = np.flatnonzero(infos["alive"][game]).tolist()
            episode.add_env_reset(
                observations={self._agents[s]: observations[game, s].copy() for s in seats}
            )
            self._call_callbacks(_EPISODE_START, game, episode)

    def record_step(self, actions: NDArray[np.uint8], step: tuple[Any, ...]) -> None:
        """Record one step of the vector environment, and call the callbacks.

        Callbacks receive the data of all seats, including the opponents' seats.

        Args:
            actions: uint8 (N, S), actions of the step.
            step: Result of the step, as the vector environment returns it.
        """
        if not self._use_episodes:
            return
        observations, rewards, terminations, truncations, infos = step
        over = ~infos["alive"].any(-1)
        for game, episode in sorted(self._running.items()):
            if not infos["acted"][game].any():
                continue
            seats = {self._agents[s]: s for s in np.flatnonzero(infos["acted"][game]).tolist()}
            out = {agent: bool(terminations[game, s]) for agent, s in seats.items()}
            cut = {agent: bool(truncations[game, s]) for agent, s in seats.items()}
            is_cut = bool(over[game]) and any(cut.values())
            episode.add_env_step(
                {agent: observations[game, s].copy() for agent, s in seats.items()},
                {agent: int(actions[game, s]) for agent, s in seats.items()},
                {agent: float(rewards[game, s]) for agent, s in seats.items()},
                terminateds={**out, "__all__": bool(over[game]) and not is_cut},
                truncateds={**cut, "__all__": is_cut},
            )
            self._call_callbacks(_EPISODE_STEP, game, episode)
            if over[game]:
                self._call_callbacks(_EPISODE_END, game, episode, prev_episode_chunks=[])
                del self._running[game]
        self.start_episodes(observations, infos)

    def _call_callbacks(
        self, name: str, game: int, episode: MultiAgentEpisode, **more: Any
    ) -> None:
        """Call all callbacks of the event ``name`` with the episode of one game."""
        env, module = self._runner.env, self._runner.module
        self.call(name, episode=episode, env=env, rl_module=module, env_index=game, **more)


class BatchedEnvRunner(EnvRunner, Checkpointable):  # type: ignore[misc]
    """Env runner that plays ``num_envs_per_env_runner`` games in parallel.

    Subclasses define the recorded data. All snakes share one module. ``config.env_config``
    describes the games (`training_env_config.ENV_CONFIG_DEFAULTS`). An env step is one turn of one
    game. An agent step is one move of one snake.
    """

    env: VectorBattlesnake
    """Games; None if the env runner only stores the weights."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        limit_torch_threads()
        keep_freed_memory()
        # With a seed, RLlib enables torch's deterministic mode, which fills new memory with NaN. No
        # result depends on the fill, which makes updates a few percent slower.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.spaces = kwargs.get("spaces")
        self.env = None  # type: ignore[assignment]
        self.board_size: int | None = None
        """Board size of the current iteration in cells, or None.

        If there is no `board_size_schedule`, the value is None.
        """
        self.module: Any = None
        self._weights_seq_no = 0
        self._episodes_left: NDArray[np.int64] | None = None
        self._random = np.random.default_rng(self._seed)
        self.past_selves = PastSelves(self._past_self_policy)
        self._callbacks = _Callbacks(self)
        # If there are remote env runners, the local env runner only stores the weights by default.
        if (
            self.worker_index > 0
            or self.config.create_env_on_local_worker
            or self.config.num_env_runners == 0
        ):
            self.make_env()
        self.make_module()

    def make_env(self) -> None:
        """Build the games; the next call of `sample` resets the games."""
        # This check of the opponents' files runs once, because a user may move the files later.
        self._games = env_options(self.config.env_config)
        self._board_size = self._current_board_size()
        self.env = make_vector_env(
            self.config.num_envs_per_env_runner, self.config.env_config, self._board_size
        )
        self._statistics = GameStatistics(self.env.num_games, self.env.num_snakes)
        fractions = self.config.env_config.get("opponents", {})
        self._opponents = sample_opponents(self.env, fractions, self._random, self.past_selves)
        self._needs_reset = True
        context = EnvContext(
            self.config.env_config, self.worker_index, num_workers=self.config.num_env_runners
        )
        self._callbacks.call("on_environment_created", env=self.env, env_context=context)

    def make_module(self) -> None:
        """Build the network without the parts that only training needs."""
        self.module = self.config.get_multi_rl_module_spec(
            env=None, spaces=self.get_spaces(), inference_only=True
        ).build()
        self.module[DEFAULT_MODULE_ID].eval()  # Custom networks may have dropout.

    def get_spaces(self) -> dict[str, tuple[Box, Any]]:
        """Return the observation and action spaces from which RLlib builds modules."""
        games: Any = self.env
        if games is None:
            return dict(self.spaces or {})
        pair = (games.single_observation_space, games.single_action_space)
        return {INPUT_ENV_SPACES: pair, INPUT_ENV_SINGLE_SPACES: pair, DEFAULT_MODULE_ID: pair}

    def assert_healthy(self) -> None:
        """Check that the games and the network exist.

        Raises:
            AssertionError: If the games or the network are missing.
        """
        assert self.env is not None
        assert self.module is not None

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of ``func``, or its `SnakeError`, which the driver raises.

        After any other exception, RLlib ends this process, and Ray starts a new one.
        """

        def call(*given: Any, **named: Any) -> Any:
            try:
                return func(*given, **named)
            except SnakeError as error:
                return error

        return super().apply(call, *args, **kwargs)

    def stop(self) -> None:
        """Release the memory of the games."""
        self.env = None  # type: ignore[assignment]

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
        **_: Any,
    ) -> list[Any]:
        """Play games, and return the recorded fragments.

        If both numbers are None, the env runner plays one fragment. With
        ``num_episodes``, all boards play the same number of complete games, with a difference of at
        most one game. Otherwise, short games would be overrepresented. Only these games count in
        the metrics.

        Args:
            num_timesteps: Env steps to play, rounded up to whole turns of all games.
            num_episodes: Number of complete games to play.
            explore: Whether to explore; False plays greedily. None selects the configuration's
                value.
            random_actions: Whether all moves are random.
            force_reset: Whether to start new games before sampling.

        Returns:
            List of fragments.
        """
        if self._current_board_size() != self._board_size:
            self.make_env()
        if force_reset or num_episodes is not None or self._needs_reset:
            self._reset()
        explore = self.config.explore if explore is None else explore
        epsilon = self._get_epsilons() if explore else np.zeros(self.env.num_games)
        if random_actions:
            epsilon = np.ones(self.env.num_games)
        turns = self.config.get_rollout_fragment_length(self.worker_index)
        if num_timesteps is not None:
            turns = -(-num_timesteps // self.env.num_games)
        self._episodes_left = None
        if num_episodes is not None:
            rest, boards = num_episodes % self.env.num_games, np.arange(self.env.num_games)
            self._episodes_left = num_episodes // self.env.num_games + (boards < rest)
        fragments = [self._play(turns, epsilon)]
        while self._episodes_left is not None and self._episodes_left.any():
            fragments.append(self._play(turns, epsilon))
        self._callbacks.call("on_sample_end", samples=fragments)
        return fragments

    def sample_fragment(self) -> tuple[Any, dict[str, Any]]:
        """Play one fragment.

        The algorithm calls this method asynchronously.

        Returns:
            The fragment, and a dictionary with its number of agent steps and the metrics.
        """
        fragment = self.sample()[0]
        return fragment, {
            "num_agent_steps": fragment.num_agent_steps,
            "metrics": self.get_metrics(),
        }

    def _current_board_size(self) -> int | None:
        """Return the scheduled board size in cells, or None for the configured size."""
        # Evaluation uses the final board size.
        if self.config.in_evaluation:
            return None
        steps = self.num_env_steps_sampled_lifetime
        return self.board_size or self._games.curriculum_board_size(steps)

    def _reset(self) -> None:
        """Start new games."""
        observations, infos = self.env.reset(seed=int(self._random.integers(1, 2**31)))
        none = np.zeros(infos["alive"].shape, dtype=np.bool_)
        self._position = observations, infos["action_mask"], infos["alive"], none
        self._statistics.reset()
        self._opponents.draw_seats(infos["reset"])
        self._callbacks.start_episodes(observations, infos)
        self._needs_reset = False

    def add_past_self(self, weights: Any) -> None:
        """Add a past self to the opponents.

        Args:
            weights: Weights of the module, or a Ray reference to the weights.
        """
        self.past_selves.add(_resolve_reference(weights))

    def _past_self_policy(self, weights: Any) -> ActFn:
        """Return the policy of a past self with the given weights of the module."""
        module = copy.deepcopy(self.module)
        module.set_state(weights)
        return greedy_policy(self.score_fn(module[DEFAULT_MODULE_ID]))

    @abc.abstractmethod
    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Any:
        """Play ``num_turns`` turns; game i explores with probability ``epsilon[i]``."""

    def _step(self, actions: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
        """Add the opponents' moves to ``actions``, and play one turn of all games.

        ``actions`` is uint8 (N, S) and is modified in place.

        Returns:
            Four arrays (N, S): whether a snake of the learner moved, the rewards, the terminations
            and the truncations.
        """
        self._opponents.move(actions, self._position[2])
        step = self.env.step(actions)
        observations, rewards, terminations, truncations, infos = step
        assert self.env.last_turn is not None
        acted = infos["acted"] & ~self._opponents.occupied
        counted = None if self._episodes_left is None else self._episodes_left > 0
        ended = self._statistics.update(self.env.last_turn, acted, rewards, infos, counted)
        if self._episodes_left is not None:
            self._episodes_left -= ended
        self._callbacks.record_step(actions, step)
        self._opponents.after_step(infos)
        self._opponents.draw_seats(infos["reset"])
        self._position = observations, infos["action_mask"], infos["alive"], truncations
        return acted, rewards, terminations, truncations

    def score_fn(self, module: Any) -> ScoreFn:
        """Return the score function of a module of the policy."""
        return functools.partial(self.action_scores, module)

    @staticmethod
    @abc.abstractmethod
    def action_scores(module: Any, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a module's action scores, float32 (B, 4); higher scores are better.

        Args:
            module: Module of the policy.
            frames: uint8 (B, C, H, W), observations.
        """

    @abc.abstractmethod
    def _get_epsilons(self) -> NDArray[np.float64]:
        """Return the probability of a random move in each game, float64 (N,)."""

    def _log_steps(self, fragment: Any) -> None:
        """Add the env steps and agent steps of a fragment to the metrics."""
        self.num_env_steps_sampled_lifetime += fragment.num_env_steps * max(self.num_workers, 1)
        self.metrics.log_value(names.NUM_ENV_STEPS_SAMPLED, fragment.num_env_steps, reduce="sum")
        self.metrics.log_value(
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME,
            fragment.num_env_steps,
            reduce="lifetime_sum",
            with_throughput=True,
        )
        for key, name in (
            (names.NUM_AGENT_STEPS_SAMPLED_LIFETIME, DEFAULT_AGENT_ID),
            (names.NUM_MODULE_STEPS_SAMPLED_LIFETIME, DEFAULT_MODULE_ID),
        ):
            self.metrics.log_value(
                (key, name), fragment.num_agent_steps, reduce="lifetime_sum", with_throughput=True
            )

    def get_metrics(self) -> Any:
        """Return step counters and sums over finished games.

        `game_metrics.RecentGames` converts the sums to means.
        """
        for key, value in self._statistics.drain().items():
            how = EXTREME_METRICS[key].__name__ if key in EXTREME_METRICS else "sum"
            self.metrics.log_value(key, value, reduce=how)
        return self.metrics.reduce()

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the weights, their sequence number, the past selves and the step counter."""
        state: dict[str, Any] = {
            names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled_lifetime
        }
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(
                components=self._get_subcomponents(COMPONENT_RL_MODULE, components),
                not_components=self._get_subcomponents(COMPONENT_RL_MODULE, not_components),
                **kwargs,
            )
            state[names.WEIGHTS_SEQ_NO] = self._weights_seq_no
        if self._check_component(COMPONENT_PAST_SELVES, components, not_components):
            state[COMPONENT_PAST_SELVES] = self.past_selves.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore ``state``, except weights that are older than the current weights.

        Weights with sequence number 0 are always loaded.
        """
        if COMPONENT_RL_MODULE in state:
            number = state.get(names.WEIGHTS_SEQ_NO, 0)
            if number == 0 or number > self._weights_seq_no:
                self.module.set_state(_resolve_reference(state[COMPONENT_RL_MODULE]))
            self._weights_seq_no = max(number, self._weights_seq_no)
        if names.NUM_ENV_STEPS_SAMPLED_LIFETIME in state:
            self.num_env_steps_sampled_lifetime = state[names.NUM_ENV_STEPS_SAMPLED_LIFETIME]
        if COMPONENT_PAST_SELVES in state:
            self.past_selves.set_state(state[COMPONENT_PAST_SELVES])

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        """Return the constructor arguments of this env runner.

        A checkpoint rebuilds the env runner with these arguments.
        """
        return (), {"config": self.config, "worker_index": self.worker_index}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return an empty list, because checkpoints store the learner's network instead."""
        return []


def _resolve_reference(weights: Any) -> Any:
    """Return ``weights``, or the object if ``weights`` is a Ray reference."""
    return ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights

"""Configuration and training loop shared by DQN, APEX, PPO and DISTIL."""

from __future__ import annotations

import copy
import functools
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import ray
from ray.exceptions import ObjectLostError, RayActorError
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.rllib.utils import metrics as names

from battlesnake_gym.env.seat_memory import ScoreFn
from battlesnake_gym.snake_spec import PAST_SELF
from battlesnake_rl.mabs.base import supported_settings
from battlesnake_rl.mabs.base.batched_env_runner import COMPONENT_PAST_SELVES, BatchedEnvRunner
from battlesnake_rl.mabs.base.game_metrics import RecentGames
from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.base.settings_config import SettingsConfig
from battlesnake_rl.mabs.envs.board_size_schedule import CYCLED_BOARD_SIZES
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import ENV_NAME, env_options
from battlesnake_rl.mabs.policy.policy_loader import Weights, as_score_fn
from battlesnake_rl.mabs.policy.q_network import (
    NETWORK_PREFIX,
    TRUNK_DEFAULTS,
    WeightAveragingMixin,
)
from sagemaker_rl.runs.divergence import Learners

_RECENT_GAMES_KEY = "recent_games"
_NEXT_PAST_SELF_KEY = "next_past_self"

HEALTH_CHECK_INTERVAL_S = 5.0
"""Minimum seconds between two health checks while an env runner is lost."""

_PAST_RESULTS_TIMEOUT_S = 10.0
"""Seconds that a checkpoint waits for the results of env runners, which may be lost."""

_PAST_SELF_INTERVAL_STEPS = 50_000
"""Env steps between two past selves, if past selves are among the opponents."""


class BatchedAlgorithmConfig(SettingsConfig):
    """Mixin for configurations of this project's algorithms.

    In the list of base classes, the mixin must precede RLlib's configuration class. All step counts
    are env steps (turns of single games).

    Attributes:
        start_from: Policy whose weights initialize the network, or None (see `warm_start`).
    """

    env_runner_class: ClassVar[type[BatchedEnvRunner]]
    learner_class_base: ClassVar[type]
    rl_module_class: ClassVar[type]
    module_apis: ClassVar[tuple[type, ...]] = ()
    """Base classes of every valid module class, such as RLlib's module APIs.

    If there are none, a module class must be a subclass of ``rl_module_class``.
    """
    rllib_config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    trunk: ClassVar[dict[str, Any]] = TRUNK_DEFAULTS
    """Default settings of the network."""

    def __init__(self, algo_class: type) -> None:
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = self.env_runner_class
        self.num_env_runners = 0
        # Env runners have no connectors. RLlib would wait for all env runners after each iteration
        # to merge their connector states.
        self.merge_env_runner_states = False
        # RLlib would check every gradient twice for finite values, which takes 3% of an update's
        # time.
        self.torch_skip_nan_gradients = True
        self.start_from: str | None = None
        self.apply(self.settings_class())
        self.rl_module(model_config=self.trunk | {"bfloat16": "auto"})

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        self._configure_environment()
        supported_settings.check_settings(self)
        self._check_classes()
        super().validate()

    def get_default_learner_class(self) -> type:
        """Return the learner class of this algorithm."""
        return self.learner_class_base

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of this algorithm's network."""
        return RLModuleSpec(module_class=self.rl_module_class, model_config=self.model_config)

    def _configure_environment(self) -> None:
        """Raise ValueError for another environment, or for games that cannot all be played."""
        if self.env != ENV_NAME:
            name = self.algo_class.__name__
            raise ValueError(
                f"{name} supports only batches of Battlesnake games: env must be {ENV_NAME!r}, "
                f"got {self.env!r}; for other environments use an RLlib algorithm, "
                "such as ray.rllib.algorithms.dqn.DQN, or RLLIB_PPO"
            )
        if self.in_evaluation:
            make_vector_env(1, self.env_config)
            return
        games, count = env_options(self.env_config), self.num_envs_per_env_runner
        sizes = CYCLED_BOARD_SIZES if games.iterate_map_size else [s for _, s in games.curriculum]
        if count < (needed := max(np.size(games.num_snakes), 2 if sizes else 1)):
            raise ValueError(
                f"num_envs_per_env_runner is {count}, but must be at least {needed}: one game per "
                "value of num_snakes, and two games (one of them on the full board) for curriculum "
                "or iterate_map_size"
            )
        for size in sizes:
            try:
                # One more game, because the last game always has the full board.
                make_vector_env(min(count, needed + 1), self.env_config, size)
            except ValueError as error:
                raise ValueError(f"curriculum or iterate_map_size: {error}") from error

    def _check_one_learner(self, algorithm: str) -> None:
        """Raise ValueError if there are several learners."""
        if self.num_learners > 1:
            raise ValueError(
                f"{algorithm} has one learner, got num_learners={self.num_learners}; "
                "leave num_learners out"
            )

    def _check_classes(self) -> None:
        """Raise ValueError if a custom class lacks a required base class."""
        for name, given, base in (
            ("env_runner_cls", self.env_runner_cls, self.env_runner_class),
            ("learner_class", self.learner_class, self.learner_class_base),
        ):
            if not (isinstance(given, type) and issubclass(given, base)):
                raise ValueError(f"{name} must be a subclass of {base.__name__}, got {given!r}")
        spec = self._rl_module_spec
        if spec is None:
            return
        if not isinstance(spec, RLModuleSpec) or spec.module_class is None:
            raise ValueError(
                "rl_module_spec must be an RLModuleSpec with a module_class: all snakes share one "
                f"policy; got {spec!r:.200}"
            )
        given = spec.module_class
        wanted = self.module_apis or (self.rl_module_class,)
        missing = [api.__name__ for api in wanted if not issubclass(given, api)]
        if missing:
            raise ValueError(
                f"rl_module_spec's {given.__name__} lacks {' and '.join(missing)} "
                "(ray.rllib.core.rl_module.apis); derive the class from "
                f"{self.rl_module_class.__module__}.{self.rl_module_class.__name__}"
            )


_GATHER_TIMEOUT_S = 0.05
"""Maximum seconds to gather further fragments after the first fragment."""

WAIT_TIMEOUT_S = 1.0
"""Maximum seconds to wait for a fragment before the next health check."""


class _FragmentRequests:
    """Requests for fragments to the env runners of a group.

    This process owns all fragments, so a fragment outlives its env runner. If an env runner fails,
    Ray's error therefore identifies the env runner.

    Args:
        group: The env runners.
        config: Configuration with ``max_requests_in_flight_per_env_runner`` and
            ``sample_timeout_s``, the seconds without a fragment after which a warning is logged.
    """

    def __init__(self, group: EnvRunnerGroup, config: AlgorithmConfig) -> None:
        self._manager = group._worker_manager
        self._max_in_flight: int = config.max_requests_in_flight_per_env_runner
        self._stall_timeout_s: float = config.sample_timeout_s
        self._pending: dict[ray.ObjectRef, tuple[int, ray.ObjectRef]] = {}
        self.in_flight: Counter[int] = Counter()
        """Number of requests in flight, by index of the env runner."""
        self._waiting_since: float | None = None

    def send(self) -> None:
        """Request fragments until each healthy env runner has the maximum in flight."""
        actors = self._manager.actors()
        for runner in self._manager.healthy_actor_ids():
            while self.in_flight[runner] < self._max_in_flight:
                fragment, info = actors[runner].sample_fragment.options(num_returns=2).remote()
                self._pending[info] = runner, fragment
                self.in_flight[runner] += 1

    def receive(self, timeout_s: float | None = None) -> list[tuple[Any, dict[str, Any]]]:
        """Return references to all finished fragments, each with its step count and metrics.

        If no fragment is ready, the method waits at most ``timeout_s`` seconds for the first
        fragment, by default `WAIT_TIMEOUT_S`. Failed env runners are marked as unhealthy.
        """
        timeout_s = WAIT_TIMEOUT_S if timeout_s is None else timeout_s
        waiting = list(self._pending)
        if not waiting:  # No env runner is healthy.
            time.sleep(min(timeout_s, _GATHER_TIMEOUT_S))
            return []
        # Processing several fragments at once costs less than processing each fragment separately.
        # Env runners do not wait meanwhile, because each env runner has a second request.
        gather_s = min(timeout_s, _GATHER_TIMEOUT_S)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=gather_s)
        if not ready and timeout_s:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout_s)
        received = []
        for reference in ready:
            runner, fragment = self._pending.pop(reference)
            self.in_flight[runner] -= 1
            try:
                received.append((fragment, ray.get(reference)))
            except RayActorError:
                self._manager.set_actor_state(runner, healthy=False)
        self._warn_if_stalled(bool(received) or not timeout_s)
        return received

    def _warn_if_stalled(self, received: bool) -> None:
        """Log a warning if the learner has waited too long, and after each further timeout."""
        now = time.monotonic()
        if received or self._waiting_since is None:
            self._waiting_since = None if received else now
        elif now > self._waiting_since + self._stall_timeout_s:
            self._waiting_since = now
            logging.getLogger(__name__).warning(
                "no env runner has finished a fragment for %g s (sample_timeout_s); "
                "the learner waits",
                self._stall_timeout_s,
            )


class TrainingLoop(Algorithm):  # type: ignore[misc]
    """Steps of a training loop: collect fragments, update the learner, synchronize weights.

    In a list of base classes, this class must precede other algorithms of RLlib.

    Attributes:
        run_progress: Completed fraction of the run, in [0, 1], which the training run sets before
            each iteration. Schedules that end at 1 follow this fraction.
    """

    config_class: ClassVar[Callable[[], AlgorithmConfig]]
    """Class of the algorithm's configuration."""
    run_progress: float = 0.0
    _last_restore_at = -math.inf

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of the algorithm."""
        return cls.config_class()

    def setup(self, config: AlgorithmConfig) -> None:
        """Build the env runners and the learners."""
        super().setup(config)
        self._requests = _FragmentRequests(self.env_runner_group, self.config)

    def step(self) -> dict[str, Any]:
        """Set the progress of the run in all learners, and run one iteration."""
        progress = self.run_progress
        self._foreach_learner(lambda learner: learner.set_run_progress(progress))
        results: dict[str, Any] = super().step()
        return results

    @property
    def num_env_steps_sampled(self) -> int:
        """Number of env steps sampled by all env runners, including before a resume."""
        return int(
            self.metrics.peek(
                (names.ENV_RUNNER_RESULTS, names.NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0
            )
        )

    def _sample_fragments(self) -> list[Any]:
        """Return one fragment of each env runner, after all env runners have finished.

        The list has no fragments without moves of the learner's snakes.
        """
        with self.metrics.log_time((names.TIMERS, names.ENV_RUNNER_SAMPLING_TIMER)):
            fragments, metrics = synchronous_parallel_sample(
                worker_set=self.env_runner_group,
                concat=True,
                sample_timeout_s=self.config.sample_timeout_s,
                _uses_new_env_runners=True,
                _return_metrics=True,
            )
        self.metrics.aggregate(metrics, key=names.ENV_RUNNER_RESULTS)
        return [fragment for fragment in fragments if fragment.num_agent_steps]

    def _collect_fragments(self) -> list[Any]:
        """Return the fragments that have arrived, at least one, while env runners play on.

        The list has no fragments without moves of the learner's snakes. The list is empty if all
        env runners have failed.
        """
        fragments: list[Any] = []
        metrics: list[Any] = []
        with self.metrics.log_time((names.TIMERS, names.ENV_RUNNER_SAMPLING_TIMER)):
            while not fragments and self.env_runner_group.num_healthy_remote_workers():
                self._requests.send()
                for reference, info in self._requests.receive():
                    with suppress(ObjectLostError):  # The env runner's machine has failed.
                        fragment = ray.get(reference)
                        if fragment.num_agent_steps:
                            fragments.append(fragment)
                        metrics.append(info["metrics"])
        self._requests.send()
        if metrics:
            self.metrics.aggregate(metrics, key=names.ENV_RUNNER_RESULTS)
        return fragments

    def _update_learner(self, fragments: list[Any]) -> None:
        """Train the learner on ``fragments``."""
        env_steps = self.num_env_steps_sampled
        with self.metrics.log_time((names.TIMERS, names.LEARNER_UPDATE_TIMER)):
            self._foreach_learner(lambda learner: learner.learn(fragments, env_steps))
        self._aggregate_learner_metrics()

    def _foreach_learner(self, call: Callable[[Any], Any]) -> list[Any]:
        """Return the results of ``call`` on all learners, or raise their exceptions."""
        return Learners(self).call(call)

    def _aggregate_learner_metrics(self) -> None:
        """Aggregate the learners' metrics of all updates since the last call.

        At least one update must have run since the last call.
        """
        reports = self._foreach_learner(lambda learner: learner.report())
        self.metrics.aggregate(reports, key=names.LEARNER_RESULTS)

    def _sync_weights(self) -> None:
        """Send the learner's weights to all env runners."""
        with self.metrics.log_time((names.TIMERS, names.SYNCH_WORKER_WEIGHTS_TIMER)):
            if self.config.num_env_runners == 0:
                # RLlib's method would also copy the weights into Ray's object store.
                self.env_runner.set_state(self._get_inference_weights())
                return
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group,
                policies=[DEFAULT_MODULE_ID],
                inference_only=True,
            )

    def _get_inference_weights(self) -> dict[str, Any]:
        """Return the weights needed for inference, with their sequence number."""
        state = self.learner_group.get_state(
            components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}", inference_only=True
        )[COMPONENT_LEARNER]
        return {key: state[key] for key in (COMPONENT_RL_MODULE, names.WEIGHTS_SEQ_NO)}

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Restore failed env runners, at most every `HEALTH_CHECK_INTERVAL_S` seconds.

        Restored env runners receive the state and the step counter of the local env runner. RLlib's
        own method checks the env runners before every training step. While a machine is missing,
        each such check would block the learner for ``env_runner_health_probe_timeout_s`` seconds.
        """
        if self.config.num_env_runners > 0 and env_runner_group is self.env_runner_group:
            manager = env_runner_group._worker_manager
            if manager.num_healthy_actors() < manager.num_actors():
                if time.monotonic() < self._last_restore_at + HEALTH_CHECK_INTERVAL_S:
                    return []
                self._last_restore_at = time.monotonic()
            self.env_runner.set_state(
                {names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled}
            )
        return list(super().restore_env_runners(env_runner_group))


class BatchedAlgorithm(LadderEvaluationMixin, TrainingLoop):
    """Algorithm of this project: a training loop with ladder evaluation and past selves.

    The configuration class of the algorithm derives from `BatchedAlgorithmConfig`. In a list of
    base classes, this class must precede other algorithms of RLlib.
    """

    def setup(self, config: AlgorithmConfig) -> None:
        """Build the env runners, the learners and the ladder evaluator."""
        super().setup(config)
        self._recent_games = RecentGames(self.config.metrics_num_episodes_for_smoothing)
        self._next_past_self_step = 0
        self._add_past_self()

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> Any:
        """Return a copy of the module with the weights to export.

        For this project's networks, these weights are the weight average
        (`q_network.WeightAveragingMixin`). Env runners play with the current weights instead. If
        ``module_id`` is not the default, return None.
        """
        if module_id != DEFAULT_MODULE_ID:
            return None
        return self._build_module(self._get_export_weights())

    def _build_module(self, weights: Weights) -> Any:
        """Return a copy of the local env runner's module with the given inference weights."""
        module = copy.deepcopy(self.env_runner.module[DEFAULT_MODULE_ID])
        prefix = NETWORK_PREFIX if isinstance(module, WeightAveragingMixin) else ""
        played = {prefix + name: array for name, array in weights.items()}
        # The inference weights lack a value head, so the module keeps its own value head.
        module.set_state(module.get_state() | played)
        return module

    def _policy_from_weights(self, weights: Weights) -> ScoreFn:
        """Return the policy with the given inference weights."""
        module = self._build_module(weights)
        if isinstance(module, WeightAveragingMixin):
            return as_score_fn(module.network)
        return functools.partial(self.env_runner.action_scores, module)

    def _add_past_self(self) -> None:
        """Send the current weights to all env runners as a past self, if due."""
        steps = self.num_env_steps_sampled
        if (
            PAST_SELF not in self.config.env_config.get("opponents", {})
            or steps < self._next_past_self_step
        ):
            return
        self._next_past_self_step = steps + _PAST_SELF_INTERVAL_STEPS
        # Storing the weights in Ray copies them; the learner continues to change the original
        # arrays.
        weights = ray.put(self._get_inference_weights()[COMPONENT_RL_MODULE])
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(
                    lambda runner: runner.add_past_self(weights), timeout_seconds=0.0
                )

    def step(self) -> dict[str, Any]:
        """Run one iteration, and return its results.

        The game metrics are means over the latest games of all env runners.
        """
        results: dict[str, Any] = super().step()
        self._add_past_self()
        self._recent_games.average(results.setdefault(names.ENV_RUNNER_RESULTS, {}))
        # The results of a custom evaluation function may have no games.
        if games := results.get(names.EVALUATION_RESULTS, {}).get(names.ENV_RUNNER_RESULTS):
            RecentGames(0).average(games)
        return results

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return RLlib's state and the state of this training loop."""
        # RLlib stores the state of the local env runner, which may play no games.
        if PAST_SELF in self.config.env_config.get("opponents", {}):
            others = self.env_runner_group.foreach_env_runner(
                lambda runner: runner.past_selves.results(),
                local_env_runner=False,
                timeout_seconds=_PAST_RESULTS_TIMEOUT_S,
            )
            self.env_runner.past_selves.set_mean_results(others)
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[_RECENT_GAMES_KEY] = list(self._recent_games.iterations)
        state[_NEXT_PAST_SELF_KEY] = self._next_past_self_step
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        super().set_state(state)
        self._recent_games.iterations = deque(state[_RECENT_GAMES_KEY])
        self._next_past_self_step = state[_NEXT_PAST_SELF_KEY]
        # RLlib has already restored the local env runner; the other env runners need a copy of its
        # state.
        shared = self.env_runner.get_state(components=COMPONENT_PAST_SELVES)
        shared[names.NUM_ENV_STEPS_SAMPLED_LIFETIME] = self.num_env_steps_sampled
        self.env_runner_group.foreach_env_runner(lambda runner: runner.set_state(shared))
        if self.eval_env_runner_group is not None:
            past = {COMPONENT_PAST_SELVES: shared[COMPONENT_PAST_SELVES]}
            self.eval_env_runner_group.foreach_env_runner(lambda runner: runner.set_state(past))

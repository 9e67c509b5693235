"""APEX: asynchronous env runners, replay buffer shards as actors, and one learner.

Env runners send fragments to shards through Ray's object store. The driver receives only the step
counts and metrics of each fragment. Shards sample batches before the learner needs the batches.
Env runners receive new weights while they play (Horgan et al. 2018,
https://arxiv.org/abs/1803.00933).
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    REPLAY_BUFFER_SAMPLE_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from battlesnake_rl.mabs.dqn.dqn import DQN, DQNConfig
from battlesnake_rl.mabs.dqn.replay_shard import ReplayBufferShard
from battlesnake_rl.mabs.settings import APEXSettings

_NUM_PREFETCHED_BATCHES = 2
"""Number of batches requested from each shard in advance."""

_ENV_RUNNERS_PER_SHARD = 8
"""Env runners per replay buffer shard.

One shard can store the fragments of up to twice as many env runners.
"""

_MIN_FRAGMENTS_PER_SHARD = 3
"""Minimum capacity of a shard, in fragments."""

_GATHER_TIMEOUT_S = 0.05
"""Maximum seconds to gather finished fragments while no update is due."""

_WAIT_TIMEOUT_S = 1.0
"""Maximum seconds to wait for env runners before the next health check."""


class APEXConfig(DQNConfig):
    """`DQNConfig` with APEX's defaults, such as a separate epsilon for each game.

    ``training_intensity`` has the same meaning as for DQN. Env runners pause if the learner is
    slower than the env runners. Otherwise, the learner waits for the env runners.
    By default, there is one replay shard per `_ENV_RUNNERS_PER_SHARD` env runners, but at least
    two shards.
    """

    settings_class = APEXSettings

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or APEX)
        self.num_env_runners = 1
        self.max_requests_in_flight_per_env_runner = 2
        # An iteration has fixed costs, which a long iteration amortizes.
        self.min_time_s_per_iteration = 2
        # The driver probes failed env runners, and a long probe would stall training.
        self.env_runner_health_probe_timeout_s = 1.0

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        super().validate()
        if self.num_env_runners < 1 and not self.in_evaluation:
            raise ValueError(
                "APEX needs at least one env runner, got num_env_runners=0; set num_env_runners "
                "or use DQN"
            )

    @property
    def effective_num_shards(self) -> int:
        """Return the number of replay buffer shards.

        By default, the number depends on the number of env runners and the capacity.

        >>> configs = [APEXConfig().env_runners(num_env_runners=n) for n in (1, 16, 17, 100)]
        >>> [config.effective_num_shards for config in configs]
        [2, 2, 3, 13]
        """
        if self.num_replay_shards is not None:
            return self.num_replay_shards
        worth = max(2, -(-self.num_env_runners // _ENV_RUNNERS_PER_SHARD))
        capacity: int = super().replay_buffer_kwargs()["capacity"]
        room = capacity // (_MIN_FRAGMENTS_PER_SHARD * self.max_fragment_obs())
        return max(1, min(worth, room))

    def replay_buffer_kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments of one shard's replay buffer."""
        arguments = super().replay_buffer_kwargs()
        return arguments | {"capacity": arguments["capacity"] // self.effective_num_shards}


def _get_node_resource() -> str:
    """Return Ray's resource name of the machine that runs this process."""
    own = ray.get_runtime_context().get_node_id()
    address = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own)
    return f"node:{address}"


@dataclass(slots=True)
class _FragmentRequest:
    """Pending request for a fragment."""

    runner: int
    fragment: ray.ObjectRef


class APEX(DQN):
    """Asynchronous distributed DQN."""

    config: APEXConfig

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of APEX."""
        return APEXConfig()

    def _build_replay_buffer(self) -> None:
        """Start the shards of the replay buffer."""
        observation_space, _ = self.spaces[DEFAULT_MODULE_ID]
        count = self.config.effective_num_shards
        # The shards run on the learner's machine, because the learner reads several batches per
        # fragment. The shards need no second machine, because training ends if the learner's
        # machine fails.
        shard = ray.remote(num_cpus=0, resources={_get_node_resource(): 0.001}, max_restarts=-1)(
            ReplayBufferShard
        )
        self._shards = [
            shard.remote(
                frame_shape=observation_space.shape,
                seed=None if self.config.seed is None else self.config.seed + i,
                **self.config.replay_buffer_kwargs(),
            )
            for i in range(count)
        ]
        self._next_shard = itertools.cycle(range(count))
        self._requests: dict[ray.ObjectRef, _FragmentRequest] = {}
        self._requests_in_flight: Counter[int] = Counter()
        self._batches: deque[tuple[int, ray.ObjectRef]] = deque()
        self._num_pending_batches: Counter[int] = Counter()
        self._sent_weights: ray.ObjectRef | None = None
        self._updates_since_broadcast = 0

    def training_step(self) -> None:
        """Process finished fragments, and run one update if an update is due."""
        due = self._training_debt >= self.config.total_train_batch_size and bool(self._batches)
        # If the training debt is too large, env runners pause until the learner has caught up.
        # However, env runners must continue if the learner has no batch, because only arriving
        # fragments trigger requests for batches.
        if self._training_debt < self._max_training_debt() or not self._batches:
            self._request_fragments()
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            self._process_finished_fragments(0.0 if due else _WAIT_TIMEOUT_S)
        if due and self._train_on_next_batch():
            self._updates_since_broadcast += 1
            # RLlib may end the iteration after this update, so the iteration's metrics must include
            # the update.
            self._aggregate_learner_metrics()
        if self._updates_since_broadcast >= self.config.broadcast_interval:
            with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
                self._broadcast_weights()

    def _max_training_debt(self) -> float:
        """Return the maximum training debt, in transitions.

        The maximum covers one fragment per env runner, but at least four batches.
        """
        turns: int = self.config.num_envs_per_env_runner * self.config.get_rollout_fragment_length()
        everybody: float = turns * self.config.num_env_runners * self.config.training_intensity
        few_batches: float = 4 * self.config.total_train_batch_size
        return max(everybody, few_batches)

    def _request_fragments(self) -> None:
        """Request fragments until each healthy env runner has the maximum in flight."""
        manager = self.env_runner_group._worker_manager
        actors = manager.actors()
        for runner in manager.healthy_actor_ids():
            while (
                self._requests_in_flight[runner] < self.config.max_requests_in_flight_per_env_runner
            ):
                # The driver owns both results, so the results outlive the env runner. If the env
                # runner fails, Ray's error still identifies the env runner.
                fragment, info = actors[runner].sample_fragment.options(num_returns=2).remote()
                self._requests[info] = _FragmentRequest(runner, fragment)
                self._requests_in_flight[runner] += 1

    def _process_finished_fragments(self, timeout: float) -> None:
        """Send all finished fragments to the shards.

        If no fragment is ready, wait at most ``timeout`` seconds for the first fragment.
        """
        waiting = list(self._requests)
        if not waiting:
            self._warn_if_stalled(True)  # Env runners without pending requests are not stalled.
            time.sleep(min(timeout, _GATHER_TIMEOUT_S))  # No env runner is healthy.
            return
        # Processing several fragments at once costs less than processing each fragment separately.
        # Env runners do not wait meanwhile, because each env runner has a second request.
        ready, _ = ray.wait(
            waiting, num_returns=len(waiting), timeout=min(timeout, _GATHER_TIMEOUT_S)
        )
        if not ready and timeout:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout)
        infos = self._store_fragments(ready)
        self._warn_if_stalled(bool(infos) or not timeout)
        if infos:
            self.metrics.aggregate([info["metrics"] for info in infos], key=ENV_RUNNER_RESULTS)
            self._add_training_debt(sum(info["num_agent_steps"] for info in infos))

    def _store_fragments(self, ready: list[ray.ObjectRef]) -> list[dict[str, Any]]:
        """Send finished fragments to the shards in turn.

        Returns:
            Step count and metrics of each fragment.
        """
        try:
            given = ray.get(ready)
        except RayActorError:
            given = [self._fetch_info(reference) for reference in ready]
        infos = []
        for reference, info in zip(ready, given, strict=True):
            request = self._requests.pop(reference)
            self._requests_in_flight[request.runner] -= 1
            if info is None:
                self.env_runner_group._worker_manager.set_actor_state(request.runner, healthy=False)
                continue
            infos.append(info)
            self._send_to_shard(request.fragment)
        return infos

    def _fetch_info(self, reference: ray.ObjectRef) -> dict[str, Any] | None:
        """Return a fragment's step count and metrics, or None if the runner failed."""
        try:
            info: dict[str, Any] = ray.get(reference)
        except RayActorError:
            return None
        return info

    def _send_to_shard(self, fragment: ray.ObjectRef) -> None:
        """Send a fragment to the next shard, and request batches from this shard."""
        shard = next(self._next_shard)
        self._shards[shard].add.remote(fragment)
        self._prefetch_batches(shard)

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Restore failed env runners, and send the latest weights.

        Returns:
            Indices of the restored env runners.
        """
        restored: list[int] = super().restore_env_runners(env_runner_group)
        for runner in restored:
            self._send_weights(runner)
        return restored

    def _broadcast_weights(self) -> None:
        """Send the learner's weights to all env runners without waiting."""
        self._updates_since_broadcast = 0
        self._sent_weights = ray.put(self._get_inference_weights())
        for runner in self.env_runner_group._worker_manager.healthy_actor_ids():
            self._send_weights(runner)

    def _send_weights(self, runner: int) -> None:
        """Send the latest broadcast weights to one env runner without waiting."""
        if self._sent_weights is not None:
            manager = self.env_runner_group._worker_manager
            manager.actors()[runner].set_state.remote(self._sent_weights)

    def _prefetch_batches(self, shard: int) -> None:
        """Request batches from a shard in advance.

        The method ends when `_NUM_PREFETCHED_BATCHES` batches are pending.
        """
        while self._num_pending_batches[shard] < _NUM_PREFETCHED_BATCHES:
            batch = self._shards[shard].sample.remote(self.config.total_train_batch_size)
            self._batches.append((shard, batch))
            self._num_pending_batches[shard] += 1

    def _train_on_next_batch(self) -> bool:
        """Train on the oldest requested batch.

        Returns:
            False if the shard has no batch, so that no update ran.
        """
        shard, reference = self._batches.popleft()
        self._num_pending_batches[shard] -= 1
        try:
            with self.metrics.log_time((TIMERS, REPLAY_BUFFER_SAMPLE_TIMER)):
                batch = ray.get(reference)
        except RayActorError:
            # After a restart, the shard is empty. The next fragment sent to this shard triggers new
            # requests for batches.
            return False
        if batch is None:
            return False
        self._prefetch_batches(shard)
        self._shards[shard].update_priorities.remote(batch.indices, self._run_update(batch))
        return True

    def _get_replay_buffer_stats(self) -> dict[str, int]:
        """Return the statistics of the replay buffer, summed over the shards."""
        total: dict[str, int] = {}
        for results in self._foreach_shard("stats"):
            for key, value in results.items():
                total[key] = total.get(key, 0) + value
        return total

    def _get_replay_buffer_state(self) -> list[dict[str, Any]]:
        """Return the state of each shard."""
        return self._foreach_shard("get_state")

    def _set_replay_buffer_state(self, state: list[dict[str, Any]]) -> None:
        """Restore the state of each shard."""
        ray.get(
            [shard.set_state.remote(part) for shard, part in zip(self._shards, state, strict=True)]
        )

    def _foreach_shard(self, method: str) -> list[Any]:
        """Return the results of one method of all shards.

        Shards that are restarting have no result.
        """
        answers = []
        for reference in [getattr(shard, method).remote() for shard in self._shards]:
            try:
                answers.append(ray.get(reference))
            except RayActorError:
                continue
        return answers

    def cleanup(self) -> None:
        """Stop the env runners, learners and shards."""
        super().cleanup()
        for shard in self._shards:
            ray.kill(shard)

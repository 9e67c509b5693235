"""APEX: asynchronous env runners, replay buffer shards as actors, and one learner.

Env runners send fragments to shards through Ray's object store. The driver receives only the step
counts and metrics of each fragment. Shards sample batches before the learner needs the batches.
Env runners receive new weights while they play (Horgan et al. 2018,
https://arxiv.org/abs/1803.00933).
"""

from __future__ import annotations

from typing import Any

import ray
from ray.rllib.utils import metrics as names

from battlesnake_rl.mabs.dqn.dqn import DQN, DQNConfig
from battlesnake_rl.mabs.dqn.replay_shard import ShardedReplayBuffer
from battlesnake_rl.mabs.settings.algorithm_settings import APEXSettings

_ENV_RUNNERS_PER_SHARD = 8
"""Env runners per replay buffer shard.

One shard can store the fragments of up to twice as many env runners.
"""

_MIN_FRAGMENTS_PER_SHARD = 3
"""Minimum capacity of a shard, in fragments."""


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
            return int(self.num_replay_shards)
        wanted = max(2, -(-self.num_env_runners // _ENV_RUNNERS_PER_SHARD))
        capacity: int = super().replay_buffer_kwargs()["capacity"]
        max_shards = capacity // (_MIN_FRAGMENTS_PER_SHARD * self.max_fragment_obs())
        return max(1, min(wanted, max_shards))

    def replay_buffer_kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments of one shard's replay buffer."""
        arguments = super().replay_buffer_kwargs()
        return arguments | {"capacity": arguments["capacity"] // self.effective_num_shards}


class APEX(DQN):
    """Asynchronous distributed DQN."""

    config: APEXConfig
    config_class = APEXConfig

    def _build_replay_buffer(self, frame_shape: tuple[int, ...]) -> ShardedReplayBuffer:
        """Start the shards of the replay buffer."""
        self._sent_weights: ray.ObjectRef | None = None
        self._updates_since_broadcast = 0
        return ShardedReplayBuffer(
            self.config.effective_num_shards,
            self.config.total_train_batch_size,
            self.config.seed,
            frame_shape=frame_shape,
            **self.config.replay_buffer_kwargs(),
        )

    def training_step(self) -> None:
        """Collect finished fragments, and run one update if an update is due.

        The learner sends its weights to the env runners after every ``broadcast_interval`` updates.
        """
        has_batches = self.replay_buffer.has_requested_batches
        due = self._training_debt >= self.config.total_train_batch_size and has_batches
        # If the training debt is too large, env runners pause until the learner has caught up.
        # However, env runners must continue if the learner has no batch, because only arriving
        # fragments trigger requests for batches.
        if self._training_debt < self._max_training_debt() or not has_batches:
            self._requests.send()
        with self.metrics.log_time((names.TIMERS, names.ENV_RUNNER_SAMPLING_TIMER)):
            self._store_fragments(0.0 if due else None)
        if due and self._train_on_next_batch():
            self._updates_since_broadcast += 1
            # RLlib may end the iteration after this update, so the iteration's metrics must include
            # the update.
            self._aggregate_learner_metrics()
        if self._updates_since_broadcast >= self.config.broadcast_interval:
            with self.metrics.log_time((names.TIMERS, names.SYNCH_WORKER_WEIGHTS_TIMER)):
                self._broadcast_weights()

    def _max_training_debt(self) -> float:
        """Return the maximum training debt, in transitions.

        The maximum covers one fragment per env runner, but at least four batches.
        """
        turns = self.config.num_envs_per_env_runner * self.config.get_rollout_fragment_length()
        everybody = turns * self.config.num_env_runners * self.config.training_intensity
        return float(max(everybody, 4 * self.config.total_train_batch_size))

    def _store_fragments(self, timeout_s: float | None) -> None:
        """Send all finished fragments to the shards in turn.

        If no fragment is ready, wait at most ``timeout_s`` seconds for the first fragment.
        """
        infos = []
        for fragment, info in self._requests.receive(timeout_s):
            self.replay_buffer.add(fragment)
            infos.append(info)
        if infos:
            self.metrics.aggregate(
                [info["metrics"] for info in infos], key=names.ENV_RUNNER_RESULTS
            )
            self._add_training_debt(sum(info["num_agent_steps"] for info in infos))

    def _train_on_next_batch(self) -> bool:
        """Train on the oldest requested batch, and return whether a shard had the batch."""
        with self.metrics.log_time((names.TIMERS, names.REPLAY_BUFFER_SAMPLE_TIMER)):
            sampled = self.replay_buffer.next_batch()
        if sampled is None:
            return False
        shard, (rows, columns) = sampled
        self.replay_buffer.update_priorities(shard, rows, self._run_update(columns))
        return True

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Restore failed env runners, and send the latest weights.

        Returns:
            Indices of the restored env runners.
        """
        restored: list[int] = super().restore_env_runners(env_runner_group)
        self._send_weights(restored)
        return restored

    def _broadcast_weights(self) -> None:
        """Send the learner's weights to all env runners without waiting."""
        self._updates_since_broadcast = 0
        self._sent_weights = ray.put(self._get_inference_weights())
        self._send_weights(self.env_runner_group._worker_manager.healthy_actor_ids())

    def _send_weights(self, runners: list[int]) -> None:
        """Send the latest broadcast weights to env runners without waiting."""
        actors = self.env_runner_group._worker_manager.actors()
        for runner in runners if self._sent_weights is not None else ():
            actors[runner].set_state.remote(self._sent_weights)

    def cleanup(self) -> None:
        """Stop the env runners, learners and shards."""
        super().cleanup()
        self.replay_buffer.stop()

"""DQN on batches of games: sampling, storing and training in turn.

The algorithm is double, dueling, n-step DQN with prioritized replay. The target ignores masked
moves of the next state. Otherwise, the loss and the target equal RLlib's `DQN`. This project
replaces RLlib's env runner, replay buffer and training loop.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import dqn as rllib_dqn
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import (
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    REPLAY_BUFFER_ADD_DATA_TIMER,
    REPLAY_BUFFER_RESULTS,
    REPLAY_BUFFER_SAMPLE_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from battlesnake_rl.mabs.base import supported_settings
from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithm, BatchedAlgorithmConfig
from battlesnake_rl.mabs.dqn.dqn_env_runner import DQNEnvRunner
from battlesnake_rl.mabs.dqn.dqn_learner import SnakeDQNLearner
from battlesnake_rl.mabs.dqn.replay_buffer import ROW_BYTES, Batch, ReplayBuffer
from battlesnake_rl.mabs.envs.env_factory import env_options, observation_bytes
from battlesnake_rl.mabs.policy.q_network import (
    MODULE_APIS,
    NEW_ACTION_MASK,
    TRUNK_DEFAULTS,
    SnakeQModule,
)
from battlesnake_rl.mabs.settings import DQNSettings
from sagemaker_rl.job.resources import BufferSize

_REPLAY_BUFFER_KEY = "replay"
_TRAINING_DEBT_KEY = "steps_owed"
_TARGET_UPDATES_KEY = "last_target_updates"


class DQNConfig(BatchedAlgorithmConfig, rllib_dqn.DQNConfig):  # type: ignore[misc]
    """Configuration of DQN with this project's env runner, buffer and network.

    Some options differ from RLlib's options:

    * ``replay_buffer_config`` has only the keys ``capacity`` (number of observations), ``alpha``
    and
      ``beta``.
    * ``training_intensity`` is the number of trained transitions per sampled transition.
    * All step counts are env steps (turns of single games).

    `DQNSettings` has the settings. Above a TD error of 1, the Huber loss fits the median, which
    ignores rare deaths; ``reward_scale`` should keep TD errors below 1.
    """

    settings_class = DQNSettings
    env_runner_class = DQNEnvRunner
    learner_class_base = SnakeDQNLearner
    rl_module_class = SnakeQModule
    module_apis = MODULE_APIS
    rllib_config_class = rllib_dqn.DQNConfig
    extra_supported_fields = supported_settings.DQN_FIELDS

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.replay_buffer_config = {
            "no_local_replay_buffer": True,
            # RLlib's validation requires a type, although the class is always `ReplayBuffer`.
            "type": "Replay",
        }
        self._set_base_defaults()
        self.rl_module(model_config=TRUNK_DEFAULTS | {"bfloat16": "auto"})
        self.min_sample_timesteps_per_iteration = 5_000

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        super().validate()
        known = {"no_local_replay_buffer", "type", "capacity", "alpha", "beta"}
        if unknown := sorted(set(self.replay_buffer_config) - known):
            raise ValueError(
                f"unknown replay_buffer_config keys {unknown}; "
                "the valid keys are capacity, alpha, beta"
            )
        self._check_fragment_size()

    def max_fragment_obs(self) -> int:
        """Return the maximum number of observations in one env runner's fragment."""
        snakes = int(np.max(env_options(self.env_config).num_snakes))
        turns: int = self.get_rollout_fragment_length() + 1
        return turns * self.num_envs_per_env_runner * snakes

    def full_buffer(self) -> BufferSize:
        """Return the size of the full replay buffer, including all shards."""
        config: dict[str, Any] = self.replay_buffer_config
        capacity: int = config["capacity"]
        return BufferSize(
            "replay_buffer_config.capacity",
            capacity,
            capacity * (observation_bytes(self.env_config) + ROW_BYTES),
        )

    def _check_fragment_size(self) -> None:
        """Raise ValueError if a fragment does not fit into the replay buffer."""
        if (frames := self.max_fragment_obs()) > (
            capacity := self.replay_buffer_kwargs()["capacity"]
        ):
            raise ValueError(
                f"a fragment may have {frames} observations, but the replay buffer has "
                f"capacity {capacity}; raise replay_buffer_config's capacity, or lower "
                "rollout_fragment_length, num_envs_per_env_runner or num_replay_shards"
            )

    def replay_buffer_kwargs(self) -> dict[str, Any]:
        """Return the constructor arguments of `ReplayBuffer`.

        The arguments come from ``replay_buffer_config``.
        """
        return {key: self.replay_buffer_config[key] for key in ("capacity", "alpha", "beta")}


def _interleaved_order(num_rows: int, num_learners: int) -> NDArray[np.int64] | slice:
    """Return a row order that spreads a batch evenly over the learners.

    In the returned order, each learner's rows are contiguous. Each learner receives every
    ``num_learners``-th row of the batch.

    >>> _interleaved_order(7, 3)
    array([0, 3, 6, 1, 4, 2, 5])
    """
    if num_learners == 1:
        return slice(None)
    return np.concatenate(
        [np.arange(first, num_rows, num_learners) for first in range(num_learners)]
    )


class DQN(BatchedAlgorithm, rllib_dqn.DQN):  # type: ignore[misc]
    """Synchronous DQN: all env runners play a fragment, then the learner trains."""

    config: DQNConfig

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of DQN."""
        return DQNConfig()

    def setup(self, config: AlgorithmConfig) -> None:
        """Build the env runners, the learners and the replay buffer."""
        super().setup(config)
        self._training_debt = 0.0
        self._learning_starts = self.config.num_steps_sampled_before_learning_starts
        self._build_replay_buffer()

    def _build_replay_buffer(self) -> None:
        """Build the empty replay buffer."""
        observation_space, _ = self.spaces[DEFAULT_MODULE_ID]
        self.replay_buffer = ReplayBuffer(
            frame_shape=observation_space.shape,
            seed=self.config.seed,
            **self.config.replay_buffer_kwargs(),
        )

    def training_step(self) -> None:
        """Sample one fragment per env runner, then train on all batches that are due."""
        fragments = self._sample_fragments()
        with self.metrics.log_time((TIMERS, REPLAY_BUFFER_ADD_DATA_TIMER)):
            for fragment in fragments:
                self.replay_buffer.add(fragment)
        self._add_training_debt(sum(fragment.num_agent_steps for fragment in fragments))
        if self._training_debt < self.config.total_train_batch_size:
            return
        while self._training_debt >= self.config.total_train_batch_size:
            with self.metrics.log_time((TIMERS, REPLAY_BUFFER_SAMPLE_TIMER)):
                batch = self.replay_buffer.sample(self.config.total_train_batch_size)
            self.replay_buffer.update_priorities(batch.indices, self._run_update(batch))
        self._aggregate_learner_metrics()
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self._sync_weights()

    def _add_training_debt(self, agent_steps: int) -> None:
        """Increase the training debt for ``agent_steps`` new transitions.

        The debt does not increase before the env step `_learning_starts`.
        """
        if self.num_env_steps_sampled >= self._learning_starts:
            self._training_debt += agent_steps * self.config.training_intensity

    def _run_update(self, batch: Batch) -> NDArray[np.float32]:
        """Run one update of the learners.

        Returns:
            Absolute TD errors, float32 (B,), in the order of the batch.
        """
        self._training_debt -= len(batch.indices)
        columns = {
            Columns.OBS: batch.obs,
            Columns.NEXT_OBS: batch.new_obs,
            NEW_ACTION_MASK: batch.new_action_mask,
            Columns.ACTIONS: batch.actions,
            Columns.REWARDS: batch.rewards,
            Columns.TERMINATEDS: batch.terminateds,
            "n_step": batch.n_step,
            "weights": batch.weights,
        }
        # RLlib splits the batch into contiguous parts, one per learner. The batch is ordered by
        # stratum, and each part must cover all strata.
        order = _interleaved_order(len(batch.indices), max(self.config.num_learners, 1))
        dealt = {name: column[order] for name, column in columns.items()}
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            per_learner = self.learner_group.update(
                batch=MultiAgentBatch(
                    {DEFAULT_MODULE_ID: SampleBatch(dealt)}, env_steps=len(batch.indices)
                ),
                timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled},
            )
        td_errors = np.empty(len(batch.indices), dtype=np.float32)
        td_errors[order] = np.concatenate(list(per_learner))
        return td_errors

    def step(self) -> dict[str, Any]:
        """Run one iteration, and add the replay buffer's statistics to the results."""
        results: dict[str, Any] = super().step()
        results[REPLAY_BUFFER_RESULTS] = self._get_replay_buffer_stats()
        return results

    def _get_replay_buffer_stats(self) -> dict[str, int]:
        """Return the statistics of the replay buffer."""
        return self.replay_buffer.stats()

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return RLlib's state, the state of the training loop, and the replay buffer.

        The state includes the replay buffer only if ``store_buffer_in_checkpoints`` is set.
        """
        state: dict[str, Any] = super().get_state(
            components, not_components=not_components, **kwargs
        )
        state[_TRAINING_DEBT_KEY] = self._training_debt
        # RLlib's learner state lacks the step of the last target update.
        state[_TARGET_UPDATES_KEY] = self._get_last_target_updates()
        if self.config.store_buffer_in_checkpoints:
            state[_REPLAY_BUFFER_KEY] = self._get_replay_buffer_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned.

        If the state has no replay buffer, training pauses until the env runners have sampled
        ``num_steps_sampled_before_learning_starts`` more env steps.
        """
        super().set_state(state)
        self._training_debt = state[_TRAINING_DEBT_KEY]
        updates = state[_TARGET_UPDATES_KEY]
        self.learner_group.foreach_learner(
            lambda learner: learner.last_update_ts_by_mid.update(updates)
        )
        if _REPLAY_BUFFER_KEY in state:
            self._set_replay_buffer_state(state[_REPLAY_BUFFER_KEY])
        else:
            self._learning_starts = (
                self.num_env_steps_sampled + self.config.num_steps_sampled_before_learning_starts
            )

    def _get_last_target_updates(self) -> dict[str, int]:
        """Return the env step of the last target network update of each module."""
        results = self.learner_group.foreach_learner(
            lambda learner: dict(learner.last_update_ts_by_mid)
        )
        updates: dict[str, int] = next(iter(results)).get()
        return updates

    def _get_replay_buffer_state(self) -> Any:
        """Return the state of the replay buffer."""
        return self.replay_buffer.get_state()

    def _set_replay_buffer_state(self, state: Any) -> None:
        """Restore the state of the replay buffer."""
        self.replay_buffer.set_state(state)

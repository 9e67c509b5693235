"""DQN on batches of games: sampling, storing and training in turn.

The algorithm is double, dueling, n-step DQN with prioritized replay. The target ignores masked
moves of the next state. Otherwise, the loss and the target equal RLlib's `DQN`. This project
replaces RLlib's env runner, replay buffer and training loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import dqn as rllib_dqn
from ray.rllib.algorithms.dqn import dqn_learner as keys
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils import metrics as names
from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithm, BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.batched_env_runner import BatchedEnvRunner
from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.base.torch_learner import BatchedLearner, copy_to_cpu_async
from battlesnake_rl.mabs.dqn.n_step_transitions import TurnBuffer
from battlesnake_rl.mabs.dqn.replay_buffer import ROW_BYTES, ReplayBuffer
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy import q_network
from battlesnake_rl.mabs.settings.algorithm_settings import DQNSettings
from sagemaker_rl.job.resources import BufferSize

_RLLIB_BUFFER = {"no_local_replay_buffer": True, "type": "Replay"}
"""Entries that RLlib's validation requires, although the class is always `ReplayBuffer`."""

_REPLAY_BUFFER_KEY = "replay"
_TRAINING_DEBT_KEY = "steps_owed"
_TARGET_UPDATES_KEY = "last_target_updates"


class DQNEnvRunner(BatchedEnvRunner):
    """Env runner that plays epsilon-greedily and records `Fragment` objects."""

    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Fragment:
        """Play ``num_turns`` turns; game i explores with probability ``epsilon[i]``."""
        shape = self.env.single_observation_space.shape
        turns = TurnBuffer.allocate(num_turns, self.env.num_games, self.env.num_snakes, shape)
        for t in range(num_turns):
            self._store_observations(turns, t)
            exploring = self._random.random(turns.actions[t].shape) < epsilon[:, None]
            turns.actions[t] = _choose_moves(
                turns.q_values[t], turns.action_mask[t], exploring, self._random
            )
            stepped = self._step(turns.actions[t])
            turns.acted[t], turns.rewards[t], turns.terminateds[t], turns.truncateds[t] = stepped
        turns.rewards *= self.config.reward_scale
        self._store_observations(turns, num_turns)
        fragment = turns.build_fragment(n_step=self.config.n_step, gamma=self.config.gamma)
        self._log_steps(fragment)
        return fragment

    def _store_observations(self, turns: TurnBuffer, t: int) -> None:
        """Store the observations, action masks and Q-values of turn ``t``.

        Q-values are computed only for living snakes and for snakes of truncated games.
        """
        frames, action_mask, alive, cut_off = self._position
        turns.obs[t], turns.action_mask[t] = frames, action_mask
        if (seen := alive | cut_off).any():
            module = self.module[DEFAULT_MODULE_ID]
            turns.q_values[t][seen] = self.action_scores(module, turns.obs[t][seen])

    @staticmethod
    def action_scores(module: Any, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a module's Q-values as action scores, float32 (B, 4).

        Args:
            module: Module of the policy.
            frames: uint8 (B, C, H, W), observations.
        """
        with torch.inference_mode():
            batch = {Columns.OBS: torch.from_numpy(frames)}
            return np.asarray(module.compute_q_values(batch)[keys.QF_PREDS].numpy())

    def _get_epsilons(self) -> NDArray[np.float64]:
        """Return the epsilon of each game, float64 (N,).

        If ``epsilon_per_game`` is None, a schedule over env steps sets one epsilon for all games.
        Otherwise, every game of every env runner has a constant epsilon between ``base``
        and ``base ** (1 + exponent)``.
        """
        games = self.env.num_games
        if self.config.epsilon_per_game is None:
            schedule = self.config.epsilon
            points = [(0, schedule)] if isinstance(schedule, int | float) else schedule
            steps, values = zip(*points, strict=True)
            return np.full(games, np.interp(self.num_env_steps_sampled_lifetime, steps, values))
        base, exponent = self.config.epsilon_per_game
        runners = max(self.num_workers, 1)  # Exceeds num_env_runners if the cluster has grown.
        rung = np.arange(games) * runners + max(self.worker_index - 1, 0)
        height = rung / max(games * runners - 1, 1)
        return np.asarray(base ** (1 + exponent * height))


def _choose_moves(
    q_values: NDArray[np.float32],
    action_mask: NDArray[np.bool_],
    exploring: NDArray[np.bool_],
    random: np.random.Generator,
) -> NDArray[np.uint8]:
    """Return the unmasked move with the highest Q-value, or a random unmasked move.

    Args:
        q_values: float32 (..., 4), Q-values of the moves.
        action_mask: bool (..., 4), unmasked moves; at least one move must be True.
        exploring: bool (...), whether the move is random.
        random: Random generator.

    Returns:
        uint8 (...), moves.
    """
    preference = np.where(exploring[..., None], random.random(q_values.shape), q_values)
    return np.asarray(np.where(action_mask, preference, -np.inf).argmax(-1), np.uint8)


class DQNLearner(BatchedLearner, DQNTorchLearner):  # type: ignore[misc]
    """RLlib's DQN learner for one module, with deferred metrics.

    `update` returns only TD errors. After an update, RLlib's learner updates the target network if
    the update of the target network is due.
    """

    per_move_columns = (q_network.NEW_ACTION_MASK,)
    _td_errors: Callable[[], NDArray[Any]]

    def update(
        self, *, training_data: TrainingData, timesteps: dict[str, Any], **_: Any
    ) -> NDArray[np.float32]:
        """Run one update.

        Returns:
            Absolute TD errors of the batch, float32 (B,).
        """
        self._weights_seq_no += 1
        self._train_on(training_data.batch[DEFAULT_MODULE_ID])
        self.after_gradient_based_update(timesteps=timesteps)
        return self._td_errors()

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Tensor], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """Return RLlib's DQN loss; distributional returns are not supported."""
        q_values = fwd_out[keys.QF_PREDS].gather(-1, batch[Columns.ACTIONS][:, None]).squeeze(-1)
        q_next = fwd_out[keys.QF_NEXT_PREDS if config.double_q else keys.QF_TARGET_NEXT_PREDS]
        best = q_next.argmax(-1, keepdim=True)
        # If all moves of an eliminated snake are masked, all its Q-values are -infinity.
        future = (
            fwd_out[keys.QF_TARGET_NEXT_PREDS].gather(-1, best).squeeze(-1).nan_to_num(neginf=0.0)
        )
        lives = 1.0 - batch[Columns.TERMINATEDS].float()
        targets = batch[Columns.REWARDS] + config.gamma ** batch["n_step"] * (lives * future)
        loss_of = huber_loss if config.td_error_loss_fn == "huber" else mse_loss
        loss = (batch["weights"] * loss_of(q_values, targets, reduction="none")).mean()
        td_errors = (q_values.detach() - targets).abs()
        self._td_errors = copy_to_cpu_async(td_errors)
        self._pending_metrics.append((loss.detach(), q_values.detach(), td_errors))
        return loss

    def _mean_metrics(self) -> dict[str, Tensor]:
        """Return the mean metrics of all updates since the last report.

        The minimum and maximum Q-values are computed per update and then averaged over updates.
        """
        losses, q_values, td_errors = map(torch.stack, zip(*self._pending_metrics, strict=True))
        return {
            self.TOTAL_LOSS_KEY: losses.mean(),
            keys.QF_LOSS_KEY: losses.mean(),
            keys.QF_MEAN_KEY: q_values.mean(),
            keys.QF_MAX_KEY: q_values.amax(1).mean(),
            keys.QF_MIN_KEY: q_values.amin(1).mean(),
            keys.TD_ERROR_MEAN_KEY: td_errors.mean(),
        }


class DQNConfig(BatchedAlgorithmConfig, rllib_dqn.DQNConfig):  # type: ignore[misc]
    """Configuration of DQN with this project's env runner, buffer and network.

    Some options differ from RLlib's options:

    * ``replay_buffer_config`` has only the keys ``capacity`` (number of observations), ``alpha``
      and ``beta``.
    * ``training_intensity`` is the number of trained transitions per sampled transition.
    * All step counts are env steps (turns of single games).

    `DQNSettings` has the settings. Above a TD error of 1, the Huber loss fits the median, which
    ignores rare deaths; ``reward_scale`` should keep TD errors below 1.
    """

    settings_class = DQNSettings
    env_runner_class = DQNEnvRunner
    learner_class_base = DQNLearner
    rl_module_class = q_network.SnakeQModule
    module_apis = q_network.MODULE_APIS
    rllib_config_class = rllib_dqn.DQNConfig

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.replay_buffer_config |= _RLLIB_BUFFER
        self.min_sample_timesteps_per_iteration = 5_000

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        super().validate()
        given = self.replay_buffer_config
        fixed = {name for name, value in _RLLIB_BUFFER.items() if given.get(name) == value}
        if unknown := sorted(given.keys() - {"capacity", "alpha", "beta"} - fixed):
            raise ValueError(
                f"unknown replay_buffer_config keys {unknown}; "
                "the valid keys are capacity, alpha, beta"
            )
        frames, capacity = self.max_fragment_obs(), self.replay_buffer_kwargs()["capacity"]
        if frames > capacity:
            has_shards = hasattr(self, "num_replay_shards")
            raise ValueError(
                f"replay_capacity is {self.replay_buffer_config['capacity']}"
                f"{f' ({capacity} per shard)' if has_shards else ''}, but a fragment may have "
                f"{frames} observations; raise it, or lower rollout_fragment_length or "
                f"num_envs_per_env_runner{' or num_replay_shards' if has_shards else ''}"
            )

    def max_fragment_obs(self) -> int:
        """Return the maximum number of observations in one env runner's fragment."""
        snakes = int(np.max(env_options(self.env_config).num_snakes))
        turns = self.get_rollout_fragment_length() + 1
        return int(turns * self.num_envs_per_env_runner * snakes)

    def full_buffer(self) -> BufferSize:
        """Return the size of the full replay buffer, including all shards."""
        capacity: int = self.replay_buffer_config["capacity"]
        size = capacity * (env_options(self.env_config).observation_bytes + ROW_BYTES)
        return BufferSize("replay_capacity", capacity, size)

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
    config_class = DQNConfig

    def setup(self, config: AlgorithmConfig) -> None:
        """Build the env runners, the learners and the replay buffer."""
        super().setup(config)
        self._training_debt = 0.0
        self._learning_starts = self.config.num_steps_sampled_before_learning_starts
        self.replay_buffer = self._build_replay_buffer(self.spaces[DEFAULT_MODULE_ID][0].shape)

    def _build_replay_buffer(self, frame_shape: tuple[int, ...]) -> Any:
        """Build the empty replay buffer."""
        return ReplayBuffer(
            frame_shape=frame_shape, seed=self.config.seed, **self.config.replay_buffer_kwargs()
        )

    def training_step(self) -> None:
        """Sample one fragment per env runner, then train on all batches that are due."""
        fragments = self._sample_fragments()
        with self.metrics.log_time((names.TIMERS, names.REPLAY_BUFFER_ADD_DATA_TIMER)):
            for fragment in fragments:
                self.replay_buffer.add(fragment)
        self._add_training_debt(sum(fragment.num_agent_steps for fragment in fragments))
        if self._training_debt < self.config.total_train_batch_size:
            return
        while self._training_debt >= self.config.total_train_batch_size:
            with self.metrics.log_time((names.TIMERS, names.REPLAY_BUFFER_SAMPLE_TIMER)):
                rows, columns = self.replay_buffer.sample(self.config.total_train_batch_size)
            self.replay_buffer.update_priorities(rows, self._run_update(columns))
        self._aggregate_learner_metrics()
        self._sync_weights()

    def _add_training_debt(self, agent_steps: int) -> None:
        """Increase the training debt for ``agent_steps`` new transitions.

        The debt does not increase before the env step `_learning_starts`.
        """
        if self.num_env_steps_sampled >= self._learning_starts:
            self._training_debt += agent_steps * self.config.training_intensity

    def _run_update(self, columns: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Run one update of the learners on the columns of a `replay_buffer.Batch`.

        Returns:
            Absolute TD errors, float32 (B,), in the order of the batch.
        """
        num_rows = len(columns[Columns.ACTIONS])
        self._training_debt -= num_rows
        # RLlib splits the batch into contiguous parts, one per learner. The batch is ordered by
        # stratum, and each part must cover all strata.
        order = _interleaved_order(num_rows, max(self.config.num_learners, 1))
        batch = SampleBatch({name: column[order] for name, column in columns.items()})
        with self.metrics.log_time((names.TIMERS, names.LEARNER_UPDATE_TIMER)):
            per_learner = self.learner_group.update(
                batch=MultiAgentBatch({DEFAULT_MODULE_ID: batch}, env_steps=num_rows),
                timesteps={names.NUM_ENV_STEPS_SAMPLED_LIFETIME: self.num_env_steps_sampled},
            )
        td_errors = np.empty(num_rows, dtype=np.float32)
        td_errors[order] = np.concatenate(list(per_learner))
        return td_errors

    def step(self) -> dict[str, Any]:
        """Run one iteration, and add the replay buffer's statistics to the results."""
        results: dict[str, Any] = super().step()
        results[names.REPLAY_BUFFER_RESULTS] = self.replay_buffer.stats()
        return results

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return RLlib's state, the state of the training loop, and the replay buffer.

        The state includes the replay buffer only if ``store_buffer_in_checkpoints`` is set.
        """
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[_TRAINING_DEBT_KEY] = self._training_debt
        # RLlib's learner state lacks the step of the last target update.
        (state[_TARGET_UPDATES_KEY], *_) = self._foreach_learner(
            lambda learner: dict(learner.last_update_ts_by_mid)
        )
        if self.config.store_buffer_in_checkpoints:
            state[_REPLAY_BUFFER_KEY] = self.replay_buffer.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned.

        If the state has no replay buffer, training pauses until the env runners have sampled
        ``num_steps_sampled_before_learning_starts`` more env steps.
        """
        super().set_state(state)
        self._training_debt = state[_TRAINING_DEBT_KEY]
        updates = state[_TARGET_UPDATES_KEY]
        self._foreach_learner(lambda learner: learner.last_update_ts_by_mid.update(updates))
        if _REPLAY_BUFFER_KEY in state:
            self.replay_buffer.set_state(state[_REPLAY_BUFFER_KEY])
        else:
            # The learner of APEX may owe many batches, for which the new buffer has too few rows.
            self._training_debt %= self.config.total_train_batch_size
            self._learning_starts = (
                self.num_env_steps_sampled + self.config.num_steps_sampled_before_learning_starts
            )

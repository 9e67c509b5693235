"""PPO on batches of games: sampling a rollout, then training on the rollout.

The loss is the clipped surrogate loss with generalized advantage estimation (Schulman et al. 2017,
https://arxiv.org/abs/1707.06347). With ``async_sampling``, env runners do not wait for the learner.
V-trace then corrects the policy lag (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561).

Axes: ``T`` turns, ``N`` games, ``S`` seats, ``M`` moves, ``C`` planes, ``H`` rows, ``W`` columns.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor

from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithm, BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.batched_env_runner import BatchedEnvRunner
from battlesnake_rl.mabs.base.torch_learner import BatchedLearner, schedule_value
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.actor_critic import SnakeActor
from battlesnake_rl.mabs.policy.q_network import ACTION_MASK, TRUNK_DEFAULTS
from battlesnake_rl.mabs.settings.algorithm_settings import PPOSettings

_OLD_LOG_PROBS, ADVANTAGES, VALUE_TARGETS = "old_log_probs", "advantages", "value_targets"
"""Names of columns of a batch; each column is float32 (M,).

The columns contain log-probs under the policy that selected the moves, advantages, and value
targets.
"""
_MOVE_WEIGHTS = "move_weights"
"""Name of a batch column: weight of each move in the loss, float32 (M,)."""
KICKSTART_PROBS = "kickstart_probs"
"""Name of a batch column: the starting policy's move probabilities.

The column is float32 (M, 4).
"""


@dataclass(slots=True)
class Rollout:
    """T turns of N games with S seats, in which the learner's snakes made M moves.

    The moves are ordered by turn, then by game, then by seat.
    """

    columns: dict[str, NDArray[Any]]
    """Columns of the batch with M rows, by name.

    The columns contain the observations, uint8 (M, C, H, W), transformed by the symmetry of their
    game, action masks, bool (M, 4), moves, int64 (M,), and log-probs of the moves under the policy
    that selected the moves, float32 (M,). Subclasses of the env runner may add columns.
    """
    acted: NDArray[np.bool_]
    """bool (T, N, S), whether a snake of the learner moved."""
    values: NDArray[np.float32]
    """float32 (T + 1, N, S), values of the positions.

    The network that selected the moves computed the values. The value is 0 for seats without a
    snake of the learner.
    """
    rewards: NDArray[np.float32]
    """float32 (T, N, S), rewards."""
    terminateds: NDArray[np.bool_]
    """bool (T, N, S), whether the snake was eliminated or won in this turn."""
    truncateds: NDArray[np.bool_]
    """bool (T, N, S), whether the game was truncated in this turn."""
    weights_seq_no: int
    """Sequence number of the weights that selected the moves."""

    def env_steps(self) -> int:
        """Return the number of env steps (turns of single games)."""
        return int(self.acted.any(-1).sum())

    def agent_steps(self) -> int:
        """Return the number of agent steps (moves of the learner's snakes)."""
        return len(self.columns[Columns.ACTIONS])

    num_env_steps, num_agent_steps = property(env_steps), property(agent_steps)


def compute_advantages(
    rollout: Rollout,
    gamma: float,
    lambda_: float,
    importance_ratios: NDArray[np.float32] | float = 1.0,
) -> NDArray[np.float32]:
    """Compute GAE advantages, or V-trace advantages for off-policy rollouts.

    Args:
        rollout: One fragment of T turns, N games and S seats.
        gamma: Discount factor in [0, 1].
        lambda_: GAE parameter in [0, 1] (Schulman et al. 2016).
        importance_ratios: float32 (T, N, S), pi / mu clipped at 1; 1.0 if on-policy.

    Returns:
        float32 (T, N, S); 0 for seats that did not move.
    """
    found = np.zeros_like(rollout.rewards)
    next_advantage = np.zeros_like(rollout.rewards[0])
    importance_ratios = np.broadcast_to(np.float32(importance_ratios), found.shape)
    for t in reversed(range(len(found))):
        lives = ~rollout.terminateds[t]
        error = rollout.rewards[t] + gamma * rollout.values[t + 1] * lives - rollout.values[t]
        next_advantage = error + gamma * lambda_ * next_advantage * (lives & ~rollout.truncateds[t])
        next_advantage = found[t] = next_advantage * importance_ratios[t] * rollout.acted[t]
    return found


class PPOEnvRunner(BatchedEnvRunner):
    """Env runner that samples moves from the policy and records `Rollout` objects."""

    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Any:
        """Play ``num_turns`` turns; game i is greedy if ``epsilon[i]`` is 0."""
        shape = num_turns, self.env.num_games, self.env.num_snakes
        rollout = Rollout(
            columns={},
            acted=np.zeros(shape, np.bool_),
            values=np.zeros((num_turns + 1, *shape[1:]), np.float32),
            rewards=np.zeros(shape, np.float32),
            terminateds=np.zeros(shape, np.bool_),
            truncateds=np.zeros(shape, np.bool_),
            weights_seq_no=self._weights_seq_no,
        )
        symmetries = self._draw_symmetries() % (
            symmetry_transforms.NUM_SYMMETRIES if self.config.symmetry_augmentation else 1
        )
        moves = []
        for t in range(num_turns):
            moves.append(self._sample_actions(rollout.values[t], symmetries, epsilon > 0))
            played = self._step(moves[-1][-1])
            rollout.acted[t], rollout.rewards[t] = played[:2]
            rollout.terminateds[t], rollout.truncateds[t] = played[2:]
        self._sample_actions(rollout.values[num_turns], symmetries, epsilon > 0)
        names = (Columns.OBS, ACTION_MASK, Columns.ACTIONS, _OLD_LOG_PROBS)
        columns = list(zip(*moves, strict=True))[:4]
        rollout.columns = dict(zip(names, map(np.concatenate, columns), strict=True))
        self._log_steps(rollout)
        return rollout

    def _draw_symmetries(self) -> NDArray[np.int64]:
        """Return the symmetry of each game, int64 (N,), modulo the number of symmetries."""
        games = self.env.num_games
        return self._random.permutation(max(games, symmetry_transforms.NUM_SYMMETRIES))[:games]

    def _sample_actions(
        self, values: NDArray[np.float32], symmetries: NDArray[np.int64], explore: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], ...]:
        """Compute the values of the current positions, and sample moves.

        Args:
            values: float32 (N, S), output array; only the learner's seats are written.
            symmetries: int64 (N,), symmetry applied to each game's observations.
            explore: bool (N,), whether to sample moves; if False, moves are greedy.

        Returns:
            Five arrays. The first four arrays contain the observations, action masks, moves and
            log-probs of the learner's snakes, with M rows. The last array contains the moves of
            all seats in the original orientation (N, S).
        """
        observations, action_mask, alive, cut_off = self._position
        learning = ~self._opponents.occupied
        seen = (alive | cut_off) & learning
        frames, mask = observations[seen], action_mask[seen]
        symmetry = symmetries[np.nonzero(seen)[0]]
        self._transform(frames, symmetry)
        mask = np.take_along_axis(mask, _INVERSE_ACTION_MAP[symmetry], axis=1)
        logits, values[seen] = self._evaluate(frames, seen, symmetry)
        acts = alive[seen]
        frames, mask, symmetry, logits = frames[acts], mask[acts], symmetry[acts], logits[acts]
        logits = np.where(mask, logits, -np.inf)
        chance = explore[np.nonzero(alive & learning)[0], None]
        gumbel_noise = self._random.gumbel(size=logits.shape).astype(np.float32)
        moves = (logits + gumbel_noise * chance).argmax(-1)
        log_probs = logits[np.arange(len(moves)), moves] - np.logaddexp.reduce(logits, axis=-1)
        actions = np.zeros(alive.shape, dtype=np.uint8)
        actions[alive & learning] = _INVERSE_ACTION_MAP[symmetry, moves]
        return frames, mask, moves, log_probs, actions

    def _transform(self, frames: NDArray[np.uint8], symmetry: NDArray[np.int64]) -> None:
        """Apply a symmetry to each observation, uint8 (B, C, H, W), in place."""
        for one in np.unique(symmetry[symmetry > 0]):
            rows = symmetry == one
            frames[rows] = symmetry_transforms.transform_observations(
                frames[rows], one, self.env.observation
            )

    def _evaluate(
        self, frames: NDArray[np.uint8], seen: NDArray[np.bool_], symmetry: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], ...]:
        """Return logits, float32 (B, 4), and values, float32 (B,), of the current positions.

        Args:
            frames: uint8 (B, C, H, W), transformed observations.
            seen: bool (N, S), seats of the observations.
            symmetry: int64 (B,), symmetry of each observation.
        """
        found: tuple[NDArray[np.float32], ...] = self.module[DEFAULT_MODULE_ID].evaluate(frames)
        return found

    @staticmethod
    def action_scores(module: Any, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the policy's logits, float32 (B, 4).

        Args:
            module: Module of the policy.
            frames: uint8 (B, C, H, W), observations.
        """
        return np.asarray(module.evaluate(frames)[0])

    def _get_epsilons(self) -> NDArray[np.float64]:
        """Return 1 for every game, float64 (N,), because all games sample their moves."""
        return np.ones(self.env.num_games)


_INVERSE_ACTION_MAP = np.argsort(symmetry_transforms.ACTION_MAP, axis=1)
"""Inverse of `symmetry_transforms.ACTION_MAP`, with the same axes."""


class PPOLearner(BatchedLearner):
    """Learner that trains on whole rollouts."""

    metric_names = "total_loss", "policy_loss", "vf_loss", "entropy", "mean_kl_loss"
    """Names of the reported metrics, which RLlib's PPO also uses."""
    _start_module: Any
    """Module with the weights of ``start_from``, if the training starts from a policy."""
    _train_probabilities: NDArray[np.float32]

    def learn(self, rollouts: list[Rollout], env_steps: int) -> None:
        """Train on ``rollouts`` for ``num_epochs`` epochs, in minibatches of moves.

        Args:
            rollouts: Rollouts of the env runners.
            env_steps: Total number of env steps sampled, for the schedules.
        """
        self._entropy_coeff, self._kickstart_coeff = (
            schedule_value(schedule, env_steps, self.run_progress)
            for schedule in (self.config.entropy_coeff, self.config.kickstart_coeff)
        )
        parts = [self._to_batch(rollout) for rollout in rollouts]
        columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        advantages = columns[ADVANTAGES]
        spread = advantages.std(correction=0)  # 0, not NaN, for a single move
        advantages = (advantages - advantages.mean()) / (spread + 1e-8)
        probabilities = advantages.abs().clamp(self.config.min_train_probability, 1)
        self._train_probabilities = probabilities.numpy()
        columns[ADVANTAGES] = self._to_device(advantages.numpy())
        columns[_MOVE_WEIGHTS] = self._to_device((1 / probabilities).numpy())
        for _ in range(self.config.num_epochs):
            for batch in self._minibatches(columns):
                self._update_weights(batch)
        self._weights_seq_no += 1
        self.after_gradient_based_update(timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: env_steps})

    def _minibatches(self, columns: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Yield batches of a random sample of the moves, in random order.

        Moves with small advantages contribute little to the gradient, so a pass often skips them.
        The weights are the inverse probabilities, so that all losses remain unbiased.
        """
        order = self._random.permutation(len(self._train_probabilities))
        sampled = order[self._random.random(len(order)) < self._train_probabilities[order]]
        order = sampled if len(sampled) else order[:1]
        for rows in np.array_split(order, self._num_updates(len(order))):
            chosen = self._to_device(rows)
            yield {name: one[chosen] for name, one in columns.items()}

    def _num_updates(self, moves: int) -> int:
        """Return the number of updates for one pass over ``moves`` moves."""
        return int(max(round(moves / self.config.minibatch_size), 1))

    def keep_start_module(self) -> None:
        """Copy the module, which has the weights of ``start_from``, for kickstarting."""
        self._start_module = copy.deepcopy(self.module[DEFAULT_MODULE_ID].unwrapped())

    def _to_batch(self, rollout: Rollout) -> dict[str, Tensor]:
        """Convert a rollout to a batch of M moves, with advantages and value targets."""
        columns = {name: self._to_device(one) for name, one in rollout.columns.items()}
        importance_ratios: NDArray[np.float32] | float = 1.0
        if rollout.weights_seq_no < self._weights_seq_no:
            importance_ratios = self._recompute_with_current_policy(rollout, columns)
        if self.config.start_from is not None and self._kickstart_coeff > 0:
            columns[KICKSTART_PROBS] = self._compute_kickstart_probs(columns)
        advantages = compute_advantages(
            rollout, self.config.gamma, self.config.lambda_, importance_ratios
        )
        made = rollout.acted
        columns[ADVANTAGES] = torch.from_numpy(advantages[made])  # On the CPU; see `learn`.
        columns[VALUE_TARGETS] = self._to_device((advantages + rollout.values[:-1])[made])
        return columns

    def _recompute_with_current_policy(
        self, rollout: Rollout, columns: dict[str, Tensor]
    ) -> NDArray[np.float32]:
        """Recompute the rollout's log-probs and values with the current weights, in place.

        Returns:
            Importance ratios clipped at 1, float32 (T, N, S).
        """
        with torch.no_grad():
            pieces = zip(
                *(torch.split(one, self.config.minibatch_size) for one in columns.values()),
                strict=True,
            )
            parts = [self._forward(dict(zip(columns, piece, strict=True))) for piece in pieces]
            logits = torch.cat([part[Columns.ACTION_DIST_INPUTS] for part in parts])
            now = _log_probs(logits, columns[Columns.ACTIONS])
            ratio = (now - columns[_OLD_LOG_PROBS]).exp().clamp(max=1.0)
            values = torch.cat([part[Columns.VF_PREDS] for part in parts])
        rollout.values = rollout.values.copy()  # Arrays from Ray's object store are read-only.
        rollout.values[:-1][rollout.acted] = values.cpu().numpy()
        columns[_OLD_LOG_PROBS] = now
        importance_ratios = np.ones(rollout.acted.shape, np.float32)
        importance_ratios[rollout.acted] = ratio.cpu().numpy()
        return importance_ratios

    def _compute_kickstart_probs(self, columns: dict[str, Tensor]) -> Tensor:
        """Return the move probabilities of the starting policy, float32 (M, 4)."""
        with torch.no_grad():
            pieces = torch.split(columns[Columns.OBS], self.config.minibatch_size)
            logits = torch.cat([self._start_module.logits_and_values(piece)[0] for piece in pieces])
        return logits.masked_fill(~columns[ACTION_MASK], -torch.inf).softmax(-1)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Tensor], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """Return the clipped surrogate loss plus the value loss, minus the entropy bonus.

        With kickstarting, the loss includes a cross-entropy to the starting policy (Schmitt et al.
        2018, https://arxiv.org/abs/1803.03835).
        """
        logits = fwd_out[Columns.ACTION_DIST_INPUTS]
        log_ratio = _log_probs(logits, batch[Columns.ACTIONS]) - batch[_OLD_LOG_PROBS]
        ratio, advantages = log_ratio.exp(), batch[ADVANTAGES]
        clipped = ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
        weights = batch[_MOVE_WEIGHTS] / batch[_MOVE_WEIGHTS].mean()
        policy_loss = -(weights * torch.minimum(ratio * advantages, clipped * advantages)).mean()
        vf_loss = (weights * self.vf_losses(fwd_out[Columns.VF_PREDS], batch)).mean()
        log_all = logits.log_softmax(-1)
        entropy = -(weights * (log_all.exp() * log_all).sum(-1)).mean()
        loss: Tensor = policy_loss + config.vf_loss_coeff * vf_loss - self._entropy_coeff * entropy
        if KICKSTART_PROBS in batch:
            kickstart_loss = -(weights * (batch[KICKSTART_PROBS] * log_all).sum(-1)).mean()
            loss = loss + self._kickstart_coeff * kickstart_loss
        kl = (weights * (ratio - 1 - log_ratio)).mean()
        self._pending_metrics.append(
            torch.stack((loss, policy_loss, vf_loss, entropy, kl)).detach()
        )
        return loss

    def vf_losses(self, values: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Return the squared differences of ``values`` and the value targets, float32 (B,)."""
        return (values - batch[VALUE_TARGETS]).square()


def _log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    """Return the log-probs of the moves ``actions``, float32 (B,)."""
    return logits.log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)


class PPOConfig(BatchedAlgorithmConfig):
    """Configuration of PPO with this project's env runner, learner and network.

    A rollout has ``rollout_fragment_length`` turns of ``num_envs_per_env_runner`` games per env
    runner. `PPOSettings` has the settings.
    """

    settings_class = PPOSettings
    env_runner_class = PPOEnvRunner
    learner_class_base = PPOLearner
    rl_module_class = SnakeActor
    trunk = TRUNK_DEFAULTS | {"channels": (32, 32, 32)}

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PPO)

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        super().validate()
        self._check_one_learner("PPO")
        if self.async_sampling and not self.num_env_runners and not self.in_evaluation:
            raise ValueError(
                "async_sampling needs env runners, got num_env_runners=0; leave async_sampling out"
            )
        coeff = self.kickstart_coeff
        if self.start_from is None and coeff not in (0, type(self)().kickstart_coeff):
            raise ValueError(
                f"kickstart_coeff is {coeff}, but has no effect without start_from; omit it, or "
                "set start_from"
            )


class PPO(BatchedAlgorithm):
    """PPO: env runners play rollouts, then the learner trains.

    With ``async_sampling``, sampling and training run at the same time.
    """

    config: PPOConfig
    config_class = PPOConfig

    def _load_starting_weights(self, path: Path) -> None:
        super()._load_starting_weights(path)
        # Learners on other machines cannot read the policy's file.
        self._foreach_learner(PPOLearner.keep_start_module)

    def training_step(self) -> None:
        """Train on the rollouts of the env runners.

        With ``async_sampling``, train on the rollouts that have arrived. Otherwise, sample one
        rollout per env runner.
        """
        collect = self._collect_fragments if self.config.async_sampling else self._sample_fragments
        if rollouts := collect():
            self._update_learner(rollouts)
            self._sync_weights()

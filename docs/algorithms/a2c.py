"""A2C, the synchronous form of A3C (Mnih et al. 2016), as one file.

    battlesnake-gym train --experiment docs/algorithms/a2c.yaml --minutes 3

The file has the whole update: collect rollouts, compute targets, update the network, synchronize
weights. This project's base classes provide the env runner, the optimizer, checkpoints, the export
and the ladder evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor
from torch.nn.functional import mse_loss

from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithm, BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.torch_learner import BatchedLearner
from battlesnake_rl.mabs.policy.actor_critic import SnakeActor
from battlesnake_rl.mabs.ppo.ppo import PPOEnvRunner, Rollout, compute_advantages
from battlesnake_rl.mabs.settings.algorithm_settings import BatchedSettings
from sagemaker_rl.job.hyperparameters import setting


class A2CLearner(BatchedLearner):
    """Learner that makes one update on each rollout."""

    metric_names = "total_loss", "policy_loss", "vf_loss", "entropy"

    def learn(self, rollouts: list[Rollout], env_steps: int) -> None:
        """Train on ``rollouts``; axes: ``M`` moves."""
        for rollout in rollouts:
            # Targets: with lambda 1, an advantage is the n-step return minus the value.
            advantages = compute_advantages(rollout, self.config.gamma, lambda_=1.0)
            returns = advantages + rollout.values[:-1]
            arrays = rollout.columns | {
                "advantages": advantages[rollout.acted],
                "returns": returns[rollout.acted],
            }
            self._update_weights({name: self._to_device(one) for name, one in arrays.items()})
        self._weights_seq_no += 1
        self.after_gradient_based_update(timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: env_steps})

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Tensor], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """Return the policy gradient loss plus the value loss, minus the entropy bonus."""
        log_all = fwd_out[Columns.ACTION_DIST_INPUTS].log_softmax(-1)  # (M, 4)
        log_probs = log_all.gather(-1, batch[Columns.ACTIONS][:, None]).squeeze(-1)
        policy_loss = -(log_probs * batch["advantages"]).mean()
        vf_loss = mse_loss(fwd_out[Columns.VF_PREDS], batch["returns"])
        entropy = -(log_all.exp() * log_all).sum(-1).mean()
        loss: Tensor = policy_loss + 0.5 * vf_loss - config.entropy_coeff * entropy
        self._pending_metrics.append(torch.stack((loss, policy_loss, vf_loss, entropy)).detach())
        return loss


@dataclass(frozen=True)
class A2CSettings(BatchedSettings):
    """Settings of A2C, which are options of ``train`` and hyperparameters of experiments."""

    config_class = "docs/algorithms/a2c.py:A2CConfig"

    lr: float = setting(7e-4, "learning rate of Adam", above=0)
    gamma: float = setting(0.99, "discount factor per turn", minimum=0, maximum=1)
    entropy_coeff: float = setting(0.01, "weight of the entropy bonus", minimum=0)
    rollout_fragment_length: int = setting(8, "turns of each game in one fragment", minimum=1)


class A2CConfig(BatchedAlgorithmConfig):
    """RLlib's configuration with A2C's settings and classes."""

    settings_class = A2CSettings
    env_runner_class = PPOEnvRunner
    learner_class_base = A2CLearner
    rl_module_class = SnakeActor

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or A2C)


class A2C(BatchedAlgorithm):
    """Synchronous advantage actor-critic."""

    config: A2CConfig
    config_class = A2CConfig

    def training_step(self) -> None:
        """Collect one rollout per env runner, update the network, and synchronize weights."""
        if rollouts := self._sample_fragments():
            self._update_learner(rollouts)
            self._sync_weights()

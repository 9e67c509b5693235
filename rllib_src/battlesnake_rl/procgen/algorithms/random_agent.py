"""Example of a user-defined algorithm: an agent that plays random actions.

To run the agent, set ``run: random_agent`` in an experiment, or pass ``--run random_agent``. Each
file in this folder contains one subclass of RLlib's ``Algorithm``. One call of ``training_step`` is
one training iteration.
"""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS
from torch import Tensor


class _RandomModule(TorchRLModule):  # type: ignore[misc]
    """Module that returns uniformly random actions, independent of the observations."""

    def setup(self) -> None:
        """Do nothing, because the module has no weights."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return a uniformly random action for each observation."""
        count = len(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.randint(int(self.action_space.n), (count,))}


class _NoLearner(TorchLearner):  # type: ignore[misc]
    """Placeholder learner without optimizer and loss."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Do nothing, because the module has no weights."""

    def compute_loss_for_module(self, **kwargs: Any) -> Any:
        """Raise an error, because a random agent has no loss.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError


class _RandomAgentConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib's default configuration, with `_RandomModule` and `_NoLearner`."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RandomAgent)
        self.training(train_batch_size_per_learner=2000, learner_class=_NoLearner)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of `_RandomModule`."""
        return RLModuleSpec(module_class=_RandomModule)


class RandomAgent(Algorithm):  # type: ignore[misc]
    """Agent that plays random actions.

    An iteration has ``train_batch_size_per_learner`` env steps.
    """

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of the random agent."""
        return _RandomAgentConfig()

    def training_step(self) -> None:
        """Play random actions and report the finished episodes."""
        _, metrics = synchronous_parallel_sample(
            worker_set=self.env_runner_group,
            max_env_steps=self.config.total_train_batch_size,
            sample_timeout_s=self.config.sample_timeout_s,
            _uses_new_env_runners=True,
            _return_metrics=True,
        )
        self.metrics.aggregate(metrics, key=ENV_RUNNER_RESULTS)

"""An example of an algorithm of your own: it plays at random and learns nothing.

Write ``run: random_agent`` into an experiment, or give ``--run random_agent``. A file here holds
one subclass of RLlib's ``Algorithm``; its ``training_step`` is one iteration of training.
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


class RandomModule(TorchRLModule):  # type: ignore[misc]
    """All actions alike, whatever is seen."""

    def setup(self) -> None:
        """There are no weights."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """An action for each observation."""
        count = len(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.randint(int(self.action_space.n), (count,))}


class NoLearner(TorchLearner):  # type: ignore[misc]
    """A learner that is never asked to learn."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """There is nothing to optimize."""

    def compute_loss_for_module(self, **kwargs: Any) -> Any:
        """There is no loss."""
        raise NotImplementedError


class RandomAgentConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib's defaults, with a network that has no weights."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RandomAgent)
        self.training(train_batch_size_per_learner=2000)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """What chooses the actions."""
        return RLModuleSpec(module_class=RandomModule)

    def get_default_learner_class(self) -> type[NoLearner]:
        """What would learn."""
        return NoLearner


class RandomAgent(Algorithm):  # type: ignore[misc]
    """Samples ``train_batch_size_per_learner`` random steps an iteration."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """The configuration to start from."""
        return RandomAgentConfig()

    def training_step(self) -> None:
        """Play, and report the episodes that ended."""
        _, metrics = synchronous_parallel_sample(
            worker_set=self.env_runner_group,
            max_env_steps=self.config.total_train_batch_size,
            sample_timeout_s=self.config.sample_timeout_s,
            _uses_new_env_runners=True,
            _return_metrics=True,
        )
        self.metrics.aggregate(metrics, key=ENV_RUNNER_RESULTS)

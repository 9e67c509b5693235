"""RLlib's PPO with ladder evaluation."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import ppo

from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.strength.ladder_evaluator import DEFAULT_CPU_FRACTION


class RLlibPPOConfig(ppo.PPOConfig):  # type: ignore[misc]
    """RLlib's PPO configuration with ``ladder_cpu_fraction`` and ``start_from``.

    Attributes:
        ladder_cpu_fraction: Maximum fraction of the CPU time used for ladder evaluation, in [0,
            0.5].
        start_from: Policy whose weights initialize the network, or None.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RLlibPPO)
        self.ladder_cpu_fraction = DEFAULT_CPU_FRACTION
        self.start_from: str | None = None


class RLlibPPO(LadderEvaluationMixin, ppo.PPO):  # type: ignore[misc]
    """RLlib's PPO with ladder evaluation."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of RLlib's PPO with ladder evaluation."""
        return RLlibPPOConfig()

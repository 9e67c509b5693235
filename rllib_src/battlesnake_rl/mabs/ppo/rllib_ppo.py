"""RLlib's PPO, which reports how strong what it trains is."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import ppo

from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.strength.ladder_evaluator import DEFAULT_CPU_FRACTION


class RLlibPPOConfig(ppo.PPOConfig):  # type: ignore[misc]
    """RLlib's, ``ladder_cpu_fraction`` (`strength.SHARE`) and ``start_from`` (a policy to begin with)."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RLlibPPO)
        self.ladder_cpu_fraction = DEFAULT_CPU_FRACTION
        self.start_from: str | None = None


class RLlibPPO(LadderEvaluationMixin, ppo.PPO):  # type: ignore[misc]
    """RLlib's PPO, which reports how strong it is."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """RLlib's configuration with ours."""
        return RLlibPPOConfig()

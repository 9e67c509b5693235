"""RLlib's PPO with ladder evaluation."""

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import ppo

from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.base.settings_config import SettingsConfig
from battlesnake_rl.mabs.settings.algorithm_settings import RLlibPPOSettings


class RLlibPPOConfig(SettingsConfig, ppo.PPOConfig):  # type: ignore[misc]
    """RLlib's PPO configuration with the defaults of `RLlibPPOSettings`.

    Attributes:
        start_from: Policy whose weights initialize the network, or None.
    """

    settings_class = RLlibPPOSettings

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RLlibPPO)
        self.start_from: str | None = None
        self.apply(RLlibPPOSettings())


class RLlibPPO(LadderEvaluationMixin, ppo.PPO):  # type: ignore[misc]
    """RLlib's PPO with ladder evaluation."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of RLlib's PPO with ladder evaluation."""
        return RLlibPPOConfig()

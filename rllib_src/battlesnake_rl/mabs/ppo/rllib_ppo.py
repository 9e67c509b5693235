"""RLlib's PPO with ladder evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import ppo
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from battlesnake_rl.mabs.base.ladder_evaluation import LadderEvaluationMixin
from battlesnake_rl.mabs.base.settings_config import SettingsConfig
from battlesnake_rl.mabs.policy.actor_critic import SnakeActorCritic
from battlesnake_rl.mabs.policy.q_network import TRUNK_DEFAULTS
from battlesnake_rl.mabs.settings.algorithm_settings import RLlibPPOSettings

SHARED_MODULE_ID = "snake"
"""RLlib module ID of the policy that all snakes share.

RLlib's default module ID would imply a single agent.
"""

_RETURNS = {f"episode_return_{how}" for how in ("mean", "min", "max")}


def _map_to_shared(agent: str, episode: Any, **_: Any) -> str:
    """Return the module ID of the shared policy, for any agent."""
    return SHARED_MODULE_ID


def _map_to_seat(agent: str, episode: Any, **_: Any) -> str:
    """Return the module ID of the policy for the seat of ``agent``."""
    return agent


class RLlibPPOConfig(SettingsConfig, ppo.PPOConfig):  # type: ignore[misc]
    """RLlib's PPO configuration with the defaults of `RLlibPPOSettings`.

    All snakes share one policy. `use_policy_per_seat` gives each seat its own policy.

    Attributes:
        start_from: Policy whose weights initialize the network, or None.
    """

    settings_class = RLlibPPOSettings

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RLlibPPO)
        self.start_from: str | None = None
        self.apply(RLlibPPOSettings())
        self.rl_module(model_config=dict(TRUNK_DEFAULTS))
        self._set_policies([SHARED_MODULE_ID], _map_to_shared)

    def use_policy_per_seat(self, num_seats: int) -> None:
        """Give each seat its own policy."""
        self._set_policies([f"snake_{seat}" for seat in range(num_seats)], _map_to_seat)

    def _set_policies(self, names: Sequence[str], mapping: Callable[..., str]) -> None:
        """Set the policies, each a `SnakeActorCritic`, and the function from agent to policy."""
        specs = {name: RLModuleSpec(module_class=SnakeActorCritic) for name in names}
        self.multi_agent(
            policies=set(names), policy_mapping_fn=mapping, count_steps_by="agent_steps"
        ).rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))


class RLlibPPO(LadderEvaluationMixin, ppo.PPO):  # type: ignore[misc]
    """RLlib's PPO with ladder evaluation."""

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """Return the default configuration of RLlib's PPO with ladder evaluation."""
        return RLlibPPOConfig()

    def step(self) -> dict[str, Any]:
        """Run one iteration, and report returns per snake; RLlib's are sums over all snakes."""
        num_snakes = self.config.env_config["num_snakes"]

        def per_snake(results: dict[str, Any]) -> dict[str, Any]:
            games = dict(results.get("env_runners", {}))
            for name in games.keys() & _RETURNS:
                games[name] /= num_snakes
            return results | {"env_runners": games}

        results = per_snake(super().step())
        if "evaluation" in results:
            results["evaluation"] = per_snake(results["evaluation"])
        return results

"""Battlesnake as RLlib's `MultiAgentEnv`, one game per environment.

The environment supports all algorithms of RLlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.q_network import ACTION_MASK, OBSERVATIONS


class BattlesnakeMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """Environment of one game with the agents ``snake_0``, ``snake_1``, ...

    With an action mask, an observation is a dictionary of planes and mask. With
    ``action_mask="none"``, an observation consists of the planes only.

    Args:
        env_config: Options of the game (see `training_env_config.ENV_CONFIG_DEFAULTS`).
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        values = dict(vars(env_options(env_config or {})))
        self._values = values
        self._games = make_vector_env(1, values)
        self.board_size: int | None = None
        """Board size of the next game, or None for the size in ``env_config``."""
        self._masked = values["action_mask"] != "none"
        space: Any = self._games.single_observation_space
        if self._masked:
            space = Dict({OBSERVATIONS: space, ACTION_MASK: Box(0, 1, (4,), np.int8)})
        self.possible_agents = [f"snake_{seat}" for seat in range(self._games.num_snakes)]
        # RLlib expects all agents that may have an observation, whether alive or eliminated.
        self.agents = list(self.possible_agents)
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces = dict.fromkeys(self.possible_agents, self._games.single_action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start a game and return the observations and infos of all snakes."""
        if self.board_size is not None:
            sides = {"width": self.board_size, "height": self.board_size}
            self._games, self.board_size = make_vector_env(1, self._values | sides), None
        observations, infos = self._games.reset(seed=seed)
        seen = self._to_agent_observations(observations, infos, np.flatnonzero(infos["alive"][0]))
        return seen, {agent: {} for agent in seen}

    def step(self, action_dict: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """Play one turn and return the results of all snakes that moved.

        An eliminated snake receives its last observation.
        """
        actions = np.zeros((1, len(self.possible_agents)), dtype=np.uint8)
        for agent, action in action_dict.items():
            actions[0, self.possible_agents.index(agent)] = action
        observations, rewards, terminations, truncations, infos = self._games.step(actions)
        if self._values["clip_rewards"]:
            rewards = np.sign(rewards)
        seats = np.flatnonzero(infos["acted"][0])
        names = {seat: self.possible_agents[seat] for seat in seats}
        over = not infos["alive"][0].any()
        terminateds = {name: bool(terminations[0, seat]) for seat, name in names.items()}
        truncateds = {name: bool(truncations[0, seat]) for seat, name in names.items()}
        terminateds["__all__"] = over and not any(truncateds.values())
        truncateds["__all__"] = over and any(truncateds.values())
        return (
            self._to_agent_observations(observations, infos, seats),
            {name: float(rewards[0, seat]) for seat, name in names.items()},
            terminateds,
            truncateds,
            {name: {} for name in names.values()},
        )

    def _to_agent_observations(
        self, frames: NDArray[np.uint8], infos: dict[str, Any], seats: NDArray[np.intp]
    ) -> dict[str, Any]:
        """Return RLlib's observations of the snakes at ``seats``, keyed by agent."""
        seen: dict[str, Any] = {}
        for seat in seats:
            planes, mask = frames[0, seat].copy(), infos["action_mask"][0, seat].astype(np.int8)
            seen[self.possible_agents[seat]] = (
                {OBSERVATIONS: planes, ACTION_MASK: mask} if self._masked else planes
            )
        return seen

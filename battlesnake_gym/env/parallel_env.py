"""PettingZoo environment for one game in which every snake is an agent.

>>> from battlesnake_gym import parallel_env
>>> env = parallel_env(num_snakes=2, width=7, height=7)
>>> observations, infos = env.reset(seed=1)
>>> env.agents
['snake_0', 'snake_1']
>>> actions = {agent: infos[agent]["action_mask"].argmax() for agent in env.agents}
>>> observations, rewards, terminations, truncations, infos = env.step(actions)
>>> env.board.turn
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

from battlesnake_gym.boards.board import Board
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import ActFn
from battlesnake_gym.env.seated_opponents import Opponent, check_opponents
from battlesnake_gym.env.single_game import (
    RENDER_FPS,
    RENDER_MODES,
    Frame,
    SingleGame,
    action_index,
)
from battlesnake_gym.game_spec import IntPerGame
from battlesnake_gym.rules import MOVES

Observations = dict[str, npt.NDArray[np.uint8]]
AgentInfos = dict[str, dict[str, Any]]


class ParallelBattlesnake(ParallelEnv):  # type: ignore[misc]
    """Environment with one game, in which every snake is an agent.

    The agents are named ``snake_0``, ``snake_1`` and so on. An agent terminates when its snake is
    eliminated or the game is over. The results of this step are the last results that contain the
    agent.

    The info of each agent contains numbers, which trainers can stack:

    * ``action_mask``: int8 [4], 1 for allowed moves;
    * ``cause``: the cause of the elimination, an index into `rules.CAUSES`; 0 for a living snake;
    * ``killer``: the seat of the snake that caused the elimination (the own seat for a
      self-collision), or -1. The seat of ``snake_0`` is 0; opponents have the last seats.

    Args:
        num_snakes: Number of snakes in the game, 1 to 16.
        width: Board width in cells, as in `config.EnvConfig`.
        height: Board height in cells, as in `config.EnvConfig`.
        opponents: Opponents, as in `battlesnake_env.BattlesnakeEnv`. Opponents play at the last
            seats and are not agents.
        render_mode: "ansi" (text), "rgb_array" (uint8 [height, width, 3]) or "human" (writes each
            position to the terminal).
        **options: Further fields of `config.EnvConfig`; ``food_rng`` is "official" by default.

    Raises:
        ValueError: If an argument is invalid.
    """

    metadata = {  # noqa: RUF012
        "name": "battlesnake_v0",
        "render_modes": list(RENDER_MODES),
        "render_fps": RENDER_FPS,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        num_snakes: IntPerGame = EnvConfig.num_snakes,
        width: IntPerGame = EnvConfig.width,
        height: IntPerGame = EnvConfig.height,
        *,
        opponents: Sequence[Opponent] = (),
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        sizes = {"num_snakes": num_snakes, "width": width, "height": height}
        self.opponents = check_opponents(opponents)
        self._game = SingleGame(sizes | options, self.opponents, render_mode)
        self.render_mode = render_mode
        seats = self._game.vector.num_snakes
        if len(opponents) >= seats:
            raise ValueError(
                f"opponents fill {len(opponents)} of {seats} seats; leave at least one seat for an "
                "agent, or increase num_snakes"
            )
        self.possible_agents = [f"snake_{seat}" for seat in range(seats - len(opponents))]
        self.agents: list[str] = []
        self._random: np.random.Generator | None = None
        space = self._game.vector.single_observation_space
        self.observation_spaces = {
            agent: Box(0, 255, space.shape, np.uint8) for agent in self.possible_agents
        }
        self.action_spaces: dict[str, Discrete[np.int64]] = {
            agent: Discrete(len(MOVES)) for agent in self.possible_agents
        }

    @property
    def board(self) -> Board:
        """Current position, without the seed, from which future food could be predicted."""
        return self._game.board()

    def add_past_self(self, policy: ActFn) -> None:
        """Add an opponent "past"; see `vector_env.BattlesnakeVectorEnv.add_past_self`.

        Args:
            policy: Function from observations and action masks to actions.

        Raises:
            ValueError: If "past" is not an opponent.
        """
        self._game.add_past_self(policy)

    def observation_space(self, agent: str) -> Box:
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete[np.int64]:
        """Return the action space of an agent.

        Actions are indices into `rules.MOVES`.
        """
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, AgentInfos]:
        """Start a new game.

        Args:
            seed: Seed of this game and of the following games; None continues the previous
                sequence.
            options: ``{"states": [...]}`` selects a random start position from a list. Each
                position is a `State`, a `Board` or the JSON body of a /move request. All other
                options are ignored, as PettingZoo requires.

        Returns:
            The observations and infos of all agents.
        """
        if seed is not None or self._random is None:
            self._random = np.random.default_rng(seed)
        states = (options or {}).get("states")
        self._game.reset(self._random, {"states": states})
        living = self._game.infos["alive"][0]
        for seat, opponent in enumerate(self.opponents, len(self.possible_agents)):
            if living[seat]:
                seed = int(self._random.integers(2**31))
                self._game.seated_opponents.assign(0, seat, opponent, seed)
        self.agents = [a for a in self.possible_agents if living[self._seat_index(a)]]
        if self.render_mode == "human":
            self.render()
        return self._observations(), self._infos()

    def step(
        self, actions: Mapping[str, int | np.integer[Any]]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], AgentInfos]:
        """Play one turn of the game.

        Args:
            actions: Actions by agent, for all ``agents``; an action is an index into `rules.MOVES`.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents that acted.

        Raises:
            ValueError: If an agent is missing, unknown or no longer in the game, or an action is
                invalid.
            ResetNeeded: If no game is running.
            ClosedEnvironmentError: If the environment is closed.
        """
        self._game.check_playing()
        self._game.step(self._check_actions(actions))
        if self.render_mode == "human":
            self.render()
        acted = self.agents
        observations, infos = self._observations(), self._infos()
        rewards, terminations, truncations = (
            {agent: array[0, self._seat_index(agent)].item() for agent in acted}
            for array in (self._game.rewards, self._game.terminations, self._game.truncations)
        )
        self.agents = [a for a in acted if not (terminations[a] or truncations[a])]
        self._game.seated_opponents.record_results(np.array([not self.agents]))
        return observations, rewards, terminations, truncations, infos

    def render(self) -> str | Frame | None:
        """Return the position in the format of ``render_mode``."""
        return self._game.render(self.board)

    def close(self) -> None:
        """Close the environment; later calls raise ``ClosedEnvironmentError``."""
        self._game.vector.close()

    def _check_actions(self, actions: Mapping[str, int | np.integer[Any]]) -> dict[int, int]:
        """Return the actions by seat."""
        for agent in actions:
            if agent not in self.agents:
                raise ValueError(
                    f"actions contains {agent!r}, which is not a living agent; "
                    f"give actions for {', '.join(self.agents)}"
                )
        taken = {}
        for agent in self.agents:
            if agent not in actions:
                raise ValueError(
                    f"actions has no action for {agent!r}; give an action to every living agent"
                )
            taken[self._seat_index(agent)] = action_index(
                actions[agent], f"the action of {agent!r}"
            )
        return taken

    def _seat_index(self, agent: str) -> int:
        return self.possible_agents.index(agent)

    def _observations(self) -> Observations:
        return {agent: self._game.observation(self._seat_index(agent)) for agent in self.agents}

    def _infos(self) -> AgentInfos:
        infos: AgentInfos = {}
        for agent in self.agents:
            seat = self._seat_index(agent)
            infos[agent] = {
                "action_mask": self._game.mask(seat),
                "cause": int(self._game.infos["cause"][0, seat]),
                "killer": int(self._game.infos["killer"][0, seat]),
            }
        return infos

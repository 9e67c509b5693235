"""RLlib episodes recorded from batched games, for callbacks.

The env runner stores arrays instead of episodes. If a callback uses episodes, every game is also
recorded as a `MultiAgentEpisode`. The agents of an episode are named ``snake_0``, ``snake_1`` and
so on. If no callback uses episodes, no episodes are recorded.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils import force_list

_EPISODE_CREATED, _EPISODE_START = "on_episode_created", "on_episode_start"
_EPISODE_STEP, _EPISODE_END = "on_episode_step", "on_episode_end"


def use_episodes(config: Any) -> bool:
    """Return whether any callback of a configuration handles an event of an episode."""
    return any(
        getattr(config, f"callbacks_{name}")
        or any(
            getattr(cls, name) is not getattr(RLlibCallback, name)
            for cls in force_list(config.callbacks_class)
        )
        for name in (_EPISODE_CREATED, _EPISODE_START, _EPISODE_STEP, _EPISODE_END)
    )


class Callbacks:
    """Callbacks of an env runner, and its games as RLlib episodes if a callback uses episodes.

    Args:
        runner: Env runner that plays the games.
    """

    def __init__(self, runner: Any) -> None:
        self._runner, self._use_episodes = runner, use_episodes(runner.config)
        self._objects = [cls() for cls in force_list(runner.config.callbacks_class)]
        self._running: dict[int, MultiAgentEpisode] = {}

    @functools.cached_property
    def _agents(self) -> list[str]:
        """Name of the agent at each seat."""
        return [f"snake_{seat}" for seat in range(self._runner.env.num_snakes)]

    def call(self, name: str, **arguments: Any) -> None:
        """Call all callbacks of the event ``name`` with keyword ``arguments``."""
        runner = self._runner
        arguments |= {"env_runner": runner, "metrics_logger": runner.metrics}
        functions = getattr(runner.config, f"callbacks_{name}")
        make_callback(name, self._objects, functions, kwargs=arguments)

    def start_episodes(self, observations: NDArray[np.uint8], infos: dict[str, Any]) -> None:
        """Start new episodes for the games in ``infos["reset"]``."""
        env = self._runner.env
        for game in np.flatnonzero(infos["reset"] & self._use_episodes).tolist():
            episode = self._running[game] = MultiAgentEpisode(
                observation_space=dict.fromkeys(self._agents, env.single_observation_space),
                action_space=dict.fromkeys(self._agents, env.single_action_space),
                agent_to_module_mapping_fn=lambda agent, episode: DEFAULT_MODULE_ID,
            )
            self._call_callbacks(_EPISODE_CREATED, game, episode)
            seats = np.flatnonzero(infos["alive"][game]).tolist()
            episode.add_env_reset(
                observations={self._agents[s]: observations[game, s].copy() for s in seats}
            )
            self._call_callbacks(_EPISODE_START, game, episode)

    def record_step(self, actions: NDArray[np.uint8], step: tuple[Any, ...]) -> None:
        """Record one step of the vector environment, and call the callbacks.

        Callbacks receive the data of all seats, including the opponents' seats.

        Args:
            actions: uint8 (N, S), actions of the step.
            step: Result of the step, as the vector environment returns it.
        """
        observations, rewards, terminations, truncations, infos = step
        over = ~infos["alive"].any(-1)
        for game, episode in sorted(self._running.items()):
            if not infos["acted"][game].any():
                continue
            seats = {self._agents[s]: s for s in np.flatnonzero(infos["acted"][game]).tolist()}
            out = {agent: bool(terminations[game, s]) for agent, s in seats.items()}
            cut = {agent: bool(truncations[game, s]) for agent, s in seats.items()}
            is_cut = bool(over[game]) and any(cut.values())
            episode.add_env_step(
                {agent: observations[game, s].copy() for agent, s in seats.items()},
                {agent: int(actions[game, s]) for agent, s in seats.items()},
                {agent: float(rewards[game, s]) for agent, s in seats.items()},
                terminateds={**out, "__all__": bool(over[game]) and not is_cut},
                truncateds={**cut, "__all__": is_cut},
            )
            self._call_callbacks(_EPISODE_STEP, game, episode)
            if over[game]:
                self._call_callbacks(_EPISODE_END, game, episode, prev_episode_chunks=[])
                del self._running[game]
        self.start_episodes(observations, infos)

    def _call_callbacks(
        self, name: str, game: int, episode: MultiAgentEpisode, **more: Any
    ) -> None:
        """Call all callbacks of the event ``name`` with the episode of one game."""
        env, module = self._runner.env, self._runner.module
        self.call(name, episode=episode, env=env, rl_module=module, env_index=game, **more)

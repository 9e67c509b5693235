"""Episodes played by a network, and what they were worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from tqdm import tqdm

from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_games import normalized_score
from battlesnake_rl.procgen.providers import FRAME_SHAPE

Act = Callable[[NDArray[np.uint8]], NDArray[np.int64]]
"""From observations (N, 64, 64, C) to actions (N,)."""


@dataclass
class Episode:
    """One episode of one game, while it is played and after."""

    level_seed: int
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    """The frames, (64, 64, 3) each, one more than there are actions; none unless they are kept."""
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    """Completed or lost, rather than cut off."""


def play(
    games: VectorProcgen,
    act: Act,
    *,
    episodes: int = 0,
    steps: int = 0,
    seed: int | None = None,
    keep_frames: bool = False,
    show: bool = True,
) -> list[Episode]:
    """Play ``episodes`` to their ends, or, where that is 0, ``steps`` turns; the finished ones.

    The games share the episodes evenly from the start: taking those that end first would favour
    short ones. A bar shows the progress on a terminal, unless ``show`` is False.
    """
    observations, infos = games.reset(seed=seed)
    quota = [
        episodes // games.num_envs + (i < episodes % games.num_envs) for i in range(games.num_envs)
    ]
    finished: list[Episode] = []
    current = [Episode(int(level)) for level in infos["level_seed"]]
    begun = np.ones(games.num_envs, dtype=np.bool_)
    left = episodes or steps
    with tqdm(
        total=left, unit="episodes" if episodes else "steps", disable=None if show else True
    ) as bar:
        while left > 0:
            actions = act(observations)
            frames = observations
            observations, rewards, terminations, truncations, infos = games.step(actions)
            ended = terminations | truncations
            for i, episode in enumerate(current):
                if not begun[i]:
                    # This step showed the next level's first frame; the action was ignored.
                    current[i] = Episode(int(infos["level_seed"][i]))
                    continue
                if keep_frames:
                    episode.observations.append(_newest(frames[i]))
                episode.actions.append(int(actions[i]))
                episode.rewards.append(float(rewards[i]))
                if ended[i]:
                    episode.terminated = bool(terminations[i])
                    if keep_frames:
                        episode.observations.append(_newest(observations[i]))
                    if not episodes or quota[i] > 0:
                        finished.append(episode)
                        quota[i] -= 1
                        bar.update(1 if episodes else 0)
            if not episodes:
                bar.update(int(begun.sum()))
            left = sum(max(one, 0) for one in quota) if episodes else left - int(begun.sum())
            begun = ~ended
    return finished


def _newest(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return observation[..., -FRAME_SHAPE[-1] :].copy()


def acting(module: RLModule, *, greedy: bool = False) -> Act:
    """The agent whose network is ``module``; it draws its actions unless ``greedy``."""
    if isinstance(module, torch.nn.Module):
        module.eval()

    def act(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        with torch.no_grad():
            outputs = module.forward_inference({Columns.OBS: torch.from_numpy(observations)})
        if Columns.ACTIONS in outputs:
            return np.asarray(outputs[Columns.ACTIONS], dtype=np.int64)
        choice = module.get_inference_action_dist_cls().from_logits(
            outputs[Columns.ACTION_DIST_INPUTS]
        )
        if greedy:
            choice = choice.to_deterministic()
        return np.asarray(choice.sample(), dtype=np.int64)

    return act


def score(episodes: Sequence[Episode], env_config: Mapping[str, Any]) -> dict[str, float]:
    """Number of episodes, mean reward with its standard error, length and normalized score."""
    totals = [sum(one.rewards) for one in episodes]
    result = {
        "episodes": float(len(episodes)),
        "reward": float(np.mean(totals)),
        "standard_error": float(np.std(totals) / np.sqrt(len(totals))),
        "length": float(np.mean([len(one.actions) for one in episodes])),
    }
    if env_config["distribution_mode"] in ("easy", "hard"):
        result["normalized_score"] = normalized_score(
            result["reward"], env_config["env_name"], env_config["distribution_mode"]
        )
    return result

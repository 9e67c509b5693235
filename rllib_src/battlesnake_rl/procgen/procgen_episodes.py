"""Episodes played by a network, and their scores."""

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
"""Policy as a function: uint8 (N, 64, 64, C) to int64 (N,).

The function maps observations to actions.
"""


@dataclass
class Episode:
    """One episode of one game, running or finished."""

    level_seed: int
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    """Frames, uint8 (64, 64, 3), one more than actions; empty if frames are not kept."""
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    """Whether the level was completed or lost; False for a truncated episode."""


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
    """Play ``episodes`` complete episodes, or ``steps`` turns if ``episodes`` is 0.

    The episodes are distributed evenly over the games in advance, because counting the episodes
    that end first would favor short episodes.

    Args:
        games: The games.
        act: Function from observations to actions.
        episodes: Number of complete episodes.
        steps: Number of turns, summed over all games.
        seed: Seed of the games.
        keep_frames: Whether the episodes keep their frames.
        show: Whether to show a progress bar on a terminal.

    Returns:
        The finished episodes.
    """
    observations, infos = games.reset(seed=seed)
    quota = [
        episodes // games.num_envs + (i < episodes % games.num_envs) for i in range(games.num_envs)
    ]
    finished: list[Episode] = []
    current = [Episode(int(level)) for level in infos["level_seed"]]
    started = np.ones(games.num_envs, dtype=np.bool_)
    remaining = episodes or steps
    with tqdm(
        total=remaining, unit="episodes" if episodes else "steps", disable=None if show else True
    ) as bar:
        while remaining > 0:
            actions = act(observations)
            frames = observations
            observations, rewards, terminations, truncations, infos = games.step(actions)
            ended = terminations | truncations
            for i, episode in enumerate(current):
                if not started[i]:
                    # This step returned the next level's first frame and ignored the action.
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
                bar.update(int(started.sum()))
            remaining = (
                sum(max(one, 0) for one in quota) if episodes else remaining - int(started.sum())
            )
            started = ~ended
    return finished


def _newest(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return observation[..., -FRAME_SHAPE[-1] :].copy()


def acting(module: RLModule, *, greedy: bool = False) -> Act:
    """Return the policy of a network; actions are sampled unless ``greedy`` is True."""
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
    """Return statistics of ``episodes``.

    The statistics are the number of episodes, mean reward, standard error, length and normalized
    score.
    """
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

"""Episodes played by a policy network, and their statistics."""

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

from battlesnake_rl.procgen.procgen_environment import FRAME_SHAPE, VectorProcgen
from battlesnake_rl.procgen.procgen_games import normalized_score

PolicyFn = Callable[[NDArray[np.uint8]], NDArray[np.int64]]
"""Policy as a function: uint8 (N, 64, 64, C) to int64 (N,).

The function maps observations to actions.
"""


@dataclass
class Episode:
    """One episode of one game, still running or already finished."""

    level_seed: int
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    """Frames, uint8 (64, 64, 3), one more than actions; empty unless ``keep_frames``."""
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False
    """Whether the level was completed or lost; False for a truncated episode."""


def play_episodes(
    games: VectorProcgen,
    act: PolicyFn,
    *,
    num_episodes: int = 0,
    num_env_steps: int = 0,
    seed: int | None = None,
    keep_frames: bool = False,
    show_progress: bool = True,
) -> list[Episode]:
    """Play ``num_episodes`` complete episodes, or ``num_env_steps`` env steps.

    The function assigns the episodes evenly to the games in advance. A count of the episodes that
    end first would favor short episodes.

    Args:
        games: The games.
        act: Function from observations to actions.
        num_episodes: Number of complete episodes; 0 to play ``num_env_steps`` instead.
        num_env_steps: Number of env steps, summed over all games.
        seed: Random seed of the games.
        keep_frames: Whether the results contain the frames.
        show_progress: Whether to show a progress bar on a terminal.

    Returns:
        The finished episodes.
    """
    observations, infos = games.reset(seed=seed)
    quota = [
        num_episodes // games.num_envs + (i < num_episodes % games.num_envs)
        for i in range(games.num_envs)
    ]
    finished: list[Episode] = []
    current = [Episode(int(level)) for level in infos["level_seed"]]
    started = np.ones(games.num_envs, dtype=np.bool_)
    done, wanted = 0, num_episodes or num_env_steps
    unit = "episodes" if num_episodes else "steps"
    with tqdm(total=wanted, unit=unit, disable=None if show_progress else True) as bar:
        while done < wanted:
            actions = act(observations)
            frames = observations
            observations, rewards, terminations, truncations, infos = games.step(actions)
            ended = terminations | truncations
            for i, episode in enumerate(current):
                if not started[i]:
                    # This step has ignored the action and returned the first frame of the next
                    # level.
                    current[i] = Episode(int(infos["level_seed"][i]))
                    continue
                if keep_frames:
                    episode.observations.append(_newest_frame(frames[i]))
                episode.actions.append(int(actions[i]))
                episode.rewards.append(float(rewards[i]))
                if ended[i]:
                    episode.terminated = bool(terminations[i])
                    if keep_frames:
                        episode.observations.append(_newest_frame(observations[i]))
                    if not num_episodes or quota[i] > 0:
                        finished.append(episode)
                        quota[i] -= 1
            done = len(finished) if num_episodes else done + int(started.sum())
            bar.update(done - bar.n)
            started = ~ended
    return finished


def _newest_frame(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of the newest frame of an observation, uint8 (64, 64, 3)."""
    return observation[..., -FRAME_SHAPE[-1] :].copy()


def make_policy(module: RLModule, *, greedy: bool = False) -> PolicyFn:
    """Return a network's policy as a function from observations to actions.

    The function samples actions, unless ``greedy`` is True.
    """
    device = torch.device("cpu")
    if isinstance(module, torch.nn.Module):
        device = next(module.eval().parameters(), torch.zeros(0)).device

    def act(observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the actions for a batch of observations, int64 (N,)."""
        with torch.no_grad():
            frames = torch.from_numpy(observations).to(device)
            outputs = module.forward_inference({Columns.OBS: frames})
        actions = outputs.get(Columns.ACTIONS)
        if actions is None:
            choice = module.get_inference_action_dist_cls().from_logits(
                outputs[Columns.ACTION_DIST_INPUTS]
            )
            actions = (choice.to_deterministic() if greedy else choice).sample()
        return np.asarray(torch.as_tensor(actions).cpu(), dtype=np.int64)

    return act


def compute_statistics(
    episodes: Sequence[Episode], env_config: Mapping[str, Any]
) -> dict[str, float]:
    """Return statistics of ``episodes``, keyed by name.

    The statistics are the number of episodes, the mean reward and its standard error, the mean
    length in env steps, and the normalized score. The standard error exists only for two or more
    episodes, and the normalized score only in the modes easy and hard.
    """
    totals = [sum(one.rewards) for one in episodes]
    result = {
        "episodes": float(len(episodes)),
        "reward": float(np.mean(totals)),
        "length": float(np.mean([len(one.actions) for one in episodes])),
    }
    if len(totals) > 1:
        result["standard_error"] = float(np.std(totals, ddof=1) / np.sqrt(len(totals)))
    if env_config["distribution_mode"] in ("easy", "hard"):
        result["normalized_score"] = normalized_score(
            result["reward"], env_config["env_name"], env_config["distribution_mode"]
        )
    return result

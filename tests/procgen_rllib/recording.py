"""Recordings of the original package ``procgen``, and comparison with envpool's games.

``rewards.json`` contains, for each game, the three of 60 levels with the most rewards, as `play`
returns them, and ``frames.json`` the `digests` of both packages.
"""

import hashlib
import random
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_rl.procgen.procgen_environment import VectorProcgen

RECORDED = Path(__file__).parent.parent / "data" / "procgen" / "rewards.json"
FRAMES = RECORDED.with_name("frames.json")
HASHED_LEVELS, HASHED_TURNS = range(10), 80
TURNS = 400
RIGHT, RIGHT_UP = 7, 8


def actions(seed: int) -> list[int]:
    """Return random actions, many to the right, each repeated for some turns to get somewhere."""
    draw = random.Random(seed)
    held: list[int] = []
    while len(held) < TURNS:
        action = int(draw.random() * 30)
        action = action if action < 15 else (RIGHT, RIGHT_UP)[action % 2]
        held += [action] * (1 + int(draw.random() * 8))
    return held[:TURNS]


def play(env_config: dict[str, Any], level: int, seed: int = 0) -> dict[str, list[Any]]:
    """Return the turns with rewards, with their rewards, and the turns that ended an episode."""
    games = VectorProcgen(1, env_config | {"start_level": level, "num_levels": 1})
    games.reset(seed=seed)
    result: dict[str, list[Any]] = {"rewards": [], "ends": []}
    for turn, action in enumerate(actions(level)):
        _, rewards, terminations, truncations, _ = games.step(np.array([action]))
        if rewards[0]:
            result["rewards"].append([turn, round(float(rewards[0]), 4)])
        if terminations[0] or truncations[0]:
            result["ends"].append(turn)
    games.close()
    return result


def digest(env_config: dict[str, Any], level: int) -> str:
    """Return a hash of all frames, rewards and ends of a level's first turns, except last frames.

    The original does not show the last frame of a level.
    """
    games = VectorProcgen(1, env_config | {"start_level": level, "num_levels": 1})
    observations, _ = games.reset(seed=0)
    seen = hashlib.sha256(observations.tobytes())
    for action in actions(level)[:HASHED_TURNS]:
        observations, rewards, terminations, truncations, _ = games.step(np.array([action]))
        ended = terminations | truncations
        seen.update(b"end" if ended[0] else observations.tobytes())
        seen.update(rewards.astype(np.float32).tobytes())
    games.close()
    return seen.hexdigest()[:32]


def digests(name: str, provider: str) -> list[str]:
    """Return the hashes of ten levels of a game."""
    return [digest({"env_name": name, "provider": provider}, level) for level in HASHED_LEVELS]

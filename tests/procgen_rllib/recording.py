"""Recorded rewards, and hashes of frames: how they were made, to make them again."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_rl.procgen.env_config import PROVIDERS
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_games import GAMES

RECORDED = Path(__file__).parent.parent / "data" / "procgen" / "rewards.json"
FRAMES = RECORDED.with_name("frames.json")
LEVELS = range(60)
HASHED_LEVELS, HASHED_TURNS = range(10), 80
TURNS = 400
RIGHT, RIGHT_UP = 7, 8


def actions(seed: int) -> list[int]:
    """Random actions, many to the right, each held for some turns so that they lead somewhere."""
    draw = random.Random(seed)
    held: list[int] = []
    while len(held) < TURNS:
        action = int(draw.random() * 30)
        action = action if action < 15 else (RIGHT, RIGHT_UP)[action % 2]
        held += [action] * (1 + int(draw.random() * 8))
    return held[:TURNS]


def play(env_config: dict[str, Any], level: int, seed: int = 0) -> dict[str, list[Any]]:
    """Turns and rewards where there are some, and the turns that ended an episode."""
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
    """A hash of all frames, rewards and ends of a level's first turns, its last frames excepted.

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
    """The hashes of ten levels of a game."""
    return [digest({"env_name": name, "provider": provider}, level) for level in HASHED_LEVELS]


def record(provider: str) -> dict[str, dict[str, Any]]:
    """Of all games, the three levels with the most rewards."""
    games = {}
    for name in GAMES:
        played = {
            str(level): play({"env_name": name, "provider": provider}, level) for level in LEVELS
        }
        most = sorted(played, key=lambda level: -len(played[level]["rewards"]))[:3]
        games[name] = {level: played[level] for level in most}
    return games


def write(path: Path, games: dict[str, Any]) -> None:
    """A game a line."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(games[name])}" for name in games)
    path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    # `python -m tests.procgen_rllib.recording procgen`: with the original package, once.
    RECORDED.parent.mkdir(exist_ok=True)
    write(FRAMES, {name: {by: digests(name, by) for by in PROVIDERS} for name in GAMES})
    write(RECORDED, record(sys.argv[1]))

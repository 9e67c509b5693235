"""From a plain dictionary, as it stands in configurations and checkpoints, to the games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.vector import VectorBattlesnake

ENV_NAME = "battlesnake"
"""Under this name the environment is registered with RLlib."""

DEFAULTS: dict[str, Any] = {
    "num_snakes": 4,
    "width": 11,
    "height": 11,
    "ruleset": "standard",
    "map": "standard",
    "settings": {},
    "observation": "planes",
    "rewards": "survival",
    "action_mask": "forbidden",
    "max_turns": 500,
    "food": "fast",
}
"""Every key of an ``env_config`` and its default; ``settings`` holds fields of `rules.Settings`."""


def make_vector(num_games: int, env_config: Mapping[str, Any]) -> VectorBattlesnake:
    """Build ``num_games`` games from an ``env_config`` (missing keys: `DEFAULTS`).

    Raises:
        ValueError: an unknown key, or a value that the environment refuses.
    """
    if unknown := sorted(set(env_config) - set(DEFAULTS)):
        raise ValueError(f"unknown env_config keys {unknown}; known are {sorted(DEFAULTS)}")
    values = DEFAULTS | dict(env_config)
    game = Game(
        ruleset=values.pop("ruleset"),
        map=values.pop("map"),
        settings=Settings(**values.pop("settings")),
    )
    return VectorBattlesnake(num_games, game=game, **values)

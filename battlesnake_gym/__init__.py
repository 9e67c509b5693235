"""Exact Battlesnake games as boards and as reinforcement learning environments.

``gymnasium.make("battlesnake_gym:Battlesnake-v0")`` creates an environment in which one learner
plays against built-in snakes. `parallel_env` controls all snakes of a game (PettingZoo).
`VectorBattlesnake` runs thousands of games in one process. A `Board` is one position that you can
inspect and play. The package imports each name on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from battlesnake_gym.boards.board import Board as Board
    from battlesnake_gym.boards.limited_view import limit_view as limit_view
    from battlesnake_gym.env.battlesnake_env import BattlesnakeEnv as BattlesnakeEnv
    from battlesnake_gym.env.parallel_env import ParallelBattlesnake
    from battlesnake_gym.env.vector import VectorBattlesnake as VectorBattlesnake
    from battlesnake_gym.env.vector_env import SelfPlayVectorEnv as SelfPlayVectorEnv
    from battlesnake_gym.rules import Game as Game
    from battlesnake_gym.rules import Settings as Settings

    parallel_env = ParallelBattlesnake

_EXPORTS = {
    "BattlesnakeEnv": "env.battlesnake_env:BattlesnakeEnv",
    "Board": "boards.board:Board",
    "Game": "rules:Game",
    "SelfPlayVectorEnv": "env.vector_env:SelfPlayVectorEnv",
    "Settings": "rules:Settings",
    "VectorBattlesnake": "env.vector:VectorBattlesnake",
    "limit_view": "boards.limited_view:limit_view",
    "parallel_env": "env.parallel_env:ParallelBattlesnake",
}

__all__ = [*_EXPORTS]

gymnasium.register(
    "Battlesnake-v0",
    entry_point="battlesnake_gym.env.battlesnake_env:BattlesnakeEnv",
    vector_entry_point="battlesnake_gym.env.vector_env:BattlesnakeVectorEnv",
)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _EXPORTS[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)

"""Games of the search to learn from: its moves are in a replay of their own (DQfD).

Hester et al. 2017, and for Ape-X Pohlen et al. 2018: a part of every batch are an expert's moves,
and a margin loss asks that no other move seems better than the one it made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from battlesnake_gym.env.rivals import Rivals
from battlesnake_rl.mabs.dqn.replay_buffer import Batch, ReplayBuffer
from battlesnake_rl.mabs.dqn.transitions import Turns, build_fragment
from battlesnake_rl.mabs.play.environment import make_vector

GAMES = 16
"""Games that are played at once."""

TURNS = 64
"""Turns after which what was played goes into the replay."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """How much to learn from the search.

    ``moves`` of the search in all (0: none), with ``positions`` positions a move, make up ``share``
    of each batch. The move that was made has to be better than all others by ``margin`` (in learned
    rewards); ``weight`` is what this counts beside the loss of the values.
    """

    moves: int = 0
    positions: int = 200
    share: float = 0.25
    margin: float = 0.1
    weight: float = 1.0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Demonstrations:
        """From a configuration.

        Raises:
            ValueError: an unknown name or an impossible value.
        """
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(settings) - known):
            raise ValueError(f"unknown demonstrations {unknown}; known are {sorted(known)}")
        wanted = cls(**settings)
        if wanted.moves < 0 or wanted.positions < 1 or wanted.margin < 0 or wanted.weight < 0:
            raise ValueError(
                "demonstrations.moves, margin and weight must be at least 0, and positions at "
                f"least 1, got {dict(settings)}"
            )
        if not 0 < wanted.share < 1:
            raise ValueError(f"demonstrations.share must be between 0 and 1, got {wanted.share!r}")
        return wanted


def play(
    wanted: Demonstrations,
    env_config: Mapping[str, Any],
    *,
    n_step: int,
    gamma: float,
    reward_scale: float,
    seed: int,
) -> ReplayBuffer:
    """Games of the search against itself, until it has made ``moves``; all in a replay."""
    vector = make_vector(GAMES, env_config)
    searches = Rivals(vector)
    for game in range(GAMES):
        for seat in range(vector.num_snakes):
            searches.seat(game, seat, f"minimax@{wanted.positions}", seed)
    shape = vector.single_observation_space.shape
    capacity = 2 * (wanted.moves + TURNS * GAMES * vector.num_snakes)
    replay = ReplayBuffer(capacity, shape, alpha=0.0, seed=seed)  # every move is as good as any
    observations, infos = vector.reset(seed=seed)
    moves = 0
    while moves < wanted.moves:
        turns = Turns.empty(TURNS, GAMES, vector.num_snakes, shape)
        for t in range(TURNS):
            turns.frames[t], turns.action_mask[t] = observations, infos["action_mask"]
            searches.move(turns.actions[t], infos["alive"])
            observations, rewards, terminations, truncations, infos = vector.step(turns.actions[t])
            turns.rewards[t] = rewards * reward_scale
            turns.acted[t] = infos["acted"]
            turns.terminateds[t], turns.truncateds[t] = terminations, truncations
        turns.frames[TURNS], turns.action_mask[TURNS] = observations, infos["action_mask"]
        fragment = build_fragment(turns, n_step=n_step, gamma=gamma)
        replay.add(fragment)
        moves += fragment.num_agent_steps
    return replay


def joined(batch: Batch, demonstrated: Batch) -> Batch:
    """Both, one after the other."""
    return Batch(
        *(
            np.concatenate([getattr(batch, name), getattr(demonstrated, name)])
            for name in Batch.__dataclass_fields__
        )
    )

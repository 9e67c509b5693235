"""Construction of Battlesnake environments from an ``env_config`` (`training_env_config`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seat_memory import ActFn
from battlesnake_gym.env.seated_opponents import SampledOpponents
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp.rewards import Rewards
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_rl.mabs.envs.training_env_config import env_options


def make_vector_env(
    num_games: int, env_config: Mapping[str, Any], board_size: int | None = None
) -> VectorBattlesnake:
    """Build a vector environment with ``num_games`` games.

    Args:
        num_games: Number of games.
        env_config: Options; missing keys have the values of
            `training_env_config.ENV_CONFIG_DEFAULTS`. If ``num_snakes`` is a list, games cycle
            through its values: with [2, 4], three games have 2, 4 and 2 snakes. Smaller games use
            the first entries of a list of rewards.
        board_size: Width and height of all boards except the last board, in cells. The last board
            retains its full size, because the largest board determines the observation's shape.

    Raises:
        ValueError: If a key is unknown or the environment rejects a value.
    """
    games = env_options(env_config)
    if not isinstance(games.num_snakes, int):
        counts = np.resize(np.asarray(games.num_snakes), num_games).tolist()
        games = replace(games, num_snakes=counts)
        if not isinstance(games.rewards, str | Mapping | Rewards):
            games = replace(games, rewards=games.rewards[: max(counts)])
    if board_size is not None:
        others = [board_size] * (num_games - 1)
        width, height = ([*others, int(np.max(side))] for side in (games.width, games.height))
        games = replace(games, curriculum=[], width=width, height=height)
    return VectorBattlesnake.from_config(games, num_games)


def sample_opponents(
    vector: VectorBattlesnake,
    fractions: Mapping[str, float],
    random: np.random.Generator,
    past_selves: PastSelves,
) -> SampledOpponents:
    """Return the opponents of training games, without seats.

    Args:
        vector: The games.
        fractions: Fraction of seats by opponent, as in `SampledOpponents`;
            `policy_loader.load_score_fn` loads a frozen policy (`SnakeSpec`).
        random: Random generator for opponents and seats.
        past_selves: Past selves of the learner.

    Raises:
        ValueError: If the fractions are invalid or a policy does not fit the games.
    """
    frozen = {
        name: _load_frozen_policy(spec, vector)
        for name in fractions
        if (spec := SnakeSpec.parse(name)).is_frozen
    }
    return SampledOpponents(vector, fractions, random, past_selves, frozen)


def _load_frozen_policy(spec: SnakeSpec, vector: VectorBattlesnake) -> ActFn:
    """Load a frozen policy, which must have the observation of the games."""
    from battlesnake_rl.mabs.policy import policy_loader  # Imports torch.

    values, games = policy_loader.load_score_fn(spec.path)
    observation = EnvConfig(
        observation=games["observation"], frame_stack=games.get("frame_stack")
    ).observation_encoder
    seen = observation.to_dict(), observation.shape(games["width"], games["height"])
    shown = vector.observation.to_dict(), vector.single_observation_space.shape
    if seen != shown:
        raise ValueError(
            f"the opponent {spec.source!r} has the observation {seen[0]['name']} of shape "
            f"{seen[1]}, but the games have {shown[0]['name']} of shape {shown[1]}; "
            "use a policy with the same observation and board size"
        )
    return policy_loader.greedy_policy(values)

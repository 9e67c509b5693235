"""From a plain dictionary, as configurations and checkpoints hold it, to the games."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from battlesnake_gym.config import TRAINING_DEFAULTS, EnvConfig, Sizes, check_names
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import observations
from battlesnake_rl.mabs.envs.board_size_schedule import MAP_SIZES, OBSERVATION
from battlesnake_rl.mabs.envs.training_opponents import check as check_opponents
from battlesnake_rl.mabs.envs.training_opponents import seat_fractions

ENV_NAME = "battlesnake"
"""Under this name the environment is registered with RLlib."""

ENV_CONFIG_DEFAULTS: dict[str, Any] = {
    **{name: value for name, value in vars(TRAINING_DEFAULTS).items() if name != "frame_stack"},
    "settings": {},
    "curriculum": [],
    "iterate_map_size": False,
    "clip_rewards": False,
    "opponents": {},
}
"""Every key of an ``env_config`` and its default: the fields of `EnvConfig`, and four more.

``frame_stack`` may be given too, and becomes a part of ``observation`` (`with_defaults`).

``curriculum``: ``[[env_steps, side], ...]``, from how many turns of training on games are played on
which square boards; none: always on ``width`` x ``height``. ``iterate_map_size``: on boards of 7,
11 and 19 in turn (`map_sizes`). ``clip_rewards``: RLlib's own algorithms get the sign of each
turn's reward, as the starter pack did. ``opponents``: the parts of the seats
that others than the learner take, or a list of them (`battlesnake_rl.mabs.envs.training_opponents`).
"""


def make_vector(
    num_games: int, env_config: Mapping[str, Any], side: int | None = None
) -> VectorBattlesnake:
    """Build ``num_games`` games from an ``env_config`` (missing keys: `ENV_CONFIG_DEFAULTS`).

    Where ``num_snakes`` is a list, the games have so many in turn. With ``side``, all games but
    the last are played on ``side`` x ``side`` boards. One stays as large as the board will be, so
    that observations keep their shape.

    Raises:
        ValueError: an unknown key, or a value that the environment refuses.
    """
    options = env_options(env_config)
    options = replace(options, num_snakes=cycle_num_snakes(options.num_snakes, num_games))
    if side is not None:
        others, board = [side] * (num_games - 1), with_defaults(env_config)
        options = replace(
            options, width=[*others, board["width"]], height=[*others, board["height"]]
        )
    return VectorBattlesnake.from_config(options, num_games)


def cycle_num_snakes(counts: Sizes, num_games: int) -> Sizes:
    """How many snakes each of ``num_games`` games has, where ``counts`` take turns.

    >>> turn_about([2, 4], 3).tolist(), turn_about(2, 3)
    ([2, 4, 2], 2)
    """
    return counts if isinstance(counts, int) else np.resize(np.asarray(counts), num_games)


def with_defaults(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """``env_config`` with `ENV_CONFIG_DEFAULTS` for what it lacks, and its ``frame_stack`` in ``observation``.

    >>> whole({"frame_stack": 2})["observation"]
    {'name': 'planes', 'frame_stack': 2}

    Raises ``ValueError`` for an unknown key.
    """
    check_names(env_config, ENV_CONFIG_DEFAULTS)
    values = ENV_CONFIG_DEFAULTS | dict(env_config)
    values["opponents"] = seat_fractions(values["opponents"])
    frame_stack, seen = values.pop("frame_stack", None), values["observation"]
    if frame_stack is not None:
        named = {"name": seen} if isinstance(seen, str) else observations.get(seen).to_dict()
        values["observation"] = named | {"frame_stack": frame_stack}
    return values


def env_options(env_config: Mapping[str, Any]) -> EnvConfig:
    """What an ``env_config`` says about the games; what it says about training is only checked.

    Raises ``ValueError`` for an unknown key, a wrong curriculum and wrong opponents.
    """
    values = with_defaults(env_config)
    _check_curriculum(values.pop("curriculum"), min(values["width"], values["height"]))
    check_opponents(values.pop("opponents"))
    values.pop("clip_rewards")
    if values.pop("iterate_map_size"):
        _check_sizes(values["observation"], env_config.get("curriculum"))
    return EnvConfig.from_options(values)


def head_plane(env_config: Mapping[str, Any]) -> int | None:
    """Which plane of an observation is brightest at the own head; None where none is."""
    planes = observations.get(with_defaults(env_config)["observation"]).planes
    return planes.index("own_body") if "own_body" in planes else None


def curriculum_board_size(env_config: Mapping[str, Any], env_steps: int) -> int | None:
    """The side of the boards after ``env_steps`` turns of training; None without a curriculum."""
    sides = [side for start, side in env_config.get("curriculum", []) if start <= env_steps]
    return sides[-1] if sides else None


def board_sizes(env_config: Mapping[str, Any]) -> list[list[int]]:
    """The widths and heights of all boards that are trained on, smallest first."""
    sides = {(side, side) for _, side in env_config.get("curriculum", [])}
    if env_config.get("iterate_map_size"):
        sides = {(side, side) for side in MAP_SIZES}
    return [list(size) for size in sorted({*sides, (env_config["width"], env_config["height"])})]


def _check_sizes(observation: Any, curriculum: Any) -> None:
    seen = observations.get(observation)
    if len({seen.shape(side, side) for side in MAP_SIZES}) > 1:
        raise ValueError(
            f"iterate_map_size needs an observation of one size, such as {OBSERVATION}, "
            f"got {seen.name}"
        )
    if curriculum:
        raise ValueError("iterate_map_size and curriculum say the same; give one of the two")


def _check_curriculum(curriculum: Any, largest: int) -> None:
    try:
        steps, sides = zip(*curriculum, strict=True) if curriculum else ((0,), (1,))
        fits = steps[0] == 0 and list(steps) == sorted(steps) and max(sides) <= largest
        if fits and all(type(number) is int and number >= 0 for number in (*steps, *sides)):
            return
    except (TypeError, ValueError):
        pass
    raise ValueError(
        "curriculum must be a list of [env_steps, side] that begins at 0 and goes up, with sides "
        f"of at most {largest} (the map size), like [[0, 7], [500000, 11]]; got {curriculum!r}"
    )

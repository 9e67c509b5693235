"""Names of opponents, fractions of seats, and paths of opponents' files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.common.suggestions import unknown_name_message

PAST_SELF = "past"
"""Name of the opponent that plays past selves of the learner."""

POLICY_PREFIX = "policy:"
"""Prefix of the name of a frozen policy, which has the observation of the games.

The path of a ``.onnx`` file, a checkpoint or a run follows the prefix.
"""


def check_name(name: str) -> None:
    """Check that an opponent is a known name or a file.

    Raises:
        ValueError: If the name is unknown.
    """
    known = [PAST_SELF, snakes.BUILTIN_POLICY_NAME, *snakes.names()]
    base = name.rpartition("@")[0] or name
    if base not in known and not is_file(base):
        message = unknown_name_message("opponent", name, known, "battlesnake-gym snakes")
        raise ValueError(f"opponents: {message}; or use a .onnx file, a run directory or a bundle")


def is_file(name: str) -> bool:
    """Return whether the name of an opponent refers to a file.

    >>> is_file("policy:runs/first"), is_file("mine.zip"), is_file("hungry"), is_file("shipped")
    (True, True, False, False)
    """
    return name.startswith(POLICY_PREFIX) or snakes.resolve_file(name) not in (
        None,
        snakes.BUILTIN_POLICY_NAME,
    )


def with_absolute_paths(
    fractions: Mapping[str, float], directory: Path | None = None
) -> dict[str, float]:
    """Return ``fractions`` with absolute paths.

    Paths must be absolute, because env runners have other working directories. Files in
    ``directory`` have precedence over files in the working directory. The name of a policy in
    ``directory`` may omit the suffix ``.onnx``.
    """
    return {
        _absolute(name, directory) if is_file(name) else name: fraction
        for name, fraction in fractions.items()
    }


def _absolute(name: str, directory: Path | None) -> str:
    path = name.removeprefix(POLICY_PREFIX)
    places = [] if directory is None else [directory / path, directory / f"{path}.onnx"]
    found = next((place for place in places if place.exists()), Path(path))
    return name.removesuffix(path) + str(found.absolute())


def seat_fractions(opponents: Any) -> Any:
    """Convert a list of opponents to a fraction of seats by opponent.

    Each opponent in a list has as many seats as the learner. The function returns other values
    unchanged.

    >>> seat_fractions(["shipped", "past"])
    {'shipped': 0.3333333333333333, 'past': 0.3333333333333333}
    """
    if isinstance(opponents, list) and all(isinstance(name, str) for name in opponents):
        return dict.fromkeys(opponents, 1 / (len(opponents) + 1))
    return opponents


def check_fractions(fractions: Any) -> None:
    """Check the names and the seat fractions of opponents.

    Raises:
        ValueError: If a name is unknown, a fraction is invalid, or no seats remain for the learner.
    """
    if not isinstance(fractions, Mapping):
        raise ValueError(
            'opponents must be a dictionary such as {"past": 0.3, "hungry": 0.1}, or a list such '
            f'as ["past"], got {fractions!r}'
        )
    for name, fraction in fractions.items():
        check_name(name)
        if type(fraction) not in (int, float) or not 0 < fraction < 1:
            raise ValueError(f"the fraction of {name!r} must be between 0 and 1, got {fraction!r}")
    if sum(fractions.values()) >= 1:
        raise ValueError(f"the opponents' fractions must sum to less than 1, got {dict(fractions)}")

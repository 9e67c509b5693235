"""Names of opponents, fractions of seats, and paths of opponents' files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.snake_spec import BUILTIN_POLICY_NAME, PAST_SELF, SnakeSpec


def check_name(name: str) -> None:
    """Check that an opponent is a known name or a file.

    Raises:
        ValueError: If the name is unknown.
    """
    spec, known = SnakeSpec.parse(name), [PAST_SELF, BUILTIN_POLICY_NAME, *snakes.names()]
    found = name == PAST_SELF or spec.source in known[1:] or spec.is_file
    if spec.label or not (found or snakes.policy_path(spec)):
        message = unknown_name_message("opponent", name, known, "battlesnake-gym snakes")
        raise ValueError(f"opponents: {message}; or use a .onnx file, a run directory or a bundle")


def with_absolute_paths(
    fractions: Mapping[str, float], directory: Path | None = None
) -> dict[str, float]:
    """Return ``fractions`` with absolute paths.

    Paths must be absolute, because env runners have other working directories. Files in
    ``directory`` have precedence over files in the working directory. The name of a policy in
    ``directory`` may omit the suffix ``.onnx``.
    """

    def absolute(path: str) -> str:
        places = [] if directory is None else [directory / path, directory / f"{path}.onnx"]
        return str(next((place for place in places if place.exists()), Path(path)).absolute())

    return {
        str(spec.with_paths(absolute)) if snakes.is_path(spec) else name: fraction
        for name, fraction in fractions.items()
        if (spec := SnakeSpec.parse(name))
    }


def seat_fractions(opponents: Any) -> Any:
    """Convert a list of opponents to a fraction of seats by opponent.

    Each opponent in a list has as many seats as the learner. The function returns a dictionary
    unchanged.

    Raises:
        ValueError: If ``opponents`` is neither a list nor a dictionary of different names.

    >>> seat_fractions(["shipped", "past"])
    {'shipped': 0.3333333333333333, 'past': 0.3333333333333333}
    """
    if not isinstance(opponents, list | Mapping) or not all(isinstance(n, str) for n in opponents):
        raise ValueError(
            'opponents must be a dictionary such as {"past": 0.3, "hungry": 0.1}, or a list such '
            f'as ["past"], got {opponents!r}'
        )
    if isinstance(opponents, Mapping):
        return opponents
    if repeated := [name for name in opponents if opponents.count(name) > 1]:
        raise ValueError(f"opponents repeats {repeated[0]!r}; give a dictionary of fractions")
    return dict.fromkeys(opponents, 1 / (len(opponents) + 1))


def check_fractions(fractions: Any, *, check_names: bool = True) -> None:
    """Check the seat fractions of opponents, and the names if ``check_names`` is true.

    Raises:
        ValueError: If a name is unknown, a fraction is invalid, or no seats remain for the learner.
    """
    for name, fraction in seat_fractions(fractions).items():
        if check_names:
            check_name(name)
        if type(fraction) not in (int, float) or not 0 < fraction < 1:
            raise ValueError(
                f"opponents: the fraction of {name!r} must be more than 0 and less than 1, "
                f"got {fraction!r}"
            )
    if sum(fractions.values()) >= 1:
        raise ValueError(f"opponents: fractions must sum to less than 1, got {dict(fractions)}")

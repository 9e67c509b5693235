"""Setup of games, as environments, training, matches, the arena, leagues and pages use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import rules
from battlesnake_gym.boards.json_fields import (
    MAX_INT32,
    BoardError,
    bounded_integer,
    join_path,
    string,
)
from battlesnake_gym.boards.limited_view import check_view_radius
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.rules import Game, Settings, State
from battlesnake_gym.rules.maps import ENGINE_MAPS
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE, MAX_SIZE

IntPerGame = int | Sequence[int] | NDArray[np.integer[Any]]
"""One integer for all games, or one integer per game."""

SizeT = TypeVar("SizeT", int, IntPerGame)
"""Type of sizes: ``IntPerGame`` in a vector environment, otherwise ``int``."""

STANDARD_GAME = Game()
"""The default rules of a game."""


class _RecordedSettings:
    """Settings that record in ``names`` the name of each field that is read."""

    def __init__(self, settings: Settings, names: set[str]) -> None:
        self._settings = settings
        self._names = names

    def __getattr__(self, name: str) -> Any:
        self._names.add(name)
        return getattr(self._settings, name)


SETTING_NAMES = tuple(field.name for field in fields(Settings))
"""Names of the rule settings."""


@dataclass(frozen=True)
class GameSpec(Generic[SizeT]):
    """Setup of games: snakes, board, ruleset, map, settings and turn limit."""

    num_snakes: SizeT = 4
    """Number of snakes per game, 1 to 16; a single snake plays ``solo``."""
    width: SizeT = DEFAULT_BOARD_SIZE
    """Board width in cells, 1 to 25."""
    height: SizeT = DEFAULT_BOARD_SIZE
    """Board height in cells, 1 to 25."""
    ruleset: str = STANDARD_GAME.ruleset
    """Name of the ruleset, a key of `rules.RULESETS`."""
    map: str = STANDARD_GAME.map
    """Name of the map, a key of `rules.MAPS`."""
    settings: Settings | Mapping[str, int] | None = None
    """Fields of `rules.Settings`; the defaults match the official CLI."""
    max_turns: int | None = None
    """Turn at which a game is truncated; None disables truncation."""

    @property
    def game(self) -> Game:
        """Ruleset, map and settings of the games, without a seed.

        Raises:
            ValueError: If a setting is unknown or not an integer.
        """
        return Game(ruleset=self.ruleset, map=self.map, settings=_parse_settings(self.settings))

    def start(self: GameSpec[int], seed: int = 1) -> State:
        """Return the first position of a game.

        Raises:
            rules.RulesError: If the games cannot be played.
        """
        ids = [str(seat) for seat in range(self.num_snakes)]
        return rules.start(replace(self.game, seed=seed), self.width, self.height, ids)

    def unused_settings(self: GameSpec[int]) -> set[str]:
        """Return the names of the settings that have no effect on the games.

        The rules and a built-in map read the settings of food and shrinking on the first turn or
        never. Custom maps may read every setting later. The result is empty for games that cannot
        be played.
        """
        if self.map not in ENGINE_MAPS:
            return set()
        read = {"view_radius"}
        if self.ruleset == "royale" or self.map not in ("standard", "empty"):
            read.add("hazard_damage_per_turn")
        settings: Any = _RecordedSettings(self.game.settings, read)
        game = replace(self.game, settings=settings, seed=1)
        ids = [str(seat) for seat in range(self.num_snakes)]
        try:
            state = rules.start(game, self.width, self.height, ids)
            rules.step(game, state, dict.fromkeys(ids, "up"))
        except rules.RulesError:
            return set()
        return {*SETTING_NAMES} - read

    def check_settings(self: GameSpec[Any], names: Collection[str], path: str = "") -> None:
        """Raise ``ValueError`` if a setting in ``names`` has no effect in the largest game."""
        if not names:
            return
        count, width, height = map(int, map(np.max, (self.num_snakes, self.width, self.height)))
        largest = replace(self, num_snakes=count, width=width, height=height)
        if unused := sorted(largest.unused_settings() & {*names}):
            raise ValueError(
                f"{path}{unused[0]} has no effect in {self.ruleset} games on the map {self.map}; "
                f"omit {unused[0]}"
            )


def parse_game_spec(
    content: Mapping[str, Any],
    path: str,
    defaults: GameSpec[int],
    limits: Mapping[str, tuple[int, int]] | None = None,
    setting_names: Sequence[str] = SETTING_NAMES,
) -> GameSpec[int]:
    """Parse the setup of games from JSON or YAML, in which rule settings are fields of the setup.

    Args:
        content: Values by field name; other keys are ignored.
        path: JSON path of ``content``.
        defaults: Values of missing fields.
        limits: Smallest and largest value by field name, if they differ from the rules' limits.
        setting_names: Names of the rule settings that ``content`` may contain.

    Raises:
        BoardError: If a field is invalid. `GameSpec.start` checks whether the map supports the
            size and the number of snakes.
    """
    size = (1, MAX_SIZE)
    bounds = {"num_snakes": (1, MAX_SNAKES), "width": size, "height": size, "max_turns": (1, None)}
    values: dict[str, Any] = {
        name: bounded_integer(content, name, path, low, high)
        for name, (low, high) in {**bounds, **(limits or {})}.items()
        if content.get(name) is not None
    }
    for name, known in (("ruleset", rules.RULESETS), ("map", rules.known_maps())):
        values[name] = string(content, name, path, getattr(defaults, name))
        if values[name] not in known:
            message = unknown_name_message(name, values[name], known)
            raise BoardError(f"{join_path(path, name)}: {message}")
    settings = {
        name: bounded_integer(content, name, path, -MAX_INT32, MAX_INT32)
        for name in setting_names
        if content.get(name) is not None
    }
    check_view_radius(settings.get("view_radius"), join_path(path, "view_radius"))
    return replace(defaults, settings=Settings(**settings), **values)


def _parse_settings(settings: Settings | Mapping[str, int] | None) -> Settings:
    """Create `rules.Settings` from a mapping of field names to integers.

    Raises:
        ValueError: If a field is unknown or its value is not an integer.
    """
    if settings is None:
        return Settings()
    if isinstance(settings, Settings):
        return settings
    if not isinstance(settings, Mapping):
        raise ValueError(f"settings must be a dictionary of numbers by name, got {settings!r}")
    for name, value in settings.items():
        if name not in SETTING_NAMES:
            raise ValueError(unknown_name_message("setting", name, SETTING_NAMES))
        if name == "view_radius":
            check_view_radius(value, f"setting {name}")
        elif isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT32:
            limit = f"a whole number of at most {MAX_INT32}"
            raise ValueError(f"setting {name} must be {limit}, got {value!r}")
    return Settings(**settings)

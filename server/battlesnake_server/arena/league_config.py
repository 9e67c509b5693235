"""The configuration file of a standing league.

The file defines the snakes, the boards, the maximum game rate and the length of a season.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.json_fields import (
    BoardError,
    bounded_integer,
    format_value,
    items,
    mapping,
    sanitize_text,
    string,
)
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml
from battlesnake_gym.game_spec import SETTING_NAMES, GameSpec, parse_game_spec
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_server.arena.tournament import Entrant, TournamentSettings

EXAMPLE_LEAGUE_FILE = """\
# A standing league: battlesnake-gym league THIS_FILE
name: Tuesday club
snakes:                                # label in tables: source
  hungry: hungry                       # a built-in snake (battlesnake-gym snakes)
  cautious: cautious
  search: minimax@400
  # mine: http://192.168.1.20:8000     # a URL
  # trained: runs/first/policy.onnx    # a policy; path relative to this file
  # written:                           # a program that the league starts and restarts
  #   command: python my_snake.py --port {port}
boards:                                # one board per game, in rotation
  - {width: 11, height: 11, num_snakes: 2}
  - {width: 11, height: 11, num_snakes: 3, ruleset: royale, map: royale}
timeout: 500                           # response timeout in milliseconds
games_per_hour: 60                     # maximum number of games per hour
season_days: 7                         # length of a season in days; ratings restart each season
health_check_minutes: 5                # minutes between two health checks
"""
"""Example league file, printed by ``battlesnake-gym league --print-example``."""

_MAX_NAME_CHARS = 40

_MAX_NUMBERS = {
    "timeout": 2**31 - 1, "games_per_hour": 2**31 - 1, "season_days": 36_500,
    "health_check_minutes": 2**31 - 1, "seed": 2**63 - 1,
}  # fmt: skip
"""Largest number of each field; dates and the database support no larger numbers."""


@dataclass(frozen=True, slots=True)
class _LeagueEntrant:
    """A snake of the league: a source, or a command that starts a program.

    ``source`` is a `SnakeSpec` without a label. The league replaces ``{port}`` in ``command``
    with the port on which the program must listen. The environment variable PORT contains the same
    port. ``repository`` names the source code and the commit of the snake, for the table of a
    gauntlet.
    """

    name: str
    source: str = ""
    command: str = ""
    repository: str = ""


@dataclass(frozen=True, slots=True)
class LeagueConfig:
    """Configuration of a league.

    The comments of `EXAMPLE_LEAGUE_FILE` explain the fields.
    """

    name: str
    entrants: tuple[_LeagueEntrant, ...]
    boards: tuple[GameSpec[int], ...]
    timeout: int = 500
    games_per_hour: int = 60
    season_days: int = 7
    health_check_minutes: int = 5
    seed: int = 1

    def game_settings(
        self,
        board: GameSpec[int],
        names: Sequence[str],
        sources: Mapping[str, str],
        **other_fields: Any,
    ) -> TournamentSettings:
        """Return the settings of a game between ``names`` on a board.

        Args:
            board: The board to play on.
            names: Names of the snakes, in seat order.
            sources: Source of every snake, keyed by snake name.
            other_fields: Other fields of `TournamentSettings`.
        """
        return TournamentSettings(
            snakes=tuple(f"{name}={sources[name]}" for name in names),
            game_spec=board,
            seed=self.seed,
            timeout=self.timeout,
            **other_fields,
        )

    def check_snakes(self) -> None:
        """Check that the snakes of this process can play.

        Programs and URLs are not checked, because a snake may be temporarily unavailable.

        Raises:
            ValueError: If a snake cannot play; the message names the snake.
        """
        for snake in self.entrants:
            entrant = Entrant.parse(snake.source)
            if snake.command or entrant.is_remote:
                continue
            try:
                entrant.check_boards(self.boards)
            except ValueError as error:
                raise ValueError(f"snakes.{snake.name}: {error}") from error

    @classmethod
    def load(cls, path: Path, rejected_fields: Sequence[str] = ()) -> LeagueConfig:
        """Load a league file.

        Args:
            path: The YAML file.
            rejected_fields: Names of fields that the calling command does not support.

        Raises:
            ValueError: If a field is invalid; the message names the field.
            OSError: If the file cannot be read.
        """
        try:
            content = read_yaml(path)
        except ValueError as error:
            raise BoardError(
                f"{sanitize_text(str(error), 500)}; see battlesnake-gym league --print-example"
            ) from error
        try:
            return cls.parse(content, path.parent, rejected_fields)
        except ValueError as error:
            problem = str(error).replace("a JSON object", "a mapping")  # YAML's word
            raise BoardError(f"{path}: {sanitize_text(problem, 500)}") from error

    @classmethod
    def parse(
        cls, content: object, folder: Path, rejected_fields: Sequence[str] = ()
    ) -> LeagueConfig:
        """Build a league from the parsed content of a league file.

        Relative paths in the content are resolved in ``folder``.
        """
        if not isinstance(content, Mapping):
            raise BoardError(
                f"a league file must be a mapping, got {format_value(content)}; see "
                "battlesnake-gym league --print-example"
            )
        defaults: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        excluded = {"entrants", *rejected_fields}
        _check_keys(content, [name for name in defaults if name not in excluded] + ["snakes"])
        snakes = mapping(content.get("snakes"), "snakes")
        entrants = tuple(_parse_entrant(name, value, folder) for name, value in snakes.items())
        if len(entrants) < 2:
            raise BoardError(f"snakes: a league needs at least 2 snakes, got {len(entrants)}")
        boards = tuple(
            _parse_board(board, f"boards[{number}]", len(entrants))
            for number, board in enumerate(items(content, "boards", "") or [{}])
        )
        numbers = {
            name: bounded_integer(content, name, "", 1, high, defaults[name])
            for name, high in _MAX_NUMBERS.items()
        }
        return cls(string(content, "name", ""), entrants, boards, **numbers)


def _parse_entrant(name: object, value: object, folder: Path) -> _LeagueEntrant:
    """Parse one snake of a league file."""
    if not isinstance(name, str) or not re.fullmatch(r"[^=/:]+", name):
        raise BoardError(f"snakes: a name must be text without = / :, got {format_value(name)}")
    if len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise BoardError(
            f"snakes.{name:.50}: a name must have at most {_MAX_NAME_CHARS} characters, all "
            "printable"
        )
    path = f"snakes.{name}"
    if isinstance(value, Mapping):
        _check_keys(value, ["command", "url", "repository"], path)
        if "url" in value and "command" in value:
            raise BoardError(f"{path}: give either command or url, not both")
        fields_given = {key: string(value, key, path, "") for key in ("url", "repository")}
        command = "" if fields_given["url"] else string(value, "command", path)
        return _LeagueEntrant(name, fields_given["url"], command, fields_given["repository"])
    if not isinstance(value, str) or not value:
        raise BoardError(
            f"{path} must be a URL, a built-in snake, a policy's path, or {{command: ...}}, got "
            f"{format_value(value)}"
        )
    spec = SnakeSpec.parse(value)
    if spec.label:
        raise BoardError(f"{path}: the name is the label; give {spec} instead of {value!r:.50}")
    known = snakes.names()

    def resolve(part: str) -> str:
        beside = folder / part  # `Path.exists` raises an exception for invalid paths.
        return str(beside) if part not in known and os.path.exists(beside) else part  # noqa: PTH110

    return _LeagueEntrant(name, source=str(spec.with_paths(resolve)))


def _parse_board(content: object, path: str, entrants: int) -> GameSpec[int]:
    """Parse one board of a league file."""
    board = mapping(content, path)
    names = [field.name for field in fields(GameSpec) if field.name != "settings"]
    _check_keys(board, [*names, *SETTING_NAMES], path)
    game_spec = parse_game_spec(board, path, GameSpec(num_snakes=2))
    if not 2 <= game_spec.num_snakes <= entrants:
        raise BoardError(
            f"{path}.num_snakes must be between 2 and {entrants}, the number of snakes, got "
            f"{game_spec.num_snakes}"
        )
    try:
        game_spec.start()
        game_spec.check_settings(board)
    except ValueError as error:
        raise BoardError(f"{path}: {sanitize_text(str(error), 500)}") from error
    return game_spec


def _check_keys(content: Mapping[str, Any], names: Sequence[str], path: str = "") -> None:
    """Raise `BoardError` for a field that is not in ``names``."""
    for key in content:
        if key not in names:
            raise BoardError(
                (f"{path}: " if path else "") + unknown_name_message("field", key, names)
            )

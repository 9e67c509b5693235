"""The file that describes a standing league: who plays, on which boards, how often, how long."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from battlesnake_gym import rules
from battlesnake_gym.boards.json_fields import (
    MAX_JSON_BYTES,
    BoardError,
    format_value,
    integer,
    items,
    join,
    mapping,
    sanitize_text,
    string,
)
from battlesnake_gym.common.files import read_bounded
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.rules import Game, Settings
from battlesnake_server.arena.tournament import TournamentSettings

EXAMPLE = """\
# A standing league: battlesnake-gym league THIS_FILE
name: Tuesday club
snakes:                                # what the tables call them: who plays
  hungry: hungry                       # a name that battlesnake-gym snakes lists
  cautious: cautious
  search: minimax@400
  # mine: http://192.168.1.20:8000     # behind a URL
  # trained: runs/first/policy.onnx    # a policy, beside this file
  # written:                           # a program that the league starts, and starts again
  #   command: python my_snake.py --port {port}
boards:                                # played by turns
  - {width: 11, height: 11, snakes: 2}
  - {width: 11, height: 11, snakes: 3, ruleset: royale, map: royale}
timeout: 500                           # milliseconds for an answer
games_per_hour: 60                     # at most; around the clock
season_days: 7                         # then all ratings begin anew
health_minutes: 5                      # between two looks at whether a snake answers
"""
"""What ``--example`` prints."""

_SETTINGS = tuple(field.name for field in fields(Settings))
"""The rules' numbers that a board may set."""

_MAX_YAML_KEYS = 1000
"""Of a mapping, with those that are merged into it."""

_MAX_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class LeagueEntrant:
    """A snake of the league: a ``source`` as the arena takes it, or a ``command`` to start.

    In the command ``{port}`` is the port on which the snake must listen; so is the variable PORT.
    ``repository`` is where its source is, and which commit, for a gauntlet's table.
    """

    name: str
    source: str = ""
    command: str = ""
    repository: str = ""


@dataclass(frozen=True, slots=True)
class LeagueBoard:
    """A board on which the league plays: its rules, and how many ``num_snakes`` meet on it."""

    num_snakes: int
    width: int
    height: int
    ruleset: str
    map: str
    settings: Settings
    max_turns: int | None


@dataclass(frozen=True, slots=True)
class LeagueConfig:
    """A league as its file describes it; see `EXAMPLE` for what the numbers mean."""

    name: str
    members: tuple[LeagueEntrant, ...]
    boards: tuple[LeagueBoard, ...]
    timeout: int = 500
    games_per_hour: int = 60
    season_days: int = 7
    health_minutes: int = 5
    seed: int = 1

    def setup(
        self, board: LeagueBoard, names: Sequence[str], sources: Mapping[str, str], **more: Any
    ) -> TournamentSettings:
        """How these snakes meet on a board; ``sources`` are where all of them are."""
        return TournamentSettings(
            snakes=tuple(f"{name}={sources[name]}" for name in names),
            num_snakes=len(names),
            width=board.width,
            height=board.height,
            ruleset=board.ruleset,
            map=board.map,
            settings=board.settings,
            seed=self.seed,
            timeout=self.timeout,
            max_turns=board.max_turns,
            **more,
        )


class _Loader(yaml.SafeLoader):
    """Reads what is no program, and merges no more than a file may hold anyway."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what ``<<`` refers to in its place, as its base does."""
        super().flatten_mapping(node)
        if len(node.value) > _MAX_YAML_KEYS:
            raise yaml.YAMLError(f"a mapping has more than {_MAX_YAML_KEYS} keys")


def load(path: Path, without: Sequence[str] = ()) -> LeagueConfig:
    """Read a league's file, whose fields ``without`` mean nothing here and are refused.

    Raises ``ValueError`` naming the field, ``OSError`` without a file.
    """
    try:
        text = read_bounded(path, MAX_JSON_BYTES).decode()
        return read(yaml.load(text, _Loader), path.parent, without)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise BoardError(f"{path} is not YAML: {why}; --example prints a file") from error
    except ValueError as error:
        raise BoardError(f"{path}: {sanitize_text(str(error), 500)}") from error


def read(written: object, folder: Path, without: Sequence[str] = ()) -> LeagueConfig:
    """A league from the content of its file; paths are looked for in ``folder``."""
    if not isinstance(written, Mapping):
        raise BoardError(
            f"a league is a mapping, got {format_value(written)}; --example prints one"
        )
    unread = {"members", *without}
    _known(
        written,
        [field.name for field in fields(LeagueConfig) if field.name not in unread] + ["snakes"],
    )
    snakes = mapping(written.get("snakes"), "snakes")
    members = tuple(_member(name, value, folder) for name, value in snakes.items())
    if len(members) < 2:
        raise BoardError(f"snakes: a league needs two or more, got {len(members)}")
    boards = tuple(
        _board(board, f"boards[{number}]", len(members))
        for number, board in enumerate(items(written, "boards", "") or [{}])
    )
    numbers = {
        name: _at_least_one(written, name, "", getattr(_USUAL, name))
        for name in ("timeout", "games_per_hour", "season_days", "health_minutes", "seed")
    }
    return LeagueConfig(string(written, "name", ""), members, boards, **numbers)


_USUAL = LeagueConfig("", (), ())


def _member(name: object, value: object, folder: Path) -> LeagueEntrant:
    if not isinstance(name, str) or not re.fullmatch(r"[^=/:]+", name):
        raise BoardError(f"snakes: a name is a text without = / :, got {format_value(name)}")
    if len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise BoardError(
            f"snakes.{name:.50}: a name has at most {_MAX_NAME_CHARS} characters, all printable"
        )
    path = f"snakes.{name}"
    if isinstance(value, Mapping):
        _known(value, ["command", "url", "repository"], path)
        if "url" in value and "command" in value:
            raise BoardError(f"{path}: give a command or a url, not both")
        told = {key: string(value, key, path, "") for key in ("url", "repository")}
        command = "" if told["url"] else string(value, "command", path)
        return LeagueEntrant(name, told["url"], command, told["repository"])
    if not isinstance(value, str) or not value:
        raise BoardError(
            f"{path} must be a URL, a name, a policy's path, or {{command: ...}}, got "
            f"{format_value(value)}"
        )
    beside = folder / value  # `Path.is_file` fails for what no file can be called
    return LeagueEntrant(name, source=str(beside) if os.path.isfile(beside) else value)  # noqa: PTH113


def _board(written: object, path: str, members: int) -> LeagueBoard:
    board = mapping(written, path)
    _known(board, [field.name for field in fields(LeagueBoard) if field.name != "settings"]
           + list(_SETTINGS), path)  # fmt: skip
    longest = board.get("max_turns")
    usual = Settings()
    plan = LeagueBoard(
        num_snakes=_at_least_one(board, "snakes", path, 2),
        width=_at_least_one(board, "width", path, 11),
        height=_at_least_one(board, "height", path, 11),
        ruleset=_one_of(board, "ruleset", path, list(rules.RULESETS)),
        map=_one_of(board, "map", path, list(rules.known_maps())),
        settings=Settings(
            **{name: integer(board, name, path, getattr(usual, name)) for name in _SETTINGS}
        ),
        max_turns=None if longest is None else _at_least_one(board, "max_turns", path, 1),
    )
    if not 2 <= plan.num_snakes <= members:
        raise BoardError(
            f"{path}.snakes must be between 2 and the league's {members}, got {plan.num_snakes}"
        )
    game = Game(plan.ruleset, plan.map, plan.settings, 1)
    try:
        rules.start(game, plan.width, plan.height, [str(n) for n in range(plan.num_snakes)])
    except ValueError as error:
        raise BoardError(f"{path}: {sanitize_text(str(error), 500)}") from error
    return plan


def _at_least_one(parent: Mapping[str, Any], key: str, path: str, usual: int) -> int:
    value = integer(parent, key, path, usual)
    if value < 1:
        raise BoardError(f"{join(path, key)} must be 1 or more, got {value}")
    return value


def _one_of(parent: Mapping[str, Any], key: str, path: str, known: list[str]) -> str:
    value = string(parent, key, path, "standard")
    if value not in known:
        raise BoardError(f"{join(path, key)}: {unknown_name_message(key, value, known)}")
    return value


def _known(written: Mapping[str, Any], names: Sequence[str], path: str = "") -> None:
    for key in written:
        if key not in names:
            raise BoardError(
                (f"{path}: " if path else "") + unknown_name_message("field", key, names)
            )

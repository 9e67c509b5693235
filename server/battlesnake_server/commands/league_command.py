"""``battlesnake-gym league``: run a standing league from a configuration file."""

from __future__ import annotations

import argparse
import functools
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from battlesnake_gym.common.command_line import Parser, output_dir, positive, reports_errors
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import Database
from battlesnake_server.arena.league import League, log
from battlesnake_server.arena.league_config import EXAMPLE_LEAGUE_FILE, LeagueConfig
from battlesnake_server.arena.league_snakes import LeagueSnakes
from battlesnake_server.arena.results import compute_standings
from battlesnake_server.arena.tournament import open_pool, play_in_pool
from battlesnake_server.commands.arena_command import (
    DEFAULT_PORT,
    DEFAULT_REPLAY_DIR,
    add_database_option,
    add_jobs_option,
    print_standings,
    raise_on_stop_signal,
    report_stop,
)
from battlesnake_server.web import open_site
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.roster import Roster

_RESUME_HINT = "finished games are stored; the same command resumes the league"

_OPTIONS_OF_HEALTH_CHECK = {"file", "check_health", *address_policy.OPTIONS}
"""Attributes of the options that have an effect with ``--check-health``."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Run a league until interrupted; return 2 for a usage error."""
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.print_example:
        if arguments.file is not None:
            raise ValueError(f"{arguments.file} has no effect with --print-example; omit it")
        names = vars(arguments).keys() - {"print_example"}
        command.reject_given(arguments, sorted(names), "with --print-example")
        sys.stdout.write(EXAMPLE_LEAGUE_FILE)
        return 0
    if arguments.check_health:
        names = vars(arguments).keys() - _OPTIONS_OF_HEALTH_CHECK
        command.reject_given(arguments, sorted(names), "with --check-health")
    if arguments.file is None:
        raise ValueError("name the league file; --print-example prints an example")
    players = load_snakes(command, arguments)
    token = arguments.token_file and _load_or_create_token(arguments.token_file)
    database = None if arguments.check_health else Database(arguments.database)
    try:
        with raise_on_stop_signal(), players:
            if database is None:
                return _print_health(players)
            with database.lock():
                return _run_league(arguments, players, database, token)
    except (KeyboardInterrupt, OSError, SQLAlchemyError) as error:
        return report_stop("league", error, _RESUME_HINT)
    finally:
        if database is not None:
            database.close()


def _run_league(
    arguments: argparse.Namespace,
    players: LeagueSnakes,
    database: Database,
    token: str | None,
) -> int:
    """Run the league and serve the pages until interrupted."""
    arguments.replays = arguments.replays.absolute()
    arguments.replays.mkdir(parents=True, exist_ok=True)
    extra_snakes = [f"{name}={source}" for name, source in players.sources.items()]
    roster = Roster(extra_snakes, address_policy=players.address_policy)
    arena = Arena(database, roster, arguments.replays, players.plan)
    with open_site(arena, arguments, token):
        league = League(players, database, jobs=arguments.jobs, replays=arguments.replays)
        log(f"{league.plan.name}, season {league.season.number}, ends at {league.season.ends} UTC")
        try:
            with open_pool(arguments.jobs, arena.broadcast.publish_event) as pool:
                try:
                    league.run(functools.partial(pool.submit, play_in_pool), arguments.games)
                except BaseException:
                    pool.terminate()
                    raise
        finally:
            played = database.load_games(league.season.tournament)
            print_standings(compute_standings(played), arguments.json)
    return 0


def load_snakes(
    command: Parser, arguments: argparse.Namespace, rejected_fields: Sequence[str] = ()
) -> LeagueSnakes:
    """Load and check the snakes of the league file ``arguments.file``.

    Args:
        command: The parser of the command.
        arguments: Parsed options, including the options of `address_policy.add_options`.
        rejected_fields: Names of fields that the command does not support.

    Raises:
        ValueError: If the file is invalid, a snake cannot play, or an option has no effect.
    """
    plan = LeagueConfig.load(arguments.file, rejected_fields)
    plan.check_snakes()
    # The address of a program is always allowed, but the program may respond with a redirect.
    has_program = any(one.command for one in plan.entrants)
    names = ["allow_networks"] if has_program else address_policy.OPTIONS
    sources = [one.source for one in plan.entrants if not one.command]
    address_policy.reject_unused_options(command, arguments, sources, names)
    return LeagueSnakes(plan, AddressPolicy.from_options(arguments))


def _print_health(players: LeagueSnakes) -> int:
    """Print the state of every snake; return 1 if any snake is unhealthy."""
    problems = players.find_problems(list(players.sources))
    for name, problem in problems.items():
        sys.stdout.write(f"{name}: {problem or 'healthy'}\n")
    return int(any(problems.values()))


def _load_or_create_token(path: Path) -> str:
    """Read the access token from a file.

    If the file is missing, a new token is written to a file that only the owner can read.

    Raises:
        ValueError: If the file does not contain a valid token.
    """
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123  (of a descriptor)
            file.write(secrets.token_urlsafe(16) + "\n")
    except FileExistsError:
        pass
    token = path.read_text().strip()
    if len(token) < 8 or not token.isascii():
        raise ValueError(f"{path} must contain a token of 8 ASCII characters or more")
    return token


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym league",
        description="Run a standing league as described in a file: games between snakes of similar "
        "rating, health checks with cooldowns, seasons, and web pages. If interrupted, the same "
        "command resumes.",
        epilog="example: battlesnake-gym league --print-example > league.yaml; "
        "battlesnake-gym league league.yaml",
    )
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="FILE", help="league file (YAML)")
    add("--print-example", action="store_true", help="print an example league file and exit")
    add("--check-health", action="store_true",
        help="check that every snake responds, print the result and exit")  # fmt: skip
    add("--games", type=positive, default=None, metavar="N",
        help="stop after N games (default: run until interrupted)")  # fmt: skip
    add_jobs_option(parser)
    add("--replays", type=output_dir, default=DEFAULT_REPLAY_DIR, metavar="DIR",
        help="directory for replays")  # fmt: skip
    add_database_option(parser)
    add("--json", action="store_true", help="print the season's standings as JSON on exit")
    address_policy.add_page_options(parser, DEFAULT_PORT)
    add("--token-file", type=Path, default=None, metavar="FILE",
        help="file with the access token for actions on the pages; created if missing (default: "
        "a new token per start, only if other machines can reach the pages)")  # fmt: skip
    address_policy.add_options(parser)
    return parser

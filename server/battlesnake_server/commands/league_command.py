"""``battlesnake-gym league``: run a standing league from a configuration file."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from battlesnake_gym.common.command_line import Parser, output_dir, positive, print_error
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import Database
from battlesnake_server.arena.league import League, log
from battlesnake_server.arena.league_config import (
    EXAMPLE_LEAGUE_FILE,
    LeagueConfig,
)
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.program_supervisor import ProgramSupervisor
from battlesnake_server.arena.results import compute_standings
from battlesnake_server.arena.tournament import (
    Entrant,
    open_pool,
    parse_entrants,
    play_in_pool,
)
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
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.roster import Roster

_START_TIMEOUT_S = 20.0
"""Maximum time until a started program responds, in seconds."""

_RESUME_HINT = "finished games are stored; the same command resumes the league"

_OPTIONS_OF_HEALTH_CHECK = {"file", "check_health", *address_policy.OPTIONS}
"""Attributes of the options that have an effect with ``--check-health``."""


def main(argv: list[str] | None = None) -> int:
    """Run a league until interrupted; return 2 for a usage error."""
    command = parser()
    arguments = command.parse_args(argv)
    try:
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
        plan = LeagueConfig.load(arguments.file)
        plan.check_snakes()
        reject_unused_options(plan, command, arguments)
        token = None if arguments.token_file is None else load_or_create_token(arguments.token_file)
        database = None if arguments.check_health else Database(arguments.database)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym league", error)
    commands = {snake.name: snake.command for snake in plan.entrants if snake.command}
    try:
        with raise_on_stop_signal(), ProgramSupervisor(commands) as programs:
            players = SnakeHealthChecker(plan, programs, AddressPolicy.from_options(arguments))
            if database is None:
                return _print_health(players)
            with database.lock():
                return _run_league(arguments, plan, players, database, token)
    except ValueError as error:  # For example, the port is in use.
        return print_error("battlesnake-gym league", error)
    except (KeyboardInterrupt, OSError, SQLAlchemyError) as error:
        return report_stop("league", error, _RESUME_HINT)
    finally:
        if database is not None:
            database.close()


def _run_league(
    arguments: argparse.Namespace,
    plan: LeagueConfig,
    players: SnakeHealthChecker,
    database: Database,
    token: str | None,
) -> int:
    """Run the league and serve the pages until interrupted."""
    arguments.replays = arguments.replays.absolute()
    arguments.replays.mkdir(parents=True, exist_ok=True)
    extra_snakes = [f"{name}={source}" for name, source in players.sources.items()]
    roster = Roster(extra_snakes, address_policy=players.address_policy)
    broadcast = LiveGames()
    with open_site(database, roster, broadcast, arguments, token=token, league=plan):
        league = League(
            plan,
            players.sources,
            database,
            players.find_problems,
            jobs=arguments.jobs,
            replays=arguments.replays,
            address_policy=players.address_policy,
        )
        log(f"{plan.name}, season {league.season.number}, ends at {league.season.ends} UTC")
        try:
            with open_pool(arguments.jobs, broadcast.publish_event) as pool:
                try:
                    league.run(functools.partial(pool.submit, play_in_pool), arguments.games)
                except BaseException:
                    pool.terminate()
                    raise
        finally:
            played = database.load_games(league.season.tournament)
            print_standings(compute_standings(played), arguments.json)
    return 0


class SnakeHealthChecker:
    """Health checks of a league's snakes.

    Attributes:
        address_policy: Policy for the addresses of the snakes' URLs.
        sources: Source of each snake by name; a program's source is the program's URL.
    """

    def __init__(
        self, plan: LeagueConfig, programs: ProgramSupervisor, addresses: AddressPolicy
    ) -> None:
        self.address_policy = addresses
        self._entrants = {snake.name: snake for snake in plan.entrants}
        self._programs = programs
        self.sources: Mapping[str, str] = {
            snake.name: programs.url(snake.name) if snake.command else snake.source
            for snake in plan.entrants
        }

    def find_problems(self, names: Sequence[str]) -> list[str]:
        """Check snakes concurrently and return each snake's problem.

        The problem of a healthy snake is "".
        """

        async def find_all_problems() -> list[str]:
            return await asyncio.gather(*(self._find_problem(name) for name in names))

        return asyncio.run(find_all_problems())

    async def _find_problem(self, name: str) -> str:
        """Return the problem of a snake, or "" for a healthy snake."""
        snake, source = self._entrants[name], self.sources[name]
        (entrant,) = parse_entrants([f"{name}={source}"], self.address_policy)
        try:
            if snake.command:
                await self._start_program(entrant)
            elif entrant.is_remote:
                await check_responds(source, entrant.address_policy)
            else:
                # Bypass the cache, because the file may have been deleted.
                Entrant.strategy_factory.__wrapped__(entrant)
        except (ValueError, OSError) as error:
            return str(error)
        return ""

    async def _start_program(self, entrant: Entrant) -> None:
        """Start a program that is not running, and wait until the program responds."""
        limit, pause_s = time.monotonic() + _START_TIMEOUT_S, 0.1
        while True:
            self._programs.start(entrant.label)
            try:
                return await check_responds(entrant.source, entrant.address_policy)
            except ValueError:
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)  # A program that always fails restarts rarely.


def reject_unused_options(
    plan: LeagueConfig, command: Parser, arguments: argparse.Namespace
) -> None:
    """Reject options of `address_policy.add_options` without effect on the snakes of a plan.

    The address of a program is always allowed, but the program may respond with a redirect.
    """
    programs = [one for one in plan.entrants if one.command]
    names = ["allow_networks"] if programs else address_policy.OPTIONS
    sources = [one.source for one in plan.entrants if not one.command]
    address_policy.reject_unused_options(command, arguments, sources, names)


def _print_health(players: SnakeHealthChecker) -> int:
    """Print the state of every snake; return 1 if any snake is unhealthy."""
    names = list(players.sources)
    problems = players.find_problems(names)
    for name, problem in zip(names, problems, strict=True):
        sys.stdout.write(f"{name}: {problem or 'healthy'}\n")
    return int(any(problems))


def load_or_create_token(path: Path) -> str:
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

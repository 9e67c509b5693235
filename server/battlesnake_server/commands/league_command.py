"""``battlesnake-gym league``: a standing league, played around the clock as its file says."""

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

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from battlesnake_gym.common.command_line import Parser, positive, print_error, writable
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import (
    DEFAULT_URL,
    lock_database,
    open_database,
)
from battlesnake_server.arena.league import League, say
from battlesnake_server.arena.league_config import EXAMPLE, LeagueConfig, load
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.program_supervisor import ProgramSupervisor
from battlesnake_server.arena.tournament import Entrant, local_factory, open_pool, play_in_pool
from battlesnake_server.commands.arena_command import (
    DEFAULT_PORT,
    DEFAULT_REPLAYS,
    first_line,
    interruptible,
    show,
)
from battlesnake_server.onnx_policy import OnnxPolicy
from battlesnake_server.web.arena_site import Site
from battlesnake_server.web.roster import Roster

_START_SECONDS = 20.0
"""How long a program that was started has until it answers."""

_REST = "what was played is stored, and the same command goes on"


def main(argv: list[str] | None = None) -> int:
    """Play a league until interrupted; the exit status is 2 for a wrong call."""
    arguments = parser().parse_args(argv)
    if arguments.example:
        sys.stdout.write(EXAMPLE)
        return 0
    try:
        if arguments.file is None:
            raise ValueError("name the league's file; --example prints one to begin with")
        plan = load(arguments.file)
        check(plan)
        token = None if arguments.token_file is None else read_token(arguments.token_file)
        engine = open_database(arguments.database)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym league", error)
    commands = {member.name: member.command for member in plan.members if member.command}
    try:
        with interruptible(), ProgramSupervisor(commands) as programs:
            players = LeagueHealth(plan, programs, address_policy.from_options(arguments))
            if arguments.check:
                return print_health(players)
            with lock_database(engine):
                return _play(arguments, plan, players, engine, token)
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_REST}\n")
        return 130
    except ValueError as error:  # a port that is taken, an address that cannot be listened on
        return print_error("battlesnake-gym league", error)
    except (OSError, SQLAlchemyError) as error:  # a full disk, a database that has gone
        sys.stderr.write(f"battlesnake-gym league: {first_line(error)}; {_REST}\n")
        return 1
    finally:
        engine.dispose()


def _play(
    arguments: argparse.Namespace,
    plan: LeagueConfig,
    players: LeagueHealth,
    engine: Engine,
    token: str | None,
) -> int:
    replays = arguments.replays.absolute()
    replays.mkdir(parents=True, exist_ok=True)
    invited = [f"{name}={source}" for name, source in players.sources.items()]
    site = Site(
        engine,
        Roster(invited, reach=players.reach),
        replays,
        arguments.host,
        arguments.port,
        arguments.allow_host,
        token=token,
        league=plan,
    )
    try:
        league = League(
            plan,
            players.sources,
            engine,
            players.problems,
            jobs=arguments.jobs,
            replays=replays,
            reach=players.reach,
        )
        say(f"{plan.name}, season {league.season.number}, until {league.season.ends} UTC")
        try:
            with open_pool(arguments.jobs, site.announce) as pool:
                try:
                    league.run(functools.partial(pool.submit, play_in_pool), arguments.games)
                except BaseException:
                    pool.terminate()
                    raise
        finally:
            show(engine, league.season.tournament, arguments.json)
    finally:
        site.close()
    return 0


class LeagueHealth:
    """The snakes of a league as they can be played: where each is, and whether it is well."""

    def __init__(
        self, plan: LeagueConfig, programs: ProgramSupervisor, reach: AddressPolicy
    ) -> None:
        self.reach = reach
        self._members = {member.name: member for member in plan.members}
        self._programs = programs
        self.sources: Mapping[str, str] = {
            member.name: programs.url(member.name) if member.command else member.source
            for member in plan.members
        }

    def problems(self, names: Sequence[str]) -> list[str]:
        """What is wrong with these snakes, all asked at once; "" for those that are well."""

        async def ask() -> list[str]:
            return await asyncio.gather(*(self._ailment(name) for name in names))

        return asyncio.run(ask())

    async def _ailment(self, name: str) -> str:
        member, source = self._members[name], self.sources[name]
        entrant = Entrant(name, source, self.reach.allowing_typed_address(source))
        try:
            if member.command:
                await self._start(entrant)
            elif entrant.remote:
                await check_responds(source, entrant.reach)
            else:
                local_factory.__wrapped__(entrant)  # its file may have gone since
        except (ValueError, OSError) as error:
            return str(error)
        return ""

    async def _start(self, entrant: Entrant) -> None:
        """See that a program runs, and wait until it answers."""
        limit = time.monotonic() + _START_SECONDS
        while True:
            self._programs.start(entrant.label)
            try:
                return await check_responds(entrant.source, entrant.reach)
            except ValueError:
                if time.monotonic() > limit:
                    raise
                await asyncio.sleep(0.1)


def check(plan: LeagueConfig) -> None:
    """Refuse snakes of this process that cannot play: before any work. Others may be away."""
    for member in plan.members:
        entrant = Entrant(member.name, member.source)
        if member.command or entrant.remote:
            continue
        try:
            local_factory(entrant)
            if entrant.is_policy:
                for board in plan.boards:
                    OnnxPolicy.load(member.source).check_size(board.width, board.height)
        except ValueError as error:
            raise ValueError(f"snakes.{member.name}: {error}") from error


def print_health(players: LeagueHealth) -> int:
    """Print how every snake is; the status is 1 where one is sick."""
    names = list(players.sources)
    ailments = players.problems(names)
    for name, ailment in zip(names, ailments, strict=True):
        sys.stdout.write(f"{name}: {ailment or 'well'}\n")
    return int(any(ailments))


def read_token(path: Path) -> str:
    """The token in a file, which is made, for its owner alone, where it is missing."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123  (of a descriptor)
            file.write(secrets.token_urlsafe(16) + "\n")
    except FileExistsError:
        pass
    token = path.read_text().strip()
    if len(token) < 8 or not token.isascii():
        raise ValueError(f"{path} must hold a token of 8 ASCII characters or more")
    return token


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym league",
        description="Play a league around the clock, as its file says: games of those who are "
        "nearest in rating, health checks, rests for the sick, seasons, and pages. Whatever ends "
        "it, the same command goes on.",
        epilog="example: battlesnake-gym league --example > league.yaml; "
        "battlesnake-gym league league.yaml",
    )
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="FILE", help="the league's file (YAML)")
    add("--example", action="store_true", help="print a file to begin with")
    add("--check", action="store_true", help="print how every snake is, and play nothing")
    add("--games", type=positive, default=None, metavar="N", help="end after N games")
    add("--jobs", type=positive, default=os.cpu_count() or 1, help="games at a time")
    add(
        "--replays",
        type=writable,
        default=DEFAULT_REPLAYS,
        metavar="DIR",
        help="where games are kept",
    )
    add("--database", default=DEFAULT_URL, metavar="URL", help="where the results are kept")
    add("--json", action="store_true", help="print the season's table as JSON at the end")
    address_policy.add_page_options(parser, DEFAULT_PORT)
    add("--token-file", type=Path, default=None, metavar="FILE",
        help="the token that lets people do more than look, made if missing, the same after every "
        "start (default: a new one, where others can reach the pages)")  # fmt: skip
    address_policy.add_options(parser)
    return parser

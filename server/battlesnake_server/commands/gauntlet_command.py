"""``battlesnake-gym gauntlet``: a snake against rivals, and the table that says how it fares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from tqdm import tqdm

from battlesnake_gym.common.command_line import Parser, positive, print_error, writable
from battlesnake_server import address_policy
from battlesnake_server.arena.database import (
    DEFAULT_URL,
    StoredGame,
    load_games,
    lock_database,
    open_database,
    with_retries,
)
from battlesnake_server.arena.gauntlet import (
    LEAGUE_ONLY,
    at_equal_cpu_time,
    matchups,
    summary,
    table,
)
from battlesnake_server.arena.league_config import LeagueConfig, load
from battlesnake_server.arena.program_supervisor import ProgramSupervisor
from battlesnake_server.arena.results import store
from battlesnake_server.arena.tournament import Entrant, open_players, play_scheduled_game, schedule
from battlesnake_server.commands.arena_command import begin, first_line, interruptible
from battlesnake_server.commands.league_command import LeagueHealth, check

_REST = "what was played is stored, and the same command plays the rest"


def main(argv: list[str] | None = None) -> int:
    """Play what is missing and print the table; the exit status is 2 for a wrong call."""
    arguments = parser().parse_args(argv)
    try:
        plan = load(arguments.file, without=LEAGUE_ONLY)
        check(plan)
        if arguments.clock == "cpu":
            check_equal(plan)
        engine = open_database(arguments.database)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym gauntlet", error)
    commands = {member.name: member.command for member in plan.members if member.command}
    try:
        with interruptible(), ProgramSupervisor(commands) as programs, lock_database(engine):
            players = LeagueHealth(plan, programs, address_policy.from_options(arguments))
            try:
                start_programs(players, plan)
            except ConnectionError as error:
                return print_error("battlesnake-gym gauntlet", error)
            return _play(arguments, plan, players, programs, engine)
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_REST}\n")
        return 130
    except (OSError, SQLAlchemyError) as error:  # a rival that has gone, a full disk
        sys.stderr.write(f"battlesnake-gym gauntlet: {first_line(error)}; {_REST}\n")
        return 1
    finally:
        engine.dispose()


def check_equal(plan: LeagueConfig) -> None:
    """Refuse what equal CPU time cannot be measured of, or given to."""
    if sys.platform != "linux":
        raise ValueError("--clock cpu reads Linux's CPU clocks; give --clock wall")
    ours, *rivals = plan.members
    if ours.command or Entrant(ours.name, ours.source).remote:
        raise ValueError(
            f"snakes.{ours.name}: with --clock cpu the first snake thinks in this process; give a "
            "name or a policy, or --clock wall"
        )
    for rival in rivals:
        if not rival.command:
            raise ValueError(
                f"snakes.{rival.name}: its CPU time can only be read of a command that is started "
                "here; give {command: ...}, or --clock wall"
            )


def start_programs(players: LeagueHealth, plan: LeagueConfig) -> None:
    """Start the programs that do not run; raises ``ConnectionError`` naming who is away."""
    names = [member.name for member in plan.members]
    for name, ailment in zip(names, players.problems(names), strict=True):
        if ailment:
            raise ConnectionError(f"snakes.{name}: {ailment}")


def _play(
    arguments: argparse.Namespace,
    plan: LeagueConfig,
    players: LeagueHealth,
    programs: ProgramSupervisor,
    engine: Engine,
) -> int:
    """Play one game at a time, and print the table of all that were played."""
    if arguments.replays is not None:
        arguments.replays.mkdir(parents=True, exist_ok=True)
    equal = arguments.clock == "cpu"
    seat = at_equal_cpu_time(programs.cpu_seconds) if equal else open_players
    written = {member.name: member.command or member.source for member in plan.members}
    tournaments = {
        bout: begin(
            engine,
            plan.setup(bout.board, bout.names, written),
            resume=True,
            gauntlet=arguments.clock,
        )
        for bout in matchups(plan)
    }
    played = {bout: _games(engine, number) for bout, number in tournaments.items()}
    total = arguments.games * len(tournaments)
    try:
        with tqdm(total=total, unit="game", disable=None) as bar:
            for bout, number in tournaments.items():
                setup = plan.setup(bout.board, bout.names, players.sources)
                done = {game.number for game in played[bout]}
                bar.update(len(done))
                count = len(bout.names)
                for fixture in schedule(count, count, arguments.games, plan.seed):
                    if fixture.number not in done:
                        start_programs(players, plan)
                        result = play_scheduled_game(setup, fixture, arguments.replays, seat=seat)
                        store(engine, result, number, setup)
                        bar.update()
    finally:
        lines = [
            summary(bout, games, plan, arguments.clock)
            for bout, number in tournaments.items()
            if (games := _games(engine, number))
        ]
        if arguments.json:
            sys.stdout.write(json.dumps(lines, indent=2) + "\n")
        elif lines:
            sys.stdout.write(f"{plan.name}: 95 % intervals\n\n{table(lines)}")
    return 0


def _games(engine: Engine, tournament: int) -> list[StoredGame]:
    return with_retries(engine, lambda session: load_games(session, tournament))


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym gauntlet",
        description="Play the first snake of the file against all others, in duels and games of "
        "several, and print a table with 95 % intervals. Whatever ends it, the same command plays "
        "what is missing.",
        epilog="example: battlesnake-gym gauntlet rivals.yaml --clock cpu --games 40",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="who plays on which boards (YAML; docs/league.md)")
    add("--clock", choices=("cpu", "wall"), default="wall",
        help="wall: the same timeout for all; cpu: the first snake has the CPU time that rivals "
        "took, which are commands")  # fmt: skip
    add("--games", type=positive, default=20, metavar="N",
        help="games of each line of the table; a multiple of the seats is fair")  # fmt: skip
    add("--replays", type=writable, default=None, metavar="DIR", help="keep a replay of every game")
    add("--database", default=DEFAULT_URL, metavar="URL", help="where the results are kept")
    add("--json", action="store_true", help="print the results as JSON")
    address_policy.add_options(parser)
    return parser

"""``battlesnake-gym gauntlet``: play one snake against many opponents.

The results are printed as a table.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from collections import ChainMap
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    output_dir,
    positive,
    print_json,
    reports_errors,
)
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_server import address_policy
from battlesnake_server.arena.database import Database
from battlesnake_server.arena.gauntlet import (
    LEAGUE_ONLY_FIELDS,
    format_table,
    iter_matchups,
    open_equal_cpu_players,
    summarize,
)
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.league_snakes import LeagueSnakes
from battlesnake_server.arena.results import compute_standings
from battlesnake_server.arena.stored_tournament import StoredTournament
from battlesnake_server.arena.tournament import open_players, play_scheduled_game
from battlesnake_server.commands.arena_command import (
    add_database_option,
    print_failed_moves,
    raise_on_stop_signal,
    report_stop,
)
from battlesnake_server.commands.league_command import load_snakes

_RESUME_HINT = "finished games are stored; the same command plays the rest"


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Play the missing games and print the table; return 2 for a usage error."""
    command = parser()
    arguments = command.parse_args(argv)
    players = load_snakes(command, arguments, LEAGUE_ONLY_FIELDS)
    if arguments.clock == "cpu":
        _check_equal_cpu(players.plan)
    database = Database(arguments.database)
    try:
        with raise_on_stop_signal(), players, database.lock():
            try:
                _start_programs(players)
            except ConnectionError as error:
                raise ValueError(str(error)) from error
            return _play_missing_games(arguments, players, database)
    except (KeyboardInterrupt, OSError, SQLAlchemyError) as error:
        return report_stop("gauntlet", error, _RESUME_HINT)
    finally:
        database.close()


def _check_equal_cpu(plan: LeagueConfig) -> None:
    """Check that ``--clock cpu`` can measure and limit the CPU time of the snakes.

    Raises:
        ValueError: If the check fails; the message names the snake and the remedy.
    """
    if sys.platform != "linux":
        raise ValueError("--clock cpu requires Linux; use --clock wall")
    ours, *opponents = plan.entrants
    if ours.command or SnakeSpec.parse(ours.source).is_remote:
        raise ValueError(
            f"snakes.{ours.name}: with --clock cpu the first snake must run in this process; give "
            "a built-in snake or a policy, or --clock wall"
        )
    for opponent in opponents:
        if not opponent.command:
            raise ValueError(
                f"snakes.{opponent.name}: --clock cpu needs programs started on this machine; give "
                "{command: ...}, or --clock wall"
            )


def _start_programs(players: LeagueSnakes) -> None:
    """Start the programs that are not running.

    Raises:
        ConnectionError: If a snake fails to start.
    """
    for name, problem in players.find_problems(list(players.sources)).items():
        if problem:
            raise ConnectionError(f"snakes.{name}: {problem}")


def _play_missing_games(
    arguments: argparse.Namespace, players: LeagueSnakes, database: Database
) -> int:
    """Play one game at a time, then print the table of all stored games."""
    if arguments.replays is not None:
        arguments.replays.mkdir(parents=True, exist_ok=True)
    open_seats = (
        functools.partial(open_equal_cpu_players, players.cpu_seconds)
        if arguments.clock == "cpu"
        else open_players
    )
    plan, addresses = players.plan, players.address_policy
    matchups = list(iter_matchups(plan, players.sources, address_policy=addresses))
    # The stored settings contain commands, because a program's port differs in every run.
    sources = {entrant.name: entrant.command or entrant.source for entrant in plan.entrants}
    tournaments = [
        StoredTournament.start_or_resume(database, setup, resume=True, gauntlet=arguments.clock)
        for setup in iter_matchups(plan, sources)
    ]
    for tournament in tournaments:
        tournament.delete_games_without_replay(arguments.replays)
    total = arguments.games * len(tournaments)
    try:
        with tqdm(total=total, unit="game", disable=None) as bar:
            for setup, tournament in zip(matchups, tournaments, strict=True):
                done = {game.number for game in tournament.load_games()}
                bar.update(len(done))
                for scheduled in setup.missing_games(arguments.games, done):
                    _start_programs(players)
                    result = play_scheduled_game(
                        setup, scheduled, arguments.replays, open_seats=open_seats
                    )
                    tournament.store([result])
                    bar.update()
    finally:
        stored = [tournament.load_games() for tournament in tournaments]
        lines = [
            summarize(setup, games, plan, arguments.clock)
            for setup, games in zip(matchups, stored, strict=True)
            if games
        ]
        _print_table(plan, lines, arguments.json)
        errors = ChainMap(*(tournament.errors for tournament in tournaments))
        standings = compute_standings(itertools.chain(*stored), errors)
        local = [f"{name}={source}" for name, source in players.sources.items()]
        status = print_failed_moves(standings, local, arguments.json)
    return status


def _print_table(plan: LeagueConfig, lines: list[dict[str, Any]], as_json: bool) -> None:
    """Print the summaries of all matchups as a table or as JSON."""
    if as_json:
        print_json(lines)
    elif lines:
        sys.stdout.write(
            f"{plan.name}: win rates with 95% confidence intervals\n\n{format_table(lines)}"
        )


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym gauntlet",
        description="Play the first snake of the file against all others, in duels and larger "
        "games, and print win rates with 95% confidence intervals. If interrupted, the same "
        "command plays the missing games.",
        epilog="example: battlesnake-gym gauntlet opponents.yaml --clock cpu --games 40",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE",
        help="YAML file with snakes and boards; see docs/how-to/play-public-rivals.md")  # fmt: skip
    add("--clock", choices=("cpu", "wall"), default="wall",
        help="wall: equal timeouts for all snakes; cpu: the first snake may use as much CPU time "
        "as its opponents (local programs only)")  # fmt: skip
    add("--games", type=positive, default=20, metavar="N",
        help="games per matchup; use a multiple of the number of seats")  # fmt: skip
    add("--replays", type=output_dir, default=None, metavar="DIR",
        help="save a replay of every game in this directory")  # fmt: skip
    add_database_option(parser)
    add("--json", action="store_true", help="print the results as JSON")
    address_policy.add_options(parser)
    return parser

"""``battlesnake-gym arena``: run games between snakes and print a table."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from sqlalchemy.exc import SQLAlchemyError

from battlesnake_gym import rules
from battlesnake_gym.common.command_line import (
    Parser,
    add_view_radius_option,
    bounded_number,
    describe_error,
    milliseconds,
    natural,
    output_dir,
    positive,
    print_json,
    reports_errors,
    seed,
    size,
)
from battlesnake_gym.game_spec import SETTING_NAMES, GameSpec
from battlesnake_gym.rules import Settings
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE
from battlesnake_gym.snakes import NodeLimitedStrategy
from battlesnake_heuristics.rating.process_pool import InterruptedBySignal, TaskPool
from battlesnake_heuristics.rating.sprt import Sprt
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import DEFAULT_DATABASE_URL, Database
from battlesnake_server.arena.results import StandingsRow, compute_standings, format_table
from battlesnake_server.arena.snake_versions import snake_files
from battlesnake_server.arena.sprt_match import MatchScore
from battlesnake_server.arena.stored_tournament import StoredTournament, check_playable
from battlesnake_server.arena.tournament import (
    Entrant,
    OnGameEvent,
    TournamentSettings,
    open_ray_pool,
)

DEFAULT_REPLAY_DIR = Path("replays")
DEFAULT_PORT = 8791
_DEFAULT_NUM_GAMES = 10
DEFAULT_TIMEOUT_MS = 500
_OPTIONS_OF_PAGES = {
    *("snakes", "web", "web_opponent", "allow_visitor_urls", "replays", "database"),
    *address_policy.OPTIONS,
    *address_policy.PAGE_OPTIONS,
}
"""Attributes of the options that have an effect if the command serves only the pages."""

_MAX_LOAD_PER_CORE = 1.25
"""Maximum load average per core, including the arena's own games.

If the load is higher, a tournament with response timeouts prints a warning.
"""

_MAX_FAILED_MOVE_FRACTION = 0.05
"""Maximum fraction of failed moves.

Above this fraction, the results do not measure the strength of a snake.
"""

RESUME_HINT = "finished games are stored; the same command with --resume plays the rest"


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Play a tournament and print its table.

    Returns:
        The exit status:

        * 0: all games were played;
        * 1: games could not be played, or a snake in this process failed on too many moves;
        * 2: usage error;
        * 130: interruption.
    """
    command = parser()
    arguments = command.parse_args(argv)
    with contextlib.ExitStack() as stack:
        sprt = _build_sprt(arguments)
        _check_options(command, arguments)
        if arguments.snakes:
            setup = _tournament_settings(arguments)
            check_playable(setup)
            unused = sorted(setup.game_spec.unused_settings())
            where = f"in {arguments.ruleset} games on the map {arguments.map}"
            command.reject_given(arguments, unused, where)
            is_alone = len(arguments.snakes) == 1 and not arguments.num_snakes
            if is_alone and arguments.ruleset != "solo":
                (alone,) = arguments.snakes
                opponent = "cautious" if alone == "hungry" else "hungry"
                raise ValueError(
                    f"{alone} is the only snake; name an opponent, such as {opponent}, or give "
                    "--num-snakes 1 for games without opponents"
                )
        if arguments.web:
            # Only the pages need Flask, whose import takes time.
            from battlesnake_server.web import open_site
            from battlesnake_server.web.game_manager import Arena
            from battlesnake_server.web.roster import Roster

            roster = Roster(
                [*arguments.snakes, *arguments.web_opponent],
                allow_urls=arguments.allow_visitor_urls,
                address_policy=AddressPolicy.from_options(arguments),
            )
        database = stack.enter_context(contextlib.closing(Database(arguments.database)))
        site = announce = pool = None
        if arguments.web:
            arguments.replays = (arguments.replays or DEFAULT_REPLAY_DIR).absolute()
            arena = Arena(database, roster, arguments.replays)
            announce = arena.broadcast.publish_event
            site = stack.enter_context(open_site(arena, arguments))
        if arguments.ray_address:
            pool = open_ray_pool(arguments.ray_address, setup)
        stack.enter_context(raise_on_stop_signal())
        status = 0
        if arguments.snakes:
            try:
                with database.lock():
                    status = _play_and_print(arguments, setup, sprt, database, announce, pool)
            except (KeyboardInterrupt, OSError, ValueError, SQLAlchemyError) as error:
                return report_stop("arena", error, RESUME_HINT)
        if site is not None:
            site.wait()
        return status


def _check_options(command: Parser, arguments: argparse.Namespace) -> None:
    """Raise ``ValueError`` for options that have no effect or exclude each other."""
    page_options = (*address_policy.PAGE_OPTIONS, "web_opponent", "allow_visitor_urls")
    for applies, names, when in (
        (not arguments.web, page_options, "without --web"),
        (arguments.sprt is not None, ["points"], "with --sprt"),
        (arguments.json, ["points"], "with --json"),
        (arguments.ray_address, ["jobs"], "with --ray-address"),
    ):
        if applies:
            command.reject_given(arguments, names, when)
    if not arguments.allow_visitor_urls:
        opponents = (*arguments.snakes, *arguments.web_opponent)
        address_policy.reject_unused_options(command, arguments, opponents)
    if not arguments.snakes and not arguments.web:
        raise ValueError("name the snakes to enter, or give --web to open only the pages")
    if not arguments.snakes:
        others = vars(arguments).keys() - _OPTIONS_OF_PAGES
        command.reject_given(arguments, sorted(others), "without snakes")
    if arguments.ray_address and (arguments.web or arguments.replays):
        raise ValueError(
            "games at --ray-address are neither shown nor saved; omit --web and --replays"
        )


@contextlib.contextmanager
def raise_on_stop_signal() -> Iterator[None]:
    """Raise `InterruptedBySignal` at the first SIGINT or SIGTERM.

    Later signals are ignored, so that a second Ctrl+C does not disturb the shutdown. Service
    managers send SIGTERM. The processes of the games must not outlive this process.
    """
    interrupted = False
    stop_signals = (signal.SIGINT, signal.SIGTERM)

    def handle_stop_signal(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for stop_signal in stop_signals:
            signal.signal(stop_signal, signal.SIG_IGN)
        raise InterruptedBySignal

    before = {number: signal.signal(number, handle_stop_signal) for number in stop_signals}
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)


def _warn_if_busy(setup: TournamentSettings, jobs: int) -> None:
    """Print a warning if searches compete with other programs for CPU time."""
    load, cores = getattr(os, "getloadavg", lambda: [0.0])()[0], os.cpu_count() or 1
    if setup.has_search_limit or load + jobs < _MAX_LOAD_PER_CORE * max(cores, jobs):
        return
    if setup.any_searches(NodeLimitedStrategy):
        sys.stderr.write(
            f"this machine is busy (load {load:.1f} on {cores} cores): searches get less CPU time "
            "per move than on an idle machine; --move-time 50 limits CPU time instead\n"
        )


def _play_and_print(
    arguments: argparse.Namespace,
    setup: TournamentSettings,
    sprt: Sprt | None,
    database: Database,
    announce: OnGameEvent | None,
    pool: TaskPool | None,
) -> int:
    """Play a tournament and print its table, or play a match and print its verdict.

    Returns:
        The exit status of `print_failed_moves`.
    """
    tournament = StoredTournament.start_or_resume(database, setup, arguments.resume)
    tournament.delete_games_without_replay(arguments.replays)
    games = arguments.games or (None if sprt else _DEFAULT_NUM_GAMES)
    if arguments.timeout is None and arguments.ray_address is None:
        _warn_if_busy(setup, arguments.jobs)
    try:
        with pool or contextlib.nullcontext():
            tournament.play_missing_games(
                games, arguments.jobs, arguments.replays, announce, sprt, pool
            )
    finally:
        played = tournament.load_games()
        lines = compute_standings(played, tournament.errors)
        if sprt is None:
            print_standings(lines, arguments.json, arguments.points)
        elif arguments.json:
            print_json(MatchScore.from_games(played).to_dict(setup, sprt))
        else:
            sys.stdout.write(MatchScore.from_games(played).format(setup, sprt))
        status = print_failed_moves(lines, setup.snakes, arguments.json)
    return status


def print_failed_moves(lines: Sequence[StandingsRow], snakes: Sequence[str], as_json: bool) -> int:
    """Print the failed moves of snakes in this process.

    With JSON output, the text is printed to standard error.

    Returns:
        Exit status 1 if a snake failed on more than `_MAX_FAILED_MOVE_FRACTION` of its moves,
        otherwise 0. The fraction excludes late moves of built-in snakes, because only a busy
        machine causes them.
    """
    local = {one.label: one for one in Entrant.parse_all(snakes) if not one.is_remote}
    status = 0
    for line in lines:
        failed = sum(line.problems.values())
        if line.snake not in local or not failed:
            continue
        kinds = ", ".join(f"{kind} {count}" for kind, count in line.problems.items())
        (sys.stderr if as_json else sys.stdout).write(
            f"{line.snake} failed on {failed} of {line.moves} moves, which the fallback played: "
            f"{line.error or kinds}\n"
        )
        is_own = snake_files(str(local[line.snake]))
        late = 0 if is_own else line.problems.get("timeout", 0)
        if failed - late > _MAX_FAILED_MOVE_FRACTION * line.moves:
            status = 1
    return status


def print_standings(lines: Sequence[StandingsRow], as_json: bool, points: bool = False) -> None:
    """Print the standings of a tournament as a table, with points or not, or as JSON."""
    if as_json:
        print_json([line.to_dict() for line in lines])
    elif lines:
        sys.stdout.write(format_table(lines, points))


def report_stop(command: str, error: BaseException, hint: str) -> int:
    """Print why a command stopped, for example an interruption or a full disk.

    Returns:
        The exit status: 130 for an interruption, otherwise 1.
    """
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write(f"interrupted; {hint}\n")
        return 130
    reason = describe_error(error).splitlines()[0]
    sys.stderr.write(f"battlesnake-gym {command}: {reason}; {hint}\n")
    return 1


def _build_sprt(arguments: argparse.Namespace) -> Sprt | None:
    """Build the sequential test of ``--sprt``, or return None if the option is absent.

    Raises:
        ValueError: If other options of the test are given, but ``--sprt`` is absent.
    """
    rates = {name: getattr(arguments, name) for name in ("alpha", "beta")}
    rates = {name: rate for name, rate in rates.items() if rate is not None}
    if arguments.sprt is not None:
        if (arguments.games or 0) % 2:
            raise ValueError(
                f"--sprt counts game pairs, so --games must be even, got {arguments.games}; try "
                f"{arguments.games + 1}"
            )
        return Sprt(*arguments.sprt, **rates)
    if rates:
        raise ValueError(f"--{next(iter(rates))} is an error rate of --sprt; also give --sprt 0 20")
    return None


def _tournament_settings(arguments: argparse.Namespace) -> TournamentSettings:
    """Build the settings of the tournament from the options."""
    has_search_limit = arguments.nodes is not None or arguments.move_time is not None
    if has_search_limit and arguments.timeout is not None:
        raise ValueError("--timeout has no effect with --nodes or --move-time; omit --timeout")
    width, height = arguments.board_size
    return TournamentSettings(
        snakes=tuple(arguments.snakes),
        game_spec=GameSpec(
            num_snakes=arguments.num_snakes or len(arguments.snakes),
            width=width,
            height=height,
            ruleset=arguments.ruleset,
            map=arguments.map,
            settings=Settings(**{name: getattr(arguments, name) for name in SETTING_NAMES}),
            max_turns=arguments.max_turns,
        ),
        seed=arguments.seed,
        timeout=DEFAULT_TIMEOUT_MS if arguments.timeout is None else arguments.timeout,
        address_policy=AddressPolicy.from_options(arguments),
        nodes=arguments.nodes,
        move_time_ms=arguments.move_time,
        is_match=arguments.sprt is not None,
    )


def add_jobs_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--jobs``."""
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1,
        help="number of games to play in parallel")  # fmt: skip


def add_database_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--database``."""
    parser.add_argument("--database", default=DEFAULT_DATABASE_URL, metavar="URL",
        help="database URL for the results")  # fmt: skip


def parser() -> Parser:
    """Create the argument parser."""
    defaults = Settings()
    parser = Parser(
        prog="battlesnake-gym arena",
        description="Play games between snakes and print a table with wins, draws, game length, "
        "latency, causes of elimination and ratings with 95% confidence intervals.",
        epilog="example: battlesnake-gym arena hungry cautious http://127.0.0.1:8000 "
        "--num-snakes 2 --games 20 --replays replays",
    )
    add = parser.add_argument
    add("snakes", nargs="*", metavar="SNAKE",
        help="snake to enter: a URL, a built-in snake, my_snake.py, snake.zip, policy.onnx, or "
        "policy.onnx+rules.py; LABEL=SOURCE sets its name in the table; optional "
        "with --web")  # fmt: skip
    add("--games", type=positive,
        help="games per group of snakes (default: 10); with --sprt the maximum number of games "
        "(default: unlimited)")  # fmt: skip
    add("--num-snakes", type=positive, metavar="N",
        help="snakes per game; 2 plays a round robin of duels (default: all entrants)")  # fmt: skip
    add("--board-size", type=size, default=(DEFAULT_BOARD_SIZE, DEFAULT_BOARD_SIZE), metavar="N",
        help="board size: N or WIDTHxHEIGHT (default: 11)")  # fmt: skip
    add("--ruleset", default="standard", choices=list(rules.RULESETS), help="ruleset")
    add("--map", default="standard", help="map name; see `battlesnake-gym maps`")
    add("--move-time", type=milliseconds, metavar="MS",
        help="CPU time per move for search snakes, in milliseconds; disables the response "
        "timeout")  # fmt: skip
    add("--sprt", type=bounded_number(float, -3000, 3000), nargs=2, metavar=("ELO0", "ELO1"),
        help="sequential test of snake 1 against snake 2: play game pairs until Elo difference >= "
        "ELO1 or <= ELO0 is accepted; try 0 20")  # fmt: skip
    add_jobs_option(parser)
    add("--ray-address", metavar="ADDRESS", help="run the games on a Ray cluster, two per CPU: "
        "HOST:PORT of the head node, or auto")  # fmt: skip
    add("--replays", type=output_dir, default=None, metavar="DIR",
        help="save a replay of every game in this directory")  # fmt: skip
    add("--web", action="store_true", help="serve the arena's web pages until interrupted; saves "
        "replays in --replays (default: replays)")  # fmt: skip
    add("--resume", action="store_true",
        help="resume the latest tournament with the same settings")  # fmt: skip
    add("--json", action="store_true", help="print the results as JSON")
    add("--points", action="store_true", help="sort the table by points for placement: 2 for the "
        "first place, 1 for the second")  # fmt: skip
    add("--alpha", type=bounded_number(float, 0, 1), metavar="RATE",
        help="SPRT: maximum probability of accepting ELO1 when the true difference is ELO0 "
        "(default: 0.05)")  # fmt: skip
    add("--beta", type=bounded_number(float, 0, 1), metavar="RATE",
        help="SPRT: maximum probability of accepting ELO0 when the true difference is ELO1 "
        "(default: 0.05)")  # fmt: skip
    add("--nodes", type=positive, metavar="N",
        help="nodes per move for search snakes, instead of a time limit; NAME@NODES sets the "
        "nodes of one snake")  # fmt: skip
    add("--timeout", type=positive, metavar="MS",
        help="response timeout per move, in milliseconds (default: 500)")  # fmt: skip
    add("--max-turns", type=positive, default=None,
        help="maximum number of turns; a longer game is a draw (default: no limit)")  # fmt: skip
    add("--seed", type=seed, default=1, help="random seed for start positions and food")
    add("--food-spawn-chance", type=bounded_number(int, 0, 100), default=defaults.food_spawn_chance,
        help="probability of new food per turn, in percent")  # fmt: skip
    add("--minimum-food", type=natural, default=defaults.minimum_food,
        help="minimum number of food cells on the board")  # fmt: skip
    add("--hazard-damage-per-turn", type=bounded_number(int, -100, 100),
        default=defaults.hazard_damage_per_turn,
        help="health points lost per turn in a hazard")  # fmt: skip
    add("--shrink-every-n-turns", type=positive, default=defaults.shrink_every_n_turns,
        help="number of turns between two shrinks of the board in royale games")  # fmt: skip
    add_view_radius_option(parser)
    add_database_option(parser)
    address_policy.add_page_options(parser, DEFAULT_PORT)
    add("--web-opponent", action="append", default=[], metavar="SNAKE",
        help="additional snake that visitors may play against; repeatable")  # fmt: skip
    add("--allow-visitor-urls", action="store_true",
        help="allow visitors to enter the URL of any snake")  # fmt: skip
    address_policy.add_options(parser)
    return parser

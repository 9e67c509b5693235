"""``battlesnake-gym arena``: let snakes play, and show which is stronger."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from tqdm import tqdm

from battlesnake_gym import rules
from battlesnake_gym.common.command_line import (
    Parser,
    bounded_number,
    milliseconds,
    natural,
    positive,
    print_error,
    seed,
    size,
    writable,
)
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import NodeLimitedStrategy
from battlesnake_heuristics.rating.process_pool import ProcessPool
from battlesnake_heuristics.rating.sprt import Sprt
from battlesnake_server import address_policy
from battlesnake_server.arena import result_verification, sprt_match
from battlesnake_server.arena.database import (
    DEFAULT_URL,
    Tournament,
    find_tournament,
    load_games,
    lock_database,
    open_database,
    with_retries,
)
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.results import store, summarise, table, to_json
from battlesnake_server.arena.tournament import (
    OnGameEvent,
    TournamentSettings,
    local_factory,
    parse_entrants,
    play_all,
    play_scheduled_games,
    ray_pool,
)
from battlesnake_server.onnx_policy import OnnxPolicy

if TYPE_CHECKING:
    from battlesnake_server.web.arena_site import Site


DEFAULT_REPLAYS = Path("replays")
DEFAULT_PORT = 8791
_DEFAULT_GAMES = 10
DEFAULT_TIMEOUT = 500
_DEFAULT_ERROR_RATE = 0.05
_BUSY = 1.25
"""Programs for each core, our games among them, from which on a tournament by the clock warns."""

_REST = "what was played is stored, and the same command with --resume plays the rest"


def main(argv: list[str] | None = None) -> int:
    """Play a tournament and print its table; the exit status is 2 for a wrong call."""
    arguments = parser().parse_args(argv)
    try:
        site = pool = None
        sprt = _sprt(arguments)
        if not arguments.snakes and not arguments.web:
            raise ValueError("name the snakes that play, or give --web to open the pages only")
        if arguments.address and (arguments.web or arguments.replays):
            raise ValueError(
                "games at --address are neither shown nor kept; leave --web and --replays out"
            )
        if arguments.snakes:
            setup = _setup(arguments)
            check(setup)
        engine = open_database(arguments.database)
        if arguments.web:
            arguments.replays = (arguments.replays or DEFAULT_REPLAYS).absolute()
            site = _open_site(arguments, engine)
        if arguments.snakes and arguments.address:
            pool = ray_pool(arguments.address, setup)
    except (ValueError, OSError, OverflowError) as error:
        return print_error("battlesnake-gym arena", error)
    with interruptible():
        try:
            status = _play(arguments, setup, sprt, engine, site, pool) if arguments.snakes else 0
            if site is not None and status == 0:
                site.wait()
            return status
        finally:
            if site is not None:
                site.close()
            engine.dispose()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within, the first SIGINT or SIGTERM is a ``KeyboardInterrupt``, and no other follows.

    Service managers send SIGTERM; processes that play games must not outlive this one. A second
    Ctrl-C does not disturb the end, which is the whole process's.
    """
    interrupted = False
    stops = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for stop in stops:
            signal.signal(stop, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in stops}
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)


def _open_site(arguments: argparse.Namespace, engine: Engine) -> Site:
    """Begin to show the pages; they need Flask, which the tournaments alone do not."""
    from battlesnake_server.web.arena_site import Site
    from battlesnake_server.web.roster import Roster

    invited = [*arguments.snakes, *arguments.invite]
    roster = Roster(
        invited, allow_urls=arguments.allow_urls, reach=address_policy.from_options(arguments)
    )
    return Site(
        engine, roster, arguments.replays, arguments.host, arguments.port, arguments.allow_host
    )


def _play(
    arguments: argparse.Namespace,
    setup: TournamentSettings,
    sprt: Sprt | None,
    engine: Engine,
    site: Site | None,
    pool: ProcessPool | None,
) -> int:
    """Play the tournament and print its table, or the match and its verdict."""
    try:
        with lock_database(engine):
            return _play_alone(arguments, setup, sprt, engine, site, pool)
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_REST}\n")
        return 130
    except (OSError, SQLAlchemyError) as error:  # a full disk, a database that has gone
        sys.stderr.write(f"battlesnake-gym arena: {first_line(error)}; {_REST}\n")
        return 1


def _say_if_busy(setup: TournamentSettings, jobs: int) -> None:
    """Warn where searches think by a clock that other programs share."""
    load, cores = getattr(os, "getloadavg", lambda: [0.0])()[0], os.cpu_count() or 1
    if setup.has_search_limit or load + jobs < _BUSY * max(cores, jobs):
        return
    local = [entrant for entrant in parse_entrants(setup.snakes) if not entrant.remote]
    if any(isinstance(local_factory(entrant)(1), NodeLimitedStrategy) for entrant in local):
        sys.stderr.write(
            f"this machine is busy (a load of {load:.1f} on {cores} cores): searches get less of "
            "their time than they would alone; --milliseconds 50 counts CPU time instead\n"
        )


def _play_alone(
    arguments: argparse.Namespace,
    setup: TournamentSettings,
    sprt: Sprt | None,
    engine: Engine,
    site: Site | None,
    pool: ProcessPool | None,
) -> int:
    tournament = begin(engine, setup, arguments.resume)
    announce = None if site is None else site.announce
    games = arguments.games or (None if sprt else _DEFAULT_GAMES)
    if arguments.timeout is None and arguments.address is None:
        _say_if_busy(setup, arguments.jobs)
    try:
        with pool or contextlib.nullcontext():
            run(
                engine, tournament, setup, games, arguments.jobs, arguments.replays, announce, sprt,
                pool,
            )  # fmt: skip
    finally:
        if sprt is None:
            show(engine, tournament, arguments.json)
        else:
            played = with_retries(engine, lambda session: load_games(session, tournament))
            as_json = json.dumps(sprt_match.to_json(played, setup, sprt), indent=2) + "\n"
            sys.stdout.write(as_json if arguments.json else sprt_match.text(played, setup, sprt))
    return 0


def show(engine: Engine, tournament: int, as_json: bool) -> None:
    """Print the table of a tournament."""
    lines = summarise(with_retries(engine, lambda session: load_games(session, tournament)))
    if as_json:
        sys.stdout.write(json.dumps(to_json(lines), indent=2) + "\n")
    elif lines:
        sys.stdout.write(table(lines))


def first_line(error: Exception) -> str:
    """What happened, without the statement that SQLAlchemy adds."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


def check(setup: TournamentSettings) -> None:
    """Raise ``ValueError`` where the set-up cannot be played: before any work, with the remedy."""
    if not setup.is_match and not 1 <= setup.num_snakes <= len(setup.snakes):
        raise ValueError(
            f"--per-game must be between 1 and the number of snakes ({len(setup.snakes)}), "
            f"got {setup.num_snakes}"
        )
    sprt_match.check(setup)
    if setup.timeout < 1:
        raise ValueError(f"--timeout must be 1 ms or more, got {setup.timeout}; try 500")
    game = Game(setup.ruleset, setup.map, setup.settings, setup.seed or 1)
    rules.start(game, setup.width, setup.height, [str(seat) for seat in range(setup.num_snakes)])
    for entrant in parse_entrants(setup.snakes, setup.reach):
        if entrant.remote:
            asyncio.run(check_responds(entrant.source, entrant.reach))
        elif entrant.is_policy:
            OnnxPolicy.load(entrant.policy).check_size(setup.width, setup.height)
            local_factory(entrant)  # broken rules are refused now
        else:
            local_factory(entrant)


def run(
    engine: Engine,
    tournament: int,
    setup: TournamentSettings,
    games: int | None,
    jobs: int,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    sprt: Sprt | None = None,
    pool: ProcessPool | None = None,
) -> None:
    """Play the games of the schedule that the database does not hold, storing each as it ends.

    With ``sprt``, those of a match until it knows its answer: ``games`` at most.
    """
    if replays is not None:
        replays.mkdir(parents=True, exist_ok=True)
    stored = with_retries(engine, lambda session: load_games(session, tournament))
    total, score = games, sprt_match.MatchScore()
    if sprt is None:
        assert games is not None
        done = {game.number for game in stored}
        total = games * math.comb(len(setup.snakes), setup.num_snakes)
        playing = play_all(setup, games, jobs, done, replays, announce, pool)
    else:
        score = sprt_match.MatchScore.of(stored)
        if sprt_match.is_over(score, sprt, games):
            return
        fixtures = sprt_match.remaining_games(setup, games, score)
        playing = play_scheduled_games(setup, fixtures, jobs, replays, announce, pool)
    with (
        contextlib.closing(playing) as results,
        tqdm(total=total, initial=len(stored), unit="game", disable=None) as bar,
    ):
        for result in results:
            if pool is not None:
                result_verification.verify_result(setup, result)
            game = store(engine, result, tournament, setup)
            bar.update()
            if sprt is not None:
                score.add(game)
                sprt_match.show_progress(score, sprt, bar, setup)
                if sprt_match.is_over(score, sprt, games):
                    return


def begin(engine: Engine, setup: TournamentSettings, resume: bool, **more: object) -> int:
    """The number of the tournament in the database: a new one, or the last of this set-up."""
    written = setup.to_dict() | more

    def find(session: Session) -> int:
        tournament = find_tournament(session, written) if resume else None
        if tournament is None:
            tournament = Tournament(setup=written)
            session.add(tournament)
            session.commit()
        return tournament.id

    return with_retries(engine, find)


def _sprt(arguments: argparse.Namespace) -> Sprt | None:
    """The test that ends the match; the settings of one are refused without the other."""
    if arguments.sprt is None:
        for name in ("alpha", "beta"):
            if getattr(arguments, name) is not None:
                raise ValueError(f"--{name} is an error rate of --sprt; give --sprt 0 20 too")
        return None
    rates = {name: getattr(arguments, name) or _DEFAULT_ERROR_RATE for name in ("alpha", "beta")}
    return Sprt(*arguments.sprt, **rates)


def _setup(arguments: argparse.Namespace) -> TournamentSettings:
    bounded = arguments.positions is not None or arguments.milliseconds is not None
    if bounded and arguments.timeout is not None:
        raise ValueError("--timeout is not kept with --positions or --milliseconds; leave it out")
    return TournamentSettings(
        snakes=tuple(arguments.snakes),
        num_snakes=arguments.per_game or len(arguments.snakes),
        width=arguments.width or arguments.size[0],
        height=arguments.height or arguments.size[1],
        ruleset=arguments.ruleset,
        map=arguments.map,
        settings=Settings(
            food_spawn_chance=arguments.food_spawn_chance,
            minimum_food=arguments.minimum_food,
            hazard_damage_per_turn=arguments.hazard_damage_per_turn,
            shrink_every_n_turns=arguments.shrink_every_n_turns,
        ),
        seed=arguments.seed,
        timeout=DEFAULT_TIMEOUT if arguments.timeout is None else arguments.timeout,
        max_turns=arguments.max_turns,
        reach=address_policy.from_options(arguments),
        nodes=arguments.positions,
        move_time_ms=arguments.milliseconds,
        is_match=arguments.sprt is not None,
    )


def parser() -> Parser:
    """The command's options."""
    usual = Settings()
    parser = Parser(
        prog="battlesnake-gym arena",
        description="Play games between snakes and print a table: wins, draws, turns, latencies "
        "and how they died, with ratings and their 95 % confidence intervals.",
        epilog="example: battlesnake-gym arena hungry cautious http://127.0.0.1:8000 --per-game 2 "
        "--games 20 --replays replays",
    )
    add = parser.add_argument
    add(
        "snakes",
        nargs="*",
        metavar="SNAKE",
        help="a URL, a snake's name, my_snake.py, snake.zip, a policy.onnx, or "
        "policy.onnx+rules.py, with rules of your own over it; LABEL=... names it in the table; "
        "with --web there may be none",
    )
    add("--games", type=positive,
        help="games of every group of snakes (default: 10); with --sprt the most that are played "
        "(default: no bound)")  # fmt: skip
    add("--per-game", type=positive,
        help="snakes in a game; 2 is a round-robin of duels (default: all)")  # fmt: skip
    add("--size", type=size, default="11", help="of the board: N, or WIDTHxHEIGHT")
    add("--ruleset", default="standard", choices=list(rules.RULESETS), help="ruleset")
    add("--map", default="standard", help="map")
    add("--milliseconds", type=milliseconds, metavar="MS",
        help="searching snakes think for MS milliseconds of CPU time a move, however busy the "
        "machine is, and no answer is late")  # fmt: skip
    add("--sprt", type=bounded_number(float, -3000, 3000), nargs=2, metavar=("ELO0", "ELO1"),
        help="is the first snake better than the second? Play pairs of games with the seats "
        "exchanged until it is known whether by ELO1 or more, or by ELO0 or less: try 0 20; with "
        "--per-game 4 each side plays two snakes")  # fmt: skip
    add("--jobs", type=positive, default=os.cpu_count() or 1, help="games at a time")
    add("--address", help="play on a Ray cluster that is running, two games for each of its CPUs: "
        "HOST:PORT of its head, or auto for the one that this machine belongs to")  # fmt: skip
    add("--replays", type=writable, default=None, metavar="DIR", help="keep a replay of every game")
    add("--web", action="store_true", help="pages with results, games and a board to play on until "
        "interrupted; keeps replays in the folder replays, or that of --replays")  # fmt: skip
    add("--resume", action="store_true", help="go on with the last tournament of this set-up")
    add("--json", action="store_true", help="print the results as JSON")
    add("--width", type=positive, help=argparse.SUPPRESS)  # the old names of --size
    add("--height", type=positive, help=argparse.SUPPRESS)
    add("--alpha", type=bounded_number(float, 0, 1), metavar="RATE",
        help="how often --sprt may say ELO1 where ELO0 holds (default: 0.05)")  # fmt: skip
    add("--beta", type=bounded_number(float, 0, 1), metavar="RATE",
        help="how often --sprt may say ELO0 where ELO1 holds (default: 0.05)")  # fmt: skip
    add("--positions", type=positive, metavar="N",
        help="searching snakes look at N positions a move, without a clock; one that is called "
        "NAME@POSITIONS keeps its own")  # fmt: skip
    add("--timeout", type=int, metavar="MS",
        help="milliseconds for an answer (default: 500)")  # fmt: skip
    add("--max-turns", type=positive, default=None, help="end longer games without a winner")
    add("--seed", type=seed, default=1, help="the same seed, the same starts and food")
    add("--food-spawn-chance", type=bounded_number(int, 0, 100), default=usual.food_spawn_chance,
        help="percent a turn")  # fmt: skip
    add("--minimum-food", type=natural, default=usual.minimum_food, help="food always there")
    add("--hazard-damage-per-turn", type=bounded_number(int, -100, 100), help="damage",
        default=usual.hazard_damage_per_turn)  # fmt: skip
    add("--shrink-every-n-turns", type=positive, default=usual.shrink_every_n_turns, help="royale")
    add("--database", default=DEFAULT_URL, metavar="URL", help="where the results are kept")
    address_policy.add_page_options(parser, DEFAULT_PORT)
    add("--invite", action="append", default=[], metavar="SNAKE",
        help="a URL, a name or a policy.onnx that people may play against")  # fmt: skip
    add("--allow-urls", action="store_true", help="let people play against any URL they give")
    address_policy.add_options(parser)
    return parser

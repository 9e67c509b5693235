"""``battlesnake-gym ladder``: a snake's rating among snakes of known strength."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    bounded_number,
    milliseconds,
    positive,
    print_error,
    seed,
)
from battlesnake_heuristics.rating.ladder import (
    DEFAULT_SETTINGS,
    Ladder,
    Placement,
    PlacementRun,
    Rung,
    load,
)
from battlesnake_heuristics.rating.process_pool import ProcessPool, run_tasks
from battlesnake_heuristics.rating.sprt import PAIR_SCORES
from battlesnake_server import address_policy
from battlesnake_server.arena import result_verification
from battlesnake_server.arena.database import (
    DEFAULT_URL,
    find_tournament,
    load_games,
    lock_database,
    open_database,
    with_retries,
)
from battlesnake_server.arena.results import row
from battlesnake_server.arena.sprt_match import MatchScore, games_per_cpu_hour
from battlesnake_server.arena.tournament import (
    GameResult,
    ScheduledGame,
    TournamentSettings,
    match_schedule,
    parse_entrants,
    play_in_pool,
    ray_pool,
)
from battlesnake_server.commands import arena_command

_DEFAULT_PRECISION_ELO = 75.0
_REST = "what was played is stored, and the same command with --resume goes on"


def main(argv: list[str] | None = None) -> int:
    """Place a snake, or print the ladder; the exit status is 2 for a wrong call."""
    arguments = parser().parse_args(argv)
    try:
        ladder = load(arguments.per_game)
        if arguments.snake is None:
            sys.stdout.write(_listing(ladder, arguments.json))
            return 0
        setup = _setup(arguments)
        arena_command.check(replace(setup, snakes=(arguments.snake,), num_snakes=1, is_match=False))
        engine = open_database(arguments.database)
        pool = (
            ray_pool(arguments.address, setup) if arguments.address else ProcessPool(arguments.jobs)
        )
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym ladder", error)
    placing, status = PlacementRun(ladder), 0
    with arena_command.interruptible():
        try:
            with lock_database(engine):
                _place(engine, placing, setup, arguments, pool)
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted; {_REST}\n")
            status = 130
        except (OSError, SQLAlchemyError) as error:  # a full disk, a database that has gone
            sys.stderr.write(
                f"battlesnake-gym ladder: {arena_command.first_line(error)}; {_REST}\n"
            )
            status = 1
        finally:
            engine.dispose()
    if placing.placement.games:
        label = parse_entrants(setup.snakes)[0].label
        sys.stdout.write(_report(label, placing, arguments.json))
    return status


def _setup(arguments: argparse.Namespace) -> TournamentSettings:
    """The games against any rung, whose name is still missing."""
    remote = parse_entrants([arguments.snake])[0].remote
    if arguments.timeout is not None and not remote:
        raise ValueError("--timeout is for a URL; give --milliseconds of CPU time or --positions")
    bounds = {"positions": arguments.positions, "milliseconds": arguments.milliseconds}
    if not remote and all(bound is None for bound in bounds.values()):
        bounds["milliseconds"] = DEFAULT_SETTINGS.move_time_ms
    return TournamentSettings(
        snakes=(arguments.snake,),
        num_snakes=arguments.per_game,
        seed=arguments.seed,
        timeout=arguments.timeout or arena_command.DEFAULT_TIMEOUT,
        max_turns=1000,
        is_match=True,
        reach=address_policy.from_options(arguments),
        **bounds,
    )


def _place(
    engine: Engine,
    placing: PlacementRun,
    setup: TournamentSettings,
    arguments: argparse.Namespace,
    pool: ProcessPool,
) -> None:
    """Play pairs of games until the interval is narrow enough or the time is up, storing each."""
    meetings = _Meetings(engine, setup, arguments.resume)
    for rung in placing.ladder.rungs:
        for outcome, count in enumerate(meetings.score(rung).pairs):
            for _ in range(count):
                placing.add(rung.name, outcome)
    ends = time.monotonic() + 60 * arguments.minutes

    def wanted() -> bool:
        known = _is_known(placing.placement, arguments.interval)
        return not known and time.monotonic() < ends

    def pairs() -> Iterator[_Pair]:
        while wanted():
            rung = placing.next_rung()
            yield rung, *meetings.pair(rung, placing.pairs_requested[rung.name] - 1)

    played, spent = 0, 0.0
    with pool, tqdm(unit="game", disable=None, initial=placing.placement.games) as bar:
        while wanted():
            for (rung, met, fixtures), results in run_tasks(pool, _play_pair, pairs()):
                results = [
                    replace(result, scheduled=fixture)
                    for fixture, result in zip(fixtures, results, strict=True)
                ]
                if arguments.address:
                    for result in results:
                        result_verification.verify_result(met, result)
                score = meetings.store(rung, results)
                placing.add(rung.name, score.outcome(fixtures[0].number))
                bar.update(2)
                played, spent = played + 2, spent + score.total_move_ms
                _tell(
                    placing.placement,
                    bar,
                    games_per_cpu_hour(played, spent) if setup.has_search_limit else "",
                )


_Pair = tuple[Rung, TournamentSettings, list[ScheduledGame]]
"""Two games against a rung."""


def _is_known(placement: Placement, interval: float) -> bool:
    return placement.games > 0 and placement.high - placement.low <= 2 * interval


def _tell(placement: Placement, bar: tqdm[Any], pace: str) -> None:
    text = ", ".join(filter(None, (str(placement), pace)))
    bar.set_postfix_str(text)
    if bar.disable and (placement.games // 2).bit_count() == 1:
        sys.stderr.write(f"{placement.games} games: {text}\n")


def _play_pair(pair: _Pair) -> list[GameResult]:
    _, setup, fixtures = pair
    return [play_in_pool(setup, fixture) for fixture in fixtures]


class _Meetings:
    """The matches against the rungs as the database keeps them: a tournament each."""

    def __init__(self, engine: Engine, setup: TournamentSettings, resume: bool) -> None:
        self._engine = engine
        self._setup = setup
        self._resume = resume
        self._tournaments: dict[str, int] = {}

    def _with(self, rung: Rung) -> TournamentSettings:
        return replace(self._setup, snakes=(*self._setup.snakes, rung.name))

    def score(self, rung: Rung) -> MatchScore:
        """What was played before, where that goes on."""
        if not self._resume:
            return MatchScore()
        setup = self._with(rung).to_dict()
        tournament = with_retries(self._engine, lambda session: find_tournament(session, setup))
        if tournament is None:
            return MatchScore()
        number = self._tournaments[rung.name] = tournament.id
        return MatchScore.of(
            with_retries(self._engine, lambda session: load_games(session, number))
        )

    def pair(self, rung: Rung, index: int) -> tuple[TournamentSettings, list[ScheduledGame]]:
        """The two games of the pair ``index``."""
        games: Iterator[ScheduledGame] = match_schedule(
            self._setup.num_snakes, self._setup.seed, 2 * index
        )
        return self._with(rung), [next(games), next(games)]

    def store(self, rung: Rung, results: list[GameResult]) -> MatchScore:
        """Keep a pair; returns the score of these two games."""
        setup = self._with(rung)
        if rung.name not in self._tournaments:
            self._tournaments[rung.name] = arena_command.begin(self._engine, setup, resume=False)
        labels = [entrant.label for entrant in parse_entrants(setup.snakes)]

        def add(session: Session) -> MatchScore:
            games = [row(result, self._tournaments[rung.name], labels) for result in results]
            session.add_all(games)
            session.commit()
            return MatchScore.of(games)

        return with_retries(self._engine, add)


def _listing(ladder: Ladder, as_json: bool) -> str:
    """The ladder itself, the strongest first."""
    rungs = sorted(ladder.rungs, key=lambda rung: -rung.elo)
    if as_json:
        return json.dumps([asdict(rung) for rung in rungs], indent=2) + "\n"
    lines = [f"{'rung':<20}   elo  95 % interval  games"]
    lines += [
        f"{rung.name:<20}{rung.elo:>6.0f}  {rung.low:>5.0f} to {rung.high:<5.0f} {rung.games:>6}"
        for rung in rungs
    ]
    return "\n".join(lines) + "\n"


def _report(label: str, placing: PlacementRun, as_json: bool) -> str:
    """The snake's rating, and its points against each rung that it met."""
    placement = placing.placement
    rows = {}
    for meeting in placement.results:
        pairs = sum(meeting.pairs)
        rows[meeting.other] = 2 * pairs, float(PAIR_SCORES @ meeting.pairs) / pairs
    if as_json:
        report = asdict(placement) | {
            "snake": label,
            "snakes": placing.ladder.snakes,
            "met": [
                {"rung": name, "games": games, "score": round(score, 3)}
                for name, (games, score) in rows.items()
            ],
        }
        return json.dumps(report, indent=2) + "\n"
    elo = {rung.name: rung.elo for rung in placing.ladder.rungs}
    kind = "duels" if placing.ladder.snakes == 2 else f"games of {placing.ladder.snakes}"
    lines = [f"{label}: {placement} in {placement.games} {kind}"]
    lines += [
        f"  {score:>4.0%} of the points in {games:>3} against {name} ({elo[name]:.0f})"
        for name, (games, score) in sorted(rows.items(), key=lambda row: elo[row[0]])
    ]
    return "\n".join(lines) + "\n"


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym ladder",
        description="Measure a snake's Elo by games against snakes whose Elo is known and does not "
        "move: simple ones, and a frozen search with 10 to 50,000 positions a move. Without a "
        "snake, print that ladder.",
        epilog="example: battlesnake-gym ladder minimax --milliseconds 5 --minutes 3",
    )
    add = parser.add_argument
    add("snake", nargs="?", metavar="SNAKE", help="a URL, a snake's name, or a policy.onnx")
    add("--per-game", type=int, default=2, choices=(2, 4),
        help="snakes in a game: duels, or two of each side")  # fmt: skip
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--positions", type=positive, metavar="N",
        help="positions a move, if it searches")  # fmt: skip
    budget.add_argument("--milliseconds", type=milliseconds, metavar="MS",
        help=f"milliseconds of CPU time a move (default: {DEFAULT_SETTINGS.move_time_ms:g})")  # fmt: skip
    budget.add_argument("--timeout", type=positive, metavar="MS",
        help="milliseconds for an answer of a URL (default: 500)")  # fmt: skip
    add("--interval", type=bounded_number(float, 1), default=_DEFAULT_PRECISION_ELO, metavar="ELO",
        help="stop when the Elo is known to +- this")  # fmt: skip
    add("--minutes", type=bounded_number(float, 0), default=10.0, help="stop after this")
    add("--seed", type=seed, default=1, help="the same seed, the same starts and food")
    add("--jobs", type=positive, default=os.cpu_count() or 1, help="games at a time")
    add("--address", help="play on a Ray cluster that is running: HOST:PORT of its head, or auto")
    add("--database", default=DEFAULT_URL, metavar="URL", help="where the results are kept")
    add("--resume", action="store_true", help="go on with the games of the same command before")
    add("--json", action="store_true", help="print the result as JSON")
    address_policy.add_options(parser)
    return parser

"""``battlesnake-gym ladder``: measure a snake's Elo on the ladder."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    add_view_radius_option,
    bounded_number,
    milliseconds,
    positive,
    reports_errors,
    seed,
)
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.rules import Settings
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_gym.snakes import make, may_use_time
from battlesnake_heuristics.rating.ladder import (
    DEFAULT_MATCH_SETTINGS,
    Ladder,
    Placement,
    PlacementRun,
    Rung,
)
from battlesnake_heuristics.rating.match import DUEL
from battlesnake_heuristics.rating.process_pool import ProcessPool, TaskPool, run_tasks
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import Database, StoredGame
from battlesnake_server.arena.results import compute_standings
from battlesnake_server.arena.sprt_match import MatchScore, format_games_per_cpu_hour
from battlesnake_server.arena.stored_tournament import StoredTournament, check_playable
from battlesnake_server.arena.tournament import (
    GameResult,
    ScheduledGame,
    TournamentSettings,
    open_ray_pool,
    play_in_pool,
)
from battlesnake_server.commands import arena_command

_DEFAULT_PRECISION_ELO = 75.0


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Measure a snake or print the ladder.

    Returns:
        The exit status:

        * 0: success;
        * 1: games could not be played, or the snake failed on too many moves;
        * 2: usage error;
        * 130: interruption.
    """
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.ray_address:
        command.reject_given(arguments, ["jobs"], "with --ray-address")
    ladder = Ladder.load(arguments.num_snakes)
    if arguments.snake is None:
        names = vars(arguments).keys() - {"snake", "num_snakes", "json"}
        command.reject_given(arguments, sorted(names), "without a snake")
        sys.stdout.write(_format_ladder(ladder, arguments.json))
        return 0
    address_policy.reject_unused_options(command, arguments, [arguments.snake])
    setup = _tournament_settings(arguments)
    check_playable(replace(setup, game_spec=replace(setup.game_spec, num_snakes=1), is_match=False))
    (entrant,) = setup.entrants
    if not entrant.is_remote and not may_use_time(str(entrant), make(str(entrant))):
        command.reject_given(arguments, ["move_time"], "on snakes that do not search")
    database = Database(arguments.database)
    pool = (
        open_ray_pool(arguments.ray_address, setup)
        if arguments.ray_address
        else ProcessPool(arguments.jobs)
    )
    run, status = PlacementRun(ladder), 0
    matches = _RungMatches(database, setup, arguments.resume)
    with arena_command.raise_on_stop_signal():
        try:
            with database.lock():
                _play_pairs(matches, run, setup, arguments, pool)
        except (KeyboardInterrupt, OSError, ValueError, SQLAlchemyError) as error:
            status = arena_command.report_stop("ladder", error, arena_command.RESUME_HINT)
        finally:
            database.close()
    if run.placement.games:
        label = setup.labels[0]
        sys.stdout.write(_format_placement(label, run, arguments.json))
    elif status == 0:
        sys.stderr.write(
            f"battlesnake-gym ladder: no games in --max-minutes {arguments.max_minutes:g}; give 1 "
            "or more\n"
        )
        status = 1
    lines = compute_standings(matches.games, matches.errors)
    return arena_command.print_failed_moves(lines, setup.snakes, arguments.json) or status


def _tournament_settings(arguments: argparse.Namespace) -> TournamentSettings:
    """Build the settings of the games from the options, without the opposing rung."""
    remote = SnakeSpec.parse(arguments.snake).is_remote
    if arguments.timeout is not None and not remote:
        raise ValueError("--timeout is for a URL; give --move-time or --nodes instead")
    limits = {"nodes": arguments.nodes, "move_time_ms": arguments.move_time}
    if not remote and all(limit is None for limit in limits.values()):
        limits["move_time_ms"] = DEFAULT_MATCH_SETTINGS.move_time_ms
    return TournamentSettings(
        snakes=(arguments.snake,),
        game_spec=GameSpec(
            arguments.num_snakes,
            settings=Settings(view_radius=arguments.view_radius),
            max_turns=DUEL.max_turns,
        ),
        seed=arguments.seed,
        timeout=arguments.timeout or arena_command.DEFAULT_TIMEOUT_MS,
        is_match=True,
        address_policy=AddressPolicy.from_options(arguments),
        **limits,
    )


def _play_pairs(
    matches: _RungMatches,
    run: PlacementRun,
    setup: TournamentSettings,
    arguments: argparse.Namespace,
    pool: TaskPool,
) -> None:
    """Play and store game pairs until the Elo is precise or the time limit is reached."""
    for rung in run.ladder.rungs:
        for outcome in matches.load_outcomes(rung):
            run.add_pair(rung.name, outcome)
    ends = time.monotonic() + 60 * arguments.max_minutes

    def needs_games() -> bool:
        placement = run.placement
        is_precise = placement.games > 0 and placement.ci_high - placement.ci_low <= (
            2 * arguments.precision
        )
        return not is_precise and time.monotonic() < ends

    def iter_pairs() -> Iterator[_Pair]:
        while needs_games():
            rung = run.next_rung()
            yield rung, *matches.schedule_pair(rung)

    played, move_ms = 0, 0.0
    with pool, tqdm(unit="game", disable=None, initial=run.placement.games) as bar:
        bar.write(
            f"game pairs against {len(run.ladder.rungs)} opponents of fixed Elo"
            + (" (fixed without a view radius)" if arguments.view_radius is not None else "")
            + ", until the 95% "
            f"confidence interval is at most +-{arguments.precision:g} Elo or "
            f"{arguments.max_minutes:g} min have passed",
            sys.stderr,
        )
        while needs_games():
            for (rung, _, scheduled_games), results in run_tasks(pool, _play_pair, iter_pairs()):
                results = [
                    replace(result, scheduled=scheduled)
                    for scheduled, result in zip(scheduled_games, results, strict=True)
                ]
                score = matches.store_pair(rung, results, verify=bool(arguments.ray_address))
                run.add_pair(rung.name, score.outcome(scheduled_games[0].number))
                bar.update(2)
                played, move_ms = played + 2, move_ms + sum(score.move_ms)
                _show_progress(
                    run.placement,
                    bar,
                    format_games_per_cpu_hour(played, move_ms) if setup.has_search_limit else "",
                )


_Pair = tuple[Rung, TournamentSettings, list[ScheduledGame]]
"""Rung, settings of the games, and the two scheduled games of a game pair."""


def _show_progress(placement: Placement, bar: tqdm[Any], speed: str) -> None:
    """Show the placement in the progress bar.

    If the bar is disabled, the function prints the placement.
    """
    text = ", ".join(filter(None, (str(placement), speed)))
    bar.set_postfix_str(text)
    if bar.disable and (placement.games // 2).bit_count() == 1:
        sys.stderr.write(f"{placement.games} games: {text}\n")


def _play_pair(pair: _Pair) -> list[GameResult]:
    """Play the two games of a game pair, in a process of the pool."""
    _, setup, scheduled_games = pair
    return [play_in_pool(setup, scheduled) for scheduled in scheduled_games]


class _RungMatches:
    """Matches against the rungs; each match is stored as a tournament.

    Attributes:
        games: Database rows of the games of this run.
    """

    def __init__(self, database: Database, setup: TournamentSettings, resume: bool) -> None:
        self._database = database
        self._setup = setup
        self._resume = resume
        self._tournaments: dict[str, StoredTournament] = {}
        self._scheduled: defaultdict[str, set[int]] = defaultdict(set)  # Pairs by rung.
        self.games: list[StoredGame] = []

    @property
    def errors(self) -> Mapping[str, str]:
        """The first exception of each snake, by label."""
        return ChainMap(*(one.errors for one in self._tournaments.values()))

    def _settings_against(self, rung: Rung) -> TournamentSettings:
        """Return the settings of the games against a rung."""
        return replace(self._setup, snakes=(*self._setup.snakes, rung.name))

    def load_outcomes(self, rung: Rung) -> list[int]:
        """Return the outcomes of earlier game pairs against a rung.

        The list is empty if the command does not resume an earlier run. The numbers of the pairs
        can have gaps, because pairs are stored as they end.
        """
        if not self._resume:
            return []
        tournament = StoredTournament.find(self._database, self._settings_against(rung))
        if tournament is None:
            return []
        self._tournaments[rung.name] = tournament
        score = MatchScore.from_games(tournament.load_games())
        pairs = {game // 2 for game in score.points}
        self._scheduled[rung.name] |= pairs
        return [
            score.outcome(2 * pair) for pair in pairs
            if {2 * pair, 2 * pair + 1} <= score.points.keys()
        ]  # fmt: skip

    def schedule_pair(self, rung: Rung) -> tuple[TournamentSettings, list[ScheduledGame]]:
        """Return the settings and the two games of the first game pair not yet scheduled."""
        scheduled = self._scheduled[rung.name]
        pair = next(pair for pair in itertools.count() if pair not in scheduled)
        scheduled.add(pair)
        games = self._setup.match_games(2 * pair)
        return self._settings_against(rung), [next(games), next(games)]

    def store_pair(
        self, rung: Rung, results: list[GameResult], *, verify: bool = False
    ) -> MatchScore:
        """Store the games of a game pair, and return the score of the game pair."""
        if rung.name not in self._tournaments:
            self._tournaments[rung.name] = StoredTournament.start_or_resume(
                self._database, self._settings_against(rung), resume=False
            )
        games = self._tournaments[rung.name].store(results, verify=verify)
        self.games += games
        return MatchScore.from_games(games)


def _format_ladder(ladder: Ladder, as_json: bool) -> str:
    """Format the rungs of the ladder, the highest Elo first."""
    rungs = sorted(ladder.rungs, key=lambda rung: -rung.elo)
    if as_json:
        return json.dumps([asdict(rung) for rung in rungs], indent=2) + "\n"
    lines = [f"{'rung':<20}   Elo   95% interval   games"]
    lines += [
        f"{rung.name:<20}{rung.elo:>6.0f}  {rung.ci_low:>5.0f} to {rung.ci_high:<5.0f} "
        f"{rung.games:>6}"
        for rung in rungs
    ]
    return "\n".join(lines) + "\n"


def _format_placement(label: str, run: PlacementRun, as_json: bool) -> str:
    """Format the snake's Elo, and its score against each rung."""
    placement = run.placement
    report = {"snake": label, "num_snakes": run.ladder.num_snakes, **placement.to_dict()}
    if as_json:
        return json.dumps(report, indent=2) + "\n"
    elo = {rung.name: rung.elo for rung in run.ladder.rungs}
    kind = "duels" if run.ladder.num_snakes == 2 else f"games of {run.ladder.num_snakes}"
    lines = [f"{label}: {placement} in {placement.games} {kind}"]
    lines += [
        f"  score {rung['score']:>4.0%} in {rung['games']:>3} games against {rung['name']} "
        f"({elo[rung['name']]:.0f})"
        for rung in sorted(report["rungs"], key=lambda rung: elo[rung["name"]])
    ]
    return "\n".join(lines) + "\n"


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym ladder",
        description="Measure a snake's Elo against opponents of fixed Elo: simple built-in snakes "
        "and a frozen search with 10 to 50,000 nodes per move. Without a snake, prints the ladder.",
        epilog="example: battlesnake-gym ladder minimax --move-time 5 --max-minutes 3",
    )
    add = parser.add_argument
    add("snake", nargs="?", metavar="SNAKE",
        help="snake to measure: a URL, a built-in snake, or a policy.onnx")  # fmt: skip
    add("--num-snakes", type=int, default=2, choices=(2, 4),
        help="snakes per game: 2 (duels), or 4 (two per side)")  # fmt: skip
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--nodes", type=positive, metavar="N",
        help="nodes per move, for search snakes")  # fmt: skip
    budget.add_argument("--move-time", type=milliseconds, metavar="MS",
        help="CPU time per move, in milliseconds "
        f"(default: {DEFAULT_MATCH_SETTINGS.move_time_ms:g})")  # fmt: skip
    budget.add_argument("--timeout", type=positive, metavar="MS",
        help="response timeout for a URL, in milliseconds (default: 500)")  # fmt: skip
    add("--precision", type=bounded_number(float, 1), default=_DEFAULT_PRECISION_ELO, metavar="ELO",
        help="stop when the 95%% confidence interval is at most +-ELO")  # fmt: skip
    add("--max-minutes", type=bounded_number(float, 0), default=10.0, metavar="MINUTES",
        help="time limit for the placement, in minutes")  # fmt: skip
    add_view_radius_option(parser)
    add("--seed", type=seed, default=1, help="random seed for start positions and food")
    arena_command.add_jobs_option(parser)
    add("--ray-address", metavar="ADDRESS",
        help="run the games on a Ray cluster: HOST:PORT of the head node, or auto")  # fmt: skip
    arena_command.add_database_option(parser)
    add("--resume", action="store_true", help="resume an earlier run of the same command")
    add("--json", action="store_true", help="print the result as JSON")
    address_policy.add_options(parser)
    return parser

"""A gauntlet: one snake against many opponents, in duels and larger games.

With ``--clock wall``, all snakes have the same timeout per move. With ``--clock cpu``, the
opponents are programs on this machine. The kernel reports the CPU time that all processes of an
opponent have used since the opponent's last response. On each turn, the first snake may use the
mean CPU time of its opponents.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Strategy
from battlesnake_heuristics.rating.match import use_cpu_clock
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_server.arena.database import StoredGame
from battlesnake_server.arena.guarded_strategy import guard
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.players import Body, HttpPlayer, LocalPlayer, MoveResponse, Player
from battlesnake_server.arena.results import Standings
from battlesnake_server.arena.tournament import Entrant, TournamentSettings

LEAGUE_ONLY_FIELDS = ("games_per_hour", "season_days", "health_check_minutes")
"""Fields of a league file that a gauntlet rejects."""

_CPU_TIMEOUT_FACTOR = 10
"""Factor by which ``--clock cpu`` multiplies the opponents' timeout.

The longer timeout prevents failed moves on a busy machine.
"""


def iter_matchups(
    plan: LeagueConfig, sources: Mapping[str, str], **other_fields: Any
) -> Iterator[TournamentSettings]:
    """Yield the settings of every matchup of the league file's first snake.

    On each board, the first snake plays against every group of opponents that fills the other
    seats. See `LeagueConfig.game_settings` for ``sources`` and ``other_fields``.
    """
    ours, *opponents = [entrant.name for entrant in plan.entrants]
    for board in dict.fromkeys(plan.boards):
        for group in itertools.combinations(opponents, board.num_snakes - 1):
            yield plan.game_settings(board, (ours, *group), sources, **other_fields)


def summarize(
    matchup: TournamentSettings, games: Sequence[StoredGame], plan: LeagueConfig, clock: str
) -> dict[str, Any]:
    """Return a summary of a matchup as a dict for JSON output.

    ``mean_move_ms`` is CPU time if ``clock`` is ``cpu``, and response time otherwise.
    """
    names, board = matchup.labels, matchup.game_spec
    ours, *opponents = names
    repositories = {entrant.name: entrant.repository for entrant in plan.entrants}
    histories = Standings(games).histories
    wins = histories[ours].wins
    low, high = wilson_interval(wins / len(games), len(games))
    return {
        "snake": ours,
        "opponents": {name: histories[name].wins for name in opponents},
        "repositories": [repositories[name] for name in opponents if repositories[name]],
        "board": f"{board.width}x{board.height} {board.ruleset} on {board.map}",
        "clock": clock,
        "timeout": plan.timeout,
        "mean_move_ms": {
            name: round(float(np.mean(list(histories[name].latencies.elements()))), 2)
            for name in names
        },
        "games": len(games),
        "wins": wins,
        "ci_low": round(low, 3),
        "ci_high": round(high, 3),
        "draws": histories[ours].draws,
        "failed_moves": {
            name: dict(problems) for name in names if (problems := histories[name].problems)
        },
    }


class _CpuMeteredPlayer(HttpPlayer):
    """Player for a local program whose CPU time per move is measured.

    ``meter`` returns the total CPU time in seconds of the program with a given name.
    """

    def __init__(self, entrant: Entrant, timeout: float, meter: Callable[[str], float]) -> None:
        super().__init__(entrant.source, _CPU_TIMEOUT_FACTOR * timeout, entrant.address_policy)
        self._meter = functools.partial(meter, entrant.label)
        self._before = 0.0
        self.cpu_seconds: list[float] = []

    async def start(self, body: Body) -> None:
        """Send ``POST url/start`` and exclude its CPU time from the first move."""
        await super().start(body)
        self._before = self._meter()

    async def move(self, body: Body) -> MoveResponse:
        """Send ``POST url/move`` and replace the response time with CPU time.

        The CPU time is the time that the program has used since its last response.
        """
        response = await super().move(body)
        now = self._meter()
        self.cpu_seconds.append(max(0.0, now - self._before))
        self._before = now
        return replace(response, milliseconds=1000 * self.cpu_seconds[-1])


class _EqualCpuPlayer(LocalPlayer):
    """Player for a strategy with the mean CPU time of its opponents.

    The opponents' CPU times are measured on the same turn.
    """

    def __init__(
        self, strategy: Strategy, timeout: float, opponents: Sequence[_CpuMeteredPlayer]
    ) -> None:
        super().__init__(strategy, timeout)
        self._guarded = guard(strategy)
        self._opponents = opponents
        self._turns = 0

    async def move(self, body: Body) -> MoveResponse:
        """Call the strategy with the CPU time that the opponents used on this turn."""
        self._turns += 1
        used = [
            player.cpu_seconds[-1]
            for player in self._opponents
            if len(player.cpu_seconds) == self._turns
        ]
        began = time.process_time()
        board = Board.from_api(body, tracker=self._session.eliminations)
        with use_cpu_clock(True):
            decision = self._guarded(board, float(np.mean(used)) if used else None)
        return MoveResponse.from_decision(decision, 1000 * (time.process_time() - began))


@contextlib.asynccontextmanager
async def open_equal_cpu_players(
    meter: Callable[[str], float], seated: Sequence[Entrant], timeout: float, seed: int
) -> AsyncIterator[list[Player]]:
    """Open players with equal CPU time per move, as a `tournament.OpenPlayers` after ``meter``.

    The first snake may use the mean CPU time of its opponents.

    Args:
        meter: Function that returns the total CPU time in seconds of the program with a given name.
        seated: The entrants, in seat order.
        timeout: Response timeout in seconds.
        seed: Seed of the first snake.
    """
    async with contextlib.AsyncExitStack() as stack:
        opponents = {}
        for entrant in seated:
            if entrant.is_remote:
                player = _CpuMeteredPlayer(entrant, timeout, meter)
                opponents[entrant.label] = await stack.enter_async_context(player)
        yield [
            opponents.get(entrant.label)
            or _EqualCpuPlayer(entrant.make_strategy(seed), timeout, list(opponents.values()))
            for entrant in seated
        ]


def format_table(lines: Sequence[dict[str, Any]]) -> str:
    """Format the matchups as a Markdown table, followed by the failed moves."""
    ours = lines[0]["snake"]
    heads = ("opponent", "repository, commit", "game", "time per move", "games", f"{ours} wins",
             "opponents' wins", "draws")  # fmt: skip
    marks = ("---", "---", "---", "---:", "---:", "---", "---:", "---:")
    rows = [heads, marks, *(_format_cells(line) for line in lines)]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    failed = sorted(
        {
            f"{name} {sum(row['failed_moves'].get(name, {}).get(kind, 0) for row in lines)} {kind}"
            for line in lines
            for name, counts in line["failed_moves"].items()
            for kind in counts
        }
    )
    return text + (f"\nFailed moves: {', '.join(failed)}.\n" if failed else "")


def _format_cells(line: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one row of the Markdown table."""
    opponents, games, move_ms = line["opponents"], line["games"], dict(line["mean_move_ms"])
    each = f" ({', '.join(map(str, opponents.values()))})" if len(opponents) > 1 else ""
    kind = "duel" if len(opponents) == 1 else f"{len(opponents) + 1} snakes"
    if line["board"] != "11x11 standard on standard":
        kind += f", {line['board']}"
    ours = f"{move_ms.pop(line['snake']):.1f} ms"
    clock = f"CPU: {ours}, opponents {', '.join(f'{mean:.1f}' for mean in move_ms.values())} ms"
    return (
        " + ".join(opponents),
        "; ".join(line["repositories"]),
        kind,
        clock if line["clock"] == "cpu" else f"wall clock, {line['timeout']} ms",
        str(games),
        f"{line['wins']}: {100 * line['wins'] / games:.0f}% ({100 * line['ci_low']:.0f} to "
        f"{100 * line['ci_high']:.0f})",
        f"{sum(opponents.values())}{each}",
        str(line["draws"]),
    )

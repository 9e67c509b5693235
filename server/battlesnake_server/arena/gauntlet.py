"""A snake against its rivals: duels with each, games of four with every three, and their table.

By the clock all have the same timeout. At equal CPU time the rivals are programs of this machine:
what a move cost one of them, all its processes and what it thought since its last answer, is read
from the kernel, and the snake that meets them may take as long: in games of several, their mean.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Strategy
from battlesnake_heuristics.rating.match import searches_on_cpu_clock
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_server.arena.database import StoredGame
from battlesnake_server.arena.league_config import LeagueBoard, LeagueConfig
from battlesnake_server.arena.players import (
    Body,
    HttpPlayer,
    LocalPlayer,
    MoveResponse,
    Player,
    open_client,
)
from battlesnake_server.arena.tournament import Entrant, OpenPlayers, local_factory

LEAGUE_ONLY = ("games_per_hour", "season_days", "health_minutes")
"""Fields of a league's file that a gauntlet does not have."""

_CPU_TIMEOUT_FACTOR = 10
"""Timeouts that a rival is waited for at equal CPU time: a busy machine makes nobody late."""


@dataclass(frozen=True, slots=True)
class Matchup:
    """One line of the table: the snake and the rivals that it meets, and the board."""

    names: tuple[str, ...]
    board: LeagueBoard


def matchups(plan: LeagueConfig) -> Iterator[Matchup]:
    """The first snake of the file against all groups of the others that a board has seats for."""
    ours, *rivals = [member.name for member in plan.members]
    for board in plan.boards:
        for group in itertools.combinations(rivals, board.num_snakes - 1):
            yield Matchup((ours, *group), board)


class CpuMeteredPlayer(HttpPlayer):
    """A program whose moves take CPU time: ``meter`` gives its seconds so far."""

    def __init__(self, url: str, timeout: float, client: aiohttp.ClientSession, meter: Meter):
        super().__init__(url, timeout, client)
        self._meter = meter
        self._before = 0.0
        self.spent: list[float] = []

    async def start(self, body: Body) -> None:
        """``POST url/start``; what that costs is not counted."""
        await super().start(body)
        self._before = self._meter()

    async def move(self, body: Body) -> MoveResponse:
        """``POST url/move``; the answer's milliseconds are of CPU time, since the last answer."""
        answer = await super().move(body)
        now = self._meter()
        self.spent.append(max(0.0, now - self._before))
        self._before = now
        return replace(answer, milliseconds=1000 * self.spent[-1])


Meter = Callable[[], float]


class EqualCpuPlayer(LocalPlayer):
    """A strategy that has the CPU time which its rivals took for the same turn."""

    def __init__(
        self, strategy: Strategy, timeout: float, rivals: Sequence[CpuMeteredPlayer]
    ) -> None:
        super().__init__(strategy, timeout)
        self._rivals = rivals
        self._turns = 0

    async def move(self, body: Body) -> MoveResponse:
        """Ask the strategy, after the rivals have answered; what it raises ends the game."""
        self._turns += 1
        asked = [one.spent[-1] for one in self._rivals if len(one.spent) == self._turns]
        began = time.process_time()
        board = Board.from_api(body, corpses=self._session.eliminations)
        with searches_on_cpu_clock(True):
            decision = self._session.strategy(board, float(np.mean(asked)) if asked else None)
        milliseconds = 1000 * (time.process_time() - began)
        return MoveResponse(decision.move, milliseconds, "", decision.shout, decision)


def at_equal_cpu_time(meter: Callable[[str], float]) -> OpenPlayers:
    """Opens players of which the first snake has the CPU time of the others, which are programs."""

    @contextlib.asynccontextmanager
    async def seat(
        seated: Sequence[Entrant], timeout: float, seed: int
    ) -> AsyncIterator[list[Player]]:
        async with contextlib.AsyncExitStack() as stack:
            rivals = {}
            for entrant in seated:
                if entrant.remote:
                    client = await stack.enter_async_context(open_client(entrant.reach))
                    rivals[entrant.label] = CpuMeteredPlayer(
                        entrant.source,
                        _CPU_TIMEOUT_FACTOR * timeout,
                        client,
                        functools.partial(meter, entrant.label),
                    )
            yield [
                rivals.get(entrant.label)
                or EqualCpuPlayer(local_factory(entrant)(seed), timeout, list(rivals.values()))
                for entrant in seated
            ]

    return seat


def summary(
    bout: Matchup, games: Sequence[StoredGame], plan: LeagueConfig, clock: str
) -> dict[str, Any]:
    """A line of the table for scripts; ``milliseconds`` are means a move, by the ``clock``."""
    ours, *rivals = bout.names
    of = {member.name: member.repository for member in plan.members}
    won = Counter(seat.snake for game in games for seat in game.seats if seat.won)
    spent: dict[str, list[float]] = {name: [] for name in bout.names}
    problems: dict[str, Counter[str]] = {name: Counter() for name in bout.names}
    for seat in (seat for game in games for seat in game.seats):
        spent[seat.snake] += seat.latencies
        problems[seat.snake].update(seat.problems)
    low, high = wilson_interval(won[ours] / len(games), len(games))
    board = bout.board
    return {
        "snake": ours,
        "rivals": {name: won[name] for name in rivals},
        "repositories": [of[name] for name in rivals if of[name]],
        "board": f"{board.width}x{board.height} {board.ruleset} on {board.map}",
        "clock": clock,
        "timeout": plan.timeout,
        "milliseconds": {name: round(float(np.mean(all_)), 2) for name, all_ in spent.items()},
        "games": len(games),
        "won": won[ours],
        "low": round(low, 3),
        "high": round(high, 3),
        "drawn": len(games) - won.total(),
        "lost_moves": {name: dict(counts) for name, counts in problems.items() if counts},
    }


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The table for people, in Markdown, and below it which moves were lost."""
    ours = lines[0]["snake"]
    heads = ("rival", "repository, commit", "game", "CPU time a move", "games", f"{ours} won",
             "rivals won", "drawn")  # fmt: skip
    marks = ("---", "---", "---", "---:", "---:", "---", "---:", "---:")
    rows = [heads, marks, *(_cells(line) for line in lines)]
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    lost = sorted(
        {
            f"{name} {sum(line['lost_moves'].get(name, {}).get(kind, 0) for line in lines)} {kind}"
            for line in lines
            for name, counts in line["lost_moves"].items()
            for kind in counts
        }
    )
    return text + (f"\nLost moves: {', '.join(lost)}.\n" if lost else "")


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    rivals, games, spent = line["rivals"], line["games"], dict(line["milliseconds"])
    each = f" ({', '.join(map(str, rivals.values()))})" if len(rivals) > 1 else ""
    kind = "duel" if len(rivals) == 1 else f"{len(rivals) + 1} snakes"
    if line["board"] != "11x11 standard on standard":
        kind += f", {line['board']}"
    ours = f"{spent.pop(line['snake']):.1f} ms"
    clock = f"{ours}, rivals {', '.join(f'{one:.1f}' for one in spent.values())} ms"
    return (
        " + ".join(rivals),
        "; ".join(line["repositories"]),
        kind,
        clock if line["clock"] == "cpu" else f"by the clock, {line['timeout']} ms",
        str(games),
        f"{line['won']}: {100 * line['won'] / games:.0f} % ({100 * line['low']:.0f} to "
        f"{100 * line['high']:.0f})",
        f"{sum(rivals.values())}{each}",
        str(line["drawn"]),
    )

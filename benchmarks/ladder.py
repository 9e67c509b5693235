"""Measures the ladder once: rungs of like strength play, and all Elo are fitted together.

    python benchmarks/ladder.py --state ladder-games.jsonl --minutes 60 --write
    python benchmarks/ladder.py --only minimax-2026@10000 minimax-2026@50000 --minutes 60 --write

Every pair of games is a line of the state file as soon as it has been played, and the same command
goes on from there. The games that ``battlesnake_heuristics/judge/ladder.json`` counts are not
played again and count with the new ones; ``--write`` puts the result there and empties the state;
what an interrupted run left there is not counted twice. The rungs do not move when other snakes are
measured, so this is for a sharper ladder only.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.common.files import write_atomically
from battlesnake_heuristics.judge import ladder
from battlesnake_heuristics.judge.match import Conditions, play_pair
from battlesnake_heuristics.judge.sprt import Z95

TARGET = Path(ladder.__file__).with_name("ladder.json")
SEED = 2026
SLOW = {"minimax-2026@10000": 0.3, "minimax-2026@50000": 0.12, "minimax-2026@2000": 0.6}
"""Rungs whose games are long, and the part of the others' pairs that they play."""

LIKE = {
    "minimax-2026@10": ("hungry", "cautious"),
    "minimax-2026@30": ("hungry", "cautious", "hunter"),
    "minimax-2026@100": ("hunter", "tree", "territory"),
    "minimax-2026@400": ("tree", "territory", "lookahead"),
    "minimax-2026@2000": ("territory", "lookahead"),
    "minimax-2026@10000": ("lookahead",),
}
"""Searching rungs and the simple snakes that are about as strong."""


class Meeting(NamedTuple):
    """Two rungs that play each other, and how many pairs of games at most."""

    snakes: int
    one: str
    other: str
    pairs: int


def meetings(pairs: int, only: Sequence[str] = ladder.NAMES) -> list[Meeting]:
    """Within each family the next two above, and between the families those of like strength.

    Those alone in which one of ``only`` plays.
    """
    plan: dict[tuple[str, str], float] = {}
    for family in (ladder.NAMES[: -len(ladder.POSITIONS)], ladder.NAMES[-len(ladder.POSITIONS) :]):
        for place, one in enumerate(family):
            for above, other in enumerate(family[place + 1 : place + 3]):
                plan[one, other] = (1.0, 0.4)[above]
    for search, simple in LIKE.items():
        plan |= {(one, search): 0.7 for one in simple}
    found = []
    for (one, other), part in plan.items():
        if one not in only and other not in only:
            continue
        part *= min(SLOW.get(one, 1.0), SLOW.get(other, 1.0))
        found += [Meeting(count, one, other, max(4, round(pairs * part))) for count in (2, 4)]
    return found


def schedule(plan: list[Meeting], done: set[tuple[int, str, str, int]]) -> Iterator[Any]:
    """What is still to be played, all meetings advancing alike."""
    tasks = [
        ((index + 0.5) / meeting.pairs, meeting, index)
        for meeting in plan
        for index in range(meeting.pairs)
    ]
    for _, meeting, index in sorted(tasks):
        if which(meeting._asdict() | {"index": index}) not in done:
            yield meeting, index


def play(meeting: Meeting, index: int) -> dict[str, Any]:
    """One pair of games as a line of the state."""
    one, other = (functools.partial(snakes.make, name) for name in (meeting.one, meeting.other))
    outcome, seconds = play_pair(Conditions(), one, other, SEED, index, meeting.snakes)
    return {**meeting._asdict(), "index": index, "outcome": outcome, "seconds": round(seconds, 3)}


def measure(
    state: Path, before: dict[str, Any], plan: list[Meeting], minutes: float, jobs: int
) -> None:
    """Play until all is played or the time is up."""
    done = counted(before) | {which(row) for row in read(state)}
    todo = list(schedule(plan, done))
    ends = time.monotonic() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with (
        state.open("a") as out,
        ProcessPoolExecutor(jobs, context) as pool,
        tqdm(total=len(todo), unit="pair") as bar,
    ):
        running: set[Future[dict[str, Any]]] = set()
        waiting = iter(todo)
        while True:
            while len(running) < jobs and time.monotonic() < ends:
                task = next(waiting, None)
                if task is None:
                    break
                running.add(pool.submit(play, *task))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                out.write(json.dumps(future.result()) + "\n")
                out.flush()
                bar.update()


def counted(before: dict[str, Any]) -> set[tuple[int, str, str, int]]:
    """The pairs that the data file counts."""
    return {
        (int(count), met["one"], met["other"], index)
        for count, meetings in before["meetings"].items()
        for met in meetings
        for index in range(sum(met["pairs"]))
    }


def which(row: dict[str, Any]) -> tuple[int, str, str, int]:
    """The pair that a line of the state is about."""
    return row["snakes"], row["one"], row["other"], row["index"]


def read(state: Path) -> list[dict[str, Any]]:
    """The pairs that were played."""
    return [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []


def summary(before: dict[str, Any], rows: list[dict[str, Any]], command: str) -> dict[str, Any]:
    """The data file: rungs with Elo, intervals and games, and what they follow from.

    ``before`` is what it held, whose games count too; ``rows`` are new ones, of which those
    that it counts already are left out.
    """
    known = counted(before)
    rows = [row for row in rows if which(row) not in known]
    ladders, met = {}, {}
    for count in (2, 4):
        meetings = joined(before["meetings"][str(count)], [r for r in rows if r["snakes"] == count])
        elo = ladder.fit(meetings, ladder.NAMES)
        ladders[str(count)] = [
            updated(rung, *elo[rung["name"]], meetings) for rung in before["ladders"][str(count)]
        ]
        met[str(count)] = [
            {"one": m.one, "other": m.other, "pairs": list(m.pairs)}
            for m in sorted(meetings, key=lambda m: (ladder.NAMES.index(m.one), m.other))
        ]
    minutes = before["cpu_minutes"] + sum(row["seconds"] for row in rows) / 60
    facts = {"command": command, "cpu_minutes": round(minutes, 1)}
    return before | facts | {"ladders": ladders, "meetings": met}


def updated(
    rung: dict[str, Any], elo: float, error: float, meetings: list[ladder.Meetings]
) -> dict[str, Any]:
    """The rung's line in the data file, from what has been played by now."""
    pairs = sum(sum(met.pairs) for met in meetings if rung["name"] in (met.one, met.other))
    low, high = round(elo - Z95 * error), round(elo + Z95 * error)
    return rung | {"elo": round(elo), "low": low, "high": high, "games": 2 * pairs}


def joined(met: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[ladder.Meetings]:
    """The meetings that the data file counts, and the new games."""
    pairs: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for one in met:
        pairs[one["one"], one["other"]] = list(one["pairs"])
    for row in rows:
        pairs[row["one"], row["other"]][row["outcome"]] += 1
    return [ladder.Meetings(one, other, tuple(counts)) for (one, other), counts in pairs.items()]


def main() -> None:
    """Read the options, play, and print the ladder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, default=Path("ladder-games.jsonl"))
    parser.add_argument("--pairs", type=int, default=60, help="of neighbours (default: 60)")
    parser.add_argument(
        "--only", nargs="+", default=ladder.NAMES, choices=ladder.NAMES, metavar="RUNG",
        help="rungs whose meetings are played (default: all)",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=60, help="wall-clock time (default: 60)")
    parser.add_argument("--jobs", type=int, default=2, help="games at a time (default: 2)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="replace heuristics/battlesnake_heuristics/judge/ladder.json",
    )
    args = parser.parse_args()
    before = json.loads(TARGET.read_text())
    measure(args.state, before, meetings(args.pairs, args.only), args.minutes, args.jobs)
    command = f"python benchmarks/ladder.py --pairs {args.pairs}"
    result = summary(before, read(args.state), command)
    for count, rungs in result["ladders"].items():
        print(f"{count} snakes")
        for rung in rungs:
            print(
                f"  {rung['name']:<20}{rung['elo']:>6} ({rung['low']} to {rung['high']}), "
                f"{rung['games']} games, {rung['seconds']:.2f} s each"
            )
    if args.write:
        write_atomically(TARGET, lambda part: part.write_text(json.dumps(result, indent=1) + "\n"))
        args.state.unlink()
        sys.stdout.write(f"wrote {TARGET.name}\n")


if __name__ == "__main__":
    main()

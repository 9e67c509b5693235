"""A cluster of APEX by events: who plays, counts, stores and learns when, on how many cores.

    python -m benchmarks.cluster_simulation

What each part spends was measured (`docs/scaling.md`); the flow is that of `mabs.dqn.apex`: runners
are asked for two fragments each, the driver hands on all that have come and then learns, if a batch
is due and there, and asks no runner while more is owed than allowed.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial


@dataclass(frozen=True)
class Parts:
    """A cluster; times are CPU-seconds."""

    runners: int
    shards: int = 2
    replay_ratio: float = 0.25
    cores: float = math.inf
    """Of all machines together; without a limit, every process has its own."""
    agent_steps: float = 3_470.0
    """Of a fragment."""
    play: float = 3_470 / 68_000
    """For a fragment, of its runner."""
    hand_on: float = 0.0018
    """For a fragment, of the driver."""
    step: float = 0.001
    """For every look at what has come, of the driver."""
    store: float = 0.0022
    """For a fragment, of a shard."""
    draw: float = 0.0032
    """For a batch, of a shard."""
    update: float = 0.0265
    """For a batch, of the learner, or of the slowest of several."""
    batch: float = 512.0
    bytes_a_step: float = 1_290.0
    network: float = 1.25e9
    """Bytes a second into the learner's machine."""


@dataclass(frozen=True)
class Seen:
    """What a simulated cluster does in a second; ``busy`` are parts of one, by kind of process."""

    agent_steps: float
    updates: float
    busy: dict[str, float]
    cpu: float
    """CPU-seconds of all processes."""


@dataclass
class _Server:
    """A process: one thing after the other."""

    kind: str
    needs_core: bool = True
    queue: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    working: bool = False
    seconds: float = 0.0


class _Machines:
    """Events in their order, and the cores that processes need."""

    def __init__(self, cores: float) -> None:
        self.now = 0.0
        self._free = cores
        self._waiting: deque[_Server] = deque()
        self._events: list[tuple[float, int, _Server, Callable[[], None]]] = []
        self._number = 0

    def do(self, server: _Server, seconds: float, then: Callable[[], None]) -> None:
        server.queue.append((seconds, then))
        self._begin(server)

    def _begin(self, server: _Server) -> None:
        if server.working or not server.queue:
            return
        server.working = True
        if server.needs_core and self._free < 1:
            self._waiting.append(server)
        else:
            self._work(server)

    def _work(self, server: _Server) -> None:
        self._free -= server.needs_core
        seconds, then = server.queue.popleft()
        server.seconds += seconds
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, server, then))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, server, then = heapq.heappop(self._events)
            self._free += server.needs_core
            server.working = False
            if self._waiting and self._free >= 1:
                self._work(self._waiting.popleft())
            then()
            self._begin(server)
        self.now = until


class _Apex:
    """The flow between the processes."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.machines = parts, _Machines(parts.cores)
        self.runners = [_Server("runner") for _ in range(parts.runners)]
        self.shards = [_Server("shard") for _ in range(parts.shards)]
        self.driver, self.network = _Server("driver"), _Server("network", needs_core=False)
        self.asked = [0] * parts.runners
        self.come: list[int] = []
        self.batches = 0
        self.owed = self.played = 0.0
        self.updates = self.taken = 0
        self.looking = False
        self._ask()

    def _ask(self) -> None:
        most = max(
            4 * self.parts.batch,
            self.parts.agent_steps * self.parts.runners * self.parts.replay_ratio,
        )
        if self.owed >= most and self.batches:
            return
        for number, runner in enumerate(self.runners):
            while self.asked[number] < 2:
                self.asked[number] += 1
                self.machines.do(runner, self.parts.play, partial(self._send, number))

    def _send(self, number: int) -> None:
        seconds = self.parts.agent_steps * self.parts.bytes_a_step / self.parts.network
        self.machines.do(self.network, seconds, partial(self._arrive, number))

    def _arrive(self, number: int) -> None:
        self.come.append(number)
        self._look()

    def _look(self) -> None:
        """One step of the driver, if there is anything to do."""
        due = self.owed >= self.parts.batch and self.batches > 0
        if self.looking or not (self.come or due):
            return
        self.looking = True
        self._ask()
        come, self.come = self.come, []
        seconds = self.parts.step + len(come) * self.parts.hand_on + due * self.parts.update
        self.machines.do(self.driver, seconds, partial(self._looked, come, due))

    def _looked(self, come: list[int], due: bool) -> None:
        self.looking = False
        for number in come:
            self.asked[number] -= 1
            shard = self.shards[self.taken % len(self.shards)]
            self.taken += 1
            self.owed += self.parts.agent_steps * self.parts.replay_ratio
            self.played += self.parts.agent_steps
            first = self.taken <= 2 * len(self.shards)
            self.machines.do(shard, self.parts.store, self._draw if first else _nothing)
        if due:
            self.batches -= 1
            self.updates += 1
            self.owed -= self.parts.batch
            self._draw()
        self._ask()
        self._look()

    def _draw(self) -> None:
        shard = self.shards[self.updates % len(self.shards)]
        self.machines.do(shard, self.parts.draw, self._drawn)

    def _drawn(self) -> None:
        self.batches += 1
        self._look()


def _nothing() -> None:
    pass


def simulate(parts: Parts, seconds: float = 20.0) -> Seen:
    """What a cluster does in a second, after a quarter of ``seconds`` to settle."""
    apex = _Apex(parts)
    servers = [*apex.runners, *apex.shards, apex.driver, apex.network]
    apex.machines.run(seconds / 4)
    before = apex.played, apex.updates, [server.seconds for server in servers]
    apex.machines.run(seconds)
    length = seconds * 3 / 4
    spent = [server.seconds - then for server, then in zip(servers, before[2], strict=True)]
    kinds: dict[str, list[float]] = {}
    for server, one in zip(servers, spent, strict=True):
        kinds.setdefault(server.kind, []).append(one / length)
    return Seen(
        agent_steps=(apex.played - before[0]) / length,
        updates=(apex.updates - before[1]) / length,
        busy={kind: sum(parts) / len(parts) for kind, parts in kinds.items()},
        cpu=sum(sum(parts) for kind, parts in kinds.items() if kind != "network"),
    )


HEAD = """
| runners | shards | learner | agent-steps/s | updates/s | runner busy | driver busy | shard busy \
| network busy |
|---:|---:|---|---:|---:|---:|---:|---:|---:|"""


def row(parts: Parts, learner: str) -> str:
    """A line of the table under `HEAD`."""
    seen = simulate(parts, seconds=20 + parts.runners / 2)  # all that was asked for first is done
    shares = (f"{seen.busy[kind]:.0%}" for kind in ("runner", "driver", "shard", "network"))
    return (
        f"| {parts.runners:,} | {parts.shards} | {learner} | {seen.agent_steps:,.0f} "
        f"| {seen.updates:,.1f} | {' | '.join(shares)} |"
    )


def main() -> int:
    """Print what clusters of 1 to 1,000 runners would do."""
    print(HEAD)
    for runners in (1, 2, 4, 8, 16, 32, 100, 300, 1_000):
        shards = max(2, -(-runners // 8))
        usual = Parts(runners, shards=shards)
        print(row(usual, "one core"))
        if runners > 1:
            print(row(replace(usual, update=usual.update / 40), "40 times as fast"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Model the training rate as a function of the number of env runners.

    python -m benchmarks.cluster_model

The benchmark prints the tables of ``docs/research/scaling.md``, which it calculates from the CPU
times of a fragment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_UNLIMITED_RUNNERS = 1e5
"""Number of env runners that counts as unlimited."""
_NETWORK_BYTES_PER_S = 1.25e9
"""Network bandwidth between two machines: 10 Gbit/s, in bytes per second."""
_RUNNERS_PER_SHARD = 8
"""Env runners per replay buffer shard. There are at least two shards."""


@dataclass(frozen=True)
class FragmentCosts:
    """Costs of one fragment, in CPU seconds or bytes."""

    moves: float
    """Number of moves in a fragment.

    The moves are the learner's moves or, with EXIT, searched moves.
    """
    play: float
    """CPU time of an env runner for one fragment, in seconds."""
    learn: float
    """CPU time of the learner thread for updates, in seconds."""
    overhead: float
    """CPU time of the learner thread for all other work, in seconds."""
    threads: float
    """CPU time of Ray's threads in the learner's process, in seconds."""
    size: float
    """Size of the fragment that the env runner sends, in bytes."""
    contention: float
    """Slowdown of an env runner by other env runners on the same machine.

    An env runner is slower by the factor 1 + ``contention`` * ln(env runners on the machine).
    """
    shard: float = 0.0
    """CPU time of a replay buffer shard, in seconds."""
    match: float = 0.0
    """CPU time of the env runners in matches, in seconds.

    The learner waits for the matches.
    """
    sends: float = 0.0
    """Number of weight updates that the learner sends to all env runners."""
    waits: bool = False
    """Whether env runners and the learner wait for each other (synchronous sampling)."""
    own_pace: bool = False
    """Whether the learner makes updates at its own rate, independent of fragments.

    ``learn`` is then the duration of one update, in seconds.
    """
    call: float = 5.8e-5
    """CPU time of the learner thread to send weights to one env runner, in seconds."""
    weights: float = 1.2e6
    """Size of the weights that the learner sends to each machine, in bytes."""
    runners_per_machine: int = 8
    """Number of env runners on each machine."""

    def component_seconds(self, runners: float) -> dict[str, float]:
        """Return the duration of each component per fragment, in seconds."""
        play = (
            self.play
            * (1 + self.contention * math.log(max(min(runners, self.runners_per_machine), 1)))
            / runners
        )
        sends = self.sends
        if self.waits:
            sends = 1 / runners
        if self.own_pace:
            sends = play / self.learn
        return {
            "runners": play,
            "learning": 0.0 if self.own_pace else self.learn,
            "fragments": self.overhead,
            "calls": self.call * runners * sends,
            "Ray's threads": self.threads,
            "shards": self.shard / max(2, -(-runners // _RUNNERS_PER_SHARD)),
            "network in": self.size / _NETWORK_BYTES_PER_S,
            "network out": self.weights
            * sends
            * -(-runners // self.runners_per_machine)
            / _NETWORK_BYTES_PER_S,
        }

    def moves_per_second(self, runners: int) -> float:
        """Return the number of moves per second with ``runners`` env runners."""
        parts = self.component_seconds(runners)
        thread = sum(parts.pop(name) for name in ("learning", "fragments", "calls"))
        if self.waits:
            return self.moves / (parts["runners"] + thread)
        return self.moves / (max(thread, *parts.values()) + self.match / runners)

    def saturating_runners(self, component: str) -> float:
        """Return the number of env runners that saturate the component ``component``."""
        runners = 0.1
        while (
            runners < _UNLIMITED_RUNNERS
            and self.component_seconds(runners)[component]
            < self.component_seconds(runners)["runners"]
        ):
            runners *= 1.01
        return runners


APEX_NAME = "APEX, replay ratio 0.25"
LATE_EXIT_NAME = "EXIT, late games"
_EXIT_COSTS = FragmentCosts(
    moves=6_000,
    play=0.285,
    learn=0.149,
    overhead=0.002,
    threads=0.002,
    size=1.2e6,
    contention=0.27,
    match=0.096,
)
MEASURED_COSTS = {
    APEX_NAME: FragmentCosts(
        moves=2_820,
        play=0.042,
        learn=0.035,
        overhead=0.0018,
        threads=0.0033,
        size=3.7e6,
        contention=0.26,
        shard=0.0096,
        sends=0.135,
        weights=1.33e6,
    ),
    "PPO": FragmentCosts(
        moves=12_000,
        play=0.168,
        learn=0.60,
        overhead=0.003,
        threads=0.003,
        size=23.6e6,
        contention=0.0,
        waits=True,
    ),
    "EXIT": _EXIT_COSTS,
    LATE_EXIT_NAME: replace(_EXIT_COSTS, play=1.45, learn=0.078, match=0.0),
    "DISTIL": FragmentCosts(
        moves=2_000,
        play=0.335,
        learn=0.76,
        overhead=0.0011,
        threads=0.0014,
        size=3.9e6,
        contention=0.06,
        own_pace=True,
    ),
}
"""Costs measured on an AMD EPYC (AVX-512 with bfloat16).

Fragments have the default sizes. The late games of EXIT were measured with 8 buffered iterations.
"""


def _format_tables() -> list[str]:
    """Format the two tables of docs/research/scaling.md.

    The tables contain speedups and numbers of saturating env runners.
    """
    counts, parts = (
        (2, 4, 8, 16, 100, 1000),
        [*next(iter(MEASURED_COSTS.values())).component_seconds(1)][1:],
    )
    speedup = [["training", "moves per second with 1", *(f"{count:,}" for count in counts)]]
    saturating = [["training", *parts]]
    for name, costs in MEASURED_COSTS.items():
        one = costs.moves_per_second(1)
        speedup.append(
            [
                name,
                f"{one:,.0f}",
                *(_format_number(costs.moves_per_second(count) / one) for count in counts),
            ]
        )
        most = [costs.saturating_runners(part) for part in parts]
        saturating.append(
            [
                name,
                *(
                    "" if runners >= _UNLIMITED_RUNNERS else _format_number(runners)
                    for runners in most
                ),
            ]
        )
    lines = []
    for table in (speedup, saturating):
        header, *rows = [f"| {' | '.join(row)} |" for row in table]
        lines += [header, "|---|" + "---:|" * (len(table[0]) - 1), *rows, ""]
    return lines[:-1]


def _format_number(number: float) -> str:
    """Format a number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.15g}"


if __name__ == "__main__":
    print("\n".join(_format_tables()))

"""What the live snake counts, in Prometheus' own format."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram, in seconds; most games allow 0.5."""


class Metrics:
    """The counters of one application, in a registry of their own."""

    def __init__(self, games_alive: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, CPU seconds, open files
        self.moves = Counter(
            "battlesnake_moves",
            "Moves answered, by what chose them: the strategy or the fallback.",
            ["chosen_by"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "battlesnake_move_seconds",
            "Seconds from the arrival of a move request to its answer.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.timeouts_avoided = Counter(
            "battlesnake_timeouts_avoided",
            "Moves that the fallback chose because the strategy was not ready in time.",
            registry=self.registry,
        )
        self.strategy_errors = Counter(
            "battlesnake_strategy_errors",
            "Moves that the fallback chose because the strategy raised an exception.",
            registry=self.registry,
        )
        self.bad_requests = Counter(
            "battlesnake_bad_requests",
            "Requests refused as malformed.",
            registry=self.registry,
        )
        self.unread_fields = Counter(
            "battlesnake_unread_fields",
            "Parts of requests that could not be read and were ignored.",
            registry=self.registry,
        )
        games = Gauge("battlesnake_games_alive", "Games being played.", registry=self.registry)
        games.set_function(games_alive)

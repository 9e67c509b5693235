"""Metrics of the live snake, in Prometheus format."""

from __future__ import annotations

import functools
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 2.5)
"""Upper bounds of the latency histogram in seconds.

Most games have a timeout of 0.5 s.
"""


class Metrics:
    """Metrics of one application, in a separate registry."""

    def __init__(self, active_games: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        # The collector adds metrics of memory, CPU time and open files.
        ProcessCollector(registry=self.registry)
        counter = functools.partial(Counter, registry=self.registry)
        self.moves = counter(
            "battlesnake_moves",
            "Moves, by their source: the strategy or the fallback.",
            ["chosen_by"],
        )
        self.move_seconds = Histogram(
            "battlesnake_move_seconds",
            "Seconds from the arrival of a move request to its response.",
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.fallback_moves_on_timeout = counter(
            "battlesnake_fallback_moves_on_timeout",
            "Moves that the fallback chose because the strategy missed the deadline.",
        )
        self.strategy_errors = counter(
            "battlesnake_strategy_errors",
            "Moves that the fallback chose because the strategy raised an exception.",
        )
        self.bad_requests = counter("battlesnake_bad_requests", "Requests rejected as malformed.")
        self.ignored_fields = counter(
            "battlesnake_ignored_fields",
            "Fields of requests that could not be read and were ignored.",
        )
        games = Gauge("battlesnake_active_games", "Active games.", registry=self.registry)
        games.set_function(active_games)

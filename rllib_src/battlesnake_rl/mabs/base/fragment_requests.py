"""Requests for fragments that env runners play while the learner trains."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.env_runner_group import EnvRunnerGroup

_GATHER_TIMEOUT_S = 0.05
"""Maximum seconds to gather further fragments after the first fragment."""

WAIT_TIMEOUT_S = 1.0
"""Maximum seconds to wait for a fragment before the next health check."""


class FragmentRequests:
    """Requests for fragments to the env runners of a group.

    This process owns all fragments, so a fragment outlives its env runner. If an env runner fails,
    Ray's error therefore identifies the env runner.

    Args:
        group: The env runners.
        config: Configuration with ``max_requests_in_flight_per_env_runner`` and
            ``sample_timeout_s``, the seconds without a fragment after which a warning is logged.
    """

    def __init__(self, group: EnvRunnerGroup, config: AlgorithmConfig) -> None:
        self._manager = group._worker_manager
        self._max_in_flight: int = config.max_requests_in_flight_per_env_runner
        self._stall_timeout_s: float = config.sample_timeout_s
        self._pending: dict[ray.ObjectRef, tuple[int, ray.ObjectRef]] = {}
        self.in_flight: Counter[int] = Counter()
        """Number of requests in flight, by index of the env runner."""
        self._waiting_since: float | None = None

    def send(self) -> None:
        """Request fragments until each healthy env runner has the maximum in flight."""
        actors = self._manager.actors()
        for runner in self._manager.healthy_actor_ids():
            while self.in_flight[runner] < self._max_in_flight:
                fragment, info = actors[runner].sample_fragment.options(num_returns=2).remote()
                self._pending[info] = runner, fragment
                self.in_flight[runner] += 1

    def receive(self, timeout_s: float | None = None) -> list[tuple[Any, dict[str, Any]]]:
        """Return references to all finished fragments, each with its step count and metrics.

        If no fragment is ready, the method waits at most ``timeout_s`` seconds for the first
        fragment, by default `WAIT_TIMEOUT_S`. Failed env runners are marked as unhealthy.
        """
        timeout_s = WAIT_TIMEOUT_S if timeout_s is None else timeout_s
        waiting = list(self._pending)
        if not waiting:  # No env runner is healthy.
            time.sleep(min(timeout_s, _GATHER_TIMEOUT_S))
            return []
        # Processing several fragments at once costs less than processing each fragment separately.
        # Env runners do not wait meanwhile, because each env runner has a second request.
        gather_s = min(timeout_s, _GATHER_TIMEOUT_S)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=gather_s)
        if not ready and timeout_s:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout_s)
        received = []
        for reference in ready:
            runner, fragment = self._pending.pop(reference)
            self.in_flight[runner] -= 1
            try:
                received.append((fragment, ray.get(reference)))
            except RayActorError:
                self._manager.set_actor_state(runner, healthy=False)
        self._warn_if_stalled(bool(received) or not timeout_s)
        return received

    def _warn_if_stalled(self, received: bool) -> None:
        """Log a warning if the learner has waited too long, and after each further timeout."""
        now = time.monotonic()
        if received or self._waiting_since is None:
            self._waiting_since = None if received else now
        elif now > self._waiting_since + self._stall_timeout_s:
            self._waiting_since = now
            logging.getLogger(__name__).warning(
                "no env runner has finished a fragment for %g s (sample_timeout_s); "
                "the learner waits",
                self._stall_timeout_s,
            )

"""Process pool on a Ray cluster, with the interface of `ProcessPool`."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Self

import ray

from battlesnake_gym.common.temporary_dirs import temporary_dir
from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.cluster.ray_node import cluster_resources, ray_connection

_TASKS_PER_CPU = 2
"""Number of submitted tasks per CPU; with 2 tasks, no CPU waits for its next task."""

_CPU_COUNT_INTERVAL_S = 1.0
"""Interval between two counts of the cluster's CPUs, in seconds.

Counting the CPUs is slower than submitting a task.
"""

_CANCEL_TIMEOUT_S = 30.0
"""Time limit of the cancellation of running tasks, in seconds."""


class RayPool:
    """Process pool on all CPUs of a Ray cluster.

    If a process or a machine is lost, Ray repeats the lost tasks.

    Args:
        address: ``HOST:PORT`` of the head node, or ``auto``.
        files: Relative paths of files that the tasks need. The tasks find the files at the same
            relative paths.

    Raises:
        OSError: If no Ray cluster responds at ``address``.
    """

    def __init__(self, address: str, files: Iterable[Path]) -> None:
        self._open = contextlib.ExitStack()
        folder = self._open.enter_context(temporary_dir("pool"))
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path)
        try:
            self._open.enter_context(ray_connection(address, {"working_dir": str(folder)}))
        except ClusterError as error:
            self._open.close()
            raise ConnectionError(error) from None
        self._count_cpus()
        self._call = ray.remote(max_retries=-1)(_run_task)
        self._running: dict[Future[Any], ray.ObjectRef[Any]] = {}

    def _count_cpus(self) -> None:
        """Update `jobs` to the number of CPUs of the cluster."""
        self.jobs = _TASKS_PER_CPU * max(1, cluster_resources()[0])
        self._counted_at = time.monotonic()

    def submit(self, work: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Submit a task.

        The method updates the number of CPUs at most every `_CPU_COUNT_INTERVAL_S` seconds.
        """
        if time.monotonic() > self._counted_at + _CPU_COUNT_INTERVAL_S:
            self._count_cpus()
        task = self._call.remote(work, *arguments)
        future: Future[Any] = task.future()
        self._running[future] = task
        future.add_done_callback(self._running.pop)
        return future

    def terminate(self) -> None:
        """Cancel all running tasks.

        Ray can miss a task that is just being sent to a node, so the tasks are canceled until all
        have ended, or for `_CANCEL_TIMEOUT_S`.
        """
        until = time.monotonic() + _CANCEL_TIMEOUT_S
        while self._running and time.monotonic() < until:
            for task in list(self._running.values()):
                ray.cancel(task, force=True)
            wait(list(self._running), timeout=1)

    def __enter__(self) -> Self:
        # Ray reports lost processes on stdout, which is reserved for results.
        self._open.enter_context(contextlib.redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()


def _run_task(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``work`` in a Ray task, and return its result."""
    return work(*arguments)

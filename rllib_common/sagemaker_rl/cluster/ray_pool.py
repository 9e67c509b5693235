"""A pool of a Ray cluster's processes, with the face of ``game_queue.Pool``."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import ray

from sagemaker_rl.cluster.ray_node import connected_ray
from sagemaker_rl.cluster.rendezvous import ClusterError

_TASKS_PER_CPU = 2
"""Tasks for each CPU, so that none waits for the next one's way."""

_CPU_COUNT_INTERVAL_S = 1.0
"""Seconds after which CPUs are counted again: the answer takes longer than to hand out a task."""


class RayPool:
    """All CPUs of the cluster at ``address``; ``files`` with relative paths are there too.

    Ray begins anew what was lost with its process or machine. Raises ``OSError`` where there is no
    cluster.
    """

    def __init__(self, address: str, files: Iterable[Path]) -> None:
        self._open = contextlib.ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        for path in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path)
        try:
            cpus, _ = self._open.enter_context(connected_ray(address, {"working_dir": str(folder)}))
        except ClusterError as error:
            self._open.close()
            raise ConnectionError(error) from None
        self.jobs, self._counted = _TASKS_PER_CPU * cpus, time.monotonic()
        self._call = ray.remote(max_retries=-1)(_call)
        self._going: dict[Future[Any], ray.ObjectRef[Any]] = {}

    def submit(self, work: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Begin a task; machines that have come or gone count within `_CPU_COUNT_INTERVAL_S` seconds."""
        if time.monotonic() > self._counted + _CPU_COUNT_INTERVAL_S:
            self._counted = time.monotonic()
            self.jobs = _TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 0)))
        task = self._call.remote(work, *arguments)
        future: Future[Any] = task.future()
        self._going[future] = task
        future.add_done_callback(self._going.pop)
        return future

    def abandon(self) -> None:
        """End the games that are on."""
        for task in list(self._going.values()):
            ray.cancel(task, force=True)

    def __enter__(self) -> Self:
        # Where Ray says what was lost; stdout is for results.
        self._open.enter_context(contextlib.redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()


def _call(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)

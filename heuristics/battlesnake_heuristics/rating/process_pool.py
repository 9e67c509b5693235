"""A process pool for games. The pool replaces killed processes.

The tasks of killed processes are retried. Because a task may run again, the result must depend on
the task alone, for example on a seed.

>>> with ProcessPool(1) as pool:
...     sorted(run_tasks(pool, abs, [-1, -2]))
[(-2, 2), (-1, 1)]
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import reprlib
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any, Self, TypeVar

MAX_TASK_ATTEMPTS = 5
"""Maximum number of attempts of a task whose process is killed.

After the last attempt, the task is the likely cause.
"""

WORKER_TERMINATE_TIMEOUT_S = 5.0
"""Time in which an interrupted process must exit voluntarily, in seconds."""

_SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""Environment variable that has the effect of ``python -P``."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Initializer = Callable[[], object]
Prepare = Callable[[], contextlib.AbstractContextManager[Initializer | None]]
"""Context manager of a pool process, which yields an initializer.

A new process calls the initializer first. The context exits with the process.
"""


class InterruptedBySignal(KeyboardInterrupt):
    """Error raised if a signal interrupts the games.

    The subclass distinguishes the signal from a ``KeyboardInterrupt`` that a snake raises.
    """


def run_tasks(
    pool: ProcessPool, work: Callable[[Task], Result], tasks: Iterable[Task]
) -> Generator[tuple[Task, Result], None, None]:
    """Run ``work`` on each task and yield the tasks with their results.

    Results are yielded in order of completion. The pool takes the next task from the iterable when
    a process is free. ``tasks`` may therefore be endless and may depend on earlier results. Closing
    the generator terminates the running tasks.

    Args:
        pool: Processes to use.
        work: Function of one task; must be picklable.
        tasks: Tasks; must be picklable.

    Raises:
        ChildProcessError: If the process of a task was killed `MAX_TASK_ATTEMPTS` times.
        Exception: Any exception of ``work``.
    """
    waiting = ((task, 1) for task in tasks)
    again: list[tuple[Task, int]] = []
    going: dict[Future[Result], tuple[Task, int]] = {}
    try:
        while True:
            free = max(
                0, pool.jobs - len(going)
            )  # The number of jobs may decrease, e.g. in a Ray pool.
            for task, attempts in itertools.islice(itertools.chain(again, waiting), free):
                going[pool.submit(work, task)] = task, attempts
            again = again[free:]
            if not going:
                return
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                task, attempts = going.pop(future)
                if not _is_lost(future):
                    yield task, future.result()
                elif attempts == MAX_TASK_ATTEMPTS:
                    raise ChildProcessError(
                        f"{MAX_TASK_ATTEMPTS} processes were killed during {reprlib.repr(task)}; "
                        "if memory is short, try fewer --jobs"
                    )
                else:
                    again.append((task, attempts + 1))
    except BaseException:
        pool.terminate()
        raise


def _is_lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


class ProcessPool:
    """A pool of processes, which ignore Ctrl-C.

    The parent process terminates the pool's processes. If a process is killed, only the task of
    that process is lost, and a new process replaces it.

    Args:
        jobs: Number of processes.
        prepare: Context of each process, which returns the function that the process calls first.
    """

    def __init__(self, jobs: int, prepare: Prepare = contextlib.nullcontext) -> None:
        self.jobs = jobs
        self._prepare = prepare
        self._workers: list[_Worker] = []

    def submit(self, work: Callable[..., Result], /, *arguments: Any) -> Future[Result]:
        """Start a task in a free process.

        The returned future raises ``BrokenProcessPool`` if the process is killed.
        """
        worker = next((worker for worker in self._workers if worker.task.done()), None)
        if worker is None:
            worker = _Worker(self._prepare)
            self._workers.append(worker)
        try:
            return worker.submit(work, *arguments)
        except BrokenProcessPool:
            self._workers.remove(worker)
            worker.close()
            return self.submit(work, *arguments)

    def terminate(self) -> None:
        """Terminate all running tasks and processes.

        Processes that do not exit in time are killed.
        """
        processes = [process for worker in self._workers for process in worker.processes]
        for process in processes:
            process.terminate()
        wait([worker.task for worker in self._workers], WORKER_TERMINATE_TIMEOUT_S)
        for process in processes:
            process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._workers:
            worker.close()


class _Worker:
    """A worker process. The process starts with the first task."""

    def __init__(self, prepare: Prepare) -> None:
        self.task: Future[Any] = Future()
        self.task.set_result(None)  # Ctrl-C may arrive before the first task.
        self._prepared = contextlib.ExitStack()
        initializer = self._prepared.enter_context(prepare())
        context = multiprocessing.get_context("spawn")
        with _safe_path():  # The pool's semaphores start multiprocessing's resource tracker.
            self._executor = ProcessPoolExecutor(1, context, _initialize_worker, (initializer,))

    @property
    def processes(self) -> list[multiprocessing.Process]:
        """The worker process, or an empty list if no process is running."""
        return list((self._executor._processes or {}).values())

    def submit(self, work: Callable[..., Result], /, *arguments: Any) -> Future[Result]:
        """Start a task while SIGINT is blocked, so that the new process inherits the mask."""
        with masked(signal.SIGINT), _safe_path():
            task = self.task = self._executor.submit(work, *arguments)
        task.add_done_callback(lambda task: self._prepared.close() if _is_lost(task) else None)
        return task

    def close(self) -> None:
        """Wait for the process to exit."""
        self._executor.shutdown()
        self._prepared.close()


@contextlib.contextmanager
def masked(number: int, block: bool = True) -> Iterator[None]:
    """Block or unblock a signal within the context.

    The function does nothing on Windows.
    """
    if sys.platform == "win32":
        yield
        return
    how = signal.SIG_BLOCK if block else signal.SIG_UNBLOCK
    before = signal.pthread_sigmask(how, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Keep the current folder off the path of Python processes started in the context.

    New processes run ``python -c``, so a user's file named like a standard module, such as
    ``random.py``, would replace that module.
    """
    before = os.environ.get(_SAFE_PATH_VARIABLE)
    os.environ[_SAFE_PATH_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH_VARIABLE]
        else:
            os.environ[_SAFE_PATH_VARIABLE] = before


busy = False
"""Whether ``KeyboardInterrupt`` must stop the current task of this pool process."""


def _initialize_worker(initializer: Initializer | None) -> None:
    signal.signal(signal.SIGTERM, _on_sigterm)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if initializer is not None:
        initializer()


def _exit_with_parent() -> None:
    """Exit when the parent process has ended.

    The parent process may also have been killed.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    if not busy:
        os._exit(128 + number)
    raise InterruptedBySignal  # The pool returns this exception to the parent process.

"""A process pool for games.

The pool replaces killed processes and repeats their tasks. Because a task may run twice, the result
must depend on the task alone, for example on a seed.

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
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any, Protocol, Self, TypeVar

from battlesnake_gym.common.signals import mask_signal

MAX_TASK_ATTEMPTS = 5
"""Maximum number of attempts of a task whose process is killed.

After so many attempts, the task itself is the probable cause.
"""

WORKER_TERMINATE_TIMEOUT_S = 5.0
"""Time after which a terminated process is killed, in seconds."""

_SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""Environment variable with the same effect as ``python -P``."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Initializer = Callable[[], object]
Prepare = Callable[[], contextlib.AbstractContextManager[Initializer | None]]
"""Context manager that yields an initializer, or None.

The context is active while the pool process runs. A new pool process calls the initializer first.
"""


class InterruptedBySignal(KeyboardInterrupt):
    """Exception raised in a pool process if SIGTERM interrupts a game.

    The subclass distinguishes the signal from a ``KeyboardInterrupt`` that a snake raises.
    """


class TaskPool(Protocol):
    """Processes on this machine (`ProcessPool`) or on a Ray cluster."""

    jobs: int
    """Number of tasks that the pool runs at the same time."""

    def submit(self, work: Callable[..., Result], /, *arguments: Any) -> Future[Result]:
        """Submit a task."""

    def terminate(self) -> None:
        """Terminate all running tasks."""

    def __enter__(self) -> Self:
        """Open the pool."""

    def __exit__(self, *raised: object) -> None:
        """Close the pool."""


def run_tasks(
    pool: TaskPool, work: Callable[[Task], Result], tasks: Iterable[Task]
) -> Generator[tuple[Task, Result], None, None]:
    """Run ``work`` on each task and yield the tasks with their results.

    Results are yielded in order of completion. The function reads the next task from the iterable
    when a process is free. ``tasks`` may therefore be endless and may depend on earlier results.
    Closing the generator terminates the running tasks.

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
            free = max(0, pool.jobs - len(going))  # The number of jobs can decrease in a Ray pool.
            for task, attempts in itertools.islice(itertools.chain(again, waiting), free):
                going[pool.submit(work, task)] = task, attempts
            again = again[free:]
            if not going:
                return
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                task, attempts = going.pop(future)
                if not _was_killed(future):
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


def _was_killed(future: Future[Any]) -> bool:
    """Return whether the process of a completed task was killed."""
    return isinstance(future.exception(), BrokenProcessPool)


class ProcessPool:
    """A pool of processes that ignore Ctrl-C.

    The parent process terminates the pool's processes. If a process is killed, only the task of
    this process is lost, and a new process replaces the killed process.

    Args:
        jobs: Number of processes.
        prepare: Context manager of each process, which yields the initializer of the process.
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
    """A worker process, which starts with the first task."""

    def __init__(self, prepare: Prepare) -> None:
        self.task: Future[Any] = Future()
        # `ProcessPool.terminate` waits for this future, even before the first task.
        self.task.set_result(None)
        self._prepared = contextlib.ExitStack()
        initializer = self._prepared.enter_context(prepare())
        context = multiprocessing.get_context("spawn")
        # The executor's semaphores start the resource tracker process of multiprocessing.
        with _exclude_current_folder():
            self._executor = ProcessPoolExecutor(1, context, _initialize_worker, (initializer,))

    @property
    def processes(self) -> list[multiprocessing.Process]:
        """A list with the worker process, or an empty list if no process is running."""
        return list((self._executor._processes or {}).values())

    def submit(self, work: Callable[..., Result], /, *arguments: Any) -> Future[Result]:
        """Start a task while SIGINT is blocked.

        A new process inherits the blocked signal.
        """
        with mask_signal(signal.SIGINT), _exclude_current_folder():
            task = self.task = self._executor.submit(work, *arguments)
        task.add_done_callback(lambda task: self._prepared.close() if _was_killed(task) else None)
        return task

    def close(self) -> None:
        """Wait for the process to exit."""
        self._executor.shutdown()
        self._prepared.close()


@contextlib.contextmanager
def _exclude_current_folder() -> Iterator[None]:
    """Exclude the current directory from the import path of new processes.

    The setting applies to processes that start in the context. New processes run ``python -c``.
    Without this setting, a user's file with the name of a standard module, such as ``random.py``,
    would replace the module.
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
    """Install the signal handler and the parent watch in a new pool process."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if initializer is not None:
        initializer()


def _exit_with_parent() -> None:
    """Exit when the parent process ends.

    A killed parent process cannot terminate the processes of its pool.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Exit on SIGTERM, or interrupt the task that is running."""
    if not busy:
        os._exit(128 + number)
    raise InterruptedBySignal  # The pool returns this exception to the parent process.

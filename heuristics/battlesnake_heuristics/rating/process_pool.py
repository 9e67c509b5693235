"""One queue for games: tasks go to processes of this machine, and each is answered once.

A task whose process was killed is handed out again, so a task's answer must follow from the task
alone, as a game does from its seed.

>>> with Pool(1) as pool:
...     sorted(answers(pool, abs, [-1, -2]))
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
"""How often a task may be lost with its process before it is taken to be what kills it."""

WORKER_TERMINATE_TIMEOUT_S = 5.0
"""Seconds that an interrupted game's process has to end by itself."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Begin = Callable[[], object]
Prepare = Callable[[], contextlib.AbstractContextManager[Begin | None]]
"""Gives what a new process calls first; the context ends with the process."""


def run_tasks(
    pool: ProcessPool, work: Callable[[Task], Answer], tasks: Iterable[Task]
) -> Generator[tuple[Task, Answer], None, None]:
    """Each of ``tasks`` with ``work`` of it, as they end.

    A task is taken when a process is free for it, so ``tasks`` may be endless and may look at what
    came before. What ``work`` raises is raised, and ``ChildProcessError`` where a task's processes
    were killed again and again; closing this ends what is on.
    """
    waiting = ((task, 1) for task in tasks)
    again: list[tuple[Task, int]] = []
    going: dict[Future[Answer], tuple[Task, int]] = {}
    try:
        while True:
            free = max(0, pool.jobs - len(going))  # machines of a pool may have gone
            for task, tries in itertools.islice(itertools.chain(again, waiting), free):
                going[pool.submit(work, task)] = task, tries
            again = again[free:]
            if not going:
                return
            for future in wait(going, return_when=FIRST_COMPLETED).done:
                task, tries = going.pop(future)
                if not _is_lost(future):
                    yield task, future.result()
                elif tries == MAX_TASK_ATTEMPTS:
                    raise ChildProcessError(
                        f"{MAX_TASK_ATTEMPTS} processes were killed over {reprlib.repr(task)}; is there "
                        "memory enough? try fewer --jobs"
                    )
                else:
                    again.append((task, tries + 1))
    except BaseException:
        pool.terminate()
        raise


def _is_lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


class ProcessPool:
    """Processes that Ctrl-C does not reach: the one that began them says when to end.

    One that was killed takes only its own task with it, and another takes its place.
    """

    def __init__(self, jobs: int, prepare: Prepare = contextlib.nullcontext) -> None:
        self.jobs = jobs
        self._prepare = prepare
        self._workers: list[_Worker] = []

    def submit(self, work: Callable[..., Answer], /, *arguments: Any) -> Future[Answer]:
        """Begin a task in a process that is free; of a lost one the future says so."""
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
        """End the games that are on, and the processes, by force where a snake does not let go."""
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
    """A process, which begins with its first task."""

    def __init__(self, prepare: Prepare) -> None:
        self.task: Future[Any] = Future()
        self.task.set_result(None)  # Ctrl-C may come before the first
        self._prepared = contextlib.ExitStack()
        begin = self._prepared.enter_context(prepare())
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(1, context, _begin, (begin,))

    @property
    def processes(self) -> list[multiprocessing.Process]:
        """The process, unless it has gone."""
        return list((self._executor._processes or {}).values())

    def submit(self, work: Callable[..., Answer], /, *arguments: Any) -> Future[Answer]:
        """Begin a task, with interrupts blocked, as they then stay in the process."""
        with masked(signal.SIGINT):
            task = self.task = self._executor.submit(work, *arguments)
        task.add_done_callback(lambda task: self._prepared.close() if _is_lost(task) else None)
        return task

    def close(self) -> None:
        """Return when the process has ended."""
        self._executor.shutdown()
        self._prepared.close()


@contextlib.contextmanager
def masked(number: int, block: bool = True) -> Iterator[None]:
    """Block a signal, or let it through, within the block; Windows has no masks."""
    if sys.platform == "win32":
        yield
        return
    how = signal.SIG_BLOCK if block else signal.SIG_UNBLOCK
    before = signal.pthread_sigmask(how, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


busy = False
"""In a process of a pool: whether what is on wants a ``KeyboardInterrupt`` to end by."""


def _begin(begin: Begin | None) -> None:
    signal.signal(signal.SIGTERM, _give_up)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, even where that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _give_up(number: int, frame: FrameType | None) -> None:
    if not busy:
        os._exit(128 + number)
    raise KeyboardInterrupt  # which the pool brings home as the game's result

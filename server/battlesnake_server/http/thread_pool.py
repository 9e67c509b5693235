"""Thread pool that assigns each task to the most recently busy thread."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]

Inbox = SimpleQueue[Work | None]
"""Queue of one thread's tasks.

None ends the thread.
"""

NICE_INCREMENT = 10
"""Niceness increment of search threads.

With this increment, a search thread receives a tenth of a core while other threads are busy.
Without this increment, eight searches would leave a fifth of a core for requests and responses.
"""

log = logging.getLogger(__name__)


class ThreadPool:
    """Thread pool with a minimum and a maximum number of threads.

    The minimum number of threads starts immediately, because starting a thread is slow on a busy
    machine. The most recently busy thread receives the next task. This order uses as few threads as
    possible, because each thread retains some memory of its past tasks. Threads are daemons, so
    that a hanging task does not prevent the exit of the process. The threads end when `close` is
    called or when the pool is garbage-collected.

    Args:
        name: Prefix of the threads' names.
        max_threads: Maximum number of threads.
        min_threads: Number of threads that start immediately.
        low_priority: Whether the threads have a lower CPU priority than request threads (on Linux).
    """

    def __init__(
        self, name: str, max_threads: int, *, min_threads: int = 0, low_priority: bool = False
    ) -> None:
        self._name, self._max_threads, self._low_priority = name, max_threads, low_priority
        self._lock = threading.Lock()
        self._queued_tasks: deque[Work] = deque()
        self._idle: list[Inbox] = []
        self._inboxes: list[Inbox] = []
        self._closed = False
        weakref.finalize(self, _end_threads, self._inboxes)
        for _ in range(min_threads):
            self._idle.append(self._start_thread())

    def submit(self, work: Work) -> None:
        """Run ``work`` in an idle thread or a new thread, or queue ``work``."""
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._inboxes) < self._max_threads:
                inbox = self._start_thread()
            else:
                self._queued_tasks.append(work)
                return
        inbox.put(work)

    def close(self) -> None:
        """End all threads after the queued tasks."""
        with self._lock:
            self._closed = True
            _end_threads(self._idle)

    def _start_thread(self) -> Inbox:
        """Start a thread and return its queue."""
        inbox: Inbox = SimpleQueue()
        threading.Thread(
            target=_run_tasks,
            args=(weakref.ref(self), inbox, self._low_priority),
            name=f"{self._name}-{len(self._inboxes)}",
            daemon=True,
        ).start()
        self._inboxes.append(inbox)
        return inbox

    def _assign_next_task(self, inbox: Inbox) -> None:
        """Assign the oldest queued task to a thread, or mark the thread as idle."""
        with self._lock:
            if self._queued_tasks:
                inbox.put(self._queued_tasks.popleft())
            elif self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)


def _run_tasks(threads: weakref.ref[ThreadPool], inbox: Inbox, low_priority: bool) -> None:
    """Run the tasks of one thread until None arrives or the pool is deleted."""
    if low_priority:
        _lower_thread_priority()
    while (work := inbox.get()) is not None:
        try:
            work()
        except BaseException:  # A thread must survive a failed task.
            log.exception("a task of %s failed", threading.current_thread().name)
        del work  # Release the task's memory before the wait for the next task.
        if (known := threads()) is None:
            return
        known._assign_next_task(inbox)
        del known


def _end_threads(inboxes: list[Inbox]) -> None:
    """Send None to every queue."""
    for inbox in inboxes:
        inbox.put(None)


def _lower_thread_priority() -> None:
    """Lower the CPU priority of the current thread (Linux only)."""
    # Linux accepts a thread id in place of a process id. Other systems have no priority per thread.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, nice + NICE_INCREMENT))

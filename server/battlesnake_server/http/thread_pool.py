"""Thread pool that gives each task to the most recently busy thread."""

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
"""Increment of the niceness of search threads.

A search thread gets a tenth of a core while other threads use the core fully. Without this
increment, eight searches leave a fifth of a core for reading requests and sending responses.
"""

log = logging.getLogger(__name__)


class ThreadPool:
    """Thread pool with a minimum and a maximum number of threads.

    Starting a thread takes long on a busy machine. The thread that was busy last gets the next
    task: each thread keeps some memory of its past tasks, and this order uses as few threads as
    possible. Threads are daemons, so that a hanging task does not keep the process alive. The
    threads end when `close` is called or when the pool is garbage-collected.

    Args:
        name: Prefix of the threads' names.
        max_threads: Maximum number of threads.
        min_threads: Number of threads that start immediately.
        initializer: Called once in every thread, before its first task.
    """

    def __init__(
        self, name: str, max_threads: int, *, min_threads: int = 0, initializer: Work = lambda: None
    ) -> None:
        self._name, self._max_threads, self._initializer = name, max_threads, initializer
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._idle: list[Inbox] = []
        self._inboxes: list[Inbox] = []
        self._closed = False
        weakref.finalize(self, _end, self._inboxes)
        for _ in range(min_threads):
            self._idle.append(self._start())

    def submit(self, work: Work) -> None:
        """Run ``work`` in a free thread, or queue it for the next free thread."""
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._inboxes) < self._max_threads:
                inbox = self._start()
            else:
                self._waiting.append(work)
                return
        inbox.put(work)

    def close(self) -> None:
        """End all threads after the queued tasks."""
        with self._lock:
            self._closed = True
            _end(self._idle)

    def _start(self) -> Inbox:
        inbox: Inbox = SimpleQueue()
        threading.Thread(
            target=_run,
            args=(weakref.ref(self), inbox, self._initializer),
            name=f"{self._name}-{len(self._inboxes)}",
            daemon=True,
        ).start()
        self._inboxes.append(inbox)
        return inbox

    def _next_task(self, inbox: Inbox) -> None:
        """Give an idle thread the oldest queued task, or mark the thread as free."""
        with self._lock:
            if self._waiting:
                inbox.put(self._waiting.popleft())
            elif self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)


def _run(threads: weakref.ref[ThreadPool], inbox: Inbox, initializer: Work) -> None:
    initializer()
    while (work := inbox.get()) is not None:
        try:
            work()
        except BaseException:  # A dead thread would never run another task.
            log.exception("a task of %s failed", threading.current_thread().name)
        del work  # Release the task's memory before the wait for the next task.
        if (known := threads()) is None:
            return
        known._next_task(inbox)
        del known


def _end(inboxes: list[Inbox]) -> None:
    for inbox in inboxes:
        inbox.put(None)


def lower_thread_priority() -> None:
    """Lower the CPU priority of the current thread (Linux only).

    The priority is then below the priority of the request threads.
    """
    # Linux accepts a thread id in place of a process id. Other systems have no priority per thread.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, nice + NICE_INCREMENT))

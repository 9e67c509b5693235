"""Threads that wait for work, the one that was busy last first in line."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]

Inbox = SimpleQueue[Work | None]
"""What a thread is to do next; None: to end."""

NICE_INCREMENT = 10
"""What is added to the niceness of a thread that thinks: a tenth of the processor where the others
want all of it. Without it eight searches leave a fifth of a core to reading and answering."""


class ThreadPool:
    """Up to ``max_threads`` threads; ``min_threads`` of them run from the beginning, others when needed.

    Starting one takes as long as the others let it. Work goes to the one that was busy last, so
    that no more of them are used than are busy at once: each keeps some memory of what it has done.
    Each calls ``begin`` first. They are daemons, so that work which hangs does not keep the
    process, and end when `close` is called or nothing refers to this object any more.
    """

    def __init__(
        self, name: str, max_threads: int, *, min_threads: int = 0, initializer: Work = lambda: None
    ) -> None:
        self._name, self._most, self._begin = name, max_threads, initializer
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._idle: list[Inbox] = []
        self._inboxes: list[Inbox] = []
        self._closed = False
        weakref.finalize(self, _end, self._inboxes)
        for _ in range(min_threads):
            self._idle.append(self._start())

    def submit(self, work: Work) -> None:
        """Have ``work`` done by a thread that is free, or the next one that is."""
        with self._lock:
            if self._idle:
                inbox = self._idle.pop()
            elif len(self._inboxes) < self._most:
                inbox = self._start()
            else:
                self._waiting.append(work)
                return
        inbox.put(work)

    def close(self) -> None:
        """Let the threads end when they have done what is waiting."""
        with self._lock:
            self._closed = True
            _end(self._idle)

    def _start(self) -> Inbox:
        inbox: Inbox = SimpleQueue()
        threading.Thread(
            target=_run,
            args=(weakref.ref(self), inbox, self._begin),
            name=f"{self._name}-{len(self._inboxes)}",
            daemon=True,
        ).start()
        self._inboxes.append(inbox)
        return inbox

    def _next_task(self, inbox: Inbox) -> None:
        """Give a thread that is done what has waited longest, or let it wait."""
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
        work()
        del work  # what it holds must not wait here for the next one
        if (known := threads()) is None:
            return
        known._next_task(inbox)
        del known


def _end(inboxes: list[Inbox]) -> None:
    for inbox in inboxes:
        inbox.put(None)


def lower_thread_priority() -> None:
    """Let this thread have less of the processor than those that read and answer requests."""
    # On Linux a thread's number is that of a process of its own; elsewhere there is no such thing.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(19, nice + NICE_INCREMENT))

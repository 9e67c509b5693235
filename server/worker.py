"""gunicorn's thread worker, changed so that who sends slowly keeps nobody waiting.

gunicorn hands a connection to a thread as soon as anything arrives, and the thread then waits for
the rest. Here a request that has arrived as a whole goes to one set of threads, all else to
another; and a connection that has sent nothing yet needs no thread at all. So the first set may be
small, which is what keeps answers in the order of the questions: a crowd of threads at once is
served by the interpreter in no order, and some of them much too late.
"""

from __future__ import annotations

import functools
import re
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

LONGEST_PEEK = 1 << 16
"""Bytes looked at to see whether a request is there; a longer one counts as a slow sender's."""

SLOW_SENDERS = 256
"""Threads for requests that have not arrived as a whole."""

SILENT_SECONDS = 2
"""A fresh connection that sends nothing for this long is closed. A server that is told to stop
waits for it, so this must be well below the ``graceful_timeout``."""

CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)

_request = threading.local()


class Worker(ThreadWorker):  # type: ignore[misc]
    """Two sets of threads: for requests that are there, and for those still on their way."""

    def init_process(self) -> None:
        """Make the threads of slow senders; gunicorn makes the others."""
        self.slow_senders = ThreadPoolExecutor(SLOW_SENDERS, thread_name_prefix="slow")
        super().init_process()

    def handle_quit(self, sig: int, frame: object) -> None:
        """Ctrl-C: stop as on SIGTERM, where gunicorn would leave from within the signal's handler.

        For that it needs a lock, which the very code that was interrupted may hold.
        """
        self.handle_exit(sig, frame)

    def run(self) -> None:
        """Serve until told to stop; after that no signal disturbs the leaving."""
        super().run()
        # The master repeats what the terminal said, and it may be late.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def enqueue_req(self, conn: TConn) -> None:
        """Hand a readable connection to a thread; a silent one waits in the poller."""
        arrived = time.perf_counter()
        sent = _peek(conn.sock)
        if sent is None and not conn.initialized:
            self._wait_for_first_bytes(conn)
            return
        pool = self.tpool if sent is not None and is_whole(sent) else self.slow_senders
        done = pool.submit(self._handle, conn, arrived)
        done.add_done_callback(
            lambda future: self.method_queue.defer(self.finish_request, conn, future)
        )

    def _handle(self, conn: TConn, arrived: float) -> object:
        _request.arrived = arrived
        return self.handle(conn)

    def _wait_for_first_bytes(self, conn: TConn) -> None:
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + SILENT_SECONDS
        self.pending_conns.append(conn)
        call = functools.partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, selectors.EVENT_READ, call)


def stamped(application: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the application when its request arrived, as ``server.arrived`` in its environment.

    That is before the request waited for a thread, so that what waited too long can be answered
    quickly.
    """

    def enter(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["server.arrived"] = _request.arrived
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    return enter


def is_whole(sent: bytes) -> bool:
    r"""Whether these bytes hold a whole request; where that is hard to tell, not.

    >>> is_whole(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    True
    >>> is_whole(b"POST /move HTTP/1.1\r\nContent-Length: 2\r\n\r\n{")
    False
    """
    head, end, body = sent.partition(b"\r\n\r\n")
    if not end or b"transfer-encoding" in head.lower():
        return False
    lengths = CONTENT_LENGTH.findall(head + b"\r\n")
    if not lengths:
        return sent.startswith((b"GET ", b"HEAD "))
    return len(body) >= int(lengths[0])


def _peek(sock: socket.socket) -> bytes | None:
    """What has arrived and not been read; None for nothing yet."""
    try:
        return sock.recv(LONGEST_PEEK, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""

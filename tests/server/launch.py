"""Starting real servers: a port, and waiting until they answer."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes], path: str = "/healthz") -> None:
    """Until the server answers; its own death is an error at once."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(f"{address}{path}", timeout=60).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server does not answer")

"""Real processes: run to their end, served for as long as a block lasts, waited for and asked."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "battlesnake_gym")
"""``battlesnake-gym``, by this Python."""

PATIENCE = 120.0
"""Seconds that anything may take on a busy machine."""


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A program to its end, and what it said; the options are those of `subprocess.run`."""
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[Any], path: str = "/healthz") -> None:
    """Until the server answers; its own death is an error at once."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        assert process.poll() is None, "the server ended"
        try:
            urllib.request.urlopen(f"{address}{path}", timeout=60).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server does not answer")


@contextmanager
def running(*words: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program while the block lasts, unless it ends before; what it says is there to be read."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([str(word) for word in words], **(pipes | options))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(
    words: Sequence[object], port: int | str, path: str = "/healthz", **options: Any
) -> Iterator[str]:
    """The address of a server that listens on this port while the block lasts."""
    process = subprocess.Popen([str(word) for word in words], **options)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process, path)
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def below(number: int) -> dict[int, str]:
    """The commands of all that a process has started, and they in turn (Linux).

    A dead process and one that is just being started have no command, and are left out.
    """
    found: dict[int, str] = {}
    for task in Path(f"/proc/{number}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= below(child)
                if command := command_of(child):
                    found[child] = command
    return found


def command_of(number: int) -> str:
    """The command of a process, "" where it is gone or dead."""
    try:
        if "\nState:\tZ" in Path(f"/proc/{number}/status").read_text():
            return ""
        return Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def until_gone(processes: dict[int, str]) -> None:
    """Wait for the end of those that `below` has found."""
    until(lambda: all(command_of(number) != words for number, words in processes.items()))


def until(
    condition: Callable[[], object],
    seconds: float = 300.0,
    process: subprocess.Popen[Any] | None = None,
) -> None:
    """Wait for it, while the ``process`` lives."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.02)


def fetch(address: str, body: object = None) -> str:
    """What is answered to a GET, or to a POST of ``body`` as JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return str(answer.read().decode())


def fetch_json(address: str, body: object = None) -> Any:
    """As `fetch`, read."""
    return json.loads(fetch(address, body))

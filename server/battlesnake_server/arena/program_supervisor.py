"""Snakes that are programs here: started on a port of their own, started again when they end.

A program runs under a keeper (this module, run as a script), which ends it and all that it started
as soon as the process that asked for it is gone, for whatever reason.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_PROGRAM_TERMINATE_TIMEOUT_S = 5.0
"""Seconds that a program has to end by itself."""


class ProgramSupervisor:
    """The programs behind some names, each with its URL; close it to end them all."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = dict(commands)
        self._ports = {name: _free_port() for name in commands}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ProgramSupervisor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def url(self, name: str) -> str:
        """Where the program listens."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> None:
        """Start a program unless it runs; raises ``OSError`` or ``ValueError`` where it cannot."""
        running = self._running.get(name)
        if running is not None:
            if running.poll() is None:
                return
            _let_go(running)
        port = str(self._ports[name])
        command = shlex.split(self._commands[name].replace("{port}", port))
        self._running[name] = subprocess.Popen(
            [sys.executable, "-m", __name__, *command],
            stdin=subprocess.PIPE,  # which the keeper sees end with this process
            stdout=sys.stderr.fileno(),
            env=os.environ | {"PORT": port},
            start_new_session=True,  # Ctrl-C in the terminal is not for snakes
        )

    def cpu_seconds(self, name: str) -> float:
        """CPU time of all processes of a program so far, to a microsecond (Linux).

        Of those that have ended it counts those that their parents waited for, to 0.01 s.
        """
        waiting, seconds = [self._running[name].pid], 0.0
        while waiting:
            process = waiting.pop()
            with contextlib.suppress(OSError):  # it has ended meanwhile
                # The CPU clock of another process, as clock_getcpuclockid(3) makes it.
                seconds += time.clock_gettime(~process << 3 | 2)
                status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                seconds += (int(status[13]) + int(status[14])) / os.sysconf("SC_CLK_TCK")
                for children in Path(f"/proc/{process}/task").glob("*/children"):
                    waiting += map(int, children.read_text().split())
        return seconds

    def close(self) -> None:
        """End all programs."""
        for process in self._running.values():
            _let_go(process)
        for process in self._running.values():
            process.wait(2 * _PROGRAM_TERMINATE_TIMEOUT_S)


def _let_go(keeper: subprocess.Popen[bytes]) -> None:
    """Close the input by which a keeper knows that it is wanted."""
    assert keeper.stdin is not None
    keeper.stdin.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def supervise(command: list[str]) -> int:
    """Run a program until it ends or standard input does; the status is the program's."""
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_end_with_input, args=(program,), daemon=True).start()
    status = program.wait()
    _signal_all(program, signal.SIGKILL)
    return status


def _end_with_input(program: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _signal_all(program, signal.SIGTERM)
    try:
        program.wait(_PROGRAM_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _signal_all(program, signal.SIGKILL)


def _signal_all(program: subprocess.Popen[bytes], number: int) -> None:
    """To the program and what it started in its group."""
    try:
        os.killpg(program.pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))

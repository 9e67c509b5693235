"""Supervisor of snakes that are local programs.

The supervisor starts each program on its own port and restarts a program that exits. Each program
runs under a keeper process (this module, run as a script). The keeper terminates the program and
its child processes as soon as the supervising process ends, for whatever reason.
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
"""Time in which a program must exit after SIGTERM, in seconds."""


class ProgramSupervisor:
    """Runner of programs by name, each with its own URL.

    `close` terminates all programs.
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = dict(commands)
        self._ports = {name: _free_port() for name in commands}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ProgramSupervisor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def url(self, name: str) -> str:
        """Return the URL on which the program listens."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> None:
        """Start a program unless the program is running.

        Raises:
            OSError: If the process cannot be started.
            ValueError: If the command cannot be parsed.
        """
        running = self._running.get(name)
        if running is not None:
            if running.poll() is None:
                return
            _terminate(running)
        port = str(self._ports[name])
        command = shlex.split(self._commands[name].replace("{port}", port))
        self._running[name] = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *command],
            stdin=subprocess.PIPE,  # The keeper detects when this pipe closes.
            stdout=sys.stderr.fileno(),
            env=os.environ | {"PORT": port},
            start_new_session=True,  # Ctrl+C in the terminal must not reach the snakes.
        )

    def cpu_seconds(self, name: str) -> float:
        """Return the CPU seconds that all processes of a program have used (Linux only).

        The resolution is 1 microsecond for running processes. The resolution is 0.01 s for child
        processes that have ended and whose parents have waited for them.
        """
        waiting, seconds = [self._running[name].pid], 0.0
        while waiting:
            process = waiting.pop()
            with contextlib.suppress(OSError):  # The process has ended in the meantime.
                # This expression is the CPU clock of another process, as in clock_getcpuclockid(3).
                seconds += time.clock_gettime(~process << 3 | 2)
                status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                seconds += (int(status[13]) + int(status[14])) / os.sysconf("SC_CLK_TCK")
                for children in Path(f"/proc/{process}/task").glob("*/children"):
                    waiting += map(int, children.read_text().split())
        return seconds

    def close(self) -> None:
        """Terminate all programs."""
        for process in self._running.values():
            _terminate(process)
        for process in self._running.values():
            process.wait(2 * _PROGRAM_TERMINATE_TIMEOUT_S)


def _terminate(keeper: subprocess.Popen[bytes]) -> None:
    """Close a keeper's standard input, so that the keeper terminates the program."""
    assert keeper.stdin is not None
    keeper.stdin.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def supervise(command: list[str]) -> int:
    """Run a program until the program exits or standard input closes.

    Returns:
        The exit status of the program.
    """
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_terminate_with_input, args=(program,), daemon=True).start()
    status = program.wait()
    _signal_all(program, signal.SIGKILL)
    return status


def _terminate_with_input(program: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    _signal_all(program, signal.SIGTERM)
    try:
        program.wait(_PROGRAM_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _signal_all(program, signal.SIGKILL)


def _signal_all(program: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the program's process group."""
    try:
        os.killpg(program.pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))

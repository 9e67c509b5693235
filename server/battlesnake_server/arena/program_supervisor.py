"""Supervisor of snakes that are local programs.

The supervisor starts each program on its own port and restarts a program that exits. Each program
runs under a watchdog process, which runs this module as a script. The watchdog terminates the
program and its child processes when the supervising process ends for any reason.
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
"""Timeout for the exit of a program after SIGTERM, in seconds."""


class ProgramSupervisor:
    """Supervisor of programs, each with a name and its own URL.

    `close` terminates all programs.
    """

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = dict(commands)
        self._ports = {name: _find_free_port() for name in commands}
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
            _terminate_program(running)
        port = str(self._ports[name])
        command = shlex.split(self._commands[name].replace("{port}", port))
        self._running[name] = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *command],
            stdin=subprocess.PIPE,  # The watchdog detects when this pipe closes.
            stdout=sys.stderr.fileno(),
            env=os.environ | {"PORT": port},
            start_new_session=True,  # Ctrl+C in the terminal must not reach the snakes.
        )

    def cpu_seconds(self, name: str) -> float:
        """Return the CPU time of all processes of a program, in seconds (Linux only).

        The resolution is 1 microsecond for running processes. The resolution is 0.01 s for child
        processes that have ended and whose parents have waited for them.
        """
        waiting, seconds = [self._running[name].pid], 0.0
        while waiting:
            process = waiting.pop()
            with contextlib.suppress(OSError):  # The process may have ended in the meantime.
                # clock_getcpuclockid(3) computes the id of another process's CPU clock in this way.
                seconds += time.clock_gettime(~process << 3 | 2)
                status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                seconds += (int(status[13]) + int(status[14])) / os.sysconf("SC_CLK_TCK")
                for children in Path(f"/proc/{process}/task").glob("*/children"):
                    waiting += map(int, children.read_text().split())
        return seconds

    def close(self) -> None:
        """Terminate all programs."""
        for process in self._running.values():
            _terminate_program(process)
        for process in self._running.values():
            process.wait(2 * _PROGRAM_TERMINATE_TIMEOUT_S)


def _terminate_program(watchdog: subprocess.Popen[bytes]) -> None:
    """Terminate a program by closing the standard input of its watchdog."""
    assert watchdog.stdin is not None
    watchdog.stdin.close()


def _find_free_port() -> int:
    """Return a TCP port that no process uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _run_watchdog(command: list[str]) -> int:
    """Run a program until the program exits or standard input closes.

    Returns:
        Exit status of the program, or 127 if the program cannot be started.
    """
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_terminate_when_stdin_closes, args=(program,), daemon=True).start()
    status = program.wait()
    _signal_process_group(program, signal.SIGKILL)
    return status


def _terminate_when_stdin_closes(program: subprocess.Popen[bytes]) -> None:
    """Terminate the program when standard input closes."""
    while os.read(0, 4096):
        pass
    _signal_process_group(program, signal.SIGTERM)
    try:
        program.wait(_PROGRAM_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _signal_process_group(program, signal.SIGKILL)


def _signal_process_group(program: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the program's process group."""
    try:
        os.killpg(program.pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(_run_watchdog(sys.argv[1:]))

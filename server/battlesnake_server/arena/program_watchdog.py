"""Watchdog of a snake that is a local program, run as a script.

The watchdog runs the program, and terminates the program and its child processes when standard
input closes. Standard input closes when the supervising process (`league_snakes`) ends for any
reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

PROGRAM_TERMINATE_TIMEOUT_S = 5.0
"""Timeout for the exit of a program after SIGTERM, in seconds."""


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
        program.wait(PROGRAM_TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _signal_process_group(program, signal.SIGKILL)


def _signal_process_group(program: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the program's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, number)


if __name__ == "__main__":
    sys.exit(_run_watchdog(sys.argv[1:]))

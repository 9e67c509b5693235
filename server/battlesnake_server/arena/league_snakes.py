"""Snakes of a league file: their programs, and checks of their health."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena import program_watchdog
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.tournament import Entrant

_START_TIMEOUT_S = 20.0
"""Maximum time until a started program responds, in seconds."""


class LeagueSnakes:
    """Snakes of a league file.

    `find_problems` starts each program on its own port and restarts a program that has exited. The
    end of the context terminates all programs.

    Args:
        plan: The league file.
        address_policy: Policy for the addresses of the snakes' URLs.

    Attributes:
        plan: The league file.
        address_policy: Policy for the addresses of the snakes' URLs.
        sources: Source of each snake by name; a program's source is the program's URL.
    """

    def __init__(self, plan: LeagueConfig, address_policy: AddressPolicy) -> None:
        self.plan = plan
        self.address_policy = address_policy
        self._commands = {one.name: one.command for one in plan.entrants if one.command}
        self._ports = {name: _find_free_port() for name in self._commands}
        self.sources = {one.name: one.source for one in plan.entrants} | {
            name: f"http://127.0.0.1:{port}" for name, port in self._ports.items()
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._running.values():
            _terminate_program(process)
        for process in self._running.values():
            process.wait(2 * program_watchdog.PROGRAM_TERMINATE_TIMEOUT_S)

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

    def find_problems(self, names: Sequence[str]) -> dict[str, str]:
        """Check snakes concurrently and return each snake's problem by name.

        The problem of a healthy snake is "".
        """

        async def find_all_problems() -> list[str]:
            return await asyncio.gather(*map(self._find_problem, names))

        return dict(zip(names, asyncio.run(find_all_problems()), strict=True))

    async def _find_problem(self, name: str) -> str:
        """Return the problem of a snake, or "" for a healthy snake."""
        (entrant,) = Entrant.parse_all([f"{name}={self.sources[name]}"], self.address_policy)
        try:
            if name in self._commands:
                await self._run_program(entrant)
            elif entrant.is_remote:
                await check_responds(entrant.source, entrant.address_policy)
            else:
                # Bypass the cache, because the file may have been deleted.
                Entrant.strategy_factory.__wrapped__(entrant)
        except (ValueError, OSError) as error:
            return str(error)
        return ""

    async def _run_program(self, entrant: Entrant) -> None:
        """Start a program that is not running, and wait until the program responds."""
        limit, pause_s, status = time.monotonic() + _START_TIMEOUT_S, 0.1, None
        while True:
            running = self._running.get(entrant.label)
            if running and running.poll() is not None:
                status = running.returncode
            self._start_program(entrant.label)
            try:
                return await check_responds(entrant.source, entrant.address_policy)
            except ValueError as error:
                if time.monotonic() > limit:
                    if status is None:
                        raise
                    command = self._commands[entrant.label]
                    raise ValueError(
                        f"`{command}` exited with status {status}, and {error}"
                    ) from error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)  # A program that always fails restarts rarely.

    def _start_program(self, name: str) -> None:
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
            [sys.executable, "-P", "-m", program_watchdog.__name__, *command],
            stdin=subprocess.PIPE,  # The watchdog detects when this pipe closes.
            stdout=sys.stderr.fileno(),
            env=os.environ | {"PORT": port},
            start_new_session=True,  # Ctrl+C in the terminal must not reach the snakes.
        )


def _terminate_program(watchdog: subprocess.Popen[bytes]) -> None:
    """Terminate a program by closing the standard input of its watchdog."""
    assert watchdog.stdin is not None
    watchdog.stdin.close()


def _find_free_port() -> int:
    """Return a TCP port that no process uses."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])

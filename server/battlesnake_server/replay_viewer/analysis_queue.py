"""Analyses that pages show and start: `game analyse` in the background, one at a time.

The command runs as a process of its own with little priority and writes beside the game; the pages
read what is there so far. A game whose process is stopped goes on when it is asked for again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from battlesnake_gym.replays.json_lines import ReplayError
from battlesnake_heuristics.analysis import game_analysis
from battlesnake_heuristics.analysis.game_analysis import Analysis, path_of, write_seen
from battlesnake_heuristics.analysis.mistakes import Mark

MILLISECONDS = 50.0
MOST_WAITING = 32
"""Games that may wait to be analysed."""

MOST_TURNS = 200
"""Turns in one answer; the page asks again for the others."""

LITTLE = 10
"""What is added to the niceness of the process."""


class BusyError(RuntimeError):
    """Too many games wait to be analysed."""


class Analyses:
    """Runs analyses from the first `start` to `close`."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Path | None] = queue.Queue(MOST_WAITING)
        self._wanted: set[Path] = set()
        self._failed: dict[Path, str] = {}
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, game: Path) -> None:
        """Have a game analysed, unless that is done or under way; raises `BusyError`."""
        with self._lock:
            if game in self._wanted:
                return
            try:
                self._waiting.put_nowait(game)
            except queue.Full:
                raise BusyError("many games wait to be analysed; try again later") from None
            self._wanted.add(game)
            self._failed.pop(game, None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="analyses", daemon=True)
                self._thread.start()

    def tell(self, game: Path, since: int = 0) -> dict[str, Any]:
        """How far a game is analysed, with the turns from the ``since``-th found one on.

        ``state`` is ``none``, ``running``, ``done`` or ``failed`` (then with ``error``).
        """
        found = _read(path_of(game), game)
        running = game in self._wanted
        if found is None:
            state = "failed" if game in self._failed else "running" if running else "none"
            return {"state": state, "error": self._failed.get(game, ""), "done": 0, "turns": []}
        seen = list(found.seen.items())
        state = "done" if found.complete else "running" if running else "none"
        return {
            **found.head(),
            "state": state,
            "done": len(seen),
            "since": since,
            "turns": [write_seen(turn, at) for turn, at in seen[since : since + MOST_TURNS]],
            "marks": [write_mark(mark) for mark in found.marks or []],
        }

    def close(self) -> None:
        """Stop what runs; it keeps what it found."""
        self._closed = True
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        process = self._process
        if process is not None:
            process.terminate()
        if self._thread is not None:
            self._thread.join(30)

    def _work(self) -> None:
        while not self._closed and (game := self._waiting.get()) is not None:
            error = self._run(game)
            with self._lock:
                self._wanted.discard(game)
                if error:
                    self._failed[game] = error

    def _run(self, game: Path) -> str:
        """Run the command for one game; returns why it failed, or ""."""
        command = [sys.executable, "-m", "battlesnake_gym", "game", "analyse", "--quiet", str(game)]
        process = subprocess.Popen(
            [*command, f"--milliseconds={MILLISECONDS:g}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._process = process
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LITTLE)
        if self._closed:
            process.terminate()
        _, said = process.communicate()
        self._process = None
        return said.strip()[-500:] if process.returncode else ""


def _read(path: Path, game: Path) -> Analysis | None:
    try:
        status, of = path.stat(), game.stat()
        return _read_once(path, game, status.st_mtime_ns, status.st_size, of.st_mtime_ns)
    except (OSError, ReplayError):
        return None


@functools.lru_cache(maxsize=8)
def _read_once(path: Path, game: Path, modified: int, size: int, of: int) -> Analysis | None:
    """``modified``, ``size`` and ``of`` let a changed file be read again."""
    return game_analysis.known(game)


def write_mark(mark: Mark) -> dict[str, Any]:
    """A mistake as the viewer reads it."""
    return {
        "turn": mark.turn, "id": mark.snake_id, "move": mark.move, "sign": mark.sign,
        "better": mark.better, "before": round(mark.before, 4), "after": round(mark.after, 4),
    }  # fmt: skip

"""Analyses that pages show and start: `game analyze` in the background, one at a time.

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
from battlesnake_heuristics.analysis.game_analysis import GameAnalysis, analysis_path, write_seen
from battlesnake_heuristics.analysis.mistakes import MoveAssessment

_MOVE_TIME_MS = 50.0
_MAX_QUEUED = 32
"""Games that may wait to be analysed."""

_MAX_TURNS_PER_REPLY = 200
"""Turns in one answer; the page asks again for the others."""

_NICE_INCREMENT_ANALYSIS = 10
"""What is added to the niceness of the process."""


class BusyError(RuntimeError):
    """Too many games wait to be analysed."""


class AnalysisQueue:
    """Runs analyses from the first `start` to `close`."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Path | None] = queue.Queue(_MAX_QUEUED)
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

    def status_json(self, game: Path, since: int = 0) -> dict[str, Any]:
        """How far a game is analysed, with the turns from the ``since``-th found one on.

        ``state`` is ``none``, ``running``, ``done`` or ``failed`` (then with ``error``).
        """
        found = _read(analysis_path(game), game)
        running = game in self._wanted
        if found is None:
            state = "failed" if game in self._failed else "running" if running else "none"
            return {"state": state, "error": self._failed.get(game, ""), "done": 0, "turns": []}
        seen = list(found.positions.items())
        state = "done" if found.complete else "running" if running else "none"
        return {
            **found.head(),
            "state": state,
            "done": len(seen),
            "since": since,
            "turns": [
                write_seen(turn, at) for turn, at in seen[since : since + _MAX_TURNS_PER_REPLY]
            ],
            "marks": [write_mark(mark) for mark in found.mistakes or []],
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
        command = [sys.executable, "-m", "battlesnake_gym", "game", "analyze", "--quiet", str(game)]
        process = subprocess.Popen(
            [*command, f"--move-time={_MOVE_TIME_MS:g}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._process = process
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE_INCREMENT_ANALYSIS)
        if self._closed:
            process.terminate()
        _, said = process.communicate()
        self._process = None
        return said.strip()[-500:] if process.returncode else ""


def _read(path: Path, game: Path) -> GameAnalysis | None:
    try:
        status, of = path.stat(), game.stat()
        return _read_once(path, game, status.st_mtime_ns, status.st_size, of.st_mtime_ns)
    except (OSError, ReplayError):
        return None


@functools.lru_cache(maxsize=8)
def _read_once(path: Path, game: Path, modified: int, size: int, of: int) -> GameAnalysis | None:
    """``modified``, ``size`` and ``of`` let a changed file be read again."""
    return game_analysis.load_existing(game)


def write_mark(mark: MoveAssessment) -> dict[str, Any]:
    """A mistake as the viewer reads it."""
    return {
        "turn": mark.turn, "id": mark.snake_id, "move": mark.move, "sign": mark.annotation,
        "better": mark.better, "before": round(mark.best_win_probability, 4), "after": round(mark.played_win_probability, 4),
    }  # fmt: skip

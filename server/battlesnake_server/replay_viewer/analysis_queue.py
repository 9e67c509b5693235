"""Queue of game analyses that visitors start.

One analysis runs at a time, as a low-priority process of ``game analyze``. The process writes the
analysis beside the game file. The pages read the analysis during the run. A canceled analysis
resumes when a visitor starts the analysis again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from battlesnake_heuristics.analysis.game_analysis import GameAnalysis, analysis_path
from battlesnake_heuristics.analysis.mistakes import MoveAssessment
from battlesnake_server.file_cache import cache_by_file
from battlesnake_server.replay_viewer.replay_library import has_view_radius

_MAX_QUEUED = 32
"""Maximum number of games that wait for their analysis."""

_MAX_TURNS_PER_RESPONSE = 200
"""Maximum number of turns in one response.

The page then requests further turns.
"""

_ANALYSIS_NICE_INCREMENT = 10
"""Increment of the niceness of an analysis process."""


class BusyError(RuntimeError):
    """Error raised if a limit of concurrent work is reached; a later request may succeed."""


class AnalysisQueue:
    """Queue of analyses with a worker thread that runs until `close`."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "analysis-queue")
        self._analyses: dict[Path, Future[None]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, game: Path, view_radius: int | None = None) -> None:
        """Queue the analysis of a game, unless the analysis is already queued.

        Args:
            game: File of the game.
            view_radius: View radius if the game's settings have none; None for no limit.

        Raises:
            BusyError: If the queue is full.
        """
        with self._lock:
            unfinished = [path for path, future in self._analyses.items() if not future.done()]
            if game in unfinished:
                return
            if len(unfinished) > _MAX_QUEUED:
                raise BusyError("the analysis queue is full; try again later")
            self._analyses[game] = self._executor.submit(self._analyze_game, game, view_radius)

    def status_to_dict(
        self, game: Path, since: int = 0, view_radius: int | None = None
    ) -> dict[str, Any]:
        """Return the state of a game's analysis as a dict of JSON values.

        Args:
            game: File of the game.
            since: Index of the first analyzed turn to return.
            view_radius: View radius if the game's settings have none; None for no limit.

        Returns:
            ``state`` is ``none``, ``running``, ``done`` or ``failed``. ``error`` is the error
            message of a failed analysis.
        """
        analysis = _load_analysis(analysis_path(game), game, view_radius=view_radius)
        future = self._analyses.get(game)
        running = future is not None and not future.done()
        error = "" if future is None or running else str(future.exception() or "")
        state = "failed" if error else "running" if running else "none"
        if analysis is None:
            return {"state": state, "error": error, "done": 0, "turns": []}
        positions = list(analysis.positions.items())
        return {
            **analysis.header_to_dict(),
            "state": "done" if analysis.is_complete else state,
            "error": error,
            "done": len(positions),
            "since": since,
            "turns": [
                position.to_dict(turn)
                for turn, position in positions[since : since + _MAX_TURNS_PER_RESPONSE]
            ],
            "mistakes": [_mistake_to_dict(mistake) for mistake in analysis.mistakes],
        }

    def close(self) -> None:
        """Stop the worker thread and the running analysis.

        The analysis file contains the completed turns.
        """
        self._closed = True
        process = self._process
        if process is not None:
            process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def _analyze_game(self, game: Path, view_radius: int | None) -> None:
        """Run ``game analyze`` for one game.

        Raises:
            RuntimeError: If the analysis fails.
        """
        command = ["battlesnake_gym", "game", "analyze", "--quiet", str(game)]
        if (assumed := _assumed_view_radius(game, view_radius)) is not None:
            command += ["--view-radius", str(assumed)]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._process = process
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _ANALYSIS_NICE_INCREMENT)
        if self._closed:
            process.terminate()
        _, stderr = process.communicate()
        self._process = None
        if process.returncode:
            status = f"the analysis ended with exit status {process.returncode}"
            raise RuntimeError(stderr.strip()[-500:] or status)


@cache_by_file(8)
def _load_analysis(path: Path, game: Path, view_radius: int | None) -> GameAnalysis | None:
    """Return the analysis of ``game``, or None if its file at ``path`` is missing or unreadable.

    An analysis with another view radius counts as missing.
    """
    with contextlib.suppress(OSError):
        found = GameAnalysis.load_current(game)
        assumed = _assumed_view_radius(game, view_radius)
        return found if found and found.view_radius == assumed else None
    return None


def _assumed_view_radius(path: Path, view_radius: int | None) -> int | None:
    """Return ``view_radius``, or None if the settings of the recorded game have a view radius."""
    return None if view_radius is None or has_view_radius(path) else view_radius


def _mistake_to_dict(mistake: MoveAssessment) -> dict[str, Any]:
    """Convert a mistake to the viewer's JSON format."""
    return {
        "turn": mistake.turn, "id": mistake.snake_id, "move": mistake.move,
        "annotation": mistake.annotation, "better_move": mistake.better_move,
        "best_win_probability": round(mistake.best_win_probability, 4),
        "played_win_probability": round(mistake.played_win_probability, 4),
    }  # fmt: skip

"""A snake as the folder that CodeClash's arena starts (arXiv 2511.00839): `python main.py`.

The arena runs Ubuntu 22.04 with Python 3.10, offline, without numpy. So the folder has those of our
modules that a snake needs, which need only the standard library, and the compiled search: it is
built for the stable interface of Python 3.11; 3.10 has all that it uses of it (a test plays there).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import battlesnake_gym
import battlesnake_heuristics
from battlesnake_gym.boards.board import Board
from battlesnake_gym.engine.build_check import SHARED_SOURCES
from battlesnake_gym.rules import Game
from battlesnake_server.bundle import BUNDLE_METADATA_FILE, POLICY_FILE, BundleError

_START = 5.0
"""Seconds in which it must answer."""

_GAME = ("snakes.py", "boards", "common", "rules", "engine/__init__.py", "engine/build_check.py",
        *(f"engine/csrc/{path.name}" for path in SHARED_SOURCES))  # fmt: skip
_SNAKES = ("__init__.py", "named.py", "handwritten", "search")
"""What is brought along of `battlesnake_gym` and of `battlesnake_heuristics`."""


def write(folder: Path, facts: Mapping[str, Any], files: Mapping[str, bytes]) -> float:
    """Write the folder, and see that it starts and moves; returns the seconds until its first move.

    Raises ``ValueError`` where the snake needs what the arena lacks or ``folder`` is there already,
    `BundleError` with what the snake said where it does not start.
    """
    if POLICY_FILE in files:
        raise ValueError("a policy needs onnxruntime, which CodeClash's arena lacks; leave it out")
    if folder.exists():
        raise ValueError(f"{folder} is there already; name another folder with -o")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".codeclash-") as part:
        _fill(Path(part, "snake"), facts, files)
        seconds = _tried(Path(part, "snake"))
        Path(part, "snake").rename(folder)
    return seconds


def _fill(folder: Path, facts: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    for package, names in ((battlesnake_gym, _GAME), (battlesnake_heuristics, _SNAKES)):
        here, there = Path(package.__path__[0]), folder / package.__name__
        for name in names:
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            if (here / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyi")
                shutil.copytree(here / name, there / name, ignore=ignored)
            else:
                shutil.copy(here / name, there / name)
    # Ours registers environments with gymnasium, which the arena lacks.
    (folder / "battlesnake_gym" / "__init__.py").touch()
    if (compiled := sys.modules.get("battlesnake_heuristics.search._search")) is not None:
        shutil.copy(
            str(compiled.__file__), folder / "battlesnake_heuristics" / "search" / "_search.abi3.so"
        )
    shutil.copy(Path(__file__).with_name("codeclash_main.py"), folder / "main.py")
    for name, data in (
        {BUNDLE_METADATA_FILE: json.dumps(facts, indent=2).encode()} | dict(files)
    ).items():
        (folder / name).write_bytes(data)


def _tried(folder: Path) -> float:
    """Play a move over a socket, by this Python without its packages; the seconds until then."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    board = Board.new(11, 11, 2, game=Game(seed=1, timeout=500))
    body = json.dumps(board.to_api("snake_0")).encode()
    environment = {"PORT": str(port), "PATH": os.environ.get("PATH", "")}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-B", "-S", "-E", "main.py"],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    moved = False
    try:
        while not moved and process.poll() is None and time.monotonic() - began < _START:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/move", body, 1).close()
                moved = True
            took = time.monotonic() - began
            time.sleep(0.02)
    finally:
        process.kill()
        said = process.communicate()[1]
    if not moved or "Traceback" in said:  # of a rule that fails: it moves all the same, somehow
        why = said.strip().rpartition("\n")[2] or f"no answer within {_START:g} s"
        raise BundleError(f"the snake does not play there: {why}")
    return took

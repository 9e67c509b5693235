"""Directories of snakes for CodeClash's arena (arXiv 2511.00839).

The arena starts ``python main.py`` on Ubuntu 22.04 with Python 3.10, offline and without NumPy. The
directory therefore contains the required modules of the snake, which use only the standard library,
and the compiled search. The search is built for the stable ABI of Python 3.11. Python 3.10 provides
all functions that the search uses; a test plays a game with Python 3.10.
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
from battlesnake_gym.common.files import sync, sync_tree
from battlesnake_gym.engine.build_check import SHARED_SOURCES
from battlesnake_gym.rules import Game
from battlesnake_server.bundle import BUNDLE_METADATA_FILE, POLICY_FILE, BundleError

_START_TIMEOUT_S = 5.0
"""Maximum number of seconds until the first move."""

_GAME = ("snakes.py", "boards", "common", "rules", "engine/__init__.py", "engine/build_check.py",
        *(f"engine/csrc/{path.name}" for path in SHARED_SOURCES))  # fmt: skip
_SNAKES = ("__init__.py", "builtin_snakes.py", "rule_based", "search")
"""Copied files of `battlesnake_gym` and `battlesnake_heuristics`."""


def write(folder: Path, metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> float:
    """Write the directory and test that the snake starts and moves.

    Args:
        folder: Directory to create.
        metadata: Metadata of the bundle.
        files: Contents of the bundle's other files by name.

    Returns:
        Seconds until the first move.

    Raises:
        ValueError: If the snake needs a package that the arena lacks, or ``folder`` exists.
        BundleError: If the snake does not start; the message contains the last output.
    """
    if POLICY_FILE in files:
        raise ValueError("a policy needs onnxruntime, which CodeClash's arena lacks; omit --policy")
    if folder.exists():
        raise ValueError(f"{folder} exists; name another directory with -o")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".codeclash-") as part:
        _fill(Path(part, "snake"), metadata, files)
        seconds = _try_move(Path(part, "snake"))
        sync_tree(Path(part, "snake"))
        Path(part, "snake").rename(folder)
    sync(folder.parent)
    return seconds


def _fill(folder: Path, metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    for package, names in ((battlesnake_gym, _GAME), (battlesnake_heuristics, _SNAKES)):
        here, there = Path(package.__path__[0]), folder / package.__name__
        for name in names:
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            if (here / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyi")
                shutil.copytree(here / name, there / name, ignore=ignored)
            else:
                shutil.copy(here / name, there / name)
    # The original __init__.py registers environments with Gymnasium, which the arena lacks.
    (folder / "battlesnake_gym" / "__init__.py").touch()
    if (compiled := sys.modules.get("battlesnake_heuristics.search._search")) is not None:
        shutil.copy(
            str(compiled.__file__), folder / "battlesnake_heuristics" / "search" / "_search.abi3.so"
        )
    shutil.copy(Path(__file__).with_name("codeclash_main.py"), folder / "main.py")
    for name, data in (
        {BUNDLE_METADATA_FILE: json.dumps(metadata, indent=2).encode()} | dict(files)
    ).items():
        (folder / name).write_bytes(data)


def _try_move(folder: Path) -> float:
    """Play a move over HTTP in an isolated Python process.

    Returns:
        Duration in seconds.
    """
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
        while not moved and process.poll() is None and time.monotonic() - began < _START_TIMEOUT_S:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/move", body, 1).close()
                moved = True
            seconds = time.monotonic() - began
            time.sleep(0.02)
    finally:
        process.kill()
        stderr = process.communicate()[1]
    # A failing rule causes a traceback, but the snake still moves.
    if not moved or "Traceback" in stderr:
        reason = stderr.strip().rpartition("\n")[2] or f"no response within {_START_TIMEOUT_S:g} s"
        raise BundleError(f"the snake does not play in CodeClash: {reason}")
    return seconds

"""Directories of snakes for CodeClash's arena (arXiv 2511.00839).

The arena starts ``python main.py`` on Ubuntu 22.04 with Python 3.10, offline and without NumPy. The
directory therefore contains the compiled search and the modules that the snake requires. These
modules use only the standard library. The search is built for the stable ABI of Python 3.11. Python
3.10 provides all functions that the search uses. A test plays a game with Python 3.10.
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
"""Maximum time until the first move, in seconds."""

_GAME_PATHS = ("snakes.py", "boards", "common", "rules", "engine/__init__.py",
        "engine/build_check.py",
        *(f"engine/csrc/{path.name}" for path in SHARED_SOURCES))  # fmt: skip
_SNAKE_PATHS = ("__init__.py", "builtin_snakes.py", "rule_based", "search")
"""Paths to copy from `battlesnake_gym` and `battlesnake_heuristics`."""


def write_directory(folder: Path, metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> float:
    """Write a directory for CodeClash's arena, and test the snake's first move.

    Args:
        folder: Directory to create.
        metadata: Metadata of the bundle.
        files: Contents of the bundle's other files, keyed by file name.

    Returns:
        Seconds until the first move.

    Raises:
        ValueError: If the snake needs a package that the arena lacks, or ``folder`` exists.
        BundleError: If the snake does not move; the message contains the last line of output.
    """
    if POLICY_FILE in files:
        raise ValueError("a policy needs onnxruntime, which CodeClash's arena lacks; omit --policy")
    if folder.exists():
        raise ValueError(f"{folder} exists; name another directory with -o")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".codeclash-") as part:
        _copy_files(Path(part, "snake"), metadata, files)
        seconds = _measure_first_move_s(Path(part, "snake"))
        sync_tree(Path(part, "snake"))
        Path(part, "snake").rename(folder)
    sync(folder.parent)
    return seconds


def _copy_files(folder: Path, metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Copy the modules, the compiled search and the bundle's files to ``folder``."""
    for package, names in ((battlesnake_gym, _GAME_PATHS), (battlesnake_heuristics, _SNAKE_PATHS)):
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


def _measure_first_move_s(folder: Path) -> float:
    """Start the snake in an isolated Python process, and request a move over HTTP.

    Returns:
        Seconds from the start of the process to the move.

    Raises:
        BundleError: If the snake does not move; the message contains the last line of output.
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
    # If a rule fails, the snake prints a traceback and still returns a move.
    if not moved or "Traceback" in stderr:
        reason = stderr.strip().rpartition("\n")[2] or f"no response within {_START_TIMEOUT_S:g} s"
        raise BundleError(f"the snake does not play in CodeClash: {reason}")
    return seconds

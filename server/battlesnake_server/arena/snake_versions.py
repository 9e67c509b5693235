"""Versions of the snakes in a tournament.

A tournament contains games of only one version of each snake.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from battlesnake_gym import snakes
from battlesnake_server.strategy_loader import split_policy_and_rules

_PROJECT_PACKAGES = ("battlesnake_gym.", "battlesnake_heuristics.", "battlesnake_server.")


def snake_version(source: str) -> dict[str, str]:
    """Return the version and the hash of a snake.

    Args:
        source: Source of the snake, in the format of `tournament.Entrant`, or the command of a
            program.

    Returns:
        A dict with the keys ``version`` and ``sha256``. ``version`` is the version of this project.
        ``sha256`` is the hash of the snake's files, and is missing if the snake has no files. The
        hash excludes modules that the files import. The dict of a snake behind a URL is empty.
    """
    if source.startswith(("http://", "https://")):
        return {}
    found = {}
    if files := sorted(_snake_files(source)):
        digest = hashlib.sha256()
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        found["sha256"] = digest.hexdigest()
    return {"version": importlib.metadata.version("battlesnake-gym")} | found


def _snake_files(source: str) -> set[Path]:
    """Return the files that ``source`` executes or loads."""
    parts = [part for part in split_policy_and_rules(source) if part]
    with contextlib.suppress(ValueError):
        # The command of a program may contain the path of the program's file.
        parts += shlex.split(source)
    with contextlib.suppress(ValueError):  # `snakes.factory` raises ValueError for a command.
        parts += _registered_files(source)
    paths = {Path(part) for part in parts}
    paths |= {path.with_suffix(".json") for path in paths if path.suffix == ".onnx"}
    return {path for path in paths if os.path.isfile(path)}  # noqa: PTH113  (any text)


def _registered_files(source: str) -> Iterable[str]:
    """Return the policy of a run directory, or the file of a user's registered snake."""
    if path := snakes.resolve_file(source):
        return [path]
    if source.endswith(".py"):
        return []
    factory = inspect.unwrap(snakes.factory(source.rpartition("@")[0] or source))
    module = getattr(factory, "__module__", "") or ""
    code = getattr(factory, "__code__", None)
    return [] if code is None or f"{module}.".startswith(_PROJECT_PACKAGES) else [code.co_filename]

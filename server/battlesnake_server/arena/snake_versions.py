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
from battlesnake_gym.snake_spec import SnakeSpec

_PROJECT_PACKAGES = ("battlesnake_gym.", "battlesnake_heuristics.", "battlesnake_server.")


def snake_version(source: str) -> dict[str, str]:
    """Return the version and the hash of a snake.

    Args:
        source: A snake (`SnakeSpec`), or the command of a program.

    Returns:
        A dict with the keys ``version`` and ``sha256``. ``version`` is the version of this project.
        ``sha256`` is the hash of the snake's files, and is missing if the snake has no files. The
        hash excludes modules that the files import. The dict of a snake behind a URL is empty.
    """
    if SnakeSpec.parse(source).is_remote:
        return {}
    found = {}
    if files := sorted(snake_files(source)):
        digest = hashlib.sha256()
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        found["sha256"] = digest.hexdigest()
    return {"version": importlib.metadata.version("battlesnake-gym")} | found


def snake_files(source: str) -> set[Path]:
    """Return the files that a snake, or the command of a program, executes or loads."""
    spec = SnakeSpec.parse(source)
    parts = [spec.source, spec.rules]
    with contextlib.suppress(ValueError):
        # The command of a program may contain the path of the program's file.
        parts += shlex.split(source)
    with contextlib.suppress(ValueError):  # `snakes.factory` raises ValueError for a command.
        parts += _registered_files(spec)
    paths = {Path(part) for part in parts}
    paths |= {path.with_suffix(".json") for path in paths if path.suffix == ".onnx"}
    return {path for path in paths if os.path.isfile(path)}  # noqa: PTH113  (any text)


def _registered_files(spec: SnakeSpec) -> Iterable[str]:
    """Return the policy of a run directory, or the file of a user's registered snake."""
    if path := snakes.policy_path(spec):
        return [path]
    if spec.is_file:
        return []
    factory = inspect.unwrap(snakes.factory(spec.source))
    module = getattr(factory, "__module__", "") or ""
    code = getattr(factory, "__code__", None)
    return [] if code is None or f"{module}.".startswith(_PROJECT_PACKAGES) else [code.co_filename]

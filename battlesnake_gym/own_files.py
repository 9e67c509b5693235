"""Files of somebody's own: what adds maps, observations, rewards, masks and snakes from outside.

`VARIABLE` names Python files; an installed package names modules in its entry points of `GROUP`.
Each is run once, at the first look-up of a name, and registers what it has: see ``docs/own.md``.
Whoever reads this process's environment variables decides which files those are.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

VARIABLE = "BATTLESNAKE_GYM_FILES"
"""Environment variable with the paths of the files, separated as in ``PATH``."""

GROUP = "battlesnake_gym"
"""The group of entry points of a package that registers something when it is imported."""

_begun: set[Path] = set()


def load() -> None:
    """Run all that were not run yet. Raises ``ValueError`` where the variable names no file."""
    _load_packages()
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _load_file(Path(path).resolve())


@functools.cache
def _load_packages() -> None:
    for entry in importlib.metadata.entry_points(group=GROUP):
        entry.load()


def _load_file(path: Path) -> None:
    if path in _begun:
        return
    if not path.is_file():
        raise ValueError(f"{VARIABLE} names {path}, which is no file; correct or unset it")
    spec = importlib.util.spec_from_file_location(f"own_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(
            f"{VARIABLE} names {path}, which is no Python file; its name must end in .py"
        )
    _begun.add(path)  # a file that looks up a name while it runs is not run again
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)

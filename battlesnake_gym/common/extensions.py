"""Your own files, which add maps, observations, rewards, masks and snakes from outside.

`EXTENSIONS_VARIABLE` names Python files; an installed package names modules in its entry points of `_ENTRY_POINT_GROUP`.
Each is run once, at the first look-up of a name, and registers what it has: see ``docs/own.md``.
Anyone who sets this process's environment variables decides which files those are.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from battlesnake_gym.common.suggestions import unknown_name_message

EXTENSIONS_VARIABLE = "BATTLESNAKE_GYM_FILES"
"""Environment variable with the paths of the files, separated as in ``PATH``."""

_ENTRY_POINT_GROUP = "battlesnake_gym"
"""The group of entry points of a package that registers something when it is imported."""

_modules: dict[Path, ModuleType] = {}


class ExtensionError(ValueError):
    """A file of your own is missing, or is not a Python file; the message names it."""


def load() -> None:
    """Run all that were not run yet. Raises `ExtensionError` where the variable names no file."""
    _load_packages()
    for path in filter(None, os.environ.get(EXTENSIONS_VARIABLE, "").split(os.pathsep)):
        module(Path(path), EXTENSIONS_VARIABLE)


def module(path: Path, option_name: str) -> ModuleType:
    """The module that a Python file makes; it is run once in a process.

    Raises `ExtensionError` that begins with ``option_name`` where it is no Python file.
    """
    path = path.resolve()
    if path in _modules:
        return _modules[path]
    if not path.is_file():
        raise ExtensionError(f"{option_name} names {path}, which is no file; correct or unset it")
    spec = importlib.util.spec_from_file_location(f"own_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ExtensionError(
            f"{option_name} names {path}, which is no Python file; its name must end in .py"
        )
    made = importlib.util.module_from_spec(spec)
    _modules[path] = made  # a file that looks up a name while it runs is not run again
    sys.modules[spec.name] = made  # where dataclasses look for their module
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del _modules[path]  # a mended file may be tried again
        raise
    return made


def load_object(reference: str, option_name: str) -> Any:
    """What ``FILE.py:NAME`` names. Raises ``ValueError`` that begins with ``option_name``.

    >>> named("my_net.py", "network")
    Traceback (most recent call last):
    ValueError: network must be FILE.py:NAME, got 'my_net.py'
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ValueError(f"{option_name} must be FILE.py:NAME, got {reference!r}")
    made = module(Path(file), option_name)
    if not hasattr(made, name):
        known = [one for one in vars(made) if not one.startswith("_")]
        raise ValueError(f"{file}: {unknown_name_message(option_name, name, known)}")
    return getattr(made, name)


@functools.cache
def _load_packages() -> None:
    for entry in importlib.metadata.entry_points(group=_ENTRY_POINT_GROUP):
        entry.load()

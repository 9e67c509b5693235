"""Extensions: user files that add maps, observations, rewards, masks and snakes.

The environment variable `EXTENSIONS_VARIABLE` lists Python files. Installed packages list modules
as entry points of the group `_ENTRY_POINT_GROUP`. Each file and module runs once per process, at
the first lookup of a name; see ``docs/reference/environment-variables.md``. Anyone who can set the
environment variables of a process can therefore run code in the process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.common.suggestions import nearest_name, unknown_name_message

EXTENSIONS_VARIABLE = "BATTLESNAKE_GYM_EXTENSIONS"
"""Environment variable that lists extension files, with the separator of ``PATH``."""

_ENTRY_POINT_GROUP = "battlesnake_gym"
"""Entry point group of modules that register extensions on import."""

_loaded_modules: dict[Path, ModuleType] = {}
_running_files: list[Path] = []
_folders: list[str] = []
"""Folders of the loaded files, at the end of ``sys.path``."""

_load_lock = threading.RLock()
"""Lock that lets one thread at a time run a file; the file may load other files."""


class ExtensionError(ValueError):
    """Error for a missing or failing extension.

    The message contains the file and the line.
    """


def portable_environment() -> dict[str, str]:
    """Return the environment variables without this project's, which other machines lack."""
    return {name: v for name, v in os.environ.items() if not name.startswith("BATTLESNAKE_")}


def unregistered_name_message(
    kind: str, name: object, known: Iterable[str], listed_by: str = ""
) -> str:
    """Return `unknown_name_message`, with a remedy for a name that an extension registers."""
    known = list(known)
    if nearest_name(str(name), known) or os.environ.get(EXTENSIONS_VARIABLE):
        return unknown_name_message(kind, name, known, listed_by)
    message = unknown_name_message(kind, name, known if listed_by else [*known[:3], "…"], listed_by)
    return f"{message}; or set {EXTENSIONS_VARIABLE} to its file"


def load_all() -> None:
    """Run all extensions that have not run in this process yet.

    Raises:
        ExtensionError: If an extension is missing or fails.
    """
    _load_entry_points()
    for path in filter(None, os.environ.get(EXTENSIONS_VARIABLE, "").split(os.pathsep)):
        load_file(Path(path), EXTENSIONS_VARIABLE)


def load_file(path: Path, option_name: str) -> ModuleType:
    """Run a Python file once per process, and return the module.

    Args:
        path: Python file.
        option_name: Option or environment variable that contains the path, for error messages.

    Raises:
        ExtensionError: If ``path`` is not a Python file, or if the file raises an exception.
    """
    path = path.resolve()
    with _load_lock:
        return _load_file(path, option_name)


def _load_file(path: Path, option_name: str) -> ModuleType:
    if path in _loaded_modules:
        return _loaded_modules[path]
    if not path.is_file():
        raise ExtensionError(f"{option_name}: {path} does not exist; correct or omit the path")
    spec = importlib.util.spec_from_file_location(f"own_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ExtensionError(
            f"{option_name} names {path}, which is not a Python file; its name must end in .py"
        )
    loaded = importlib.util.module_from_spec(spec)
    # A file that looks up a name while the file runs must not run again.
    _loaded_modules[path] = loaded
    # The decorator `dataclass` looks up the module of a class in `sys.modules`.
    sys.modules[spec.name] = loaded
    _running_files.append(path)
    _search_folder_last(str(path.parent))
    try:
        with _reject_servers():
            spec.loader.exec_module(loaded)
    except BaseException as error:
        # The user may fix the file and try again.
        del _loaded_modules[path]
        if isinstance(error, KeyboardInterrupt | ExtensionError):
            raise
        raise ExtensionError(describe_exception(error, path)) from error
    finally:
        _running_files.pop()
    return loaded


@contextlib.contextmanager
def _reject_servers() -> Iterator[None]:
    """Raise ``RuntimeError`` if this thread starts a server, because the call may never return."""
    thread, listen, levels = threading.get_ident(), socket.socket.listen, list[int]()

    def check_thread(server: socket.socket, *backlog: int) -> None:
        if threading.get_ident() == thread and server.family != socket.AF_UNIX:
            server.close()
            levels.append(logging.root.manager.disable)
            logging.disable()  # uvicorn would log this exception's traceback
            raise RuntimeError('start the server only below if __name__ == "__main__":')
        listen(server, *backlog)

    socket.socket.listen = check_thread  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        socket.socket.listen = listen  # type: ignore[method-assign]
        if levels:
            logging.disable(levels[0])


def _search_folder_last(folder: str) -> None:
    """Let the next file import the modules in its folder, which is searched last.

    Another file may have imported a module of the same name from its own folder. This function
    removes such modules from ``sys.modules``; the other file keeps its reference.
    """
    others = [other for other in _folders if other != folder]
    prefixes = tuple(os.path.join(other, "") for other in others)  # noqa: PTH118
    sys.path[:] = [entry for entry in sys.path if entry not in _folders]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(prefixes) and not name.startswith("own_"):
            beside = Path(folder, *name.split("."))
            if beside.is_dir() or beside.with_suffix(".py").is_file():
                del sys.modules[name]
    _folders[:] = [folder, *others]
    sys.path += _folders


def current_extension_file() -> Path | None:
    """Return the extension file that is currently running, or None."""
    return _running_files[-1] if _running_files else None


def load_object(reference: str, option_name: str) -> Any:
    """Load the object ``NAME`` from the Python file of the reference ``FILE.py:NAME``.

    Args:
        reference: ``FILE.py:NAME``.
        option_name: Option that contains the reference, for error messages.

    Raises:
        ValueError: If the reference, the file or the name is invalid.

    >>> load_object("my_net.py", "network")
    Traceback (most recent call last):
    ValueError: network must be FILE.py:NAME, got 'my_net.py'
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ValueError(f"{option_name} must be FILE.py:NAME, got {reference!r}")
    loaded = load_file(Path(file), option_name)
    if not hasattr(loaded, name):
        known = [other for other in vars(loaded) if not other.startswith("_")]
        raise ValueError(f"{file}: {unknown_name_message(option_name, name, known)}")
    return getattr(loaded, name)


@functools.cache
def _load_entry_points() -> None:
    for entry in importlib.metadata.entry_points(group=_ENTRY_POINT_GROUP):
        try:
            entry.load()
        except Exception as error:
            remedy, (package, *modules) = "fix or uninstall its package", entry.module.split(".")
            found = sys.modules.get(package)
            if found is not None and modules and not hasattr(found, "__path__"):
                remedy = f"rename {found.__file__}, which hides its package"
            raise ExtensionError(
                f"entry point {entry.name} = {entry.value} cannot be loaded; {remedy}: "
                f"{type(error).__name__}: {error}"
            ) from error

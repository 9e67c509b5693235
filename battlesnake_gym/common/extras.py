"""Importer of modules that need the packages of an extra."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Self


class MissingExtraError(Exception):
    """Error for a command whose required packages are missing.

    The message contains the install command.
    """

    @classmethod
    def of_package(cls, error: ModuleNotFoundError, extra: str) -> Self:
        """Return the error for a missing package of ``extra``."""
        return cls(f"the package {error.name!r} is missing; {install_remedy(extra)}")


def load_module(module: str, extra: str) -> ModuleType:
    """Import a module that needs the packages of ``extra`` ("" for no extra).

    Raises:
        MissingExtraError: If a package is not installed or not available on this system.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Python's standard library lacks some modules on Windows, such as `fcntl`.
        if error.name in sys.stdlib_module_names:
            raise MissingExtraError("this command needs Linux or macOS") from error
        if not extra:
            raise
        raise MissingExtraError.of_package(error, extra) from error


def install_remedy(extra: str) -> str:
    """Return the instructions for installing the packages of an extra.

    >>> install_remedy("server")
    "run pip install '.[server]' in a clone, or 'WHEEL[server]' from a wheel"
    """
    return f"run pip install '.[{extra}]' in a clone, or 'WHEEL[{extra}]' from a wheel"

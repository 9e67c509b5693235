"""Installed versions, for ``battlesnake-gym --version`` and bug reports."""

from __future__ import annotations

import importlib
import platform
import re
import warnings
from importlib import metadata
from types import ModuleType

from battlesnake_gym.engine import build_check

PACKAGE_NAME = "battlesnake-gym"
COMPILED_MODULES = {
    "engine": ("battlesnake_gym.engine.engine", "battlesnake_gym.engine._engine"),
    "search": ("battlesnake_heuristics.search.search", "battlesnake_heuristics.search._search"),
}
"""Importing module and full module name of each compiled module, by short name."""


def format_report() -> str:
    """Return a text report of versions, compiled modules, instruction set and extras."""
    own_version = installed_version(PACKAGE_NAME) or "not installed (running from source)"
    needed = required_packages()
    always = needed.pop("", [])
    return "\n".join(
        [
            f"{PACKAGE_NAME} {own_version}",
            f"python {platform.python_version()} on {platform.system()} {platform.machine()}",
            *(f"{name} {installed_version(name) or 'missing'}" for name in always),
            *(f"{part}: {_describe_module(*names)}" for part, names in COMPILED_MODULES.items()),
            *(f"extra {extra}: {_describe_extra(needed[extra])}" for extra in sorted(needed)),
        ]
    )


def load_compiled_module(importer: str, name: str) -> ModuleType | None:
    """Return the compiled module ``name``, or None if the module is missing."""
    with warnings.catch_warnings():
        # The caller reports `build_check.missing_reason` instead of the warning.
        warnings.simplefilter("ignore")
        importlib.import_module(importer)
        return build_check.load_compiled_module(name, "")


def _describe_module(importer: str, name: str) -> str:
    module = load_compiled_module(importer, name)
    if module is None:
        return f"missing: {build_check.missing_reason(name)}; to fix it: {build_check.BUILD_HINT}"
    has_isa = hasattr(module, "get_observation_isa")
    isa = f", compiled for {module.get_observation_isa()}" if has_isa else ""
    return f"compiled{isa} ({module.__file__})"


def _describe_extra(packages: list[str]) -> str:
    missing = [name for name in packages if installed_version(name) is None]
    if missing:
        return f"missing {', '.join(missing)}"
    return ", ".join(f"{name} {installed_version(name)}" for name in packages)


def required_packages() -> dict[str, list[str]]:
    """Return the names of the required packages by extra.

    The key "" contains the packages that are always required.
    """
    try:
        requirements = metadata.requires(PACKAGE_NAME) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", requirement)
        assert name is not None
        found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, or None for a missing package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

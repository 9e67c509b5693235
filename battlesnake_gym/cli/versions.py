"""What is installed here, for ``battlesnake-gym --version`` and reports of bugs."""

from __future__ import annotations

import importlib
import platform
import re
import warnings
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType

from battlesnake_gym.engine import build_check

NAME = "battlesnake-gym"
PARTS = {
    "engine": ("battlesnake_gym.engine.engine", "battlesnake_gym.engine._engine"),
    "search": ("battlesnake_heuristics.search.search", "battlesnake_heuristics.search._search"),
}
"""Each compiled part: the module that loads it, and its own name."""


def report() -> str:
    """Versions, compiled parts, the processor's code and the optional extras, one a line."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield f"{NAME} {version(NAME) or 'not installed: run from its sources'}"
    yield f"python {platform.python_version()} on {platform.system()} {platform.machine()}"
    needed = required()
    for name in needed.pop("", []):
        yield f"{name} {version(name) or 'missing'}"
    for part, (face, name) in PARTS.items():
        yield f"{part}: {_part(face, name)}"
    for extra, packages in sorted(needed.items()):
        yield f"extra {extra}: {_extra(packages)}"


def compiled_part(face: str, name: str) -> ModuleType | None:
    """The compiled module ``name`` that ``face`` plays with; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `build_check.why_not` gives the reason
        importlib.import_module(face)
        return build_check.load(name, "")


def _part(face: str, name: str) -> str:
    module = compiled_part(face, name)
    if module is None:
        return f"missing: {build_check.missing_reason(name)}; to mend it: {build_check.BUILD_HINT}"
    code = f", code for {module.observes_by()}" if hasattr(module, "observes_by") else ""
    return f"compiled{code} ({module.__file__})"


def _extra(packages: list[str]) -> str:
    missing = [name for name in packages if version(name) is None]
    if missing:
        return f"missing {', '.join(missing)}"
    return ", ".join(f"{name} {version(name)}" for name in packages)


def required() -> dict[str, list[str]]:
    """The packages that are needed by extra; those always needed under ""."""
    try:
        requirements = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", requirement)
        assert name is not None
        found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def version(name: str) -> str | None:
    """The installed version of a package, None where it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

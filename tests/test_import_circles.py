"""No module needs, to be imported, one that needs it: data and imports flow one way."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    ".": ("battlesnake_gym", "heuristics", "server"),
    "rllib_src": ("mabs", "mxnet_baseline", "procgen_rllib"),
    "rllib_common": ("sagemaker_rl",),
}


def modules() -> dict[str, Path]:
    """All modules of the project by name."""
    found = {}
    for folder, names in PACKAGES.items():
        for name in names:
            for path in (ROOT / folder / name).rglob("*.py"):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that this one imports as it is read: not in functions, nor for types alone."""
    found: set[str] = set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= (inner & set(known)) or {base}
    return (found & set(known)) - {name}


def test_imports_go_one_way() -> None:
    known = modules()
    assert len(known) > 200
    needs = {name: imported(name, path, known) for name, path in known.items()}
    assert "battlesnake_gym.config" in needs["battlesnake_gym.vector"]
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))

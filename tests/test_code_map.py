"""Every pointer of `docs/project/code-map.md` leads to what it names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "project" / "code-map.md").read_text()
POINTERS = re.findall(r"`([\w./-]+/[\w./-]+?)(?::(\w+))?`", PAGE)

IN_C = r"^[\w*(][^;=\n]*\b{name}\(|^#define {name}\b|\b{name}\[\w*\] ="
"""How a function, a macro or a table begins."""


def test_there_are_pointers() -> None:
    assert len(POINTERS) > 35
    assert len([name for _, name in POINTERS if name]) > 30


@pytest.mark.parametrize(("file", "name"), POINTERS)
def test_it_is_there(file: str, name: str) -> None:
    path = ROOT / file
    assert path.exists()
    if not name:
        return
    if path.suffix == ".py":
        assert name in defined(ast.parse(path.read_text()))
    else:
        assert re.search(IN_C.format(name=name), path.read_text(), re.MULTILINE)


def defined(module: ast.Module) -> set[str]:
    """The names that a module defines at its top."""
    found = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found

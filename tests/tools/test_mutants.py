"""The mutants of `make mutants`: valid lines, each one once, always the same."""

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import mutants  # noqa: E402

TABLE = tomllib.loads((ROOT / "tools/mutants.toml").read_text())

PYTHON = '''
"""One < two."""


def f(a: int = 1) -> bool:
    if a < 2 and not a:  # a < 3
        raise ValueError(f"{a} < 4")
    return a in (1, 2)
'''
BROKEN_PYTHON = [
    "if a <= 2 and not a:", "if a < 3 and not a:", "if a < 2 or not a:", "if a < 2 and  a:",
    "pass", "return a not in (1, 2)", "return a in (2, 2)", "return a in (1, 3)",
]  # fmt: skip
C = """
#define ONE 1
/* 1 < 2 */
int f(int a) {
    for (int i = 0; i < 9; i++) a += 3;
    g(a);
    if (!a && a < 2) a = 1; /* 3 */
}
"""
BROKEN_C = [
    ";", "if (a && a < 2) a = 1;", "if (!a || a < 2) a = 1;", "if (!a && a <= 2) a = 1;",
    "if (!a && a < 3) a = 1;", "if (!a && a < 2) a = 2;",
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "broken"), [("a.py", PYTHON, BROKEN_PYTHON), ("a.c", C, BROKEN_C)]
)
def test_each_line_is_broken_in_every_way(path: str, text: str, broken: list[str]) -> None:
    found = mutants._select_mutants(path, text, 99)
    assert sorted(one.new.split("  #")[0].split(" /*")[0].strip() for one in found) == sorted(
        broken
    )
    assert mutants._select_mutants(path, text, 3) == found[:3]
    assert all(one.apply_to(text).count("\n") == text.count("\n") for one in found)


def test_there_are_400_and_the_accepted_ones_are_among_them() -> None:
    named = {
        one.name
        for path, tests in TABLE["tests"].items()
        for one in mutants._select_mutants(path, (ROOT / path).read_text(), 12)
        if all((ROOT / "tests" / test.split("::")[0]).exists() for test in tests.split())
    }
    assert len(named) > 400
    assert not TABLE["accepted"].keys() - named

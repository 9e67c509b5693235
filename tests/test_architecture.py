"""The house stays one: rooms of a size to look around in, imports one way, names that differ.

A room is a folder of a package with the folders below it; `docs/explanation/architecture.md` shows
them all.
"""

import ast
import re
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = (
    "battlesnake_gym",
    "heuristics/battlesnake_heuristics",
    "server/battlesnake_server",
    "rllib_common/sagemaker_rl",
    "rllib_src/battlesnake_rl",
)
"""The folders of the packages, each under the name that it is imported by."""

BESIDE = ("benchmarks", "conformance", "docs", "notebooks", "reference", "tools")
"""Folders of Python that no package is in."""

MOST_MODULES = 20
"""In a folder, its ``__init__`` and ``__main__`` not counted."""

LIGHT = ("battlesnake_gym", "heuristics/battlesnake_heuristics", "server/battlesnake_server")
HEAVY = {"torch", "ray", "sagemaker"}
"""What no module of the `LIGHT` packages imports, in functions neither."""

COMMANDS = (
    "battlesnake_gym.cli",
    "battlesnake_gym.commands",
    "battlesnake_heuristics.commands",
    "battlesnake_server.commands",
    "battlesnake_rl.commands",
    "sagemaker_rl.commands",
)
"""Rooms of commands: they open the others, and no other room imports them."""


def _modules() -> dict[str, Path]:
    found = {}
    for package in map(Path, PACKAGES):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT / package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = _modules()
FACES = {name for name, path in MODULES.items() if path.stem in ("__init__", "__main__")}


def imported(path: Path, name: str = "") -> set[str]:
    """All that a file imports, in functions and for types too."""
    found: set[str] = set()
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= inner or {base}
    return found


NEEDS = {name: (imported(path, name) & set(MODULES)) - {name} for name, path in MODULES.items()}


def room(name: str) -> str:
    """The folder below its package that a module is in; the package's own folder is one too."""
    for package in PACKAGES:
        folder = ROOT / package
        if folder in MODULES[name].parents:
            inside = MODULES[name].relative_to(folder).parts[:-1]
            # `mabs` and `procgen` are packages with folders of their own.
            deep = 2 if folder.name == "battlesnake_rl" else 1
            return "/".join([package, *inside[:deep]])
    raise LookupError(name)


def _one_way(needs: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_module_needs_one_that_needs_it() -> None:
    assert len(MODULES) > 200
    assert "battlesnake_gym.config" in NEEDS["battlesnake_gym.env.vector"]
    _one_way(NEEDS)


def test_no_room_needs_one_that_needs_it() -> None:
    """A package's face hands on the names of its rooms, and is in none of them."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for name in set(MODULES) - FACES:
        rooms[room(name)] |= {room(needed) for needed in NEEDS[name] - FACES} - {room(name)}
    assert len(rooms) > 25
    assert "battlesnake_gym/rules" in rooms["battlesnake_gym/boards"]
    _one_way(rooms)


def test_the_game_needs_nothing_above_it() -> None:
    """Commands open what is above them by name; `battlesnake_gym` imports itself alone."""
    for name in MODULES:
        if name.startswith("battlesnake_gym"):
            assert not [one for one in NEEDS[name] if not one.startswith("battlesnake_gym")], name


def test_a_folder_can_be_looked_through() -> None:
    count = Counter(
        path.parent.relative_to(ROOT)
        for folder in (*PACKAGES, *BESIDE)
        for path in (ROOT / folder).rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    )
    assert {folder: number for folder, number in count.items() if number > MOST_MODULES} == {}


def test_nothing_but_tests_imports_tests() -> None:
    for folder in (*PACKAGES, *BESIDE):
        for path in (ROOT / folder).rglob("*.py"):
            assert not [name for name in imported(path) if name.split(".")[0] == "tests"], path


def test_tests_import_no_benchmark() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        if "benchmarks" not in path.relative_to(ROOT).parts:
            assert not [name for name in imported(path) if name.startswith("benchmarks")], path


def test_two_things_have_two_names() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name in set(MODULES) - FACES:
        places[name.rpartition(".")[2]].append(name)
        for node in ast.parse(MODULES[name].read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {one: where for one, where in places.items() if len(where) > 1} == {}


def test_commands_are_above_what_they_open() -> None:
    for name in set(MODULES) - FACES:
        if not name.startswith(COMMANDS):
            assert not [one for one in NEEDS[name] if one.startswith(COMMANDS)], name


def test_playing_and_serving_import_nothing_heavy() -> None:
    for folder in LIGHT:
        for path in (ROOT / folder).rglob("*.py"):
            assert not {one.split(".")[0] for one in imported(path)} & HEAVY, path


@pytest.mark.parametrize("name", ["DQN", "APEX", "PPO", "DISTIL", "EXIT"])
def test_an_algorithm_reads_in_one_sitting(name: str) -> None:
    """The file of an algorithm and its settings have at most 300 lines of code."""
    mabs = ROOT / "rllib_src" / "battlesnake_rl" / "mabs"
    (path,) = mabs.glob(f"*/{name.lower()}.py")
    settings = code_lines(mabs / "settings" / "algorithm_settings.py", f"{name}Settings")
    assert 5 < settings < code_lines(path) <= 300 - settings


def test_no_method_hides_its_type() -> None:
    for path in (ROOT / "rllib_src").rglob("*.py"):
        assert "self: Any" not in path.read_text(), path


def unknown_arguments(class_: ast.ClassDef, docstring: str) -> list[str]:
    """The arguments in a docstring of a class that its ``__init__``, if any, does not have."""
    for method in class_.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            known = {one.arg for one in ast.walk(method.args) if isinstance(one, ast.arg)}
            listed = re.search(r"^Args:\n((?: +.*\n?)+)", docstring, re.M)
            named = re.findall(r"^    (\w+):", listed[1] if listed else "", re.M)
            return [name for name in named if name not in known]
    return []


def test_docstrings_name_what_is_there() -> None:
    """References to a name of another module, `module.name`, and the arguments of a class."""
    trees = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
    by_stem = {name.rpartition(".")[2]: path for name, path in MODULES.items() if name not in FACES}
    words = {stem: set(re.findall(r"\w+", path.read_text())) for stem, path in by_stem.items()}
    unknown = []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            text = ast.get_docstring(node) or ""
            for stem, name in re.findall(r"(?<!`)`(\w+)\.([A-Z]\w+)`", text):
                if name not in words.get(stem, {name}):
                    unknown.append((module, stem, name))
            if isinstance(node, ast.ClassDef):
                unknown += [(module, node.name, name) for name in unknown_arguments(node, text)]
    assert unknown == []


def code_lines(path: Path, class_name: str = "") -> int:
    """The lines of a file, or of one of its classes, without docstrings, comments, blank ones."""
    text = path.read_text()
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    part: ast.AST = classes[class_name] if class_name else tree
    strings = {
        line
        for node in ast.walk(part)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    first, last = getattr(part, "lineno", 1), getattr(part, "end_lineno", text.count("\n"))
    return sum(
        number not in strings and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in enumerate(text.splitlines(), 1)
        if first <= number <= last
    )

"""The choice of the compiled module and the messages about unusable ones, in own processes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import battlesnake_gym
import battlesnake_heuristics
from battlesnake_gym.engine import _engine, engine
from battlesnake_gym.engine.build_check import BUILD_HINT, SHARED_SOURCES
from battlesnake_heuristics.search import _search, search
from tests import processes

PARTS = {
    "engine": ("battlesnake_gym/engine", "_engine"),
    "search": ("battlesnake_heuristics/search", "_search"),
}
PACKAGES = [
    Path(str(package.__file__)).parent for package in (battlesnake_gym, battlesnake_heuristics)
]
MACH_O = b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01" + bytes(100)
"""The first bytes of a module that was compiled on macOS."""

TELL = """
from battlesnake_gym.engine import engine; from battlesnake_gym.env import vector
from battlesnake_heuristics.search import search; from battlesnake_heuristics import builtin_snakes
print(engine.COMPILED, search.COMPILED)
"""

pytestmark = pytest.mark.skipif(
    not (engine.COMPILED and search.COMPILED),
    reason="without compiled parts there are none to find",
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The sources as in a SageMaker job, without a compiled module."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("*.so")
        shutil.copytree(package, tmp_path / "job" / package.name, ignore=ignored)
    return tmp_path / "job"


def test_the_search_includes_only_its_own_or_shared_headers() -> None:
    """Otherwise, a change to the file would not recompile the search."""
    files = [*SHARED_SOURCES, *(PACKAGES[1] / "search/csrc").glob("*.[ch]")]
    text = "".join(path.read_text() for path in files)
    assert set(re.findall('#include "(.*)"', text)) <= {path.name for path in files}


def built(part: str) -> Path:
    """The file of the compiled module in use."""
    return Path(str((_engine if part == "engine" else _search).__file__))


def run(*command: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    found = {"PYTHONPATH": ":".join(map(str, path))}
    words = (sys.executable, "-P", *command)
    return processes.run(*words, cwd=path[0].parent, env=found, check=True)


def test_a_missing_module_gives_no_warning(job: Path) -> None:
    done = run("-c", TELL, path=[job])
    assert (done.stdout, done.stderr) == ("False False\n", "")


@pytest.mark.parametrize("damage", ["a Mac's", "another name", "other sources"])
@pytest.mark.parametrize("part", PARTS)
def test_an_unusable_module_gives_one_warning_with_reason_cost_and_remedy(
    job: Path, part: str, damage: str
) -> None:
    package, leaf = PARTS[part]
    folder = job / package
    if damage == "a Mac's":
        path = folder / f"{leaf}.abi3.so"
        path.write_bytes(MACH_O)
    elif damage == "another name":
        path = folder / f"{leaf}.cpython-311-darwin.so"
        path.write_bytes(MACH_O)
    else:
        path = folder / f"{leaf}.abi3.so"
        shutil.copy(built(part), path)
        changed = sorted((folder / "csrc").glob("*.c"))[0]
        changed.write_bytes(changed.read_bytes() + b"/* changed */")
    done = run("-c", TELL, path=[job])
    assert done.stdout == "False False\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert f"{path} " in done.stderr
    assert BUILD_HINT in done.stderr
    version = run("-m", "battlesnake_gym", "--version", path=[job])
    assert f"\n{part}: missing: {path} " in version.stdout
    assert version.stderr == ""


@pytest.mark.parametrize("part", PARTS)
def test_the_module_of_the_image_replaces_an_unusable_one(job: Path, part: str) -> None:
    package, leaf = PARTS[part]
    (job / package / f"{leaf}.abi3.so").write_bytes(MACH_O)
    image = job.with_name("image")
    for name, (its_package, its_leaf) in PARTS.items():
        (image / its_package).mkdir(parents=True)
        (image / its_package / "__init__.py").touch()
        shutil.copy(built(name), image / its_package / f"{its_leaf}.abi3.so")
    done = run("-c", TELL, path=[job, image])
    assert (done.stdout, done.stderr) == ("True True\n", "")
    changed = sorted((job / package / "csrc").glob("*.h"))[0]
    changed.write_bytes(changed.read_bytes() + b"\n")
    done = run("-c", TELL, path=[job, image])
    assert done.stdout == ("False True\n" if part == "engine" else "True False\n")
    assert str(changed.parent) in done.stderr


def test_version_lists_the_installation(job: Path) -> None:
    shutil.copy(built("engine"), job / "battlesnake_gym/engine/_engine.abi3.so")
    lines = run("-m", "battlesnake_gym", "--version", path=[job]).stdout.splitlines()
    assert lines[0].startswith("battlesnake-gym ")
    assert any(line.startswith("python 3.") for line in lines)
    assert any(line.startswith("numpy ") for line in lines)
    (told,) = [line for line in lines if line.startswith("engine: ")]
    assert told.startswith("engine: compiled, ")
    assert f" {_engine.get_observation_isa()} (" in told
    (told,) = [line for line in lines if line.startswith("search: missing")]
    assert told.endswith(BUILD_HINT)
    assert any(line.startswith("extra server: ") for line in lines)

"""A compiled part from elsewhere must be of the same C sources."""

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from battlesnake_gym.compiled import HERE, check_same_sources


def installed(folder: Path) -> ModuleType:
    module = ModuleType("_engine")
    module.__file__ = str(folder / "_engine.abi3.so")
    return module


def test_the_same_sources_are_accepted_and_others_are_not(tmp_path: Path) -> None:
    check_same_sources(installed(HERE))
    there = tmp_path / "battlesnake_gym"
    shutil.copytree(HERE / "csrc", there / "csrc")
    check_same_sources(installed(there))
    first = sorted((there / "csrc").glob("*.c"))[0]
    first.write_bytes(first.read_bytes() + b"/* changed */")
    with (
        pytest.warns(RuntimeWarning, match="slow Python rules"),
        pytest.raises(ImportError, match="compiled from other C sources"),
    ):
        check_same_sources(installed(there))

"""A skip that nobody has accepted fails a run of continuous integration, and no other run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[1]
FINE = "def test_fine(): pass\n"


def run(folder: Path, test: str, *options: str, ci: bool = True) -> tuple[int, str]:
    """The status and the report of pytest on one file."""
    (folder / "test_it.py").write_text(f"import pytest\n{FINE}{test}")
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {"CI": "true"} if ci else {}
    plugins = ("-p", "tests.allowed_skips", "-p", "no:cacheprovider", "-c", os.devnull)
    pytest_ = (sys.executable, "-m", "pytest", *plugins, "--rootdir", folder)
    done = processes.run(*pytest_, *options, folder, env=environment)
    return done.returncode, done.stdout


def skip(reason: str) -> str:
    return f"def test_not_here(): pytest.skip({reason!r})\n"


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "workers"])
def test_a_skip_is_a_failure(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, report = run(tmp_path, skip("needs the moon"), *options)
    assert status == 1, report
    assert "test_it.py::test_not_here: needs the moon" in report
    assert "0 x needs a GPU (no machine" in report, "the list is printed"


def test_so_is_that_of_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(FINE)
    status, report = run(tmp_path, "pytest.importorskip('no_such_module')\n")
    assert status == 1, report
    assert "could not import 'no_such_module'" in report


def test_what_is_on_the_list_may_be_skipped(tmp_path: Path) -> None:
    status, report = run(tmp_path, skip("needs a GPU"))
    assert status == 0, report
    assert "1 x needs a GPU" in report
    assert "does not accept" not in report


def test_elsewhere_everything_may_be_skipped(tmp_path: Path) -> None:
    assert run(tmp_path, skip("needs the moon"), ci=False)[0] == 0

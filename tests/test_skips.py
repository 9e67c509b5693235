"""A skip that nobody has accepted fails a run of continuous integration, and no other run."""

import os
import sys
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[1]
FINE = "def test_fine(): pass\n"
UNKNOWN = "def test_not_here(): pytest.skip('needs the moon')\n"
KNOWN = "def test_not_here(): pytest.skip('needs a GPU')\n"
WHOLE_FILE = "pytest.importorskip('no_such_module')\n"
WORKERS = ("-p", "xdist", "-n", "1")


@pytest.mark.parametrize(
    ("test", "options", "ci", "status", "told"),
    [
        (UNKNOWN, (), "true", 1, "test_it.py::test_not_here: needs the moon"),
        (UNKNOWN, WORKERS, "true", 1, "test_it.py::test_not_here: needs the moon"),
        (WHOLE_FILE, (), "true", 1, "could not import 'no_such_module'"),
        (KNOWN, (), "true", 0, "1 x needs a GPU"),
        (UNKNOWN, (), "", 0, ""),
    ],
    ids=["unknown", "of a worker", "of a whole file", "known", "elsewhere"],
)
def test_a_skip_is_a_failure_unless_it_is_on_the_list(
    test: str, options: tuple[str, ...], ci: str, status: int, told: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(f"import pytest\n{FINE}{test}")
    (tmp_path / "test_other.py").write_text(FINE)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ("-p", "tests.allowed_skips", "-p", "no:cacheprovider", "-c", os.devnull)
    pytest_ = (sys.executable, "-m", "pytest", *plugins, "--rootdir", tmp_path)
    done = processes.run(*pytest_, *options, tmp_path, env=environment | {"CI": ci})
    assert done.returncode == status, done.stdout
    assert told in done.stdout
    assert ("does not accept" in done.stdout) == bool(status)

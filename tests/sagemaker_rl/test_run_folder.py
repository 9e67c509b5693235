"""Lock of a run directory, with two processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.run_dir import LockedError
from tests.processes import running

HOLDER = """
import sys, time
from pathlib import Path
from battlesnake_gym.common import run_dir
with run_dir.lock_run_dir(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_held_folder_names_its_owner_until_the_owner_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "two"
    with running(sys.executable, "-c", HOLDER, run) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        words = f"{run} is being written by process {owner.pid} on .* since 20.*another --name"
        with pytest.raises(LockedError, match=words), run_dir.lock_run_dir(run):
            raise AssertionError("it is held")
    with run_dir.lock_run_dir(run):
        assert f"process {os.getpid()} on" in (run / run_dir.LOCK_FILE).read_text()
    with run_dir.lock_run_dir(run):
        pass

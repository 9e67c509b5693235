"""Lock of a run directory, with two processes, and on file systems without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
from pathlib import Path

import pytest

from battlesnake_gym.common import run_dir
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
        words = rf"{run} .*\b{owner.pid} .*\b20\d\d-.* --name"
        with pytest.raises(ValueError, match=words), run_dir.lock_run_dir(run):
            raise AssertionError("it is held")
    with run_dir.lock_run_dir(run):
        assert f"process {os.getpid()} on" in (run / run_dir.LOCK_FILE).read_text()
    with run_dir.lock_run_dir(run):
        pass


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reject all locks, as some network mounts do."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", fail)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_one_line_says_so_and_the_run_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_dir.lock_run_dir(tmp_path):
        assert run_dir.is_locked(tmp_path), "it is written by this process"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / run_dir.LOCK_FILE}: ")
    assert "Operation not supported" in line


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    ("owner", "locked"),
    [
        (f"process 999999999 on {socket.gethostname()} since now", False),
        (f"process {2**70} on {socket.gethostname()} since now", True),
        (f"process {os.getppid()} on {socket.gethostname()} since now", True),
        ("process 1 on another-machine since now", True),
        ("", False),
        ("text", False),
    ],
)
def test_without_locks_the_named_process_counts(tmp_path: Path, owner: str, locked: bool) -> None:
    (tmp_path / run_dir.LOCK_FILE).write_text(owner)
    assert run_dir.is_locked(tmp_path) == locked


@pytest.mark.usefixtures("no_locks")
def test_without_locks_an_arena_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = pytest.importorskip(
        "battlesnake_server.arena.database", reason="needs the extra server"
    )
    with database.Database(f"sqlite:///{tmp_path}/a.sqlite").lock():
        pass
    assert "a.sqlite.lock" in capsys.readouterr().err

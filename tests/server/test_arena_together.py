"""Arenas that meet others at one database, or somebody's Ctrl-C: as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import COMMAND, running, until

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an arena in a process group of its own, as a terminal does."""
    database = f"--database=sqlite:///{tmp_path / 'arena.sqlite'}"
    call = (*COMMAND, "arena", "hungry", "cautious", "--width=7", "--height=7", "--json", database)
    with contextlib.ExitStack() as stack:
        yield lambda *words: stack.enter_context(running(*call, *words, start_new_session=True))


def stored(folder: Path) -> int:
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(folder / "arena.sqlite")) as database,
    ):
        return int(database.execute("select count(*) from games").fetchone()[0])
    return 0


def in_group(number: int) -> list[str]:
    """The processes of a group that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            if int(group) == number and state not in "ZX":
                found.append(path.parent.name)
    return found


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line on its standard error that is no progress bar's."""
    assert process.stderr is not None
    while True:
        line = process.stderr.readline()
        assert line, process.communicate()
        if "game" not in line.split("/")[-1] or "arena.sqlite" in line:
            return line.rpartition("\r")[2]


def test_a_second_arena_waits_for_the_first_and_ctrl_c_twice_is_as_good_as_once(
    start: Start, tmp_path: Path
) -> None:
    first = start("--games=100000", "--jobs=2")
    until(lambda: stored(tmp_path) > 0, process=first)
    second = start("--games=1", "--jobs=1", "--seed=2")
    assert f"arena.sqlite is held by process {first.pid} on " in read_line(second)
    for _ in range(2):
        os.killpg(first.pid, signal.SIGINT)
        time.sleep(0.05)
    out, err = first.communicate()
    assert first.returncode == 130, err
    assert "Traceback" not in err
    assert err.rstrip().endswith("the same command with --resume plays the rest")
    assert {line["snake"] for line in json.loads(out)} == {"hungry", "cautious"}
    while in_group(first.pid):
        time.sleep(0.02)  # a game that is left behind would play for ever
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert [line["games"] for line in json.loads(out)] == [1, 1]


def test_a_database_that_somebody_locks_is_waited_for(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "arena.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("begin exclusive")
        process = start("--games=1", "--jobs=1")
        assert "arena.sqlite is locked by another program; waiting for it" in read_line(process)
        database.execute("rollback")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert [line["games"] for line in json.loads(out)] == [1, 1]


def test_ctrl_c_while_it_starts_is_one_line(start: Start) -> None:
    process = start("--games=2", "--jobs=2")

    def is_importing() -> bool:
        return "onnxruntime" in Path(f"/proc/{process.pid}/maps").read_text()

    until(is_importing, process=process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert len(err.splitlines()) == 1, err
    assert "interrupted" in err

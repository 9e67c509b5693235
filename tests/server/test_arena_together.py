"""Several arena processes on one database, and Ctrl+C."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from battlesnake_server.arena.database import Database
from tests.processes import COMMAND, below, running, until, until_gone

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts an arena in its own process group, as a terminal does."""
    database = f"--database=sqlite:///{tmp_path / 'arena.sqlite'}"
    call = (*COMMAND, "arena", "hungry", "cautious", "--board-size=7", "--json", database)
    with contextlib.ExitStack() as stack:
        yield lambda *words: stack.enter_context(running(*call, *words, start_new_session=True))


def stored(folder: Path) -> list[tuple[int, str]]:
    """Return the numbers and replays of the games in the database."""
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(folder / "arena.sqlite")) as database,
    ):
        return database.execute("select number, replay from games order by number").fetchall()
    return []


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line on standard error that is not a progress bar."""
    assert process.stderr is not None
    while True:
        line = process.stderr.readline()
        assert line, process.communicate()
        if "game" not in line.split("/")[-1] or "arena.sqlite" in line:
            return line.rpartition("\r")[2]


def test_a_second_arena_waits_for_the_first_which_ignores_a_second_ctrl_c(
    start: Start, tmp_path: Path
) -> None:
    first = start("--games=100000", "--jobs=2")
    until(lambda: stored(tmp_path), process=first)
    second = start("--games=1", "--jobs=1", "--seed=2")
    assert re.search(rf"arena\.sqlite .*\b{first.pid}\b", read_line(second))
    players = below(first.pid)
    for _ in range(2):
        os.killpg(first.pid, signal.SIGINT)
        time.sleep(0.05)
    out, err = first.communicate()
    assert first.returncode == 130, err
    assert "Traceback" not in err
    assert "--resume" in err.splitlines()[-1]
    assert {line["snake"] for line in json.loads(out)} == {"hungry", "cautious"}
    assert len(players) >= 2
    until_gone(players)  # an orphaned game would never end
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert [line["games"] for line in json.loads(out)] == [1, 1]


@pytest.mark.parametrize(
    "words",
    [
        ("arena", "hungry", "cautious", "--board-size=7", "--games=1"),
        ("ladder", "safe-random", "--precision=400"),
    ],
    ids=["arena", "ladder"],
)
def test_a_locked_database_is_waited_for(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "arena.sqlite"
    arena = Database(f"sqlite:///{path}")
    call = (*COMMAND, *words, "--jobs=1", "--json", f"--database=sqlite:///{path}")
    with contextlib.ExitStack() as stack:
        with arena.lock():
            process = stack.enter_context(running(*call))
            assert re.search(rf"arena\.sqlite .*\b{os.getpid()}\b", read_line(process))
            database = sqlite3.connect(path, isolation_level=None)
            stack.enter_context(contextlib.closing(database))
            database.execute("begin exclusive")
        arena.close()
        assert "arena.sqlite" in read_line(process)
        database.execute("rollback")
        out, err = process.communicate()
    assert process.returncode == 0, err
    lines = json.loads(out)
    assert all(line["games"] > 0 for line in (lines if isinstance(lines, list) else [lines]))


def test_ctrl_c_during_startup_prints_one_line(start: Start) -> None:
    process = start("--games=2", "--jobs=2")

    def is_importing() -> bool:
        return "sqlalchemy" in Path(f"/proc/{process.pid}/maps").read_text()

    until(is_importing, process=process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert len(err.splitlines()) == 1, err
    assert "interrupted" in err

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

from battlesnake_server.arena.database import lock_database, open_database
from tests.processes import COMMAND, below, running, until, until_gone

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an arena in a process group of its own, as a terminal does."""
    database = f"--database=sqlite:///{tmp_path / 'arena.sqlite'}"
    call = (*COMMAND, "arena", "hungry", "cautious", "--width=7", "--height=7", "--json", database)
    with contextlib.ExitStack() as stack:
        yield lambda *words: stack.enter_context(running(*call, *words, start_new_session=True))


def stored(folder: Path) -> list[tuple[int, str]]:
    """The numbers and replays of the games in the database."""
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(folder / "arena.sqlite")) as database,
    ):
        return database.execute("select number, replay from games order by number").fetchall()
    return []


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
    until(lambda: stored(tmp_path), process=first)
    second = start("--games=1", "--jobs=1", "--seed=2")
    assert f"arena.sqlite is held by process {first.pid} on " in read_line(second)
    players = below(first.pid)
    for _ in range(2):
        os.killpg(first.pid, signal.SIGINT)
        time.sleep(0.05)
    out, err = first.communicate()
    assert first.returncode == 130, err
    assert "Traceback" not in err
    assert err.rstrip().endswith("the same command with --resume plays the rest")
    assert {line["snake"] for line in json.loads(out)} == {"hungry", "cautious"}
    assert len(players) >= 2
    until_gone(players)  # a game that is left behind would play for ever
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert [line["games"] for line in json.loads(out)] == [1, 1]


@pytest.mark.parametrize(
    "words",
    [
        ("arena", "hungry", "cautious", "--width=7", "--height=7", "--games=1"),
        ("ladder", "safe-random", "--interval=400"),
    ],
    ids=["arena", "ladder"],
)
def test_a_database_that_others_hold_or_lock_is_waited_for(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "arena.sqlite"
    engine = open_database(f"sqlite:///{path}")
    call = (*COMMAND, *words, "--jobs=1", "--json", f"--database=sqlite:///{path}")
    with contextlib.ExitStack() as stack:
        with lock_database(engine):
            process = stack.enter_context(running(*call))
            assert f"arena.sqlite is held by process {os.getpid()} on " in read_line(process)
            database = sqlite3.connect(path, isolation_level=None)
            stack.enter_context(contextlib.closing(database))
            database.execute("begin exclusive")
        engine.dispose()
        assert "arena.sqlite is locked by another program; waiting for it" in read_line(process)
        database.execute("rollback")
        out, err = process.communicate()
    assert process.returncode == 0, err
    told = json.loads(out)
    assert all(line["games"] > 0 for line in (told if isinstance(told, list) else [told]))


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

"""`pack --format codeclash`: the directory plays with Python 3.10 alone, like the snake itself."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_server import bundle, codeclash
from battlesnake_server.commands import pack_command
from tests.processes import free_port, run, served
from tests.server.test_bundle import LOOKS, RULES, recorded

PYTHON = next(
    path
    for name in ("python3.10", "python3")
    if (path := shutil.which(name)) and not run(path, "-V").returncode
)
"""The arena's Python version, if it is installed."""


def answers(folder: Path, requests: list[tuple[str, str, Any]]) -> list[Any]:
    """Return the responses of a copy of the directory, started as the arena starts it."""
    port = free_port()
    there = Path(shutil.copytree(folder, folder.with_name("elsewhere")))
    environment = {"PORT": str(port), "PATH": os.environ["PATH"]}
    found = []
    # -S: no packages, -E: no PYTHONPATH.
    words = [PYTHON, "-S", "-E", "main.py"]
    with served(words, port, "/", cwd=there, env=environment) as address:
        for method, path, body in requests:
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
            connection.request(method, path, json.dumps(body) if body else None)
            text = connection.getresponse().read()
            found.append(json.loads(text) if text else None)
            connection.close()
    return found


@pytest.mark.parametrize("which", ["champion", "mine"])
def test_it_plays_the_moves_that_the_snake_plays_here(which: str, tmp_path: Path) -> None:
    path = tmp_path / "my_rules.py"
    path.write_text(RULES)
    words = [str(path)] if which == "mine" else ["--snake", "champion", "--nodes", "300"]
    folder = tmp_path / "packed"
    assert pack_command.main([*words, *LOOKS, "--format", "codeclash", "-o", str(folder)]) == 0
    bodies = recorded(60)
    asked: list[tuple[str, str, Any]] = [("GET", "/", None), ("HEAD", "/", None)]
    asked += [("POST", f"/{what}", bodies[0]) for what in ("start", "end")]
    info, head, *said = answers(folder, asked + [("POST", "/move", body) for body in bodies])
    assert (info["color"], info["apiversion"], head, said[:2]) == ("#123456", "1", None, [{}, {}])
    with bundle.capture_filter_registrations():
        build = snakes.factory("champion@300" if which == "champion" else str(path))
    playing: dict[tuple[str, str], snakes.Strategy] = {}
    moves = []
    for body in bodies:
        key = body["game"]["id"], body["you"]["id"]
        if key not in playing:
            playing[key] = build(zlib.crc32(repr(key).encode()))
        moves.append({"move": playing[key](Board.from_api(body), 0.1).move})
    assert said[2:] == moves
    main = (folder / "main.py").read_text()  # The arena searches for these texts.
    wanted = ("def info(", "def start(", "def end(", "def move(", "__main__", "run_server")
    assert all(word in main for word in wanted)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("import numpy\n" + RULES, "No module named 'numpy'"),
        (RULES.replace("x, y = view", "x, y = 1 / 0, view"), "ZeroDivisionError"),
        ("import time\n" + RULES.replace('"""Mine."""', "time.sleep(9)"), " 1 s"),
    ],
)
def test_what_does_not_play_there_is_refused(
    rules: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(codeclash, "_START_TIMEOUT_S", 1.0 if "sleep" in rules else 60.0)
    path = tmp_path / "my_rules.py"
    path.write_text(rules)
    words = [str(path), "--format", "codeclash", "-o", str(tmp_path / "packed")]
    assert pack_command.main(words) == 2
    assert re.search(why, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == [path]


def test_a_policy_and_a_folder_that_is_there_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--format", "codeclash", "-o", str(tmp_path)]
    assert pack_command.main(["--policy", "shipped", *words]) == 2
    assert "onnxruntime" in capsys.readouterr().err
    assert pack_command.main(["--snake", "hungry", *words]) == 2
    assert "exists" in capsys.readouterr().err

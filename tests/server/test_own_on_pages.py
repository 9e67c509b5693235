"""A map and a snake of somebody's own on the arena's pages, which are a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_gym.common import own_files
from tests.battlesnake_gym.test_own import FILE
from tests.processes import COMMAND, fetch, fetch_json


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Pages that were started with the file in their environment."""
    own = tmp_path / "mine.py"
    own.write_text(FILE)
    kept = ("--database", f"sqlite:///{tmp_path}/arena.db", "--replays", tmp_path / "replays")
    process = subprocess.Popen(
        [*COMMAND, "arena", "--web", "--port", "0", *kept],
        env=os.environ | {own_files.VARIABLE: str(own)}, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    while " at http://" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    yield said.split(" at ")[1].split()[0].rstrip("/,")
    process.send_signal(signal.SIGINT)
    process.communicate()


def test_games_on_an_own_map_by_an_own_snake(address: str) -> None:
    form = fetch(f"{address}/play")
    assert 'value="corners"' in form
    assert 'value="mine"' in form
    wish = {"snakes": ["mine", "mine"], "map": "corners", "width": 7, "height": 7, "seed": 3}
    game = fetch_json(f"{address}/play", wish)["game"]
    data = fetch_json(f"{address}/game/{game}/data")
    while not data["over"]:
        data = fetch_json(f"{address}/game/{game}/data?since={len(data['frames'])}&wait")
    first = fetch_json(f"{address}/game/{game}/data")["frames"][0]
    assert {(0, 0), (6, 6)} <= {tuple(cell) for cell in first["food"]}

"""Matches on a Ray cluster of two nodes, of which processes and a node are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from battlesnake_heuristics.rating.process_pool import run_tasks
from battlesnake_server.arena import stored_tournament, tournament
from battlesnake_server.arena.tournament import (
    GameResult,
    ScheduledGame,
    TournamentSettings,
    play_in_pool,
)
from battlesnake_server.commands import arena_command, ladder_command
from sagemaker_rl.cluster.membership import find_own_address
from sagemaker_rl.cluster.ray_node import RayNode, find_free_port, private_auth_token
from sagemaker_rl.cluster.ray_pool import RayPool
from tests.processes import below

RULES = """
from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based.filters import SAFE
from battlesnake_heuristics.rule_based.pipeline import Pipeline

snakes.register("mine", lambda seed: Pipeline(*SAFE, seed=seed))
"""
MATCH = ["my_rules.py", "hungry", "--board-size=7", "--move-time=5", "--max-turns=40", "--games=40",
         "--sprt", "0", "1", "--json"]  # fmt: skip


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disconnected_from_ray: None
) -> Iterator[tuple[str, Any]]:
    """Return the cluster's address and its second node; only this directory has the rules file."""
    host, port = find_own_address(socket.gethostname()), find_free_port()
    with private_auth_token(), ExitStack() as nodes:
        for node in (
            RayNode.create_head(host, port, 1),
            RayNode.create_worker(host, f"{host}:{port}", 1),
        ):
            node.start()
            nodes.callback(node.stop)
        monkeypatch.chdir(tmp_path)
        Path("my_rules.py").write_text(RULES)
        yield f"{host}:{port}", node


def lost_games_won(setup: TournamentSettings, fixture: ScheduledGame, replays: None) -> GameResult:
    """Return a reversed result, as a malicious machine might."""
    result = play_in_pool(setup, fixture, replays)
    return replace(result, winner=None if result.winner is None else 1 - result.winner)


def played(capsys: pytest.CaptureFixture[str], *call: str) -> dict[str, Any]:
    """Run the arena, and return its output without times."""
    database = f"--database=sqlite:///{call[-1].strip('-')[:7]}.sqlite"
    assert arena_command.main([*MATCH, *call, database]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    del told["mean_move_ms"]
    return told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_match_on_two_nodes_is_the_match_on_one(
    cluster: tuple[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, second = cluster
    here = played(capsys, "--jobs=1")
    killed: set[int] = set()
    stored = []

    real_store = stored_tournament.StoredTournament.store

    def store(*game: Any, **options: Any) -> Any:
        """Kill the process on the second node, and after twenty games the node."""
        stored.append(game)
        if len(stored) == 20:
            second.stop()
        if len(killed) < 3 and second.is_running:
            for number, command in below(second._process.pid).items():
                if command.startswith("ray::_run_task") and number not in killed:
                    os.kill(number, signal.SIGKILL)
                    killed.add(number)
        return real_store(*game, **options)

    monkeypatch.setattr(stored_tournament.StoredTournament, "store", store)
    there = played(capsys, f"--ray-address={address}")
    assert there == here
    assert there["games"] == 40
    assert killed
    monkeypatch.setattr(tournament, "play_in_pool", lost_games_won)
    assert (
        arena_command.main([*MATCH, f"--ray-address={address}", "--database=sqlite:///w.db"]) == 1
    )
    assert "moves" in capsys.readouterr().err
    call = [f"--ray-address={address}", "--nodes=10", "--max-minutes=0.05", "--json"]
    assert ladder_command.main(["minimax", *call, "--database=sqlite:///ladder.sqlite"]) == 0
    assert json.loads(capsys.readouterr().out)["games"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_match_cancels_the_running_games(cluster: tuple[str, Any]) -> None:
    with RayPool(cluster[0], []) as pool:
        with closing(run_tasks(pool, time.sleep, [0, *[3600] * 5])) as results:
            assert next(results) == (0, None)
            running = list(pool._running)
            assert running
        assert not wait(running, 60).not_done


def test_what_cannot_be_played_elsewhere_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address = "--ray-address=127.0.0.1:1"
    database = f"--database=sqlite:///{tmp_path / 'games.sqlite'}"
    assert arena_command.main(["hungry", "hungry", "--web", address, database]) == 2
    assert re.search(r"--web.* --replays", capsys.readouterr().err)
    for command, snakes in (arena_command, ["hungry", "hungry"]), (ladder_command, ["hungry"]):
        assert command.main([*snakes, address, database]) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1
        assert "127.0.0.1:1" in said.err
        assert not said.out

"""The ladder command."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.ladder import RUNG_NAMES
from battlesnake_server.arena.database import Database, StoredGame
from battlesnake_server.arena.tournament import GameResult
from battlesnake_server.commands import ladder_command
from tests.processes import COMMAND, run, running

pytestmark = pytest.mark.usefixtures("in_own_folder")


def test_without_a_snake_the_ladder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ladder_command.main(["--num-snakes=4", "--json"]) == 0
    rungs = json.loads(capsys.readouterr().out)
    assert {rung["name"] for rung in rungs} == set(RUNG_NAMES)
    assert [rung["elo"] for rung in rungs] == sorted((r["elo"] for r in rungs), reverse=True)
    assert ladder_command.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(RUNG_NAMES) + 1


def test_a_snake_is_placed_and_the_games_are_stored(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["weak=safe-random", "--jobs=1", "--json", "--precision=250"]
    assert ladder_command.main(call) == 0
    placed = json.loads(capsys.readouterr().out)
    assert (placed["snake"], placed["num_snakes"]) == ("weak", 2)
    low, high = placed["ci_low"], placed["ci_high"]
    assert low <= placed["elo"] <= high <= low + 500
    assert placed["games"] == sum(rung["games"] for rung in placed["rungs"])
    assert all(rung["ci_low"] <= rung["score"] <= rung["ci_high"] for rung in placed["rungs"])
    assert ladder_command.main([*call, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out) == placed


def test_an_interrupted_ladder_reports_and_resumes() -> None:
    call = [*COMMAND, "ladder", "hungry", "--precision=1", "--jobs=1", "--json"]
    with running(*call) as first:
        assert first.stderr is not None
        assert any(line.startswith("4 games") for line in first.stderr)
        first.terminate()
        out, _ = first.communicate(timeout=120)
        assert first.returncode == 130
    before = json.loads(out)["games"]
    assert before >= 4
    began = time.monotonic()
    again = run(*call, "--resume", "--max-minutes=0")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["games"] == before
    assert time.monotonic() - began < 60 * 5


def test_a_resumed_ladder_plays_only_missing_pairs(database: Database) -> None:
    """Jobs in parallel store the pairs as they end, so an earlier pair can be missing."""
    setup = ladder_command._tournament_settings(ladder_command.parser().parse_args(["random"]))
    rung = ladder.Ladder.load(2).rungs[0]
    first, resumed = (ladder_command._RungMatches(database, setup, True) for _ in range(2))
    first.schedule_pair(rung)
    first.store_pair(rung, ladder_command._play_pair((rung, *first.schedule_pair(rung))))
    assert len(resumed.load_outcomes(rung)) == 1
    scheduled = [resumed.schedule_pair(rung)[1] for _ in range(2)]
    assert [[game.number for game in pair] for pair in scheduled] == [[0, 1], [4, 5]]


def test_an_interruption_stores_no_half_of_a_pair(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = ladder_command._tournament_settings(ladder_command.parser().parse_args(["random"]))
    rung = ladder.Ladder.load(2).rungs[0]
    matches = ladder_command._RungMatches(database, setup, True)
    played = ladder_command._play_pair((rung, *matches.schedule_pair(rung)))

    def build(
        result: GameResult, *more: Any, build: Callable[..., StoredGame] = StoredGame.from_result
    ) -> StoredGame:
        if result is played[1]:
            raise KeyboardInterrupt
        return build(result, *more)

    monkeypatch.setattr(StoredGame, "from_result", build)
    with pytest.raises(KeyboardInterrupt):
        matches.store_pair(rung, played)
    with database.session() as session:
        assert session.scalars(select(StoredGame)).all() == []


def test_a_ladder_without_time_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert ladder_command.main(["hungry", "--max-minutes=0"]) == 1
    assert re.search(r"--max-minutes 0.* 1", capsys.readouterr().err)


def test_a_snake_that_fails_is_named_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(
        "from battlesnake_gym import snakes\n"
        "snakes.register('own', lambda seed: lambda board, seconds=None: 1 / 0)\n"
    )
    call = [f"mine={Path('own.py').absolute()}", "--precision=5000", "--jobs=1"]
    assert ladder_command.main(call) == 1
    assert "own.py, line 2: ZeroDivisionError" in capsys.readouterr().out

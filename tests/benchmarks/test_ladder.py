"""The ladder's benchmark goes on from the games that the ladder counts."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ladder

BEFORE = json.loads(ladder.TARGET.read_text())


def test_without_new_games_the_ladder_stays_as_it_is() -> None:
    again = ladder.summary(BEFORE, [], BEFORE["command"])
    assert again["meetings"] == BEFORE["meetings"]
    for count, rungs in again["ladders"].items():
        for rung, was in zip(rungs, BEFORE["ladders"][count], strict=True):
            assert rung["name"] == was["name"]
            assert rung["games"] == was["games"]
            assert rung["elo"] == pytest.approx(was["elo"], abs=1)


def test_new_games_count_with_the_old_ones() -> None:
    met = {"snakes": 2, "one": "minimax-2026@10000", "other": "minimax-2026@50000"}
    first = sum(pair[:3] == tuple(met.values()) for pair in ladder.counted(BEFORE))
    rows = [{**met, "index": first + i, "outcome": 4, "seconds": 6.0} for i in range(20)]
    after = ladder.summary(BEFORE, rows, "here")
    elo, was = (
        {rung["name"]: rung["elo"] for rung in told["ladders"]["2"]} for told in (after, BEFORE)
    )
    assert elo["minimax-2026@10000"] > elo["minimax-2026@50000"]
    assert was["minimax-2026@10000"] < was["minimax-2026@50000"]
    assert after["ladders"]["4"] == ladder.summary(BEFORE, [], "here")["ladders"]["4"]
    assert after["cpu_minutes"] == pytest.approx(BEFORE["cpu_minutes"] + 2)
    assert ladder.summary(after, rows, "here") == after


def test_counted_games_are_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def nothing_to_do(plan: Any, done: Any) -> list[Any]:
        asked.append((plan, done))
        return []

    monkeypatch.setattr(ladder, "schedule", nothing_to_do)
    only = ["minimax-2026@50000"]
    ladder.measure(tmp_path / "state", BEFORE, ladder.meetings(60, only), 1.0, 1)
    [(plan, done)] = asked
    assert {meeting.snakes for meeting in plan} == {2, 4}
    assert all("minimax-2026@50000" in (meeting.one, meeting.other) for meeting in plan)
    counted = [sum(met["pairs"]) for met in BEFORE["meetings"]["2"] + BEFORE["meetings"]["4"]]
    assert len(done) == sum(counted)
    assert (2, "hungry", "hunter", 0) in done

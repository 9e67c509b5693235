"""The demonstration shows a game before it installs what training needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]


def test_a_game_is_shown_before_what_training_needs_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = run("make", "-n", "demo", "VENV=/nowhere", cwd=ROOT).stdout
    game, alone, first, rest = map(
        typed.index, ("-e .\n", "touch /nowhere/.game", "--first-game", "[rllib,server]")
    )
    assert game < alone < first
    assert first < rest or "&" in typed[first:rest]
    monkeypatch.syspath_prepend(ROOT / "tools")
    import demo

    monkeypatch.setattr(demo, "_TURN_PAUSE_S", 0)
    demo.play_first_game()
    shown = capsys.readouterr().out
    assert "turn 10\n" in shown
    assert re.search(r"A champion.* \d+", shown)
    assert re.search(r"\w+ .*\d+ turns\n$", shown)

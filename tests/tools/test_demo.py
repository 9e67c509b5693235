"""Every page that shows how to train shows the demonstration's command and one figure."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorials/first-trained-snake.md")
NOTEBOOK = "notebooks/2_policy_training.ipynb"


def test_the_pages_train_as_the_demonstration_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from battlesnake_rl.mabs.battlesnake_launcher import DEFAULT_EXPERIMENT

    monkeypatch.syspath_prepend(ROOT / "tools")
    import demo

    typed: list[list[str]] = []

    def stop(*words: Any) -> None:
        typed.append([str(word) for word in words])
        raise SystemExit

    monkeypatch.setattr(demo, "_run_command", stop)
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    with pytest.raises(SystemExit):
        demo.main()
    (words,) = typed
    assert words[:2] == [str(demo.PROGRAM_PATH), "train"]
    where = ["--runs-dir", "demo", "--name", "run", "--no-resume"]
    assert words[-len(where) :] == where
    settings = " ".join(words[2 : -len(where)])
    for page in PAGES:
        (line,) = re.findall(r"^battlesnake-gym train (.*) --name first$", text(page), re.M)
        assert line == settings, page
    (minutes,) = re.findall(r"minutes = (\S+)  # of training", text(NOTEBOOK))
    assert f"--minutes {minutes}" in settings
    # With nothing named, `train` takes this experiment.
    assert f'\\"experiment\\": \\"{DEFAULT_EXPERIMENT}\\"' in text(NOTEBOOK)


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
    demo._play_first_game()
    shown = capsys.readouterr().out
    assert "turn 10\n" in shown
    assert re.search(r"A champion.* \d+", shown)
    assert re.search(r"\w+ .*\d+ turns\n$", shown)


def test_the_pages_give_one_figure_which_is_the_median_of_the_table() -> None:
    pattern = r"after three CPU minutes,\s+(?:it|the policy) has\s+(\d+) Elo"
    (figure,) = {tuple(re.findall(pattern, text(page), re.I)) for page in (*PAGES, NOTEBOOK)}
    rows = re.findall(
        r"^\| `duel-distil` \| \d \| 3 \| (\d+) ", text("docs/research/training.md"), re.M
    )
    assert figure == (sorted(rows)[1],)
    assert len(rows) == 3


def text(page: str) -> str:
    return (ROOT / page).read_text()

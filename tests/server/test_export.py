"""`battlesnake-gym game export`: the output of each file format."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tqdm import tqdm

from battlesnake_gym.boards.board import Board
from battlesnake_gym.cli import main
from battlesnake_gym.commands import game_export_command
from battlesnake_gym.replays.replay import Replay
from tests.server.browser import Browser, browser

__all__ = ["browser"]


@pytest.fixture
def game(tmp_path: Path) -> Path:
    """Save a replay of four turns whose first snake has a malicious name."""
    replay = Replay(Board.from_text("A . . . . .\n. . . . . B\nA: name='</script><b>'"))
    for _ in range(4):
        replay.append({"a": "right", "b": "left"})
    replay.save(tmp_path / "game.jsonl")
    return tmp_path / "game.jsonl"


def test_pictures_and_films(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("gif", "png", "svg"):
        target = game.with_suffix(f".{ending}")
        assert main.main(["game", "export", str(game), "-o", str(target), "--cell-size", "10"]) == 0
        assert re.search(f"{re.escape(str(target))} .*(turn 4|4 turns), ", capsys.readouterr().out)
    with Image.open(game.with_suffix(".gif")) as film:
        assert getattr(film, "n_frames", 0) == 5
    with Image.open(game.with_suffix(".png")) as picture:
        assert picture.size[1] == 48
    ET.parse(game.with_suffix(".svg"))


def test_a_picture_of_one_turn(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = game.with_suffix(".svg")
    assert main.main(["game", "export", str(game), "-o", str(target), "--turn", "2"]) == 0
    assert "turn 2<" in target.read_text()
    assert "(turn 2, " in capsys.readouterr().out


def test_a_film_shows_its_progress(
    game: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*given: Any, **options: Any) -> Any:
        return tqdm(*given, **(options | {"disable": False, "delay": 0}))

    monkeypatch.setattr(game_export_command, "tqdm", shown)
    assert main.main(["game", "export", str(game), "-o", str(game.with_suffix(".gif"))]) == 0
    assert "5/5" in capsys.readouterr().err


def test_the_page_plays_by_itself(game: Path, browser: Browser) -> None:
    target = game.with_suffix(".html")
    assert (
        main.main(["game", "export", str(game), "-o", str(target), "--turns-per-second", "50"]) == 0
    )
    browser.open(target.as_uri(), "document.getElementById('shown').textContent === 'turn 4'")
    assert browser.text("#snakes li").startswith("</script><b>: length 3")
    assert int(browser.run("document.querySelectorAll('#board .cells').length")) == 1


def test_a_film_without_its_library(
    game: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    assert main.main(["game", "export", str(game), "-o", str(game.with_suffix(".mp4"))]) == 2
    assert "'.[video]'" in capsys.readouterr().err

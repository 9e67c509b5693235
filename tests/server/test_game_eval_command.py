"""``battlesnake-gym game eval`` prints the contribution of each input in one position."""

import json
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_server.commands import game_eval_command

pytest.importorskip("battlesnake_heuristics.search._search")


@pytest.fixture
def game(tmp_path: Path) -> Path:
    board = Board.new(11, 11, 2, game=Game(seed=3))
    names = dict(zip((s.id for s in board.snakes), ("cautious", "hungry"), strict=True))
    played = Replay.from_play(board, {who: snakes.make(name, 1) for who, name in names.items()})
    played.save(tmp_path / "game.jsonl")
    return tmp_path / "game.jsonl"


def test_a_position_of_a_game(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert game_eval_command.main([str(game), "--turn", "5", "--top", "3"]) == 0
    head, _, title, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("turn 5, ")
    assert title.split() == ["contribution", "value", "mean", "input"]
    assert len(rows) == 3
    assert game_eval_command.main([str(game), "--turn", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["inputs"][0]["attribution"]) >= abs(found["inputs"][-1]["attribution"])
    assert f"{found['win_probability']:.0%}" in head

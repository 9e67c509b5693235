"""``battlesnake-gym game evaluation`` prints what the inputs of one position are worth."""

from __future__ import annotations

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
    assert game_eval_command.main([str(game), "--turn", "5", "--inputs", "3"]) == 0
    head, _, title, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("turn 5, ")
    assert title.split() == ["worth", "now", "usual", "input"]
    assert len(rows) == 3
    assert game_eval_command.main([str(game), "--turn", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["inputs"][0]["worth"]) >= abs(found["inputs"][-1]["worth"])
    assert f"{found['chance']:.0%}" in head


def test_a_turn_without_a_rival_is_refused(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert game_eval_command.main([str(game), "--turn", "100000"]) == 2
    assert "--turn 100000: it has no rival then; give one from 0 to " in capsys.readouterr().err

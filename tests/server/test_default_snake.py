"""The default snake, and the bundled policy."""

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_gym.rules import Game, Settings
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search
from battlesnake_server import strategy_loader
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH, DEFAULT_SNAKE, strategy_factory
from tests.processes import run

ELSEWHERES = {
    "9x9": (9, 9, Game()),
    "7x11": (7, 11, Game()),
    "wrapped constrictor": (11, 11, Game(ruleset="wrapped_constrictor")),
    "royale": (11, 11, Game(ruleset="royale", map="royale")),
    "another map": (11, 11, Game(map="hz_rings")),
    "limited view": (11, 11, Game(settings=Settings(view_radius=5))),
}


def test_the_policy_is_small_and_goes_with_its_json() -> None:
    assert DEFAULT_POLICY_PATH.stat().st_size < 2 << 20
    policy = OnnxPolicy.load(DEFAULT_POLICY_PATH)  # Raises if the hash differs.
    for side in (7, 11, 19):
        for ruleset in ("standard", "royale", "wrapped", "constrictor"):
            policy.check_game(Board.new(side, side, 4, game=Game(ruleset=ruleset)))


def test_the_card_is_filled_in_for_this_policy() -> None:
    card = DEFAULT_POLICY_PATH.with_name("README.md").read_text()
    assert "TODO" not in card
    training = json.loads(DEFAULT_POLICY_PATH.with_suffix(".json").read_text())["training"]
    assert f"{training['positions']:,} positions" in card, "figures are another policy's"


@pytest.mark.parametrize("name", ["standard", ""])
@pytest.mark.parametrize("snakes", [2, 4])
@pytest.mark.parametrize("side", [7, 11, 19])
def test_the_policy_plays_what_it_was_trained_for(name: str, snakes: int, side: int) -> None:
    body = Board.new(side, side, snakes, game=Game(id="g")).to_api("snake_0")
    body["game"]["map"] = name
    assert strategy_factory("shipped")(0)(Board.from_api(body)).reasons[0].rule == "values"


@pytest.mark.parametrize("name", ELSEWHERES)
def test_a_named_snake_plays_all_else_and_the_log_says_why(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    width, height, game = ELSEWHERES[name]
    board = Board.new(width, height, 2, game=game)
    board.you_id = "snake_0"
    snake = strategy_factory("shipped")(0)
    with caplog.at_level(logging.WARNING, "battlesnake_server.strategy_loader"):
        for _ in range(2):
            decision = snake(board, 0.4)
            assert decision.move in board.safe_moves()
            assert decision.reasons[0].rule != "values"
    (line,) = caplog.messages
    assert line.startswith(DEFAULT_SNAKE)
    assert "policy" in line


def test_it_is_careful_unless_other_filters_are_named(
    make_policy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"env_config": {"ruleset": "standard", "map": "standard"}}
    path = make_policy([4.0, 3.0, 2.0, 1.0], sizes=[(5, 5)], changes={"training": training})
    monkeypatch.setattr(strategy_loader, "DEFAULT_POLICY_PATH", path)
    board = Board.from_text("""
    . B < < .
    . . . . .
    . A . . .
    . ^ . . .
    . . . . .
    """)
    board.you_id = "a"
    assert strategy_factory("shipped")(0)(board).move == "left", "up may meet a longer head"
    assert strategy_factory("shipped", filters=["dead_ends"])(0)(board).move == "up"


def test_where_nobody_is_named_the_champion_plays() -> None:
    snake = strategy_factory()(0)
    assert isinstance(snake, Search)
    assert snake.evaluation == load_builtin()
    assert snake.evaluation is not None
    board = Board.new(11, 11, 2, game=Game(seed=1))
    board.you_id = "snake_0"
    decision = snake(board, 0.02)
    assert decision.reasons[0].rule == "search"
    assert "handcrafted" not in decision.reasons[0].note


def test_filters_without_a_policy_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"'champion'.*'shipped'"):
        strategy_factory(filters=["dead_ends"])


def test_it_needs_neither_a_compiler_nor_a_training_library() -> None:
    script = """
import sys
sys.modules["battlesnake_heuristics.search._search"] = None
import battlesnake_server.commands.serve_command, battlesnake_server.commands.arena_command
import battlesnake_server.commands.runs_command, battlesnake_server.runs.report
import battlesnake_server.web.runs_page
from battlesnake_gym.boards.board import Board
from battlesnake_server.live.app import create_app
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_server.strategy_loader import DEFAULT_SNAKE
client = create_app({"POLICY": "shipped"}).test_client()
for side in (9, 11):
    body = Board.new(side, side, 2).to_api("snake_0")
    body["game"]["id"] = str(side)
    assert client.post("/move", json=body).status_code == 200
assert 'battlesnake_moves_total{chosen_by="strategy"} 2.0' in client.get("/metrics").text
heavy = {"torch", "ray", "sagemaker", "envpool", "onnx", "pandas", "matplotlib", "tensorboardX"}
print(DEFAULT_SNAKE, sorted(heavy & set(sys.modules)))
"""
    done = run(sys.executable, "-c", script)
    assert done.stdout.strip() == "lookahead []", done.stderr
    assert re.search(r"'9'.* 7x7.* 11x11.* 19x19", done.stderr)


def test_where_nothing_is_compiled_the_search_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("battlesnake_heuristics.search.search.COMPILED", False)
    with pytest.raises(ValueError, match=r"champion .*not compiled"):
        strategy_factory("champion")

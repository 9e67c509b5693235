from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.rules import MOVES, RULESETS, Game
from battlesnake_gym.rules.state import Settings
from battlesnake_heuristics.builtin_snakes import BUILTIN_SNAKES
from battlesnake_heuristics.rating.match import MatchSettings, play_game
from battlesnake_heuristics.rule_based.pipeline import Pipeline
from tests.heuristics.conftest import board_of


def test_a_dozen_snakes_are_registered_with_a_description() -> None:
    assert len(BUILTIN_SNAKES) >= 12
    for name in BUILTIN_SNAKES:
        assert name in snakes.names()
        assert snakes.description(name).endswith(".")
    with pytest.raises(ValueError, match=r"'nobody'.* `battlesnake-gym snakes`"):
        snakes.description("nobody")


@pytest.mark.parametrize("name", ["", "a@4", "a=b", "a.py", "http://a", "policy:a", "shipped"])
def test_a_name_that_commands_cannot_find_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=f"cannot find a snake named '{name}'"):
        snakes.register(name, snakes.factory("hungry"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [(Pipeline(), "function that returns the pipeline"), (lambda seed: None, "got None")],
)
def test_a_factory_without_a_strategy_is_rejected(wrong: Any, message: str) -> None:
    with snakes.capture_registrations():
        snakes.register("wrong", wrong)
        with pytest.raises(ValueError, match=f"wrong cannot play: TypeError: .*{message}"):
            snakes.make("wrong")


@pytest.mark.parametrize("ruleset", sorted(RULESETS))
@pytest.mark.parametrize("name", BUILTIN_SNAKES)
def test_every_snake_plays_every_ruleset(name: str, ruleset: str) -> None:
    game_settings = Settings(shrink_every_n_turns=5)
    count = 1 if ruleset == "solo" else 3
    spec = GameSpec(count, 7, 7, ruleset, settings=game_settings, max_turns=40)
    assert play_game(MatchSettings(spec), [partial(snakes.make, name)] * count, 3).turns


@pytest.mark.parametrize("name", BUILTIN_SNAKES)
def test_decisions_say_why_and_repeat(name: str) -> None:
    board = Board.new(11, 11, 4, game=Game(seed=5))
    board.you_id = "snake_2"
    decision = snakes.make(name, 7)(board)
    assert decision.move in MOVES
    assert decision == snakes.make(name, 7)(board)
    assert decision.scores[decision.move] == max(decision.scores.values())
    assert decision.reasons or name in ("random", "safe-random")


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 2), (25, 3)])
@pytest.mark.parametrize("name", BUILTIN_SNAKES)
def test_every_snake_moves_on_odd_boards(name: str, size: tuple[int, int]) -> None:
    width, height = size
    picture = "\n".join(["A " + ". " * (width - 1)] + [". " * width] * (height - 1))
    for ruleset in ("standard", "wrapped"):
        board = board_of(f"ruleset={ruleset}\n{picture}")
        assert snakes.make(name, 1)(board).move in MOVES


SEARCHES = {"minimax", "minimax-2026", "champion"}
"""Snakes that reject a board without a living ``you``."""


@pytest.mark.parametrize("name", sorted(BUILTIN_SNAKES.keys() - SEARCHES))
def test_a_snake_that_is_out_is_still_answered(name: str) -> None:
    board = Board.from_text("A < < . B\n. . . . ^\n. . . . ^")
    board.step({"a": "left", "b": "up"})
    board.you_id = "a"
    assert not board.you.alive
    assert snakes.make(name, 1)(board).move in MOVES


def test_careful_snakes_beat_careless_ones(careful: str) -> None:
    won = 0
    for number in range(10):
        players = (careful, "safe-random") if number % 2 else ("safe-random", careful)
        factories = [partial(snakes.make, name) for name in players]
        last = play_game(MatchSettings(), factories, 1 + 10_007 * number).last
        won += last.snakes[players.index(careful)].alive
    assert won >= 7


def limited(row: str, turn: int) -> Board:
    """What the snake of a row of cells sees within two cells."""
    empty = " ".join("." * len(row.split()))
    board = Board.from_text(f"{empty}\n{row}\n{empty}")
    board.turn, board.game = turn, replace(board.game, settings=Settings(view_radius=2))
    board.you_id = "a"
    return board.limited()


def test_hungry_blackout_remembers_food() -> None:
    snake = snakes.make("hungry-blackout", 3)
    row = "> > A . . . . . *"
    assert limited(row, 0).food == [(8, 1)], "food is visible everywhere when it appears"
    snake(limited(row, 0))
    assert limited(row, 5).food == []
    assert [snake(limited(row, 5)).move for _ in range(4)] == ["right"] * 4
    fresh = snakes.make("hungry-blackout", 3)(limited(row, 5))
    assert fresh.move in ("up", "down"), "the ways to its own tail"


def test_hungry_blackout_forgets_food_that_is_gone() -> None:
    snake = snakes.make("hungry-blackout", 3)
    assert snake(limited("> A . * . . . . .", 3)).reasons[-1].rule == "known_food"
    assert snake(limited(". > A . . . . . .", 4)).reasons[-1].rule == "path_to_tail"


def test_hungry_blackout_goes_around_visible_bodies_only() -> None:
    board = board_of(". . . . . .\n> > A B . *\n. . . ^ . .\n. . . ^ < .")
    assert snakes.make("hungry-blackout", 3)(board).move == "up"

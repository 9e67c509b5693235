"""All implementations agree on the health after a move."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.engine import engine
from battlesnake_gym.mdp import masks
from battlesnake_gym.rules import MOVES, Game, Settings, Snake
from battlesnake_heuristics.rule_based.view import View
from battlesnake_heuristics.search import search

HERE, THERE = (1, 0), (2, 0)


def board_of(health: int, layers: int, damage: int, *, food: bool) -> Board:
    """Return a board on which a move to the right enters these hazards, and possibly food."""
    settings = Settings(0, 0, hazard_damage_per_turn=damage)
    return Board(
        turn=9,
        width=5,
        height=1,
        snakes=[Snake("me", [HERE, (0, 0)], health)],
        food=[THERE] * food,
        hazards=[THERE] * layers,
        game=Game("standard", "", settings, solo=True),
        you_id="me",
    )


def healths(board: Board) -> Iterator[tuple[str, int]]:
    """Yield the health after the turn in each implementation; 0 if the snake is eliminated."""
    view = View(board)
    yield "view", max(0, view.health_after(THERE))
    stepped = board.copy()
    stepped.step({"me": "right"})
    yield "rules", stepped.snakes[0].health
    if engine.COMPILED:
        games = engine.Games(1, width=5, height=1, num_snakes=1, game=board.game)
        games.load(0, board)
        games.step(np.array([[MOVES.index("right")]], np.uint8))
        yield "engine", int(games.health[0, 0])
    if search.COMPILED:
        request = search.Search()._build_request(board, None)[0]
        fields = (*request[:4], *request[5:11])
        compiled = importlib.import_module("battlesnake_heuristics.search._search")
        (held,), _, _ = compiled.play_turns(*fields, bytes([MOVES.index("right")]))
        yield "search", held[0] if held else 0


def survivals(board: Board) -> Iterator[tuple[str, bool]]:
    """Yield whether the snake survives the move in each implementation."""
    right = MOVES.index("right")
    yield "board", "right" in board.safe_moves()
    yield "masks", not masks.move_faults(board.game, board, "me", "right") & masks.HEALTH
    if engine.COMPILED:
        games = engine.Games(1, width=5, height=1, num_snakes=1, game=board.game)
        games.load(0, board)
        mask = np.zeros((1, 1, 4), np.bool_)
        games.action_mask("wall+health", mask)
        # With one health point, left is fatal; if left is allowed, no move was left.
        passed_over = board.snakes[0].health == 1 and mask[0, 0, MOVES.index("left")]
        yield "engine's masks", bool(mask[0, 0, right] and not passed_over)


@given(
    st.integers(1, 100),
    st.one_of(st.integers(0, 4), st.sampled_from((99, 100, 255, 300))),
    st.one_of(st.integers(-30, 130), st.sampled_from((-1000, -100, 1000))),
    st.booleans(),
)
def test_a_cell_costs_the_same_for_all(health: int, layers: int, damage: int, food: bool) -> None:
    board = board_of(health, layers, damage, food=food)
    left = rules.health_after(board.game, health, food=food, layers=layers)
    assert set(dict(healths(board)).values()) == {max(0, left)}
    assert set(dict(survivals(board)).values()) == {left > 0}


@pytest.mark.parametrize(
    ("health", "layers", "damage", "left"),
    [
        (50, 0, 14, 49),
        (50, 2, 14, 21),
        (1, 0, 14, 0),
        (1, 2, -7, 14),
        (98, 3, -7, 100),
        (9, 1, 0, 8),
    ],
)
def test_by_hand(health: int, layers: int, damage: int, left: int) -> None:
    board = board_of(health, layers, damage, food=False)
    assert set(dict(healths(board)).values()) == {left}
    assert set(dict(survivals(board)).values()) == {left > 0}
    board = board_of(health, layers, damage, food=True)
    assert set(dict(healths(board)).values()) == {100}

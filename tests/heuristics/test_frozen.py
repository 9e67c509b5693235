"""What must never move: the frozen search, and the other rungs of the ladder."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.board import Board
from battlesnake_gym.rules import Game
from heuristics.ladder import NAMES
from heuristics.match import Conditions, play_game, start_seed

pytest.importorskip("heuristics._search_2026")

POSITIONS = [
    ("standard", 11, 2),
    ("standard", 11, 4),
    ("wrapped", 11, 3),
    ("royale", 19, 4),
    ("constrictor", 7, 2),
]

ANSWERS = "dfe6df65d547d957"
"""Digest of all moves and scores, as they were when the ladder was measured."""

GAMES = {
    "safe-random": "83fa70be057c24ce",
    "hungry": "19fa93a4ec5fead0",
    "cautious": "70b5505d75e753a6",
    "hunter": "aa48e400fc11de7a",
    "tree": "e543f4273539e012",
    "territory": "ba9a6cc294398f2c",
    "lookahead": "bf20047acf38ff8c",
}
"""Digests of their games, likewise."""


def test_the_frozen_search_answers_as_ever() -> None:
    """A difference here means that the ladder's upper rungs are no longer those that were measured:
    undo the change in ``csrc/frozen``, do not adapt the digest."""
    digest = hashlib.sha256()
    for ruleset, size, count in POSITIONS:
        for positions in (10, 300, 3000):
            board = Board.new(size, size, count, game=Game(ruleset, seed=77 * positions + 1))
            search = snakes.make(f"minimax-2026@{positions}")
            while not board.is_over() and board.turn < 25:
                moves = {}
                for snake in board.living:
                    board.you_id = snake.id
                    decision = search(board)
                    digest.update(json.dumps([decision.move, decision.scores]).encode())
                    moves[snake.id] = decision.move
                board.step(moves)
    assert digest.hexdigest()[:16] == ANSWERS


@pytest.mark.parametrize("name", [name for name in NAMES if "@" not in name])
def test_a_rung_plays_as_when_it_was_measured(name: str) -> None:
    """A difference here means that a named snake plays otherwise than the rung of its name: give
    the new one another name, or measure the ladder again (``benchmarks/ladder.py``)."""
    digest = hashlib.sha256()
    for index in range(3):
        make = partial(snakes.make, name)
        played = play_game(Conditions(max_turns=80), [make] * 3, start_seed(2026, index))
        digest.update(json.dumps([turn.moves for turn in played.turns]).encode())
    assert digest.hexdigest()[:16] == GAMES[name]


def test_threads_do_not_share_a_table() -> None:
    from concurrent.futures import ThreadPoolExecutor

    board = Board.new(11, 11, 4, game=Game(seed=5))
    board.you_id = board.snakes[0].id
    search = snakes.make("minimax-2026@3000")
    alone = search(board)
    with ThreadPoolExecutor(4) as pool:
        assert all(decision == alone for decision in pool.map(search, [board] * 12))

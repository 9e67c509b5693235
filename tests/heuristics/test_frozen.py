"""The frozen search and the other rungs of the ladder never change."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.rules import MOVES, Game, Settings, Snake, State
from battlesnake_heuristics.rating.ladder import RUNG_NAMES
from battlesnake_heuristics.rating.match import MatchSettings, derive_seed, play_game
from battlesnake_heuristics.search.search import FrozenSearch, Weights
from tests.heuristics.conftest import start_of

pytest.importorskip("battlesnake_heuristics.search._search")

RECORDED = Path(__file__).with_name("frozen_digests.json")
"""Digests of moves and scores by game and node limit, recorded with the build that calibrated the
ladder; 10,000 searches.
"""


@dataclass(frozen=True)
class Played:
    """A self-play game of the search: its start and its number of turns."""

    ruleset: str
    width: int
    height: int
    snakes: int
    turns: int = 12
    settings: Mapping[str, int] = field(default_factory=dict)
    health: int = 100
    bodies: int = 0
    """Length of all bodies, laid out in rows; 0 keeps the normal start."""
    apart: int = 9
    """Number of free cells between them."""

    def board(self, seed: int) -> Board:
        """Return the first position."""
        game = Game(self.ruleset, settings=Settings(**self.settings), seed=seed)
        board = Board.new(self.width, self.height, self.snakes, game=game)
        rows = [
            (x if y % 2 else self.width - 1 - x, y)
            for y in range(self.height)
            for x in range(self.width)
        ]
        for seat, snake in enumerate(board.snakes):
            snake.health = self.health
            if self.bodies:
                snake.body = rows[seat * (self.bodies + self.apart) :][: self.bodies][::-1]
        if self.ruleset == "constrictor":  # set by hand, because constrictor games have no food
            board.food = rows
        return board


HEALING = {"shrink_every_n_turns": 2, "hazard_damage_per_turn": -7}
GAMES = {
    "a duel": Played("standard", 11, 11, 2, 25),
    "a duel from hunger": Played("standard", 11, 11, 2, 25, health=12),
    "a duel of the long": Played("standard", 11, 11, 2, 25, bodies=45, apart=15),
    "a duel of the longest": Played("standard", 25, 25, 2, 8, health=30, bodies=200, apart=200),
    "a small duel": Played("standard", 7, 7, 2, 40),
    "a large duel": Played("standard", 19, 19, 2, 15),
    "four": Played("standard", 11, 11, 4, 25),
    "four of the long": Played("standard", 11, 11, 4, 25, bodies=20, health=30),
    "four, crowded": Played("standard", 7, 7, 4, 30),
    "eight": Played("standard", 19, 19, 8, 8),
    "three, large": Played("standard", 25, 25, 3, 8),
    "alone": Played("solo", 11, 11, 1, 25),
    "a wrapped duel": Played("wrapped", 11, 11, 2, 25),
    "four, wrapped and flat": Played("wrapped", 15, 5, 4, 20),
    "a constrictor's duel": Played("constrictor", 11, 11, 2, 25),
    "four constrictors": Played("constrictor", 13, 9, 4, 20),
    "royale": Played("royale", 11, 11, 4, 25, {"shrink_every_n_turns": 3}),
    "a royale duel": Played("royale", 19, 19, 2, 15, {"shrink_every_n_turns": 1}),
    "healing": Played("royale", 11, 11, 3, 20, HEALING, health=15),
}
SEEDS = (1, 2, 3)
NODES = (100, 700, 5000)

RUNGS = {
    "safe-random": "83fa70be057c24ce",
    "hungry": "19fa93a4ec5fead0",
    "cautious": "70b5505d75e753a6",
    "hunter": "aa48e400fc11de7a",
    "tree": "e543f4273539e012",
    "territory": "ba9a6cc294398f2c",
    "lookahead": "bf20047acf38ff8c",
}
"""Digests of the other rungs' games."""


def digest_of_decisions(game: Played, nodes: int) -> str:
    """Return the digest of all moves and scores of some games."""
    digest, search = hashlib.sha256(), snakes.make(f"minimax-2026@{nodes}")
    for board in map(game.board, SEEDS):
        while not board.is_over() and board.turn < game.turns:
            moves = {}
            for snake in board.living:
                board.you_id = snake.id
                decision = search(board)
                digest.update(json.dumps([decision.move, decision.scores]).encode())
                moves[snake.id] = decision.move
            board.step(moves)
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", GAMES)
def test_the_frozen_search_decides_as_recorded(name: str) -> None:
    """If this fails, the upper rungs of the ladder are no longer those that were calibrated.

    Undo the change in ``csrc``, or exclude the frozen search from it (``frozen``). Do not record
    new digests.
    """
    recorded = json.loads(RECORDED.read_text())[name]
    assert {str(count): digest_of_decisions(GAMES[name], count) for count in NODES} == recorded


def test_the_default_weights_are_unchanged() -> None:
    """The default weights were tuned with thousands of games and must not change by accident."""
    assert Weights() == FrozenSearch.WEIGHTS


@pytest.mark.parametrize("name", [name for name in RUNG_NAMES if "@" not in name])
def test_a_rung_plays_as_when_it_was_measured(name: str) -> None:
    """If this fails, a built-in snake differs from the rung of its name; give it a new name."""
    digest, settings = hashlib.sha256(), MatchSettings(GameSpec(3, max_turns=80))
    for index in range(3):
        make = partial(snakes.make, name)
        played = play_game(settings, [make] * 3, derive_seed(2026, index))
        digest.update(json.dumps([turn.moves for turn in played.turns]).encode())
    assert digest.hexdigest()[:16] == RUNGS[name]


@pytest.mark.parametrize("name", ["minimax-2026", "minimax", "champion"])
def test_a_search_plays_a_board_beyond_its_limits(name: str) -> None:
    state = State(0, 30, 30, [Snake("me", [(3, 3), (3, 2), (3, 1)])])
    board = Board.from_state(state, Game(), "me")
    assert snakes.make(name)(board, 0.05).move in MOVES


def test_threads_do_not_share_a_table() -> None:
    from concurrent.futures import ThreadPoolExecutor

    board = start_of(11, 11, 4, game=Game())
    search = snakes.make("minimax-2026@3000")
    alone = search(board)
    with ThreadPoolExecutor(4) as pool:
        assert all(decision == alone for decision in pool.map(search, [board] * 12))

"""Boards from games in all rulesets."""

from collections.abc import Iterator

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import RULESETS, Game
from battlesnake_gym.rules.state import Settings

CAREFUL = [
    *("cautious", "hunter", "tail-chaser", "wall-hugger"),
    *("center", "territory", "tree", "lookahead"),
]
"""The built-in snakes that use all filters of SAFE."""

PLAYERS = ("safe-random", "straight", "hungry", "safe-random")


def board_of(text: str, you: str = "a") -> Board:
    """Return the position of a text from the view of ``you``."""
    board = Board.from_text(text)
    board.you_id = you
    return board


def start_of(*size_and_snakes: int, game: Game = Game()) -> Board:  # noqa: B008  (frozen)
    """Return the start of a game from the view of the first snake."""
    board = Board.new(*size_and_snakes, game=game)
    board.you_id = board.snakes[0].id
    return board


def boards(ruleset: str, seed: int = 1, turns: int = 60) -> Iterator[Board]:
    """Yield the positions of a game of four among hazards, from the view of each living snake."""
    settings = Settings(shrink_every_n_turns=10, hazard_damage_per_turn=9)
    game = Game(ruleset=ruleset, seed=seed, settings=settings, solo=True)
    board = Board.new(9, 9, 4, game=game)
    board.hazards += [(4, 2), (4, 2), (4, 2), (4, 6), (2, 4), (7, 4), (7, 4)]
    for snake in board.snakes:
        snake.health = 15
    players = {
        snake.id: snakes.make(name, seed) for snake, name in zip(board.snakes, PLAYERS, strict=True)
    }
    while not board.is_over() and board.turn < turns:
        moves = {}
        for snake in board.living:
            board.you_id = snake.id
            yield board.copy()
            moves[snake.id] = players[snake.id](board).move
        board.step(moves)


@pytest.fixture(scope="session", params=sorted(RULESETS))
def played(request: pytest.FixtureRequest) -> list[Board]:
    """Return a few hundred boards of one ruleset; tests must not change them."""
    return [board for seed in (1, 100_003) for board in boards(request.param, seed)]


@pytest.fixture(params=CAREFUL)
def careful(request: pytest.FixtureRequest) -> str:
    """Return the name of each careful snake."""
    return str(request.param)

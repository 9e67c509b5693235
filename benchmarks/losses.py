"""How often the search calls a game of several rivals lost and is wrong.

    python benchmarks/losses.py [--games 20] [--nodes 2000] [--snakes 4]

The search plays itself. Where it says that a game with two rivals or more is decided against it, it
also says in how many turns at the latest; whoever lives on after that was called lost in error.
"""

from __future__ import annotations

import argparse

from tqdm import tqdm

from battlesnake_gym.board import Board
from battlesnake_gym.rules import Game
from heuristics.search import CELL, Search

LOST = -900.0
WIN = 1000.0
LONGEST_GAME = 500


def claims_of(board: Board, search: Search) -> list[tuple[str, int]]:
    """Play a game; each claim is whose game was lost, and on which turn at the latest."""
    claims = []
    while not board.is_over() and board.turn < LONGEST_GAME:
        moves = {}
        for snake in board.living:
            board.you_id = snake.id
            decision, statistics = search.think(board)
            moves[snake.id] = decision.move
            value = decision.scores[decision.move]
            if statistics.proven and value < LOST and len(board.living) > 2:
                claims.append((snake.id, board.turn + round((WIN + value) * CELL)))
        board.step(moves)
    return claims


def main() -> None:
    """Print how many claims there were and how many were false."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--games", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2000, help="positions a move (default 2000)")
    parser.add_argument("--snakes", type=int, default=4)
    args = parser.parse_args()
    search, claims, false = Search(nodes=args.nodes), 0, 0
    for number in tqdm(range(args.games), unit="game"):
        board = Board.new(11, 11, args.snakes, game=Game(seed=77 + number * 10_007))
        for name, turn in claims_of(board, search):
            snake = board.snake(name)
            claims += 1
            false += snake.alive or snake.eliminated_on > turn
    print(f"{claims} positions called lost, {false} of them in error")


if __name__ == "__main__":
    main()

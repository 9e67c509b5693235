"""Which named snake is better: duels of all pairs and games of four, played in this process.

    python benchmarks/snakes.py --games 20
    python benchmarks/snakes.py --snakes cautious territory lookahead --games 100 --ruleset wrapped

Prints the share of wins of each snake against each other one (a draw counts half), then the games
of four, then the time that a move takes. Seats are swapped for every seed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Sequence

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.board import Board
from battlesnake_gym.rules.state import Game
from heuristics.named import NAMED
from heuristics.playing import SEED_STEP, duel_shares, duel_table, play_named


def four_table(names: Sequence[str], games: int, game: Game) -> str:
    """Wins and mean length of games between four snakes drawn at random."""
    draw = random.Random(game.seed)
    played: dict[str, int] = defaultdict(int)
    won: dict[str, int] = defaultdict(int)
    turns = 0
    for number in tqdm(range(games), desc="four", unit="game"):
        players = draw.sample(list(names), 4)
        seeded = Game(game.ruleset, game.map, game.settings, game.seed + SEED_STEP * number)
        result = play_named(players, seeded)
        turns += result.turns
        for player in players:
            played[player] += 1
            won[player] += player == result.winner
    ranked = sorted(names, key=lambda name: -won[name] / max(1, played[name]))
    lines = [f"games of four: {turns / games:.0f} turns on average"]
    lines += [f"{name:<12}{won[name] / max(1, played[name]):8.0%}" for name in ranked]
    return "\n".join(lines)


def move_times(names: Sequence[str], game: Game, turns: int = 60) -> str:
    """Milliseconds per move on the boards of games of four of that snake."""
    lines = [f"{'':<12}{'mean ms':>8}{'worst':>8}"]
    for name in names:
        board = Board.new(11, 11, 4, game=game)
        players = {snake.id: snakes.make(name, seat) for seat, snake in enumerate(board.snakes)}
        times = []
        for _ in range(turns):
            moves = {}
            for snake in board.living:
                board.you_id = snake.id
                start = time.perf_counter()
                moves[snake.id] = players[snake.id](board).move
                times.append(1000 * (time.perf_counter() - start))
            if board.is_over():
                break
            board.step(moves)
        lines.append(f"{name:<12}{sum(times) / len(times):8.2f}{max(times):8.2f}")
    return "\n".join(lines)


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--snakes", nargs="+", default=list(NAMED), help="names (default: all)")
    parser.add_argument("--games", type=int, default=10, help="duels a pair (default 10)")
    parser.add_argument("--fours", type=int, default=200, help="games of four (default 200)")
    parser.add_argument("--ruleset", default="standard")
    parser.add_argument("--map", default="standard")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    game = Game(ruleset=options.ruleset, map=options.map, seed=options.seed)
    print(duel_table(duel_shares(options.snakes, options.games, game)))
    if len(options.snakes) >= 4 and options.fours:
        print(four_table(options.snakes, options.fours, game))
    print(move_times(options.snakes, game))


if __name__ == "__main__":
    main()

"""Make the built-in puzzles: `python tools/make_puzzles.py puzzles.jsonl`.

The script plays games of the search with different node limits and writes their puzzles. A search
with `puzzles.DEEP_NODES` nodes must confirm that the good move is the only move that does not lose.
An interrupted command resumes.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.analysis.puzzles import (
    DEEP_NODES,
    Puzzle,
    PuzzleGame,
    find_puzzles,
    only_surviving_move,
)
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search

_NODES = (400, 100, 200, 50)
"""Node limits per move of the seats, which rotate from game to game."""

_MAX_TURNS, _MAX_PUZZLES_PER_GAME = 300, 3


def play(seed: int) -> Replay:
    """Play a duel if the seed is odd, otherwise a game of four snakes."""
    board = Board.new(11, 11, 2 if seed % 2 else 4, game=Game(seed=seed))
    players = [Search(evaluation=load_builtin(), nodes=nodes) for nodes in _NODES]
    seats = {s.id: players[(i + seed // 2) % len(players)] for i, s in enumerate(board.snakes)}
    return Replay.from_play(board, seats, max_turns=_MAX_TURNS)


def _select_puzzles(replay: Replay) -> Iterator[Puzzle]:
    """Yield the puzzles of a game that a deep search confirms, latest turn first."""
    confirmed = (
        one
        for one in find_puzzles(replay)
        if only_surviving_move(one.board, DEEP_NODES) == one.move
    )
    yield from itertools.islice(confirmed, _MAX_PUZZLES_PER_GAME)


def main() -> None:
    """Play games until the file contains enough puzzles."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="JSON lines file")
    parser.add_argument("--puzzles", type=int, default=240, help="minimum number of puzzles")
    arguments = parser.parse_args()
    lines = arguments.output.read_text().splitlines() if arguments.output.exists() else []
    games = [PuzzleGame(**json.loads(line)) for line in lines]
    seeds = itertools.count(games[-1].seed + 1 if games else 1)
    with tqdm(total=arguments.puzzles, unit="puzzle") as bar:
        bar.update(sum(len(game.puzzles) for game in games))
        while bar.n < arguments.puzzles:
            replay = play(next(seeds))
            puzzles = sorted(_select_puzzles(replay), key=lambda one: one.board.turn)
            if puzzles:
                game = PuzzleGame.from_replay(replay, puzzles)
                with arguments.output.open("a") as file:
                    file.write(json.dumps(dataclasses.asdict(game)) + "\n")
            bar.update(len(puzzles))


if __name__ == "__main__":
    main()

"""Games in which a snake is made to throw its chances away, to see whether an analysis notices.

A game of the search against itself is played to a position in which one safe move loses by force
within a few turns and another one holds. The snake plays the losing one, and then the search goes
on for everybody.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from dataclasses import dataclass

from battlesnake_gym.board import UNKNOWN_SEED, Board
from battlesnake_gym.replay import Replay
from battlesnake_gym.snakes import choose
from heuristics import selfplay
from heuristics.evaluation import shipped
from heuristics.search import CELL, Search
from heuristics.selfplay import GameRows, Player, Setup

LEAST_TURNS, MOST_TURNS = 3, 9
"""The planted move has lost after so many further turns, played as well as can be."""

_SEARCH = 1500


@dataclass(frozen=True, slots=True)
class Planted:
    """A recorded game, the turn on which ``snake_id`` was made to play the losing ``move``."""

    replay: Replay
    turn: int
    snake_id: str
    move: str


def plant(seed: int) -> Planted:
    """The first such game of the duels with this seed and those that follow."""
    setup = Setup()
    while True:
        played = selfplay.play_game(seed, setup, [Player(shipped(), nodes=60)] * 2)
        positions = [board.copy() for board in selfplay.boards(seed, setup, played)]
        order = list(range(10, played.turns))
        random.Random(seed).shuffle(order)
        for turn in order[:60]:
            for snake in positions[turn].living:
                move = _losing(positions[turn], snake.id)
                if move is not None:
                    planted = _played_on(seed, setup, played, turn, {snake.id: move})
                    return Planted(planted, turn, snake.id, move)
        seed += 1


def _losing(board: Board, snake_id: str) -> str | None:
    """A safe move that loses by force soon, where the position is even or better; else None."""
    safe = board.safe_moves(snake_id)
    if len(safe) < 2:
        return None
    search = Search(evaluation=shipped(), nodes=_SEARCH)
    board.you_id = snake_id
    if (best := search(board)).scores[best.move] < 0:
        return None
    return next((move for move in safe if _loses(board, snake_id, move, search)), None)


def _loses(board: Board, snake_id: str, move: str, search: Search) -> bool:
    """Whether ``move`` loses by force, soon but not at once, whatever the rival answers."""
    longest = 0
    rival = next(snake.id for snake in board.living if snake.id != snake_id)
    for answer in board.safe_moves(rival) or ["up"]:
        after = board.copy()
        after.game = dataclasses.replace(board.game, seed=UNKNOWN_SEED)
        after.advance({snake_id: move, rival: answer})
        if len(after.living) < 2:
            return False
        after.you_id = snake_id
        decision, statistics = search.think(after)
        value = decision.scores[decision.move]
        if not (statistics.proven and value < -900):
            return False
        longest = max(longest, round((1000 + value) * CELL))
    return LEAST_TURNS <= longest <= MOST_TURNS


def _played_on(
    seed: int, setup: Setup, played: GameRows, turn: int, planted: dict[str, str]
) -> Replay:
    """The game up to ``turn``, there with the planted move, and from there as the search plays."""
    positions = [board.copy() for board in selfplay.boards(seed, setup, played)]
    replay = Replay(positions[0])
    course = zip(selfplay.turns(setup, played), positions[1:], strict=True)
    for (moves, _), after in itertools.islice(course, turn):
        replay.append(moves, after=after)
    moves, _ = next(itertools.islice(selfplay.turns(setup, played), turn, None))
    replay.append({**moves, **planted})
    search = Search(evaluation=shipped(), nodes=400)
    players = dict.fromkeys((snake.id for snake in replay.first.snakes), search)
    while not replay.last.is_over() and len(replay.turns) < turn + 100:
        replay.append(choose(replay.last, players))
    return replay

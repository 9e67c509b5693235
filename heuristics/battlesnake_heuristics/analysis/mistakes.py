"""What a mistake is, and which move lost a game: how games go on from either move.

A mistake is a move after which its snake wins clearly fewer games than after another one, where the
champion plays on for all snakes: with care for the first turns, where a trap closes, then fast.
`mistakes` finds those of a recorded game. Analyses, the coach and puzzles know no other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.position_analysis import Analyst
from battlesnake_heuristics.search.evaluation import shipped
from battlesnake_heuristics.search.search import unheld
from battlesnake_heuristics.search.self_play import SearchPlayer, play_on

MISTAKE, BLUNDER = 0.10, 0.30
"""From which fall of the share of games on a move is marked ``?``, and ``??``."""

RESCUE = 0.05
"""From which share of games on a better move is worth being learned."""

GLANCE, GAMES = 12, 64
"""Games after each move to see whether it was one, and then to say what it cost."""

POSITIONS = 3000
"""Positions that a search of each turn looks at for each snake, to see where its chance falls."""

LATEST, SUSPECTS, COUNTED = 24, 16, 6
"""Moves of a snake, where it had another, from which a few games go on: its last ones and those
with the largest falls; and those of them from which many do, which are its mistakes at most."""

CLOSE = 0.15
"""Mistakes that cost their snake at most this much less than its worst are weighed again, by three
times as many other games."""

CAREFUL, LONGEST = range(4, 8), 700
"""First turns of games played on with more thought (see `play_on`), one after the other; turns."""

PLAYERS = [SearchPlayer(shipped(), nodes=nodes) for nodes in range(12, 36)]
"""Who plays on, one after the other: one alone would play the same game again and again."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A move that cost its snake chances: from ``before`` to ``after``; ``better`` was there."""

    turn: int
    snake_id: str
    move: str
    better: str
    before: float
    after: float

    @property
    def fell(self) -> float:
        """By how much."""
        return self.before - self.after

    @property
    def sign(self) -> str:
        """``?`` or ``??``."""
        return "??" if self.fell >= BLUNDER else "?"


def outcome(last: Board) -> dict[str, float] | None:
    """What each snake got of a game that ended like this; None where it was stopped earlier."""
    if not last.is_over():
        return None
    living = last.living
    final = max(snake.eliminated_on for snake in last.snakes)
    winners = living or [snake for snake in last.snakes if snake.eliminated_on == final]
    return {snake.id: 1 / len(winners) if snake in winners else 0.0 for snake in last.snakes}


def shares(board: Board, games: int, seed: int = 1) -> dict[str, float]:
    """The share of ``games`` from a position that each snake wins, by id.

    Food differs from game to game, and how far all snakes look (`PLAYERS`, `CAREFUL`); the same
    ``seed`` plays the same. Raises ``ValueError`` for a position that the search does not hold.
    """
    won = dict.fromkeys((snake.id for snake in board.snakes), 0.0)
    living = board.living
    if len(living) < 2:
        return outcome(board) or won
    for game in range(seed, seed + games):
        players = [PLAYERS[game % len(PLAYERS)]] * len(living)
        careful = CAREFUL[game % len(CAREFUL)]
        points = play_on(board, players, game, LONGEST, careful=careful).points
        for snake, share in zip(living, points.tolist(), strict=True):
            won[snake.id] += share / games
    return won


def played_on(
    board: Board, snake_id: str, move: str, others: Mapping[str, str], games: int, seed: int = 1
) -> float:
    """The share of ``games`` that a snake wins after ``move`` and those of the ``others``."""
    after = board.without_seed()
    after.advance({**others, snake_id: move})
    after.game = board.game
    return shares(after, games, seed)[snake_id]


def by_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int = 1
) -> dict[str, float]:
    """The share of ``games`` won after each safe move and after the one of ``moves``, as played."""
    tried = dict.fromkeys((*board.safe_moves(snake_id), moves[snake_id]))
    return {move: played_on(board, snake_id, move, moves, games, seed) for move in tried}


def mark_of(board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int) -> Mark:
    """What a move cost beside the best other safe one."""
    won = by_move(board, snake_id, moves, games, seed)
    move = moves[snake_id]
    better = max((one for one in won if one != move), key=won.__getitem__)
    return Mark(board.turn, snake_id, move, better, won[better], won[move])


def weighed(places: Iterable[int], mark: Callable[[int, int, int], Mark]) -> list[Mark]:
    """The marks of these places by ``mark`` (place, games, seed): more games where it is close."""
    found = {at: mark(at, GAMES, 1 + GLANCE) for at in places}
    most = max((one.fell for one in found.values()), default=0.0)
    close = [at for at, one in found.items() if one.fell >= max(most - CLOSE, MISTAKE)]
    if len(close) > 1:
        found |= {at: mark(at, 3 * GAMES, 1 + GLANCE + GAMES) for at in close}
    return list(found.values())


def mistakes(
    replay: Replay, snake_ids: Collection[str], seconds: float = math.inf
) -> tuple[list[Mark], int]:
    """The mistakes of these snakes, the worst first, and how many turns were looked through.

    The last turns come first, and no more are begun after half of the ``seconds`` of CPU. There are
    none in a game that the search does not hold.
    """
    boards = list(replay.boards())
    if unheld(boards[0]) or len(boards[0].living) > 16:
        return [], 0
    until = time.process_time() + seconds / 2
    falls: dict[str, list[tuple[float, int]]] = {snake_id: [] for snake_id in snake_ids}
    analyst, after, seen = Analyst(positions=2 * POSITIONS), outcome(boards[-1]) or {}, 0
    for at in range(len(replay.turns) - 1, -1, -1):
        if time.process_time() >= until:
            break
        now = analyst.chances(boards[at])
        for snake_id in falls.keys() & now.keys():
            if {*boards[at].safe_moves(snake_id)} - {replay.turns[at].moves[snake_id]}:
                falls[snake_id].append((now[snake_id] - after.get(snake_id, 0.0), at))
        after, seen = now, seen + 1

    def mark(snake_id: str, at: int, games: int, seed: int) -> Mark:
        return mark_of(boards[at], snake_id, replay.turns[at].moves, games, seed)

    marks = []
    for snake_id, fell in falls.items():
        places = {at for _, at in (*fell[:LATEST], *sorted(fell, reverse=True)[:SUSPECTS])}
        looks = [(mark(snake_id, at, GLANCE, 1).fell, at) for at in places]
        worst = [at for _, at in sorted(looks, reverse=True)[:COUNTED]]
        marks += weighed(worst, partial(mark, snake_id))
    found = [one for one in marks if one.fell >= MISTAKE]
    return sorted(found, key=lambda one: -one.fell), seen

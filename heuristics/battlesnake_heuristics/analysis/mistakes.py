"""What a mistake is, and which move lost a game: how games go on from either move.

A mistake is a move after which its snake wins clearly fewer games than after another one, where the
champion plays on for all snakes: with care for the first turns, where a trap closes, then fast.
`find_mistakes` finds those of a recorded game. Analyses, the coach and puzzles know no other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import unsupported_reason
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from

MISTAKE_LOSS, _BLUNDER_LOSS = 0.10, 0.30
"""From which fall of the share of games on a move is marked ``?``, and ``??``."""

MIN_BETTER_SCORE = 0.05
"""From which share of games on a better move is worth being learned."""

SCREENING_GAMES, ROLLOUT_GAMES = 12, 64
"""Games after each move to see whether it was one, and then to say what it cost."""

_SCREENING_NODES = 3000
"""Positions that a search of each turn looks at for each snake, to see where its chance falls."""

_LAST_MOVES, _MAX_SUSPECTS, _MAX_MISTAKES = 24, 16, 6
"""Moves of a snake, where it had another, from which a few games go on: its last ones and those
with the largest falls; and those of them from which many do, which are its mistakes at most."""

_TIE_MARGIN = 0.15
"""Mistakes that cost their snake at most this much less than its worst are weighed again, by three
times as many other games."""

ROLLOUT_NODE_DOUBLINGS, ROLLOUT_MAX_TURNS = range(4, 8), 700
"""First turns of games played on with more thought (see `play_on`), one after the other; turns."""

ROLLOUT_PLAYERS = [SearchPlayer(load_builtin(), nodes=nodes) for nodes in range(12, 36)]
"""Who plays on, one after the other: one alone would play the same game again and again."""


@dataclass(frozen=True, slots=True)
class MoveAssessment:
    """A move that cost its snake chances: from ``best_win_probability`` to ``played_win_probability``; ``better`` was there."""

    turn: int
    snake_id: str
    move: str
    better: str
    best_win_probability: float
    played_win_probability: float

    @property
    def loss(self) -> float:
        """By how much."""
        return self.best_win_probability - self.played_win_probability

    @property
    def annotation(self) -> str:
        """``?`` or ``??``."""
        return "??" if self.loss >= _BLUNDER_LOSS else "?"


def final_scores(last: Board) -> dict[str, float] | None:
    """What each snake got of a game that ended like this; None where it was stopped earlier."""
    if not last.is_over():
        return None
    living = last.living
    final = max(snake.eliminated_on for snake in last.snakes)
    winners = living or [snake for snake in last.snakes if snake.eliminated_on == final]
    return {snake.id: 1 / len(winners) if snake in winners else 0.0 for snake in last.snakes}


def rollout_scores(board: Board, games: int, seed: int = 1) -> dict[str, float]:
    """The share of ``games`` from a position that each snake wins, by id.

    Food differs from game to game, and how far all snakes look (`ROLLOUT_PLAYERS`, `CAREFUL`); the same
    ``seed`` plays the same. Raises ``ValueError`` for a position that the search does not hold.
    """
    won = dict.fromkeys((snake.id for snake in board.snakes), 0.0)
    living = board.living
    if len(living) < 2:
        return final_scores(board) or won
    for game in range(seed, seed + games):
        players = [ROLLOUT_PLAYERS[game % len(ROLLOUT_PLAYERS)]] * len(living)
        careful = ROLLOUT_NODE_DOUBLINGS[game % len(ROLLOUT_NODE_DOUBLINGS)]
        points = play_from(board, players, game, ROLLOUT_MAX_TURNS, node_doublings=careful).points
        for snake, share in zip(living, points.tolist(), strict=True):
            won[snake.id] += share / games
    return won


def score_after_move(
    board: Board, snake_id: str, move: str, others: Mapping[str, str], games: int, seed: int = 1
) -> float:
    """The share of ``games`` that a snake wins after ``move`` and those of the ``others``."""
    after = board.without_seed()
    after.advance({**others, snake_id: move})
    after.game = board.game
    return rollout_scores(after, games, seed)[snake_id]


def scores_by_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int = 1
) -> dict[str, float]:
    """The share of ``games`` won after each safe move and after the one of ``moves``, as played."""
    tried = dict.fromkeys((*board.safe_moves(snake_id), moves[snake_id]))
    return {move: score_after_move(board, snake_id, move, moves, games, seed) for move in tried}


def assess_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int
) -> MoveAssessment:
    """What a move cost beside the best other safe one."""
    won = scores_by_move(board, snake_id, moves, games, seed)
    move = moves[snake_id]
    better = max((one for one in won if one != move), key=won.__getitem__)
    return MoveAssessment(board.turn, snake_id, move, better, won[better], won[move])


def assess_moves(
    places: Iterable[int], mark: Callable[[int, int, int], MoveAssessment]
) -> list[MoveAssessment]:
    """The marks of these places by ``mark`` (place, games, seed): more games where it is close."""
    found = {at: mark(at, ROLLOUT_GAMES, 1 + SCREENING_GAMES) for at in places}
    most = max((one.loss for one in found.values()), default=0.0)
    close = [at for at, one in found.items() if one.loss >= max(most - _TIE_MARGIN, MISTAKE_LOSS)]
    if len(close) > 1:
        found |= {
            at: mark(at, 3 * ROLLOUT_GAMES, 1 + SCREENING_GAMES + ROLLOUT_GAMES) for at in close
        }
    return list(found.values())


def find_mistakes(
    replay: Replay, snake_ids: Collection[str], seconds: float = math.inf
) -> tuple[list[MoveAssessment], int]:
    """The mistakes of these snakes, the worst first, and how many turns were looked through.

    The last turns come first, and no more are begun after half of the ``seconds`` of CPU. There are
    none in a game that the search does not hold.
    """
    boards = list(replay.boards())
    if unsupported_reason(boards[0]) or len(boards[0].living) > 16:
        return [], 0
    until = time.process_time() + seconds / 2
    falls: dict[str, list[tuple[float, int]]] = {snake_id: [] for snake_id in snake_ids}
    analyst, after, seen = (
        PositionAnalyzer(positions=2 * _SCREENING_NODES),
        final_scores(boards[-1]) or {},
        0,
    )
    for at in range(len(replay.turns) - 1, -1, -1):
        if time.process_time() >= until:
            break
        now = analyst.win_probabilities(boards[at])
        for snake_id in falls.keys() & now.keys():
            if {*boards[at].safe_moves(snake_id)} - {replay.turns[at].moves[snake_id]}:
                falls[snake_id].append((now[snake_id] - after.get(snake_id, 0.0), at))
        after, seen = now, seen + 1

    def mark(snake_id: str, at: int, games: int, seed: int) -> MoveAssessment:
        return assess_move(boards[at], snake_id, replay.turns[at].moves, games, seed)

    marks = []
    for snake_id, fell in falls.items():
        places = {
            at for _, at in (*fell[:_LAST_MOVES], *sorted(fell, reverse=True)[:_MAX_SUSPECTS])
        }
        looks = [(mark(snake_id, at, SCREENING_GAMES, 1).loss, at) for at in places]
        worst = [at for _, at in sorted(looks, reverse=True)[:_MAX_MISTAKES]]
        marks += assess_moves(worst, partial(mark, snake_id))
    found = [one for one in marks if one.loss >= MISTAKE_LOSS]
    return sorted(found, key=lambda one: -one.loss), seen

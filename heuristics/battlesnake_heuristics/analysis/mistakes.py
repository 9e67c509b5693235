"""Mistakes: moves with a clearly lower score in rollouts than another move.

A rollout is a game in which the champion's search plays all snakes to the end. The search visits
more nodes during the first turns, because traps close in these turns. `find_mistakes` finds the
mistakes in a recorded game. Game analyses, the coach and puzzles use this definition.
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
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from_board

MISTAKE_LOSS, _BLUNDER_LOSS = 0.10, 0.30
"""Minimum lost win probability of a mistake and of a blunder, in [0, 1].

The annotations are ``?`` for a mistake and ``??`` for a blunder.
"""

MIN_BETTER_SCORE = 0.05
"""Minimum score of the better move, in [0, 1].

Below this score, the snake has lost anyway, so no mistake is reported.
"""

SCREENING_GAMES, ROLLOUT_GAMES = 12, 64
"""Numbers of rollouts per move for the screening and for the measurement."""

_SCREENING_NODES = 3000
"""Nodes per snake and turn in the search for decreases of the win probability."""

_NUM_LAST_MOVES, _MAX_SUSPECTS, _MAX_MISTAKES = 24, 16, 6
"""Limits per snake.

The numbers limit the last moves to screen, the suspects to screen, and the mistakes to measure. The
suspects are the moves with the largest decreases of the win probability. Only the worst screened
moves are measured and can become mistakes. Forced moves do not count.
"""

_TIE_MARGIN = 0.15
"""Maximum difference from the largest loss at which a mistake is measured again.

The second measurement uses different rollouts, three times as many.
"""

ROLLOUT_NODE_DOUBLINGS, ROLLOUT_MAX_TURNS = range(4, 8), 700
"""Rollout settings.

The settings are the numbers of turns with increased node limits, and the maximum number of turns.
The number of turns with increased node limits (see `play_from_board`) differs between games.
"""

ROLLOUT_PLAYERS = [SearchPlayer(load_builtin(), nodes=nodes) for nodes in range(12, 36)]
"""Players of the rollouts.

Consecutive rollouts use consecutive players of the list. The node limits differ, because equal
limits would repeat the same game.
"""


@dataclass(frozen=True, slots=True)
class MoveAssessment:
    """The win probabilities after a played move and after the best other safe move."""

    turn: int
    snake_id: str
    move: str
    better_move: str
    best_win_probability: float
    played_win_probability: float

    @property
    def loss(self) -> float:
        """The lost win probability, in [-1, 1]."""
        return self.best_win_probability - self.played_win_probability

    @property
    def annotation(self) -> str:
        """The annotation of the move: ``??`` for a blunder, otherwise ``?``."""
        return "??" if self.loss >= _BLUNDER_LOSS else "?"


def final_scores(last: Board) -> dict[str, float] | None:
    """Return each snake's score in a finished game, by id.

    The result is None if the game was stopped before its end.
    """
    if not last.is_over():
        return None
    living = last.living
    final = max(snake.eliminated_on for snake in last.snakes)
    winners = living or [snake for snake in last.snakes if snake.eliminated_on == final]
    return {snake.id: 1 / len(winners) if snake in winners else 0.0 for snake in last.snakes}


def rollout_scores(board: Board, games: int, seed: int = 1) -> dict[str, float]:
    """Return the mean score of each snake over ``games`` rollouts, by id, in [0, 1].

    Food and node limits (`ROLLOUT_PLAYERS`, `ROLLOUT_NODE_DOUBLINGS`) differ between the rollouts.
    Equal seeds give equal scores.

    Raises:
        ValueError: If the search does not support the position.
    """
    won = dict.fromkeys((snake.id for snake in board.snakes), 0.0)
    living = board.living
    if len(living) < 2:
        return final_scores(board) or won
    for game in range(seed, seed + games):
        players = [ROLLOUT_PLAYERS[game % len(ROLLOUT_PLAYERS)]] * len(living)
        node_doublings = ROLLOUT_NODE_DOUBLINGS[game % len(ROLLOUT_NODE_DOUBLINGS)]
        points = play_from_board(
            board, players, game, ROLLOUT_MAX_TURNS, node_doublings=node_doublings
        ).points
        for snake, share in zip(living, points.tolist(), strict=True):
            won[snake.id] += share / games
    return won


def score_after_move(
    board: Board, snake_id: str, move: str, others: Mapping[str, str], games: int, seed: int = 1
) -> float:
    """Return a snake's mean rollout score after ``move``.

    The opponents play the moves in ``others``.
    """
    after = board.without_seed()
    after.advance({**others, snake_id: move})
    after.game = board.game
    return rollout_scores(after, games, seed)[snake_id]


def scores_by_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int = 1
) -> dict[str, float]:
    """Return a snake's mean rollout score for each safe move and for the played move."""
    tried = dict.fromkeys((*board.safe_moves(snake_id), moves[snake_id]))
    return {move: score_after_move(board, snake_id, move, moves, games, seed) for move in tried}


def assess_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int
) -> MoveAssessment:
    """Compare the rollout score of a played move with the best alternative.

    The best alternative is the other safe move with the highest rollout score.
    """
    won = scores_by_move(board, snake_id, moves, games, seed)
    move = moves[snake_id]
    better_move = max((one for one in won if one != move), key=won.__getitem__)
    return MoveAssessment(board.turn, snake_id, move, better_move, won[better_move], won[move])


def assess_moves(
    places: Iterable[int], assess: Callable[[int, int, int], MoveAssessment]
) -> list[MoveAssessment]:
    """Assess some moves.

    Moves with nearly the largest loss are assessed with more rollouts.

    Args:
        places: Indices of the moves.
        assess: Function that assesses a move from an index, a number of rollouts and a seed.
    """
    found = {at: assess(at, ROLLOUT_GAMES, 1 + SCREENING_GAMES) for at in places}
    most = max((one.loss for one in found.values()), default=0.0)
    close = [at for at, one in found.items() if one.loss >= max(most - _TIE_MARGIN, MISTAKE_LOSS)]
    if len(close) > 1:
        found |= {
            at: assess(at, 3 * ROLLOUT_GAMES, 1 + SCREENING_GAMES + ROLLOUT_GAMES) for at in close
        }
    return list(found.values())


def find_mistakes(
    replay: Replay, snake_ids: Collection[str], seconds: float = math.inf
) -> tuple[list[MoveAssessment], int]:
    """Find the mistakes of some snakes in a recorded game.

    The function examines the turns from the end of the game to the start. The result is empty if
    the search does not support the game.

    Args:
        replay: Recorded game.
        snake_ids: Ids of the snakes whose moves are examined.
        seconds: CPU time limit. Half of this time is for the examination of turns.

    Returns:
        The mistakes, worst first, and the number of examined turns.
    """
    boards = list(replay.boards())
    if unsupported_reason(boards[0]) or len(boards[0].living) > 16:
        return [], 0
    until = time.process_time() + seconds / 2
    losses: dict[str, list[tuple[float, int]]] = {snake_id: [] for snake_id in snake_ids}
    analyzer, after, seen = (
        PositionAnalyzer(nodes=2 * _SCREENING_NODES),
        final_scores(boards[-1]) or {},
        0,
    )
    for at in range(len(replay.turns) - 1, -1, -1):
        if time.process_time() >= until:
            break
        now = analyzer.win_probabilities(boards[at])
        for snake_id in losses.keys() & now.keys():
            if {*boards[at].safe_moves(snake_id)} - {replay.turns[at].moves[snake_id]}:
                losses[snake_id].append((now[snake_id] - after.get(snake_id, 0.0), at))
        after, seen = now, seen + 1

    def assess(snake_id: str, at: int, games: int, seed: int) -> MoveAssessment:
        """Assess the move of a snake on the turn with index ``at``."""
        return assess_move(boards[at], snake_id, replay.turns[at].moves, games, seed)

    assessments = []
    for snake_id, snake_losses in losses.items():
        places = {
            at
            for _, at in (
                *snake_losses[:_NUM_LAST_MOVES],
                *sorted(snake_losses, reverse=True)[:_MAX_SUSPECTS],
            )
        }
        screened = [(assess(snake_id, at, SCREENING_GAMES, 1).loss, at) for at in places]
        worst = [at for _, at in sorted(screened, reverse=True)[:_MAX_MISTAKES]]
        assessments += assess_moves(worst, partial(assess, snake_id))
    found = [one for one in assessments if one.loss >= MISTAKE_LOSS]
    return sorted(found, key=lambda one: -one.loss), seen

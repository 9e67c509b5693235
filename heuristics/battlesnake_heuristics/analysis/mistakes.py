"""Mistakes: moves with a clearly lower score in rollouts than another move.

A rollout is a game in which the champion's search plays all snakes to the end. The search visits
more nodes during the first turns, because traps close in these turns. `find_mistakes` finds the
mistakes in a recorded game. Game analyses, the coach and puzzles use this definition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import unsupported_reason
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from_board

MISTAKE_LOSS, BLUNDER_LOSS = 0.10, 0.30
"""Minimum lost win probability of a mistake and of a blunder, in [0, 1].

The annotations are ``?`` for a mistake and ``??`` for a blunder.
"""

MIN_BETTER_SCORE = 0.05
"""Minimum score of the better move, in [0, 1].

Below this score, the snake has lost anyway, so no mistake is reported.
"""

SCREENING_ROUNDS = ((4, 16), (8, 6), (16, 6))
"""Rounds of the screening: rollouts per move, and the number of moves that remain.

Each round uses different rollouts. After the last round, only moves with a loss remain.
"""

ROLLOUT_GAMES = 64
"""Number of rollouts per move for the measurement."""

NUM_LAST_MOVES, MAX_SUSPECTS = 24, 16
"""Limits per snake.

The numbers limit the last moves to screen, and the suspects to screen. The suspects are the moves
with the largest decreases of the win probability. Forced moves do not count.
"""

TIE_MARGIN, MAX_TIED = 0.15, 2
"""Limits of the second measurement, with twice as many different rollouts.

Moves are measured again if their losses differ from the largest loss by at most this margin.
"""

ROLLOUT_NODE_DOUBLINGS, ROLLOUT_MAX_TURNS = {2: range(4, 8), 3: range(3, 7)}, 700
"""Rollout settings.

The settings are the numbers of turns with increased node limits, and the maximum number of turns.
The number of turns with increased node limits (see `play_from_board`) differs between games. The
keys are the numbers of living snakes; 3 stands for three or more.
"""

ROLLOUT_PLAYERS = [SearchPlayer(load_builtin(), nodes=nodes) for nodes in range(12, 36)]
"""Players of the rollouts.

Consecutive rollouts use consecutive players of the list. The node limits differ, because equal
limits would repeat the same game.
"""


@dataclass(frozen=True, slots=True)
class MoveAssessment:
    """The win probabilities after a played move and after the best other safe move.

    ``scores`` contains the win probability after every safe move and after the played move.
    """

    turn: int
    snake_id: str
    move: str
    better_move: str
    best_win_probability: float
    played_win_probability: float
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The lost win probability, in [-1, 1]."""
        return self.best_win_probability - self.played_win_probability

    @property
    def annotation(self) -> str:
        """The annotation of the move: ``??`` for a blunder, otherwise ``?``."""
        return "??" if self.loss >= BLUNDER_LOSS else "?"


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


def score_after_move(
    board: Board, snake_id: str, move: str, others: Mapping[str, str], games: int, seed: int = 1
) -> float:
    """Return a snake's mean score over ``games`` rollouts after ``move``, in [0, 1].

    The opponents play the moves in ``others`` on the first turn. Food and node limits
    (`ROLLOUT_PLAYERS`, `ROLLOUT_NODE_DOUBLINGS`) differ between the rollouts. Equal seeds give
    equal scores.

    Raises:
        ValueError: If the search does not support the position.
    """
    board = board.without_seed()
    living = [snake.id for snake in board.living]
    doublings = ROLLOUT_NODE_DOUBLINGS[min(len(living), 3)]
    won = 0.0
    for game in range(seed, seed + games):
        won += play_from_board(
            board,
            [ROLLOUT_PLAYERS[game % len(ROLLOUT_PLAYERS)]] * len(living),
            game,
            ROLLOUT_MAX_TURNS,
            node_doublings=doublings[game % len(doublings)],
            first_moves={**others, snake_id: move},
            only_snake=snake_id,
        ).points[living.index(snake_id)]
    return float(won) / games


def assess_move(
    board: Board, snake_id: str, moves: Mapping[str, str], games: int, seed: int
) -> MoveAssessment:
    """Compare the rollout score of a played move with the best alternative.

    The best alternative is the other safe move with the highest rollout score.
    """
    move = moves[snake_id]
    scores = {
        tried: score_after_move(board, snake_id, tried, moves, games, seed)
        for tried in dict.fromkeys((*board.safe_moves(snake_id), move))
    }
    better_move = max((tried for tried in scores if tried != move), key=scores.__getitem__)
    return MoveAssessment(
        board.turn, snake_id, move, better_move, scores[better_move], scores[move], scores
    )


def assess_moves(
    places: Collection[int], assess: Callable[[int, int, int], MoveAssessment]
) -> list[MoveAssessment]:
    """Return the mistakes among some moves, worst first.

    Each round assesses fewer moves with more rollouts (see `SCREENING_ROUNDS`).

    Args:
        places: Indices of the moves.
        assess: Function that assesses a move from an index, a number of rollouts and a seed.
    """
    seed = 1
    for games, remaining in SCREENING_ROUNDS:
        losses = {at: assess(at, games, seed).loss for at in places}
        places = sorted(places, key=lambda at: (-losses[at], -at))[:remaining]
        seed += games
    found = {at: assess(at, ROLLOUT_GAMES, seed) for at in places if losses[at] > 0}
    worst = sorted(found, key=lambda at: (-found[at].loss, -at))
    tied = [
        at for at in worst if found[at].loss >= max(found[worst[0]].loss - TIE_MARGIN, MISTAKE_LOSS)
    ][:MAX_TIED]
    if len(tied) > 1:
        found |= {at: assess(at, 2 * ROLLOUT_GAMES, seed + ROLLOUT_GAMES) for at in tied}
    mistakes = [one for one in found.values() if one.loss >= MISTAKE_LOSS]
    return sorted(mistakes, key=lambda one: (-one.loss, -one.turn))


def find_mistakes(
    replay: Replay,
    snake_ids: Collection[str],
    probabilities: Sequence[Mapping[str, float]] | None = None,
) -> list[MoveAssessment]:
    """Find the mistakes of some snakes in a recorded game.

    The playable page finds the same mistakes (``docs/play/worker.js``). The result is empty if the
    search does not support the game.

    Args:
        replay: Recorded game.
        snake_ids: Ids of the snakes whose moves are examined.
        probabilities: Win probabilities by snake id before each turn (default: analyze the game).

    Returns:
        The mistakes, worst first.
    """
    boards = list(replay.boards())
    if unsupported_reason(boards[0]) or len(boards[0].living) > 16:
        return []
    if probabilities is None:
        analyzer = PositionAnalyzer()
        probabilities = [
            {name: one.win_probability for name, one in analyzer.analyze(board).items()}
            for board in boards[:-1]
        ]
    after = [*probabilities[1:], final_scores(boards[-1]) or {}]
    mistakes = []
    for snake_id in snake_ids:
        drops = {
            at: round(now[snake_id] - after[at].get(snake_id, 0.0), 6)
            for at, now in enumerate(probabilities)
            if snake_id in now
            and {*boards[at].safe_moves(snake_id)} - {replay.turns[at].moves[snake_id]}
        }
        suspects = sorted(drops, key=lambda at: (-drops[at], -at))[:MAX_SUSPECTS]

        def assess(at: int, games: int, seed: int, snake_id: str = snake_id) -> MoveAssessment:
            """Assess the move of the snake on the turn with index ``at``."""
            return assess_move(boards[at], snake_id, replay.turns[at].moves, games, seed)

        mistakes += assess_moves({*list(drops)[-NUM_LAST_MOVES:], *suspects}, assess)
    return sorted(mistakes, key=lambda one: -one.loss)

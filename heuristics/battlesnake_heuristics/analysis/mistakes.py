"""Mistakes: moves with a clearly lower score in rollouts than another move.

In a rollout, alpha-beta search with the champion's evaluation plays all snakes for some turns. The
search visits more nodes during the first turns, because traps close in these turns. The score is
the result of the game, or the win probability at the end of the rollout
(`analysis.win_probability`). The win probability depends less on chance than the result of a longer
game. `find_mistakes` finds the mistakes in a recorded game. Game analyses, the coach and puzzles
use this definition.

In a game with limited view, the rollouts start from positions that agree with what the snake saw up
to then (`sample_turns`), so that hidden information counts for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, pstdev
from types import MappingProxyType

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import is_visible
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Snake
from battlesnake_heuristics.analysis.win_probability import win_probabilities
from battlesnake_heuristics.search.beliefs import Beliefs
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search, unsupported_reason
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from_board

MISTAKE_LOSS, BLUNDER_LOSS = 0.20, 0.30
"""Minimum lost win probability of a mistake and of a blunder, in [0, 1].

The annotations are ``?`` for a mistake and ``??`` for a blunder.
"""

MAX_LOST_SCORE = 0.05
"""Maximum score of a lost position, in [0, 1]."""

ROLLOUT_ROUNDS = (4, 8, 36, 144, 744)
"""Numbers of rollouts per move in each round.

The rollouts of a move end after the round in which its loss differs from `MISTAKE_LOSS` by more
than `MIN_STANDARD_ERRORS` standard errors. The loss of one rollout is the difference between two
rollouts with the same seed.
"""

MIN_MISTAKE_ROLLOUTS = 192
"""Minimum number of rollouts per move for a mistake."""

MIN_STANDARD_ERRORS, MIN_DEVIATION = 2.5, 0.1
"""Standard errors of a clear result, and the minimum standard deviation of the losses.

Without the minimum, the first rollouts could be equal by chance, with a standard error of 0.
"""

ROLLOUT_NODE_DOUBLINGS, ROLLOUT_TURNS = {2: range(4, 8), 3: range(2, 6)}, 16
"""Rollout settings.

The settings are the numbers of turns with increased node limits, and the number of turns. The
number of turns with increased node limits (see `play_from_board`) differs between rollouts. The
keys are the numbers of living snakes; 3 stands for three or more.
"""

ROLLOUT_PLAYERS = [SearchPlayer(load_builtin(), nodes=nodes) for nodes in range(12, 36)]
"""Players of the rollouts.

Consecutive rollouts use consecutive players of the list. The node limits differ, because equal
limits would repeat the same game.
"""


_NUM_SAMPLES = 8
"""Number of positions in which the rollouts of a move start, if the view is limited."""

_OPPONENT_NODES = 200
"""Node limit of the search that chooses the moves of hidden heads in these positions."""

Position = tuple[Board, Mapping[str, str]]
"""A position and the moves of the opponents on the next turn, by id."""

Samples = Mapping[str, Mapping[Board, int]]
"""Positions that each snake considers possible, by id, and how often each position was drawn."""


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


def _rollout_score(board: Board, snake_id: str, moves: Mapping[str, str], seed: int) -> float:
    """Return a snake's score in one rollout that starts with ``moves``, in [0, 1].

    Food and node limits (`ROLLOUT_PLAYERS`, `ROLLOUT_NODE_DOUBLINGS`) depend on the seed. Equal
    seeds give equal scores.

    Args:
        board: Position.
        snake_id: Id of the snake.
        moves: Moves of all living snakes on the first turn, by id.
        seed: Seed of the rollout.

    Raises:
        ValueError: If the search does not support the position.
    """
    board = board.without_seed()
    living = [snake.id for snake in board.living]
    seat = living.index(snake_id)
    doublings = ROLLOUT_NODE_DOUBLINGS[min(len(living), 3)]
    played = play_from_board(
        board,
        [ROLLOUT_PLAYERS[seed % len(ROLLOUT_PLAYERS)]] * len(living),
        seed,
        ROLLOUT_TURNS,
        node_doublings=doublings[seed % len(doublings)],
        first_moves=moves,
        only_snake=snake_id,
    )
    if played.finished or not played.turns or not played.points[seat]:
        return float(played.points[seat])
    rows = played.rows[played.rows["turn"] == played.turns - 1]
    values = {
        str(row["seat"]): float(row["value"]) / 1000 for row in rows if played.points[row["seat"]]
    }
    turn = board.turn + played.turns
    return win_probabilities(values, turn, learned=True)[str(seat)]


def score_after_move(
    board: Board, snake_id: str, move: str, others: Mapping[str, str], seeds: Sequence[int]
) -> float:
    """Return a snake's mean score after ``move`` in one rollout per seed, in [0, 1].

    The opponents play the moves in ``others`` on the first turn.
    """
    return fmean(
        _rollout_score(board, snake_id, {**others, snake_id: move}, seed) for seed in seeds
    )


def _assess_move(
    board: Board,
    snake_id: str,
    moves: Mapping[str, str],
    rounds: Sequence[int],
    seed: int = 1,
    samples: Sequence[Position] = (),
) -> MoveAssessment:
    """Compare the rollout score of a played move with the best alternative.

    The best alternative is the other safe move with the highest rollout score. The playable page
    assesses moves in the same way (``docs/play/worker.js``).

    Args:
        board: Position.
        snake_id: Id of the snake.
        moves: Played moves of all living snakes, by id.
        rounds: Numbers of rollouts per move, as in `ROLLOUT_ROUNDS`.
        seed: First seed of the rollouts.
        samples: Positions in which the rollouts start; by default, all start on ``board``.

    Raises:
        ValueError: If the snake has no other safe move.
    """
    samples = samples or [(board, moves)]
    move = moves[snake_id]
    results: dict[str, list[float]] = {one: [] for one in (*board.safe_moves(snake_id), move)}
    for games in rounds:
        for tried, rollouts in results.items():
            for index in range(len(rollouts), len(rollouts) + games):
                position, others = samples[index % len(samples)]
                first_moves = {**others, snake_id: tried}
                rollouts.append(_rollout_score(position, snake_id, first_moves, seed + index))
        scores = {tried: fmean(rollouts) for tried, rollouts in results.items()}
        better_move = max((tried for tried in scores if tried != move), key=scores.__getitem__)
        losses = [b - a for a, b in zip(results[move], results[better_move], strict=True)]
        error = max(pstdev(losses), MIN_DEVIATION) / sqrt(len(losses))
        excess = (scores[better_move] - scores[move] - MISTAKE_LOSS) / error
        enough = len(losses) >= MIN_MISTAKE_ROLLOUTS
        if excess < -MIN_STANDARD_ERRORS or (enough and excess > MIN_STANDARD_ERRORS):
            break
    return MoveAssessment(
        board.turn, snake_id, move, better_move, scores[better_move], scores[move], scores
    )


def find_turn_mistakes(
    board: Board,
    moves: Mapping[str, str],
    snake_ids: Collection[str],
    samples: Samples = MappingProxyType({}),
) -> list[MoveAssessment]:
    """Return the mistakes of some snakes on a turn with the played ``moves``.

    A snake without another safe move makes no mistake. The result is empty if the search does not
    support the position. The rollouts of a snake start in its ``samples``, if it has any.
    """
    if unsupported_reason(board):
        return []
    assessed = (
        _assess_move(
            board,
            snake.id,
            moves,
            ROLLOUT_ROUNDS,
            samples=_add_likely_moves(board, moves, snake, samples.get(snake.id, {})),
        )
        for snake in board.living
        if snake.id in snake_ids and {*board.safe_moves(snake.id)} - {moves[snake.id]}
    )
    return [one for one in assessed if one.loss >= MISTAKE_LOSS]


def find_mistakes(replay: Replay, snake_ids: Collection[str]) -> list[MoveAssessment]:
    """Return the mistakes of some snakes in a recorded game, worst first."""
    found = [
        mistake
        for board, moves, samples in sample_turns(replay, snake_ids)
        for mistake in find_turn_mistakes(board, moves, snake_ids, samples)
    ]
    return sorted(found, key=lambda one: -one.loss)


def sample_turns(
    replay: Replay, snake_ids: Collection[str]
) -> Iterator[tuple[Board, dict[str, str], Samples]]:
    """Yield the position, the moves, and the samples of some snakes on each turn of a game.

    Each sample agrees with everything that its snake has seen so far. A game without limited view
    has no samples.
    """
    samples = sample_positions(replay.boards(), snake_ids)
    for board, turn, found in zip(replay.boards(), replay.turns, samples, strict=False):
        yield board, turn.moves, found


def sample_positions(boards: Iterable[Board], snake_ids: Collection[str]) -> Iterator[Samples]:
    """Yield the samples of some snakes in consecutive positions of one game.

    Each sample agrees with everything that its snake has seen since the first position. A game
    without limited view has no samples.
    """
    beliefs = {snake_id: Beliefs() for snake_id in snake_ids}
    for board in boards:
        samples = {}
        is_limited = board.game.settings.view_radius is not None and not unsupported_reason(board)
        for snake in board.living if is_limited else ():
            if snake.id in beliefs:
                seen = board.without_seed()
                seen.you_id = snake.id
                samples[snake.id] = beliefs[snake.id].sample(seen.limited(), _NUM_SAMPLES)
        yield samples


def _add_likely_moves(
    board: Board, moves: Mapping[str, str], snake: Snake, samples: Mapping[Board, int]
) -> list[Position]:
    """Return a snake's samples and the opponents' moves, each sample as often as it was drawn.

    Opponents with a visible head play the recorded ``moves``, others the moves of a short search.
    """
    search = Search(evaluation=load_builtin(), nodes=_OPPONENT_NODES)
    positions: list[Position] = []
    for sample, times in samples.items():
        likely = dict(moves)
        for opponent in sample.living:
            if not is_visible(opponent.head, snake.head, board.game.settings.view_radius or 0):
                position = sample.copy()
                position.you_id = opponent.id
                likely[opponent.id] = search.search(position)[0].move
        positions += [(sample, likely)] * times
    return positions

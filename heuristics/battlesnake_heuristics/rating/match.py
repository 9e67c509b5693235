"""Games in this process, timed in CPU time, and matches between two sides.

A game with two snakes is a duel. In a game with four snakes, each side plays two snakes in
alternating seats. A game pair consists of two games with the same start position and exchanged
seats. A side wins when no snake of the other side is alive.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Turn
from battlesnake_gym.snakes import (
    Decision,
    FixedNodesSearch,
    NodeLimitedStrategy,
    Strategy,
    StrategyFactory,
)
from battlesnake_heuristics.rating import sprt
from battlesnake_heuristics.search import search

DUEL: GameSpec[int] = GameSpec(num_snakes=2, max_turns=1000)
"""Default setup of the games: duels, which are draws after 1,000 turns."""


@dataclass(frozen=True, slots=True)
class MatchSettings:
    """Settings of the games of a match.

    The limit per move of every searching snake is ``nodes`` nodes, or ``move_time_ms`` milliseconds
    of CPU time. Without these settings, the snake's default node limit applies.

    Raises:
        ValueError: If both limits are given, or if a limit is not positive.
    """

    game_spec: GameSpec[int] = DUEL
    nodes: int | None = None
    move_time_ms: float | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and self.move_time_ms is not None:
            raise ValueError("set nodes or move_time_ms, not both")
        for name in ("nodes", "move_time_ms"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")

    def limit_nodes(self, strategy: Strategy) -> Strategy:
        """Limit a search to the node limit.

        Any other strategy is returned unchanged.
        """
        if self.nodes is not None and isinstance(strategy, NodeLimitedStrategy):
            return FixedNodesSearch(strategy, self.nodes)
        return strategy


@dataclass(slots=True)
class _PlayedGame:
    """A played game: its first and last position and the turns between them.

    ``cpu_ms`` contains, by seat, the CPU time of each move in milliseconds.
    """

    first: Board
    last: Board
    turns: list[Turn]
    cpu_ms: list[list[float]]


def derive_seed(seed: int, index: int) -> int:
    """Derive the seed of a start position.

    Consecutive numbers are unsuitable as seeds, because their random streams overlap.

    Args:
        seed: Seed of the match.
        index: Index of the game pair.
    """
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 1 or 1


def assign_sides(num_snakes: int, number: int) -> tuple[int, ...]:
    """Return the side (0 or 1) of each seat in game ``number`` of a match.

    The sides alternate between seats and between games.

    >>> assign_sides(4, 0), assign_sides(4, 1)
    ((0, 1, 0, 1), (1, 0, 1, 0))
    """
    return tuple((seat + number) % 2 for seat in range(num_snakes))


def side0_points(sides: Sequence[int], eliminated_on: Sequence[int | None]) -> float:
    """Return the points of side 0: 1 for a win, 1/2 for a draw or 0 for a loss.

    The side of the last living snake wins.

    Args:
        sides: Side of each seat.
        eliminated_on: Turn on which each seat's snake was eliminated; None if the snake is alive.

    >>> side0_points((0, 1, 0, 1), (30, 50, 60, None)), side0_points((0, 1), (50, 50))
    (0.0, 0.5)
    """
    last = [-1.0, -1.0]
    for side, turn in zip(sides, eliminated_on, strict=True):
        last[side] = max(last[side], float("inf") if turn is None else turn)
    return 0.5 if last[0] == last[1] else float(last[0] > last[1])


def play_game(
    settings: MatchSettings,
    players: Sequence[StrategyFactory],
    seed: int,
    *,
    names: Sequence[str] = (),
    customizations: Sequence[dict[str, str]] = (),
    game_id: str = "",
    sides: Sequence[int] = (),
    reasons: bool = False,
    on_update: Callable[[Board | Turn], None] | None = None,
) -> _PlayedGame:
    """Play one game from the start position of ``seed``.

    Exceptions of strategies propagate to the caller.

    Args:
        settings: Settings of the game.
        players: Factory of each seat's strategy, called with ``seed`` plus the seat.
        seed: Seed of the start position, of the food and of the strategies.
        names: Names of the snakes.
        customizations: Customizations of the snakes, such as colors.
        game_id: Id of the game.
        sides: Side of each seat. The game ends as soon as no snake of a side is alive.
        reasons: Whether the turns include the decisions with their reasons.
        on_update: Called with the first position and with every turn.

    Raises:
        ValueError: If ``settings`` has another number of snakes than ``players``.
    """
    board = _start_board(settings.game_spec, seed, names, game_id)
    for snake, customization in zip(board.snakes, customizations, strict=False):
        snake.customizations = customization
    played = _PlayedGame(board.copy(), board, [], [[] for _ in players])
    strategies = {
        snake.id: _wrap_with_cpu_timer(settings.limit_nodes(make(seed + seat)), played.cpu_ms[seat])
        for seat, (snake, make) in enumerate(zip(board.snakes, players, strict=True))
    }
    seconds = None if settings.move_time_ms is None else settings.move_time_ms / 1000
    max_turns = settings.game_spec.max_turns or sys.maxsize
    if on_update is not None:
        on_update(board.copy())
    with use_cpu_clock(seconds is not None):
        for decisions in snakes.play(board, strategies, seconds, max_turns):
            moves = {snake: decision.move for snake, decision in decisions.items()}
            turn = Turn(moves, decisions=decisions if reasons else {})
            played.turns.append(turn)
            if on_update is not None:
                on_update(turn)
            if _is_side_eliminated(board, sides):
                break
    board.you_id = None
    return played


def _start_board(game_spec: GameSpec[int], seed: int, names: Sequence[str], game_id: str) -> Board:
    """Create the start position of a game."""
    game = replace(game_spec.game, seed=seed, id=game_id)
    seats = [str(seat) for seat in range(game_spec.num_snakes)]
    board = Board.new(game_spec.width, game_spec.height, seats, game=game)
    for snake, name in zip(board.snakes, names, strict=False):
        snake.name = name
    return board


def _is_side_eliminated(board: Board, sides: Sequence[int]) -> bool:
    """Return whether no snake of a side is alive; return False if ``sides`` is empty."""
    alive = {side for side, snake in zip(sides, board.snakes, strict=False) if snake.alive}
    return bool(sides) and len(alive) < 2


def _wrap_with_cpu_timer(strategy: Strategy, cpu_ms: list[float]) -> Strategy:
    """Wrap a strategy with a timer.

    The wrapper appends the CPU time of each move, in milliseconds, to ``cpu_ms``.
    """

    def decide(board: Board, seconds: float | None = None) -> Decision:
        began = time.process_time()
        decision = snakes.to_decision(strategy(board, seconds))
        cpu_ms.append(round(1000 * (time.process_time() - began), 3))
        return decision

    return decide


def play_pair(
    settings: MatchSettings, side0: StrategyFactory, side1: StrategyFactory, seed: int, index: int
) -> tuple[int, float]:
    """Play a game pair of a match.

    The two games have the same start position and exchanged seats.

    Args:
        settings: Settings of the games, with 2 or 4 snakes.
        side0: Factory of the snakes of side 0.
        side1: Factory of the snakes of side 1.
        seed: Seed of the match.
        index: Index of the pair.

    Returns:
        The outcome for ``side0`` (an index into `sprt.PAIR_SCORES`), and the CPU seconds used.
    """
    began = time.process_time()
    points = 0.0
    for number in range(2):
        sides = assign_sides(settings.game_spec.num_snakes, number)
        players = [(side0, side1)[side] for side in sides]
        start = derive_seed(seed, index)
        last = play_game(settings, players, start, sides=sides).last
        points += side0_points(sides, [None if s.alive else s.eliminated_on for s in last.snakes])
    return sprt.pair_outcome(points), time.process_time() - began


@contextmanager
def use_cpu_clock(on: bool) -> Iterator[None]:
    """Select the clock for all searches in this process while the context is active.

    Time budgets are in CPU time if ``on`` is True, otherwise in wall-clock time. With CPU time,
    other programs on the machine do not influence the result of a match.
    """
    was_on = search.use_cpu_clock(on)
    try:
        yield
    finally:
        search.use_cpu_clock(was_on)

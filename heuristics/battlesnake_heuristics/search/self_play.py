"""Whole games of the search in C, for learning: positions, what the search thought, who won.

`play_game` plays one game without the interpreter and without its lock, `play_from` from any
position, and `play_games` as many as give a number of searched moves. Players may differ: each has
an evaluation (None: the weights set by hand), weights, and positions or CPU seconds a move. The
rows of the games are one structured array (`ROW_DTYPE`); `battlesnake_rl.mabs.exit.evaluation_fit` makes
of them what a network is fitted to.

>>> players = [SearchPlayer(nodes=50)] * 2
>>> games = play_games(seed=1, setup=SelfPlaySetup(snakes=2), players=players, moves=100)
>>> games.rows["inputs"].shape[1], games.rows["value"].dtype
(80, dtype('int32'))
>>> bool((games.rows["kind"] != AT_RANDOM).sum() >= 100)
True
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import rules
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.rules import Game, Settings, State
from battlesnake_gym.rules.royale import royale_hazards
from battlesnake_heuristics.search.evaluation import NUM_INPUTS, Evaluation
from battlesnake_heuristics.search.search import (
    Weights,
    clamped_hazard_damage,
    count_per_cell,
    position_arrays,
)

if TYPE_CHECKING:
    from battlesnake_heuristics.search import _search
else:  # None where there is no compiler
    from battlesnake_heuristics.search.search import _search

ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM = 0, 1, 2
"""Kinds of rows: moved at random; searched and moved so; searched, and then moved at random."""

ROW_DTYPE = np.dtype(
    [
        ("inputs", np.int16, NUM_INPUTS),
        ("value", np.int32),
        ("turn", np.int16),
        ("food", np.int16),
        ("seat", np.uint8),
        ("living", np.uint8),
        ("move", np.uint8),
        ("kind", np.uint8),
    ]
)
"""A snake's view of a turn: the network's inputs (int16, 1/256), the search's value (thousandths of
a cell; 0 where it was not asked), the cell where food appeared after the turn (-1: none), the seat,
the living snakes, the move (an index into ``MOVES``) and the kind of row."""


@dataclass(frozen=True, slots=True)
class SelfPlaySettings:
    """What is played: the board, the rules, and how much chance makes games different.

    All snakes move at random for up to ``random_opening_turns`` turns; in half of the games a share
    ``random_move_fraction`` of all moves is made at random afterwards (the search is asked all the same).
    """

    width: int = 11
    height: int = 11
    num_snakes: int = 2
    ruleset: str = "standard"
    settings: Settings = field(default_factory=Settings)
    random_opening_turns: int = 14
    random_move_fraction: float = 0.05
    max_turns: int = 1000


@dataclass(frozen=True, slots=True)
class SearchPlayer:
    """Who searches, and for how long: ``nodes`` positions or ``seconds`` of CPU time a move.

    ``decoupled`` as of `Search`.
    """

    evaluation: Evaluation | None = None
    weights: Weights = field(default_factory=Weights)
    nodes: int = 200
    seconds: float = 0.0
    decoupled: bool = False

    def packed(self) -> tuple[array[int], bytes, int, float, bool]:
        """As the C code takes it."""
        numbers = self.evaluation.network_bytes if self.evaluation else b""
        nodes = 0 if self.seconds else self.nodes
        return self.weights.packed(), numbers, nodes, self.seconds, self.decoupled


@dataclass(frozen=True, slots=True)
class SelfPlayGame:
    """One game: its rows in the order of turns and seats, and how it ended.

    ``points`` float64 [seats] sum to 1: the last one alive has them, or those who died last share
    them; ``finished`` is False where the game was stopped, and the points are shared by the living.
    """

    rows: NDArray[np.void]
    points: NDArray[np.float64]
    turns: int
    finished: bool


@dataclass(frozen=True, slots=True)
class SelfPlayBatch:
    """Rows of many games.

    ``game`` int32 [rows] is each row's game, a row of ``points`` float64 [games, seats];
    ``player`` uint8 [rows] is an index into the players that `play_games` was given, and ``turns``
    are those of all the games together.
    """

    rows: NDArray[np.void]
    game: NDArray[np.int32]
    player: NDArray[np.uint8]
    points: NDArray[np.float64]
    finished: NDArray[np.bool_]
    turns: int

    def for_players(self, players: Sequence[int]) -> SelfPlayBatch:
        """Only the rows of these players."""
        theirs = np.isin(self.player, players)
        return dataclasses.replace(
            self, rows=self.rows[theirs], game=self.game[theirs], player=self.player[theirs]
        )

    @classmethod
    def concatenate(cls, parts: Sequence[SelfPlayBatch]) -> SelfPlayBatch:
        """All games one after the other; missing seats have no points."""
        seats = max(part.points.shape[1] for part in parts)
        before = np.cumsum([0, *(len(part.points) for part in parts)])
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate(
                [part.game + np.int32(n) for part, n in zip(parts, before, strict=False)]
            ),
            np.concatenate([part.player for part in parts]),
            np.concatenate(
                [np.pad(part.points, ((0, 0), (0, seats - part.points.shape[1]))) for part in parts]
            ),
            np.concatenate([part.finished for part in parts]),
            sum(part.turns for part in parts),
        )


def play_game(seed: int, setup: SelfPlaySettings, players: Sequence[SearchPlayer]) -> SelfPlayGame:
    """Play one game, ``players`` by seat; the same seed plays the same (unless by seconds)."""
    if len(players) != setup.num_snakes:
        raise ValueError(f"players must be {setup.num_snakes}, one a seat, got {len(players)}")
    game = Game(setup.ruleset, "standard", setup.settings, seed=seed)
    if setup.settings.minimum_food != 1:
        raise ValueError(f"settings.minimum_food must be 1, got {setup.settings.minimum_food}")
    seats = [str(seat) for seat in range(setup.num_snakes)]
    board = Board.new(setup.width, setup.height, seats, game=game)
    return play_from(
        board,
        players,
        seed,
        setup.max_turns,
        setup.random_opening_turns,
        setup.random_move_fraction,
    )


def play_from(
    board: Board,
    players: Sequence[SearchPlayer],
    seed: int,
    max_turns: int = 1000,
    opening: int = 0,
    random_moves: float = 0.0,
    node_doublings: int = 0,
) -> SelfPlayGame:
    """Play a game on from ``board``, with a player and a seat for each of its living snakes.

    Rows count turns from there. Of the first ``node_doublings`` ones the last has twice the positions of
    later ones, the one before twice that, and so on. Food comes as in the standard game, by chance
    of ``seed``; hazards stay as they are, but where the game is royale and its own seed is known.
    Raises ``ValueError`` for fewer than two snakes, and for what the search does not hold.
    """
    hazards, every = _hazards(board)
    lengths, health, bodies, food, _ = position_arrays(board, board.living)
    rows, points, turns, finished, _ = _search.play_game(
        board.width,
        board.height,
        rules.wraps(board.game),
        rules.grows_always(board.game),
        clamped_hazard_damage(board),
        lengths,
        health,
        bodies,
        food,
        hazards,
        board.game.settings.food_spawn_chance,
        every,
        tuple(player.packed() for player in players),
        seed,
        board.turn % every if every else 0,
        opening,
        node_doublings,
        round(random_moves * 65536),
        max_turns,
    )
    return SelfPlayGame(
        np.frombuffer(rows, ROW_DTYPE), np.array(points, np.float64), turns, bool(finished)
    )


def play_games(
    seed: int, setup: SelfPlaySettings, players: Sequence[SearchPlayer], moves: int
) -> SelfPlayBatch:
    """Play games one after the other until they have ``moves`` searched moves.

    Seats rotate from game to game. Seeds count up from ``seed``.
    """
    played: list[SelfPlayGame] = []
    player: list[NDArray[np.uint8]] = []
    searched = 0
    while searched < moves:
        order = np.roll(np.arange(len(players), dtype=np.uint8), len(played))
        one = play_game(seed + len(played), setup, [players[i] for i in order.tolist()])
        played.append(one)
        player.append(order[one.rows["seat"]])
        searched += int((one.rows["kind"] != ROW_RANDOM).sum())
    return SelfPlayBatch(
        np.concatenate([one.rows for one in played]),
        np.repeat(np.arange(len(played), dtype=np.int32), [len(one.rows) for one in played]),
        np.concatenate(player),
        np.stack([one.points for one in played]),
        np.array([one.finished for one in played]),
        sum(one.turns for one in played),
    )


def _hazards(board: Board) -> tuple[bytes, int]:
    """The layers of hazard now and after each further shrink, and the turns between (0: none)."""
    planes, every = [count_per_cell(board, board.hazards)], 0
    if "royale" in (board.game.ruleset, board.game.map) and board.game.seed != UNKNOWN_SEED:
        every = board.game.settings.shrink_every_n_turns
        begun = board.turn // every
        for shrinks in range(begun + 1, board.width + board.height):
            later = State(shrinks * every - 1, board.width, board.height, [])
            planes.append(count_per_cell(board, royale_hazards(board.game, later)))
    return b"".join(planes), every

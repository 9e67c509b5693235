"""Self-play games of the C search, which produce training data.

The data contain positions, search values and results. `play_game` plays one game without the
interpreter and without the GIL. `play_from_board` starts from any position. `play_games` plays
games until they contain a given number of searched moves. Each player has its own evaluation,
weights and limit; the limit is a number of nodes or of CPU seconds per move. The rows of the games
form one structured array (`ROW_DTYPE`), on which `battlesnake_rl.mabs.exit.evaluation_fit` trains a
network.

>>> players = [SearchPlayer(nodes=50)] * 2
>>> game_settings = SelfPlaySettings(num_snakes=2)
>>> games = play_games(seed=1, game_settings=game_settings, players=players, num_moves=100)
>>> games.rows["inputs"].shape[1], games.rows["value"].dtype
(80, dtype('int32'))
>>> bool((games.rows["kind"] != ROW_RANDOM).sum() >= 100)
True
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import rules
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.rules import MOVES, Game, Settings, State
from battlesnake_gym.rules.stages import royale_hazards
from battlesnake_heuristics.search.evaluation import NUM_INPUTS, Evaluation
from battlesnake_heuristics.search.search import (
    Weights,
    clamped_hazard_damage,
    count_per_cell,
    position_arrays,
)

if TYPE_CHECKING:
    from battlesnake_heuristics.search import _search
else:  # ``_search`` is None if the search is not compiled.
    from battlesnake_heuristics.search.search import _search

ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM = 0, 1, 2
"""Kinds of rows: random move, searched move, and random move after a search."""

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
        ("visits", np.uint8, 4),
    ]
)
"""Dtype of a row, which describes one move of one snake.

Fields:
    inputs: Network inputs, scale 1/256.
    value: Search value, scale 1/1000 cell; 0 for random moves without a search.
    turn: Turn number.
    food: Cell of the food that appeared after the turn, or -1.
    seat: Seat of the snake.
    living: Number of living snakes.
    move: Index of the move in ``MOVES``.
    kind: Kind of row, `ROW_RANDOM`, `ROW_SEARCHED` or `ROW_SEARCHED_RANDOM`.
    visits: Fraction of the decoupled search's visits per move, scale 1/255; 0 for other searches.
"""


@dataclass(frozen=True, slots=True)
class SelfPlaySettings:
    """Board, rules and random moves of self-play games.

    All snakes move randomly for up to ``random_opening_turns`` turns. In half of the games, each
    later move is random with probability ``random_move_fraction``. The position of a random
    move is still searched.
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
    """A player of self-play games, limited to nodes or CPU time per move.

    The node limit applies if ``seconds`` is 0.

    Attributes:
        evaluation: Learned evaluation, or None for the handcrafted evaluation.
        weights: Weights of the handcrafted evaluation.
        nodes: Node limit per move.
        seconds: CPU seconds per move; 0 for no time limit.
        decoupled: Whether to use decoupled MCTS with three or more living snakes. With two, the
            search is alpha-beta, unlike in `Search`.
        root_noise: Weight of Dirichlet noise in the root's priors of a decoupled search, in [0, 1].
        shared_tree: Whether one decoupled search per turn serves all snakes with equal players. The
            limits then apply per turn. If two snakes are alive, each snake has its own search with
            half of ``nodes``.
    """

    evaluation: Evaluation | None = None
    weights: Weights = field(default_factory=Weights)
    nodes: int = 200
    seconds: float = 0.0
    decoupled: bool = False
    root_noise: float = 0.0
    shared_tree: bool = False

    def to_arguments(self) -> tuple[array[int], bytes, int, float, int, float, bool]:
        """Return the player as a tuple of arguments for ``_search.play_game``."""
        network = self.evaluation.network_bytes if self.evaluation else b""
        nodes = 0 if self.seconds else self.nodes
        options = 3 if self.decoupled else 0, self.root_noise, self.shared_tree
        return self.weights.to_array(), network, nodes, self.seconds, *options


@dataclass(frozen=True, slots=True)
class SelfPlayGame:
    """Rows and result of one game.

    Attributes:
        rows: `ROW_DTYPE` (rows,), ordered by turn and seat.
        points: float64 (seats,), which sums to 1. The last living snake gets the point. If the game
            ended without a survivor or at the turn limit, the last living snakes share the point.
        turns: Number of turns played.
        finished: Whether the game ended with at most one living snake.
    """

    rows: NDArray[np.void]
    points: NDArray[np.float64]
    turns: int
    finished: bool


@dataclass(frozen=True, slots=True)
class SelfPlayBatch:
    """Rows and results of many games.

    Attributes:
        rows: `ROW_DTYPE` (rows,).
        game: int32 (rows,), index of each row's game in ``points`` and ``finished``.
        player: uint8 (rows,), index of each row's player in the players of `play_games`.
        points: float64 (games, seats).
        finished: bool (games,), whether each game ended with at most one living snake.
        turns: Total number of turns of all games.
    """

    rows: NDArray[np.void]
    game: NDArray[np.int32]
    player: NDArray[np.uint8]
    points: NDArray[np.float64]
    finished: NDArray[np.bool_]
    turns: int

    def select_players(self, players: Sequence[int]) -> SelfPlayBatch:
        """Return a copy of the batch with only the rows of the given ``players``."""
        theirs = np.isin(self.player, players)
        return dataclasses.replace(
            self, rows=self.rows[theirs], game=self.game[theirs], player=self.player[theirs]
        )

    @classmethod
    def concatenate(cls, parts: Sequence[SelfPlayBatch]) -> SelfPlayBatch:
        """Concatenate batches; seats that a batch lacks have 0 points."""
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


def play_game(
    seed: int, game_settings: SelfPlaySettings, players: Sequence[SearchPlayer]
) -> SelfPlayGame:
    """Play one game with one player per seat.

    Equal seeds give equal games, unless a player has a time limit.

    Raises:
        ValueError: If the number of players is not ``game_settings.num_snakes``.
        ValueError: If the search does not support the settings.
    """
    if len(players) != game_settings.num_snakes:
        raise ValueError(
            f"players must have {game_settings.num_snakes} entries, one per seat, "
            f"got {len(players)}"
        )
    settings = game_settings.settings
    if (settings.minimum_food, settings.view_radius) != (1, None):
        raise ValueError(f"settings must have minimum_food 1 and no view_radius, got {settings}")
    game = Game(game_settings.ruleset, "standard", settings, seed=seed)
    seats = [str(seat) for seat in range(game_settings.num_snakes)]
    board = Board.new(game_settings.width, game_settings.height, seats, game=game)
    return play_from_board(
        board,
        players,
        seed,
        game_settings.max_turns,
        game_settings.random_opening_turns,
        game_settings.random_move_fraction,
    )


def play_from_board(
    board: Board,
    players: Sequence[SearchPlayer],
    seed: int,
    max_turns: int = 1000,
    random_opening_turns: int = 0,
    random_move_fraction: float = 0.0,
    node_doublings: int = 0,
    first_moves: Mapping[str, str] | None = None,
    only_snake: str | None = None,
) -> SelfPlayGame:
    """Play a game from ``board``, with one player per living snake.

    The first turn of the rows is 0. During the first ``node_doublings`` turns, node limits are
    higher. The limit doubles on the last of these turns, quadruples on the turn before, and so on.
    Food appears as in the standard game. Hazards do not change, unless the game is royale and has a
    known seed.

    Args:
        board: Position with at least two living snakes.
        players: One player per living snake, in the order of the board.
        seed: Seed for food placement and random moves. Equal seeds give equal games, unless a
            player has a time limit.
        max_turns: Maximum number of turns played.
        random_opening_turns: Maximum number of turns in which all snakes move randomly.
        random_move_fraction: Probability of a random move afterwards, in half of the games.
        node_doublings: Number of turns with an increased node limit.
        first_moves: Moves by snake id of a turn before the game, after which no food appears.
        only_snake: Id of a snake whose elimination ends the game.

    Raises:
        ValueError: If fewer than two snakes are alive, or the search does not support the position.
    """
    hazards, shrink_every = _hazard_planes(board)
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
        shrink_every,
        tuple(player.to_arguments() for player in players),
        seed,
        board.turn % shrink_every + bool(first_moves) if shrink_every else 0,
        random_opening_turns,
        node_doublings,
        round(random_move_fraction * 65536),
        max_turns,
        _moves_to_bytes(board, first_moves) if first_moves else b"",
        next((at for at, snake in enumerate(board.living) if snake.id == only_snake), -1),
    )
    return SelfPlayGame(
        np.frombuffer(rows, ROW_DTYPE), np.array(points, np.float64), turns, bool(finished)
    )


def _moves_to_bytes(board: Board, moves: Mapping[str, str]) -> bytes:
    """Return the index of each living snake's move; an invalid move means the default move."""
    played = (
        moves[snake.id] if moves[snake.id] in MOVES else rules.default_move(snake.body)
        for snake in board.living
    )
    return bytes(map(MOVES.index, played))


def play_games(
    seed: int, game_settings: SelfPlaySettings, players: Sequence[SearchPlayer], num_moves: int
) -> SelfPlayBatch:
    """Play games until they contain at least ``num_moves`` searched moves.

    The seats rotate among the players from game to game, and each game increments the seed.
    """
    played: list[SelfPlayBatch] = []
    searched = 0
    while searched < num_moves:
        order = np.roll(np.arange(len(players), dtype=np.uint8), len(played))
        one = play_game(seed + len(played), game_settings, [players[i] for i in order.tolist()])
        game, player = np.zeros(len(one.rows), np.int32), order[one.rows["seat"]]
        finished = np.array([one.finished])
        played.append(SelfPlayBatch(one.rows, game, player, one.points[None], finished, one.turns))
        searched += int((one.rows["kind"] != ROW_RANDOM).sum())
    return SelfPlayBatch.concatenate(played)


def _hazard_planes(board: Board) -> tuple[bytes, int]:
    """Return the hazard planes of a game, and the number of turns between shrinks.

    The planes are uint8 (planes, cells): the hazard layers now and after each later shrink. The
    number of turns is 0 if the hazards do not shrink.
    """
    planes, shrink_every = [count_per_cell(board, board.hazards)], 0
    if "royale" in (board.game.ruleset, board.game.map) and board.game.seed != UNKNOWN_SEED:
        shrink_every = board.game.settings.shrink_every_n_turns
        num_shrinks = board.turn // shrink_every
        for shrinks in range(num_shrinks + 1, board.width + board.height):
            later = State(shrinks * shrink_every - 1, board.width, board.height, [])
            planes.append(count_per_cell(board, royale_hazards(board.game, later)))
    return b"".join(planes), shrink_every

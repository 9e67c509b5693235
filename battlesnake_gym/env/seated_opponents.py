"""Opponents at the seats of a vector environment, and computation of their moves.

The compiled engine plays the built-in snakes in `snakes.ENGINE_SNAKES` for all games in one call.
One network call evaluates each policy for all seats of the policy. Other opponents are Python
strategies. Strategies are called board by board. These calls are about a thousand times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.engine import engine
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seated_policy import PAST_SELF, ActFn, SeatedPolicy
from battlesnake_gym.mdp.observations import RELATIVE_TO_ABSOLUTE
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Strategy

if TYPE_CHECKING:
    from battlesnake_gym.env.vector import VectorBattlesnake

_DEFAULT_PAST_SELF = "safe-random"
"""Name of the snake that plays as `PAST_SELF` until a past self is added."""

Opponent = str | Strategy
"""Opponent: a name for `snakes.make`, `PAST_SELF`, or a strategy.

A snake is created from its name for every game; a strategy object plays all games.
"""

_ABSOLUTE_TO_RELATIVE: NDArray[np.uint8] = np.argsort(RELATIVE_TO_ABSOLUTE, axis=1).astype(np.uint8)
"""Relative action, indexed by ``[facing, absolute action]``; uint8 [4, 4]."""


class SeatedOpponents:
    """Opponents at the seats of ``vector``.

    All seats are empty before `assign`.
    """

    def __init__(self, vector: VectorBattlesnake) -> None:
        self._vector = vector
        seats = vector.num_games, vector.num_snakes
        self._codes = np.zeros(seats, np.uint8)
        self._moves = np.zeros(seats, np.uint8)
        self._strategies: dict[int, dict[int, Strategy]] = {}
        self._policies: dict[str, SeatedPolicy | None] = {}
        self._policy_seats: dict[str, NDArray[np.bool_]] = {}
        self._past_selves = PastSelves(_identity)
        self._past_self_at = np.zeros(seats, np.int64)

    def add_past_self(self, policy: ActFn) -> None:
        """Add a past self, which plays as `PAST_SELF` in some of the following games."""
        self._past_selves.add(policy)

    def remove_opponents(self, games: NDArray[np.bool_]) -> None:
        """Remove the opponents from the seats of ``games``, bool [N]."""
        self._codes[games] = self._past_self_at[games] = 0
        for seats in self._policy_seats.values():
            seats[games] = False
        for game in [game for game in self._strategies if games[game]]:
            del self._strategies[game]

    def assign(self, game: int, seat: int, opponent: Opponent, seed: int) -> None:
        """Assign an opponent to a seat.

        Without a past self, `PAST_SELF` is the snake `_DEFAULT_PAST_SELF`.

        Args:
            game: Index of the game.
            seat: Seat of the opponent.
            opponent: The opponent: a name, from which a strategy is created, or a strategy.
            seed: Seed of the opponent. Snakes that the engine plays use the game's seed instead.
        """
        if opponent == PAST_SELF and len(self._past_selves):
            playing = set(np.unique(self._past_self_at[self._past_self_at > 0]).tolist())
            self._past_self_at[game, seat] = self._past_selves.draw(
                np.random.default_rng(seed), playing
            )
            return
        opponent = _DEFAULT_PAST_SELF if opponent == PAST_SELF else opponent
        if code := engine_code(opponent, self._vector):
            self._codes[game, seat] = code
        elif isinstance(opponent, str) and self.seated_policy(opponent):
            self._policy_seats[opponent][game, seat] = True
        else:
            strategy = snakes.make(opponent, seed) if isinstance(opponent, str) else opponent
            self._strategies.setdefault(game, {})[seat] = strategy

    def load_policies(self, opponents: Sequence[Opponent]) -> None:
        """Load the policies among ``opponents``; see `seated_policy` for the errors."""
        for opponent in opponents:
            if isinstance(opponent, str) and opponent != PAST_SELF:
                self.seated_policy(opponent)

    def seated_policy(self, name: str) -> SeatedPolicy | None:
        """Return the policy ``name`` for these games, or None for other strategies.

        Raises:
            ValueError: If the policy does not support the board sizes or its observation.
        """
        if name not in self._policies:
            policy = snakes.batch_policy(name)
            self._policies[name] = SeatedPolicy(name, policy, self._vector) if policy else None
            self._policy_seats[name] = np.zeros_like(self._codes, np.bool_)
        return self._policies[name]

    def assign_engine_snakes(
        self, games: NDArray[np.intp], seats: NDArray[np.intp], codes: NDArray[np.uint8]
    ) -> None:
        """Assign snakes that the engine plays to many seats; see `snakes.engine_code`."""
        self._codes[games, seats] = codes

    def move(self, actions: NDArray[np.uint8], alive: NDArray[np.bool_]) -> None:
        """Write the opponents' moves to ``actions``.

        Args:
            actions: uint8 [N, S], as `VectorBattlesnake.step` expects them: relative actions if the
                observation is relative.
            alive: bool [N, S], the seats that act.

        Raises:
            ValueError: If a strategy returns an invalid move.
        """
        games = self._vector.games
        played = alive & (self._codes > 0)
        if played.any():
            assert isinstance(games, engine.EngineGames)
            games.builtin_moves(self._codes, self._moves)
            actions[played] = self._to_relative(self._moves, games.facing)[played]
        for name, at in self._policy_seats.items():
            if (player := self._policies[name]) and (seats := alive & at).any():
                moves = player.moves(seats)
                actions[seats] = self._to_relative(moves, games.facing[seats])
        for number in np.unique(self._past_self_at[alive & (self._past_self_at > 0)]).tolist():
            seats = alive & (self._past_self_at == number)
            seen, mask = self._vector.observations[seats], self._vector.last_action_mask[seats]
            actions[seats] = np.asarray(self._past_selves.act(number, seen, mask))
        for game, strategies in self._strategies.items():
            living = [seat for seat in strategies if alive[game, seat]]
            if living:
                self._move_strategies(game, living, actions)

    def _move_strategies(self, game: int, seats: list[int], actions: NDArray[np.uint8]) -> None:
        games = self._vector.games
        # A strategy could predict future food from the seed, so the board does not contain the
        # seed.
        rules = replace(self._vector.game, seed=UNKNOWN_SEED)
        board = Board.from_state(games.state(game), rules)
        for seat in seats:
            board.you_id = board.snakes[seat].id
            move = _choose_move(self._strategies[game][seat], board)
            actions[game, seat] = self._to_relative(np.uint8(move), games.facing[game, seat])

    def _to_relative(self, moves: Any, facing: Any) -> Any:
        return _ABSOLUTE_TO_RELATIVE[facing, moves] if self._vector.observation.relative else moves


def engine_code(opponent: Opponent, vector: VectorBattlesnake) -> int:
    """Return the engine's code of ``opponent``.

    The code is 0 for an opponent that Python plays.
    """
    if not isinstance(vector.games, engine.EngineGames) or not isinstance(opponent, str):
        return 0
    return snakes.engine_code(opponent)


def check_opponents(opponents: Sequence[Opponent]) -> tuple[Opponent, ...]:
    """Check the opponents, and return the opponents as a tuple.

    Raises:
        ValueError: If an opponent is neither a strategy nor a known name.
    """
    if isinstance(opponents, str) or not isinstance(opponents, Sequence):
        raise ValueError(f"opponents must be a list of names or strategies, got {opponents!r}")
    for opponent in opponents:
        if isinstance(opponent, str):
            _check_opponent_name(opponent)
        elif not callable(opponent):
            raise ValueError(
                f"opponents must be names or strategies (callables with a board as argument), "
                f"got {opponent!r}"
            )
    return tuple(opponents)


def num_seats(opponents: Sequence[Opponent], num_snakes: int | None) -> int:
    """Return the number of seats of a game.

    If ``num_snakes`` is None, the seats are for the learner and all opponents.

    Raises:
        ValueError: If ``num_snakes`` is more than 1 without opponents.
    """
    if num_snakes is None:
        return len(opponents) + 1
    if num_snakes > 1 and not opponents:
        raise ValueError(f"opponents is empty, so num_snakes must be 1, got {num_snakes}")
    return num_snakes


def check_past_opponent(opponents: Sequence[Opponent]) -> None:
    """Raise ``ValueError`` if `PAST_SELF` is not among ``opponents``."""
    if PAST_SELF not in opponents:
        raise ValueError(
            f"no opponent is {PAST_SELF!r}, so no game would use the policy; "
            f"add {PAST_SELF!r} to opponents"
        )


def _check_opponent_name(name: str) -> None:
    base = name.rpartition("@")[0] or name
    if name == PAST_SELF:
        return
    if not snakes.resolve_file(base) and base not in snakes.names():
        known = [PAST_SELF, snakes.BUILTIN_POLICY_NAME, *snakes.names()]
        raise ValueError(
            f"opponents: {unknown_name_message('snake', name, known)}; or use a .onnx file, a run "
            "directory or a bundle"
        )
    if base != name or snakes.resolve_file(base):
        # The call of `make` rejects snakes such as "hungry@400", because "hungry" does not search.
        snakes.make(name)


def _identity(policy: ActFn) -> ActFn:
    return policy


def _choose_move(strategy: Strategy, board: Board) -> int:
    move = snakes.to_decision(strategy(board)).move
    if move not in MOVES:
        raise ValueError(
            f"opponent {strategy!r} returned {move!r}; a move is one of {', '.join(MOVES)}"
        )
    return MOVES.index(move)

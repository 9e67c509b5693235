"""Opponents at the seats of a vector environment, and computation of their moves.

The compiled engine plays the built-in snakes in `snakes.ENGINE_SNAKES` for all games in one call.
One network call evaluates each policy for all seats of the policy. Other opponents are Python
strategies. Strategies are called board by board. These calls are about a thousand times slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.engine import engine
from battlesnake_gym.env import opponent_names
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seat_memory import ActFn, SeatMemory
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.observations import RELATIVE_TO_ABSOLUTE
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snake_spec import PAST_SELF
from battlesnake_gym.snakes import Strategy

if TYPE_CHECKING:
    from battlesnake_gym.env.vector import VectorBattlesnake
    from battlesnake_gym.policy_file import OnnxPolicy

_DEFAULT_PAST_SELF = "safe-random"
"""Name of the snake that plays as `PAST_SELF` until a past self is added."""

Opponent = str | Strategy
"""Opponent: a name for `snakes.make`, `PAST_SELF`, or a strategy.

A snake is created from its name for every game; a strategy object plays all games.
"""

_ABSOLUTE_TO_RELATIVE: NDArray[np.uint8] = np.argsort(RELATIVE_TO_ABSOLUTE, axis=1).astype(np.uint8)
"""Relative action, indexed by ``[facing, absolute action]``; uint8 [4, 4]."""


_MAX_INFERENCE_BATCH = 32
"""Maximum number of observations per inference call.

Larger batches are a third slower per observation, because their activations exceed a CPU cache.
"""


class _SeatedPolicy:
    """A policy that plays at seats of a vector environment.

    The policy observes and masks as in its training; the learner's observation may differ. The
    policy selects the allowed move with the highest score.

    Raises:
        ValueError: If the policy does not support the board sizes of ``vector``, or its action mask
            is unknown.
    """

    def __init__(self, policy: OnnxPolicy, vector: VectorBattlesnake) -> None:
        for size in vector.board_sizes:
            policy.check_board_size(*size)
        masks.check_kind(policy.action_mask_kind)
        self._policy, self._vector = policy, vector
        self._memory = SeatMemory(vector)
        self._shape = policy.observation_shape(*map(max, zip(*vector.board_sizes, strict=True)))
        self._mask = np.ones((vector.num_games, vector.num_snakes, 4), np.bool_)
        vector.observe_as(policy.observation, self._shape)

    def moves(self, seats: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the moves of ``seats`` as indices into `rules.MOVES`.

        Args:
            seats: bool [N, S], the seats of living snakes that move.
        """
        policy = self._policy
        observation, facing = policy.observation, self._vector.games.facing[seats]
        self._vector.games.action_mask(policy.action_mask_kind, self._mask)
        mask = observation.relative_mask(self._mask[seats], facing)
        seen = self._vector.observe_as(observation, self._shape)[seats]
        states = self._memory.states(policy.state_size)
        before = states[seats]
        parts = [
            policy.step(seen[i : i + _MAX_INFERENCE_BATCH], before[i : i + _MAX_INFERENCE_BATCH])
            for i in range(0, len(seen), _MAX_INFERENCE_BATCH)
        ]
        scores, states[seats] = map(np.concatenate, zip(*parts, strict=True))
        return observation.absolute_actions(np.where(mask, scores, -np.inf).argmax(1), facing)


class SeatedOpponents:
    """Assignment of opponents to the seats of ``vector``, and computation of their moves.

    All seats are empty before `assign`. All `PAST_SELF` seats of a game have the same past self
    until the game ends.

    Args:
        vector: The games, N games with S seats.
        past_selves: Past selves of the learner; by default, the policies of `add_past_self`.
        policies: Policies that play on the observations and masks of ``vector``, by name.
    """

    def __init__(
        self,
        vector: VectorBattlesnake,
        past_selves: PastSelves | None = None,
        policies: Mapping[str, ActFn] = MappingProxyType({}),
    ) -> None:
        self._vector = vector
        seats = vector.num_games, vector.num_snakes
        self.occupied = np.zeros(seats, np.bool_)
        """Seats of opponents, bool [N, S]; the learner has the other seats."""
        self._codes = np.zeros(seats, np.uint8)
        self._moves = np.zeros(seats, np.uint8)
        self._strategies: dict[int, dict[int, Strategy]] = {}
        self._policies: dict[str, _SeatedPolicy | None] = dict.fromkeys(policies)
        self._act_fns = dict(policies)
        self._memories = {name: SeatMemory(vector) for name in (*policies, PAST_SELF)}
        self._policy_seats = {name: np.zeros(seats, np.bool_) for name in policies}
        self._past_selves = PastSelves(_identity) if past_selves is None else past_selves
        self._past_self = np.zeros(vector.num_games, np.int64)
        self._past_seats = np.zeros(seats, np.bool_)
        self._eliminated_on = np.full(seats, np.inf)

    def add_past_self(self, policy: ActFn) -> None:
        """Add a past self, which plays as `PAST_SELF` in some of the following games."""
        self._past_selves.add(policy)

    def remove_opponents(self, games: NDArray[np.bool_]) -> None:
        """Remove the opponents from the seats of ``games``, bool [N]."""
        for seats in (self.occupied, self._past_seats, *self._policy_seats.values()):
            seats[games] = False
        self._codes[games] = 0
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
            self._assign_past_self(game, seat, np.random.default_rng(seed))
            return
        opponent = _DEFAULT_PAST_SELF if opponent == PAST_SELF else opponent
        self.occupied[game, seat] = True
        if code := engine_code(opponent, self._vector):
            self._codes[game, seat] = code
        elif isinstance(opponent, str) and (
            opponent in self._act_fns or self.seated_policy(opponent)
        ):
            self._policy_seats[opponent][game, seat] = True
        else:
            if isinstance(opponent, str):
                opponent = snakes.make_named(opponent, seed)
            self._strategies.setdefault(game, {})[seat] = opponent

    def _assign_past_self(self, game: int, seats: Any, random: np.random.Generator) -> None:
        if not self._past_seats[game].any():
            self._past_self[game] = self._past_selves.draw(random, self._active_past_selves())
            # Seats without a snake count as eliminated before the game.
            self._eliminated_on[game] = np.where(self._vector.alive[game], np.inf, -1)
        self.occupied[game, seats] = self._past_seats[game, seats] = True

    def _active_past_selves(self) -> set[int]:
        return set(self._past_self[self._past_seats.any(-1)].tolist())

    def load_policies(self, opponents: Iterable[Opponent]) -> None:
        """Load the policies among ``opponents``, and make every other snake once as a check.

        Raises:
            ValueError: If a policy does not fit (`seated_policy`), or a snake cannot play.
        """
        for opponent in opponents:
            if not isinstance(opponent, str) or opponent in (PAST_SELF, *self._act_fns):
                continue
            if not self.seated_policy(opponent) and not engine_code(opponent, self._vector):
                snakes.make(opponent)

    def seated_policy(self, name: str) -> _SeatedPolicy | None:
        """Return the policy ``name`` for these games, or None for other strategies.

        Raises:
            ValueError: If the policy does not support the board sizes or its observation.
        """
        if name not in self._policies:
            policy = snakes.batch_policy(name)
            self._policies[name] = _SeatedPolicy(policy, self._vector) if policy else None
            self._policy_seats[name] = np.zeros_like(self.occupied)
        return self._policies[name]

    def assign_engine_snakes(
        self, games: NDArray[np.intp], seats: NDArray[np.intp], codes: NDArray[np.uint8]
    ) -> None:
        """Assign snakes that the engine plays to many seats; see `snakes.engine_code`."""
        self._codes[games, seats] = codes
        self.occupied[games, seats] = True

    def move(self, actions: NDArray[np.uint8], alive: NDArray[np.bool_]) -> None:
        """Write the opponents' moves to ``actions``.

        Args:
            actions: uint8 [N, S], as `VectorBattlesnake.step` expects them: relative actions if the
                observation is relative.
            alive: bool [N, S], the seats that act.

        Raises:
            ValueError: If a strategy returns an invalid move, or a named snake raises an exception.
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
        for name, act in self._act_fns.items():
            self._act(act, alive & self._policy_seats[name], actions, self._memories[name])
        for number in self._active_past_selves():
            seats = alive & self._past_seats & (self._past_self == number)[:, None]
            self._act(self._past_selves.act_fn(number), seats, actions, self._memories[PAST_SELF])
        for game, strategies in self._strategies.items():
            living = [seat for seat in strategies if alive[game, seat]]
            if living:
                self._move_strategies(game, living, actions)

    def _act(
        self, act: ActFn, seats: NDArray[np.bool_], actions: NDArray[np.uint8], memory: SeatMemory
    ) -> None:
        """Write the actions of a policy that has the observation of the games."""
        if seats.any():
            seen, mask = self._vector.observations[seats], self._vector.last_action_mask[seats]
            actions[seats] = np.asarray(memory.call(act, seats, seen, mask))

    def after_step(self, infos: Mapping[str, NDArray[Any]]) -> None:
        """Record eliminations, and the results of finished games against past selves.

        Call the method after each step, before new opponents are assigned.

        Args:
            infos: Infos of the step; a game that starts in the step has just been finished.
        """
        if not self._past_seats.any():
            return
        self.record_results(infos["reset"])
        out = (infos["cause"] > 0) & np.isinf(self._eliminated_on)
        self._eliminated_on[out] = np.broadcast_to(infos["turn"][:, None], out.shape)[out]

    def record_results(self, games: NDArray[np.bool_]) -> None:
        """Record the learner's score against the past self in each of ``games``, bool [N]."""
        for game in np.flatnonzero(games & self._past_seats.any(-1)):
            out_on, past = self._eliminated_on[game], self._past_seats[game]
            ours = out_on[~self.occupied[game] & (out_on >= 0)][:, None]
            outlived = np.where(ours == out_on[past], 0.5, ours > out_on[past])
            self._past_selves.record_result(int(self._past_self[game]), float(outlived.mean()))

    def _move_strategies(self, game: int, seats: list[int], actions: NDArray[np.uint8]) -> None:
        games = self._vector.games
        # A strategy could predict future food from the seed, so the board does not contain the
        # seed. A strategy that plays many games distinguishes them by their ids.
        game_id = f"{game}-{self._vector.episodes[game]}"
        rules = replace(self._vector.game, seed=UNKNOWN_SEED, id=game_id)
        board = Board.from_state(games.state(game), rules)
        for seat in seats:
            board.you_id = board.snakes[seat].id
            decision = snakes.to_decision(self._strategies[game][seat](board.limited()))
            move = np.uint8(MOVES.index(decision.move))
            actions[game, seat] = self._to_relative(move, games.facing[game, seat])

    def _to_relative(self, moves: Any, facing: Any) -> Any:
        return _ABSOLUTE_TO_RELATIVE[facing, moves] if self._vector.observation.relative else moves


class SampledOpponents(SeatedOpponents):
    """Opponents that are drawn for each game, by fractions of the seats.

    The learner has at least one seat in every game. Before the first past self exists, the learner
    plays the seats of `PAST_SELF`.

    Args:
        vector: The games.
        fractions: Fraction of seats by opponent; the learner has the remaining seats.
        random: Random generator for opponents and seats.
        past_selves: Past selves of the learner.
        policies: Policies that play on the observations of ``vector``, by name.

    Raises:
        ValueError: If the fractions are invalid or a policy does not fit the games.
    """

    def __init__(
        self,
        vector: VectorBattlesnake,
        fractions: Mapping[str, float],
        random: np.random.Generator,
        past_selves: PastSelves,
        policies: Mapping[str, ActFn] = MappingProxyType({}),
    ) -> None:
        opponent_names.check_fractions(fractions)
        super().__init__(vector, past_selves, policies)
        self.load_policies(fractions)
        self._names = ("", *fractions)
        self._probabilities = [1 - sum(fractions.values()), *fractions.values()]
        self._random = random

    def draw_seats(self, games: NDArray[np.bool_]) -> None:
        """Draw the opponents of new ``games``, bool [N]."""
        if len(self._names) == 1 or not games.any():
            return
        for game in np.flatnonzero(games).tolist():
            # The past selves of the other games count as active until these games are drawn.
            self.remove_opponents(np.arange(len(games)) == game)
            seats = np.flatnonzero(self._vector.alive[game])
            drawn = np.zeros(self._vector.num_snakes, np.intp)
            drawn[seats] = self._random.choice(len(self._names), len(seats), p=self._probabilities)
            if drawn[seats].all():
                drawn[seats[self._random.integers(len(seats))]] = 0
            names = np.array([self._names[one] for one in drawn], object)
            if (past := names == PAST_SELF).any() and len(self._past_selves):
                self._assign_past_self(game, past, self._random)
            for seat in np.flatnonzero((names != "") & ~past).tolist():
                frozen = names[seat] in self._act_fns
                self.assign(
                    game, seat, names[seat], 0 if frozen else int(self._random.integers(2**31))
                )


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
            opponent_names.check_name(opponent)
        elif not callable(opponent):
            raise ValueError(
                f"opponents must be names or strategies (callables with a board as argument), "
                f"got {opponent!r}"
            )
    return tuple(opponents)


def num_seats(
    opponents: Sequence[Opponent], num_snakes: int | None, options: Mapping[str, Any]
) -> int:
    """Return the number of seats of a game with one learner, which plays at random seats.

    If ``num_snakes`` is None, the seats are for the learner and all opponents.

    Raises:
        ValueError: If ``num_snakes`` is not an integer, or more than 1 without opponents, or if the
            rewards in ``options`` depend on the seat.
    """
    if isinstance(rewards := options.get("rewards"), Sequence) and not isinstance(rewards, str):
        raise ValueError(
            f"rewards must not be a list, because the learner plays at random seats, got "
            f"{rewards!r:.60}; give the learner's rewards alone"
        )
    if num_snakes is None:
        return len(opponents) + 1
    if not isinstance(num_snakes, int | np.integer):
        raise ValueError(f"num_snakes must be a whole number, got {num_snakes!r}")
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


def _identity(policy: ActFn) -> ActFn:
    return policy

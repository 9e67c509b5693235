"""Snakes that take seats in training games and are not learned from: past selves and named ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.vector import VectorBattlesnake

PAST = "past"
"""Who plays by earlier weights of the policy that learns."""

LEARNER = 0

Values = Callable[[NDArray[np.uint8]], NDArray[np.float32]]


class Opponents:
    """Who sits where in N games with S seats; drawn anew for each game.

    ``shares``: name of an opponent (`PAST` or a named snake) to the part of the seats it takes;
    the learner has the rest, and at least one seat of every game.
    """

    def __init__(
        self, shares: Mapping[str, float], vector: VectorBattlesnake, random: np.random.Generator
    ) -> None:
        check(shares)
        self._names = ("", *shares)
        self._chances = [1 - sum(shares.values()), *shares.values()]
        self._vector = vector
        self._random = random
        self._who = np.full((vector.num_games, vector.num_snakes), LEARNER)
        self._strategies: list[dict[int, snakes.Strategy]] = [{} for _ in range(vector.num_games)]

    @property
    def learning(self) -> NDArray[np.bool_]:
        """Which seats are the learner's, bool (N, S)."""
        learning: NDArray[np.bool_] = self._who == LEARNER
        return learning

    def sit_down(self, games: NDArray[np.bool_]) -> None:
        """Draw who plays in ``games``, which begin now."""
        if len(self._names) == 1 or not games.any():
            return
        seats = self._who.shape[1]
        for game in np.flatnonzero(games):
            who = self._random.choice(len(self._names), size=seats, p=self._chances)
            if (who != LEARNER).all():
                who[self._random.integers(seats)] = LEARNER
            self._who[game] = who
            self._strategies[game] = {
                int(seat): snakes.make(self._names[who[seat]], int(self._random.integers(2**31)))
                for seat in np.flatnonzero(who != LEARNER)
                if self._names[who[seat]] != PAST
            }

    def move(
        self,
        frames: NDArray[np.uint8],
        action_mask: NDArray[np.bool_],
        alive: NDArray[np.bool_],
        past_values: Values,
        actions: NDArray[np.uint8],
    ) -> None:
        """Fill in the opponents' moves in ``actions`` (N, S)."""
        if len(self._names) == 1:
            return
        if PAST in self._names:
            past = alive & (self._who == self._names.index(PAST))
            if past.any():
                values = np.where(action_mask[past], past_values(frames[past]), -np.inf)
                actions[past] = values.argmax(-1)
        for game, strategies in enumerate(self._strategies):
            if any(alive[game, seat] for seat in strategies):
                ask(self._vector, game, strategies, alive, actions)


def ask(
    vector: VectorBattlesnake,
    game: int,
    strategies: Mapping[int, snakes.Strategy],
    alive: NDArray[np.bool_],
    actions: NDArray[np.uint8],
) -> None:
    """Fill in the moves of one game's named snakes, by seat."""
    board = Board.from_state(vector.games.state(game), vector.game)
    for seat, strategy in strategies.items():
        if alive[game, seat]:
            board.you_id = board.snakes[seat].id
            move = MOVES.index(strategy(board).move)
            if vector.observation.relative:
                facing = vector.games.facing[game, seat]
                turned = vector.observation.absolute_actions(np.arange(4, dtype=np.uint8), facing)
                move = int(np.flatnonzero(turned == move)[0])
            actions[game, seat] = move


def check(shares: Any) -> None:
    """Refuse opponents that there are not, and shares that leave the learner no seat.

    Raises:
        ValueError: saying which.
    """
    if not isinstance(shares, Mapping):
        raise ValueError(f'opponents must be like {{"past": 0.3, "hungry": 0.1}}, got {shares!r}')
    for name, share in shares.items():
        # Named snakes are loaded where they are asked for, not wherever games are made.
        if name != PAST and name not in snakes.names():
            known = ", ".join([PAST, *snakes.names()])
            raise ValueError(f"unknown opponent {name!r}; choose from {known}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise ValueError(f"the share of {name!r} must be between 0 and 1, got {share!r}")
    if sum(shares.values()) >= 1:
        raise ValueError(
            f"the opponents' shares must leave the learner some seats, got {dict(shares)}"
        )

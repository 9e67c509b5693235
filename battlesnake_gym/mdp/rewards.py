"""Events of a turn and their rewards.

An *event* is a number per snake and turn, computed from the engine's arrays. `EVENTS` defines all
events, for rewards and for metrics. `Rewards` gives each event a weight; a *reward preset* is a
named set of weights. The first twelve event names come from the Battlesnake starter pack;
``docs/reference/rewards.md`` explains each event.

>>> get("survival").weights
{'another_turn': 1.0}
>>> get({"another_turn": 0.1, "won": 10}).weights
{'another_turn': 0.1, 'won': 10.0}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.rules.state import CAUSES

_MAX_FLOAT32 = float(np.finfo(np.float32).max)

Flags = NDArray[np.bool_]
Counts = NDArray[Any]
"""Array with one number or bool per game and seat, [N, S]."""


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """Arrays of one turn after the moves, for ``N`` games and ``S`` seats.

    The last four attributes are None unless a custom event (`register`) needs them.

    Attributes:
        acted: bool [N, S], the seats that moved.
        reversed: bool [N, S], the seats that moved back to their neck (`reversals`).
        over: bool [N], the games that are over after the turn.
        alive: bool [N, S], the snakes that are living after the turn.
        ate: bool [N, S], the living snakes that ate.
        cause: uint8 [N, S], index into `CAUSES`.
        killer: int8 [N, S], seat of the snake that caused the elimination, or -1.
        heads_before: int16 [N, S, 2], (x, y) before the turn.
        heads: int16 [N, S, 2], (x, y) after the turn; off the board for a snake that left the
            board.
        length: int32 [N, S], 0 for eliminated snakes.
        health: int16 [N, S].
    """

    acted: Flags
    reversed: Flags
    over: Flags
    alive: Flags
    ate: Flags
    cause: NDArray[np.uint8]
    killer: NDArray[np.int8]
    heads_before: NDArray[np.int16] | None = None
    heads: NDArray[np.int16] | None = None
    length: NDArray[np.int32] | None = None
    health: NDArray[np.int16] | None = None

    def select(self, which: Flags) -> TurnBatch:
        """Return the arrays of the games in ``which``, bool [N]."""
        arrays: list[Any] = [getattr(self, field.name) for field in fields(self)]
        chosen: list[Any] = [None if array is None else array[which] for array in arrays]
        return TurnBatch(*chosen)

    @property
    def died(self) -> Flags:
        """Seats eliminated on this turn, bool [N, S]."""
        died: Flags = self.acted & ~self.alive
        return died

    def died_of(self, cause: str) -> Flags:
        """Return the seats eliminated on this turn by ``cause``, bool [N, S]."""
        died: Flags = self.acted & (self.cause == CAUSES.index(cause))
        return died

    def kills(self, cause: str) -> NDArray[np.int64]:
        """Count the snakes that each surviving seat eliminated on this turn by ``cause``."""
        counts = np.zeros(self.alive.shape, np.int64)
        games, victims = np.nonzero(self.died_of(cause))
        np.add.at(counts, (games, self.killer[games, victims]), 1)
        counts[~self.alive] = 0
        return counts


def reversals(actions: NDArray[np.uint8], facing: NDArray[np.uint8]) -> Flags:
    """Return whether each action leads back to the snake's neck, bool [N, S].

    The indices of opposite moves differ only in the last bit.

    Args:
        actions: uint8 [N, S], indices into `MOVES`.
        facing: uint8 [N, S], ``Games.facing`` before the turn.
    """
    back: Flags = (actions ^ 1) == facing
    return back


def _count_outlived(turn: TurnBatch) -> Counts:
    """Divide the eliminations of a turn among the snakes that lived longest.

    Each of these snakes receives an equal part.
    """
    survivors = turn.acted & turn.alive
    heirs: Flags = survivors | (turn.died & ~survivors.any(axis=1, keepdims=True))
    shares = turn.died.sum(axis=1) / np.maximum(heirs.sum(axis=1), 1)
    outlived: Counts = heirs * shares[:, None]
    return outlived


EVENTS: dict[str, Callable[[TurnBatch], Counts]] = {
    "another_turn": lambda turn: turn.acted & turn.alive,
    "ate_food": lambda turn: turn.acted & turn.alive & turn.ate,
    "won": lambda turn: turn.acted & turn.alive & turn.over[:, None],
    "died": lambda turn: turn.died,
    "ate_another_snake": lambda turn: turn.kills("head-collision"),
    "hit_wall": lambda turn: turn.died_of("wall-collision"),
    "hit_other_snake": lambda turn: turn.died_of("snake-collision"),
    "hit_self": lambda turn: turn.died_of("snake-self-collision") & ~turn.reversed,
    "was_eaten": lambda turn: turn.died_of("head-collision"),
    "other_snake_hit_body": lambda turn: turn.kills("snake-collision"),
    "forbidden_move": lambda turn: turn.died_of("snake-self-collision") & turn.reversed,
    "starved": lambda turn: turn.died_of("out-of-health"),
    "died_in_hazard": lambda turn: turn.died_of("hazard"),
    "outlived": _count_outlived,
}
"""Event functions, keyed by event name.

A function returns the event of each seat, bool or number [N, S].
"""

_BUILTIN_EVENTS = frozenset(EVENTS)


def register(event: str, count: Callable[[TurnBatch], Counts]) -> None:
    """Register a custom event, which can have a weight like a built-in event.

    Args:
        event: Name of the event.
        count: Function from a `TurnBatch` with positions to bool or numbers [N, S]. The function is
            called once per turn, and values of seats that did not act are ignored.

    Raises:
        ValueError: If ``event`` is a built-in event or a reward preset.
    """
    if event in _BUILTIN_EVENTS or event in PRESETS:
        raise ValueError(f"the event {event!r} is built in; choose another name")
    EVENTS[event] = count


METRICS: dict[str, tuple[str, ...]] = {
    "Snake_hit_wall": ("hit_wall",),
    "Snake_hit_body": ("hit_self", "hit_other_snake"),
    "Snake_was_eaten": ("was_eaten",),
    "Killed_another_snake": ("ate_another_snake", "other_snake_hit_body"),
    "Starved": ("starved",),
    "Forbidden_move": ("forbidden_move",),
    "Died_in_hazard": ("died_in_hazard",),
}
"""Training metrics by name; a metric is the sum of the listed elimination events."""

PRESETS: dict[str, dict[str, float]] = {
    "survival": {"another_turn": 1.0},
    "starter-pack": {"another_turn": 1.0, "won": 2.0, "died": -3.0, "forbidden_move": -1.0},
    "winning": {"won": 1.0, "died": -1.0},
    "survival-and-win": {"another_turn": 1.0, "won": 30.0},
    "zero-sum": {"outlived": 1.0, "died": -1.0},
}
"""Weights by event of each reward preset."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """Reward weights by event, which `get` creates."""

    weights: dict[str, float]

    def __post_init__(self) -> None:
        for event, weight in self.weights.items():
            if event not in EVENTS:
                extensions.load_all()
            if event not in EVENTS:
                raise ValueError(
                    extensions.unregistered_name_message("reward event", event, EVENTS)
                )
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise ValueError(f"the reward for {event!r} must be a number, got {weight!r}")
            if not abs(weight) <= _MAX_FLOAT32:
                raise ValueError(
                    f"the reward for {event!r} must be finite as float32, got {weight!r:.40}"
                )

    @property
    def needs_positions(self) -> bool:
        """Whether the weights contain a custom event, which may need positions."""
        return not _BUILTIN_EVENTS.issuperset(self.weights)

    def compute(self, turn: TurnBatch) -> NDArray[np.float32]:
        """Compute the rewards of one turn, float32 [N, S].

        The reward of a seat that did not act is 0.

        Raises:
            ValueError: If a custom event returns an array of another shape.
        """
        rewards = np.zeros(turn.alive.shape, np.float32)
        for event, weight in self.weights.items():
            count = EVENTS[event](turn)
            if event not in _BUILTIN_EVENTS:
                if np.shape(count) != rewards.shape:
                    raise ValueError(
                        f"the event {event!r} must return an array of shape {rewards.shape} "
                        f"(games, seats), got {np.shape(count)}"
                    )
                count = np.where(turn.acted, count, 0)
            rewards += np.float32(weight) * count
        return rewards


@dataclass(frozen=True, slots=True)
class _SeatRewards:
    """Rewards with separate weights for each seat, which `get_seats` creates."""

    by_seat: tuple[Rewards, ...]

    @property
    def needs_positions(self) -> bool:
        """Whether any seat's rewards need positions; see `Rewards.needs_positions`."""
        return any(rewards.needs_positions for rewards in self.by_seat)

    def compute(self, turn: TurnBatch) -> NDArray[np.float32]:
        """Compute the rewards of one turn, float32 [N, S].

        The reward of a seat that did not act is 0.
        """
        each = [rewards.compute(turn)[:, seat] for seat, rewards in enumerate(self.by_seat)]
        return np.stack(each, axis=1)


RewardWeights = str | Mapping[str, float] | Rewards
"""Name of a reward preset, weights by event, or `Rewards`."""


def get_seats(
    rewards: RewardWeights | Sequence[RewardWeights], seats: int
) -> Rewards | _SeatRewards:
    """Create the rewards of all seats.

    Args:
        rewards: One set of weights for all seats, or a list with one set per seat.
        seats: Number of seats.

    Raises:
        ValueError: If a name is unknown or the list does not have ``seats`` elements.

    >>> get_seats(["survival", {"won": 1}], 2).by_seat[1].weights
    {'won': 1.0}
    """
    if isinstance(rewards, str) or not isinstance(rewards, Sequence):
        return get(rewards)
    if len(rewards) != seats:
        raise ValueError(
            f"rewards has {len(rewards)} elements for {seats} seats; give one per seat, or "
            "one for all"
        )
    return _SeatRewards(tuple(get(one) for one in rewards))


def get(rewards: RewardWeights) -> Rewards:
    """Create `Rewards` from the name of a preset or from weights by event.

    Raises:
        ValueError: If a name is unknown; the message suggests the nearest name.
    """
    if isinstance(rewards, Rewards):
        return rewards
    if isinstance(rewards, str):
        if rewards not in PRESETS:
            raise ValueError(
                f"{unknown_name_message('rewards', rewards, PRESETS)}; "
                'or give weights, such as {"won": 1}'
            )
        rewards = PRESETS[rewards]
    if not isinstance(rewards, Mapping):
        raise ValueError(f"rewards must be a preset or weights by event, got {rewards!r}")
    return Rewards({event: _to_float(weight) for event, weight in rewards.items()})


def count_metrics(turn: TurnBatch) -> dict[str, int]:
    """Count each metric of `METRICS` on one turn, over all games and seats."""
    deadly: Flags = np.any(turn.died, axis=1)
    turn = turn.select(deadly)
    return {
        metric: int(sum(np.sum(EVENTS[event](turn)) for event in events))
        for metric, events in METRICS.items()
    }


def _to_float(weight: Any) -> Any:
    return float(weight) if type(weight) is int and abs(weight) <= _MAX_FLOAT32 else weight

"""What happened to each snake in a turn, and what that is worth: events and reward schemes.

An *event* is a count per snake and turn, read from the engine's arrays; `EVENTS` defines them all,
once, for rewards and for metrics. A *scheme* (`Rewards`) gives each event a weight. The first
twelve names are those of the Battlesnake starter pack; ``docs/observations.md`` explains them.

>>> get("survival").weights
{'another_turn': 1.0}
>>> get({"another_turn": 0.1, "won": 10}).weights
{'another_turn': 0.1, 'won': 10.0}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.rules.state import CAUSES

Flags = NDArray[np.bool_]
Counts = NDArray[Any]
"""One number (or bool) for each game and seat."""


class _Games(Protocol):
    """The arrays of `engine.Games` that events are read from."""

    over: Flags
    alive: Flags
    ate: Flags
    cause: NDArray[np.uint8]
    killer: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """The arrays of one turn after it was played; N games, S seats.

    ``acted`` bool [N, S]: the seats that moved. ``reversed`` bool [N, S]: those that chose the move
    back into their own neck (`reversals`). The others are the engine's after the turn: ``over``
    bool [N], ``alive`` and ``ate`` bool [N, S], ``cause`` uint8 [N, S], ``killer`` int8 [N, S].

    The last four are there for your own events (`register`), else None: ``heads_before``
    and ``heads`` int16 [N, S, 2], (x, y) before and after the turn, off the board for a snake that
    left it; ``length`` int32 [N, S], 0 once out; ``health`` int16 [N, S].
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

    @classmethod
    def from_games(cls, games: _Games, acted: Flags, reversed_: Flags) -> TurnBatch:
        """Read the turn that ``games`` just played; seats that did not act have no events."""
        return cls(acted, reversed_, games.over, games.alive, games.ate, games.cause, games.killer)

    def select(self, which: Flags) -> TurnBatch:
        """The same turn of some games; ``which`` is bool [N]."""
        arrays: list[Any] = [getattr(self, field.name) for field in fields(self)]
        chosen: list[Any] = [None if array is None else array[which] for array in arrays]
        return TurnBatch(*chosen)

    @property
    def died(self) -> Flags:
        """The seats that were eliminated in this turn."""
        died: Flags = self.acted & ~self.alive
        return died

    def died_of(self, cause: str) -> Flags:
        """The seats that were eliminated in this turn with this one of `CAUSES`."""
        died: Flags = self.acted & (self.cause == CAUSES.index(cause))
        return died

    def kills(self, cause: str) -> NDArray[np.int64]:
        """How many others each surviving seat eliminated in this turn with this cause."""
        counts = np.zeros(self.alive.shape, np.int64)
        games, victims = np.nonzero(self.died_of(cause))
        np.add.at(counts, (games, self.killer[games, victims]), 1)
        counts[~self.alive] = 0
        return counts


def reversals(actions: NDArray[np.uint8], facing: NDArray[np.uint8]) -> Flags:
    """Return which actions go back into the snake's own neck, where it has one: bool [N, S].

    ``facing`` is ``Games.facing`` before the turn. Opposite moves differ in the last bit.
    """
    back: Flags = (actions ^ 1) == facing
    return back


def _outlived(turn: TurnBatch) -> Counts:
    """The deaths of the turn in equal shares: to the survivors, else to those who died last."""
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
    "outlived": _outlived,
}
"""Each event's name and how it is read from a turn: [N, S], bool or a number."""

_BUILT_IN = frozenset(EVENTS)


def register(event: str, count: Callable[[TurnBatch], Counts]) -> None:
    """Register your own event, to be given a weight like all others.

    ``count_metrics`` is given a `TurnBatch` with positions and returns [N, S], bool or numbers; its
    entries for seats that did not act are ignored. It costs a few numpy operations a turn, for all
    games.
    Raises ``ValueError`` for the name of an event or preset that is built in.
    """
    if event in _BUILT_IN or event in PRESETS:
        raise ValueError(f"the event {event!r} is built in; give yours another name")
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
"""What training reports: each metric's name and the events that it counts, all of them deaths."""

PRESETS: dict[str, dict[str, float]] = {
    "survival": {"another_turn": 1.0},
    "starter-pack": {"another_turn": 1.0, "won": 2.0, "died": -3.0, "forbidden_move": -1.0},
    "winning": {"won": 1.0, "died": -1.0},
    "survival-and-win": {"another_turn": 1.0, "won": 30.0},
    "zero-sum": {"outlived": 1.0, "died": -1.0},
}
"""Named schemes: event to weight."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """A reward scheme; build it with `get`. ``weights``: event to what one of it is worth."""

    weights: dict[str, float]

    def __post_init__(self) -> None:
        for event, weight in self.weights.items():
            if event not in EVENTS:
                extensions.load()
            if event not in EVENTS:
                raise ValueError(unknown_name_message("reward event", event, EVENTS))
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise ValueError(f"the reward for {event!r} must be a number, got {weight!r}")
            if not np.isfinite(weight):
                raise ValueError(f"the reward for {event!r} must be finite, got {weight!r}")

    @property
    def needs_positions(self) -> bool:
        """Whether some event is your own, so that a `TurnBatch` must have positions."""
        return not _BUILT_IN.issuperset(self.weights)

    def compute(self, turn: TurnBatch) -> NDArray[np.float32]:
        """Return the rewards of one turn, float32 [N, S]; 0 for seats that did not act."""
        rewards = np.zeros(turn.alive.shape, np.float32)
        for event, weight in self.weights.items():
            count = EVENTS[event](turn)
            rewards += np.float32(weight) * (count if event in _BUILT_IN else count * turn.acted)
        return rewards


@dataclass(frozen=True, slots=True)
class SeatRewards:
    """A scheme for each seat, in their order; build it with `get`."""

    schemes: tuple[Rewards, ...]

    @property
    def needs_positions(self) -> bool:
        """As `Rewards.needs_positions`."""
        return any(scheme.needs_positions for scheme in self.schemes)

    def compute(self, turn: TurnBatch) -> NDArray[np.float32]:
        """As `Rewards.compute`."""
        each = [scheme.compute(turn)[:, seat] for seat, scheme in enumerate(self.schemes)]
        return np.stack(each, axis=1)


Scheme = str | Mapping[str, float] | Rewards
"""A preset's name, weights by event, or what was built of them."""


def get_seats(rewards: Scheme | Sequence[Scheme], seats: int) -> Rewards | SeatRewards:
    """One scheme for all seats, or a list with one for each.

    Raises ``ValueError`` as `get`, and where the list does not have one for each of the ``seats``.

    >>> get_seats(["survival", {"won": 1}], 2).schemes[1].weights
    {'won': 1.0}
    """
    if isinstance(rewards, str | Mapping | Rewards):
        return get(rewards)
    if len(rewards) != seats:
        raise ValueError(
            f"rewards has {len(rewards)} schemes for {seats} seats; give one for each, or one for "
            "all"
        )
    return SeatRewards(tuple(get(one) for one in rewards))


def get(rewards: Scheme) -> Rewards:
    """Build a scheme from a preset's name or from weights by event, or pass one through.

    Raises ``ValueError`` for an unknown name, listing those that there are.
    """
    if isinstance(rewards, Rewards):
        return rewards
    if isinstance(rewards, str):
        if rewards not in PRESETS:
            raise ValueError(
                f"{unknown_name_message('rewards', rewards, PRESETS)}; "
                "or weights of events, as {'won': 1}: see docs/observations.md"
            )
        rewards = PRESETS[rewards]
    return Rewards({event: _number(weight) for event, weight in rewards.items()})


def count_metrics(turn: TurnBatch) -> dict[str, int]:
    """How often each of `METRICS` happened in a turn, over all games and seats."""
    deadly: Flags = np.any(turn.died, axis=1)
    turn = turn.select(deadly)
    return {
        metric: int(sum(np.sum(EVENTS[event](turn)) for event in events))
        for metric, events in METRICS.items()
    }


def _number(weight: Any) -> Any:
    return float(weight) if isinstance(weight, int) and not isinstance(weight, bool) else weight

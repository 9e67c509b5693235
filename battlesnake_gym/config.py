"""The options of every environment and trainer: each described, checked and defaulted here.

>>> EnvConfig.of({"width": 7, "height": 7}).width
7
>>> EnvConfig.of({"widht": 7})
Traceback (most recent call last):
    ...
ValueError: unknown option 'widht'; did you mean width?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.rewards import Scheme
from battlesnake_gym.rules import Game, Settings, State, start
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE
from battlesnake_gym.rules.state import Point

Sizes = int | Sequence[int] | NDArray[np.integer[Any]]
"""One number for all games, or one per game."""

STANDARD_GAME = Game()
"""What is played unless something else is asked for."""


@dataclass(frozen=True)
class EnvConfig:
    """What is played, and what a learner sees, may do and gets."""

    num_snakes: Sizes = 4
    """Snakes in a game, 1 to 16; one alone plays ``solo``."""
    width: Sizes = DEFAULT_BOARD_SIZE
    """Columns of the board, 1 to 25."""
    height: Sizes = DEFAULT_BOARD_SIZE
    """Rows of the board, 1 to 25."""
    ruleset: str = STANDARD_GAME.ruleset
    """A name in `rules.RULESETS`."""
    map: str = STANDARD_GAME.map
    """A name in `rules.MAPS`."""
    settings: Settings | Mapping[str, int] | None = None
    """Fields of `rules.Settings`; those left out, and None, are the command line's."""
    observation: str | Mapping[str, Any] | observations.Observation = observations.DEFAULT
    """What a snake sees: whatever `observations.get` takes."""
    frame_stack: int | None = None
    """How many turns an observation stacks, 1 to 8; None: what ``observation`` says, or 1."""
    rewards: Scheme | Sequence[Scheme] = "survival"
    """A preset's name or weights by event, or a list of such, one for each seat (`rewards.get`)."""
    action_mask: str = "fatal"
    """A kind of mask, or several joined with ``+`` (`masks.KINDS`)."""
    max_turns: int | None = None
    """Truncates a game at this turn; None: never."""
    food_rng: str = "fast"
    """Where food comes from: "fast", the engine's stream, or "seeded", the official engine's."""
    start_positions: Sequence[Sequence[int]] | None = None
    """Where the snakes begin: (x, y) for each seat; None: where the map puts them."""
    food_positions: Sequence[Sequence[int]] | None = None
    """Where food lies at first, (x, y) for each; needs ``start_positions``. None: where the map puts it."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any], others: Iterable[str] = ()) -> EnvConfig:
        """Read ``options`` by name; ``others`` are the caller's own, which an error may suggest.

        Raises ``ValueError`` for an unknown name.
        """
        check_names(options, others)
        return cls(**options)

    @property
    def game(self) -> Game:
        """Ruleset, map and settings, without a seed. Raises ``ValueError`` for unknown settings."""
        return Game(ruleset=self.ruleset, map=self.map, settings=read_settings(self.settings))

    @property
    def observation_encoder(self) -> observations.Observation:
        """The observation, with ``frames``."""
        encoder = observations.get(self.observation)
        return (
            encoder if self.frame_stack is None else replace(encoder, frame_stack=self.frame_stack)
        )

    @property
    def start_state(self) -> State | None:
        """The position that all games begin with, if it is given. Raises ``ValueError``."""
        if self.start_positions is None:
            if self.food_positions is not None:
                raise ValueError(
                    "food_positions needs start_positions; give the snakes' start cells too"
                )
            return None
        sizes = self.num_snakes, self.width, self.height
        if not all(isinstance(size, int) for size in sizes):
            raise ValueError(
                "start_positions needs boards of one size, with as many snakes on each"
            )
        count, width, height = (int(np.max(size)) for size in sizes)
        heads = _cells("start_positions", self.start_positions, width, height)
        if len(heads) != count:
            raise ValueError(
                f"start_positions has {len(heads)} cells for {count} snakes; give one for each"
            )
        game = replace(self.game, seed=1)
        state = start(game, width, height, [f"snake_{seat}" for seat in range(count)])
        for snake, head in zip(state.snakes, heads, strict=True):
            snake.body = [head] * len(snake.body)
        if self.food_positions is None:
            state.food = [cell for cell in state.food if cell not in heads]
        else:
            state.food = _cells("food_positions", self.food_positions, width, height)
            if both := sorted(set(state.food) & set(heads)):
                raise ValueError(f"food_positions has {both[0]}, where a snake starts")
        return state


TRAINING_DEFAULTS = EnvConfig(rewards="survival-and-win", max_turns=500)
"""What trainers play unless they are given other options: every game ends."""


def check_names(options: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise ``ValueError`` for a name that is neither a field of `EnvConfig` nor in ``others``."""
    known = [*(field.name for field in fields(EnvConfig)), *others]
    for name in options:
        if name not in known:
            raise ValueError(unknown_name_message("option", name, known))


def _cells(name: str, cells: Any, width: int, height: int) -> list[Point]:
    try:
        points = [(int(x), int(y)) for x, y in cells]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a list of cells such as [[1, 1], [5, 5]], got {cells!r}"
        ) from None
    for x, y in points:
        if not (0 <= x < width and 0 <= y < height):
            raise ValueError(f"{name} has ({x}, {y}), which is off the board of {width}x{height}")
    if len(set(points)) < len(points):
        raise ValueError(f"{name} names a cell twice: {points}")
    return points


def read_settings(settings: Settings | Mapping[str, int] | None) -> Settings:
    """`rules.Settings` from its fields; ``ValueError`` names what is unknown or no number."""
    if settings is None:
        return Settings()
    if isinstance(settings, Settings):
        return settings
    known = list(Settings.__dataclass_fields__)
    for name, value in settings.items():
        if name not in known:
            raise ValueError(unknown_name_message("setting", name, known))
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"setting {name} must be a whole number, got {value!r}")
    return Settings(**settings)

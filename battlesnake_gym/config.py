"""The options that every environment takes: each told, checked and given its default here.

>>> EnvConfig.of({"width": 7, "height": 7}).width
7
>>> EnvConfig.of({"widht": 7})
Traceback (most recent call last):
    ...
ValueError: unknown option 'widht'; did you mean width?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from battlesnake_gym import observations
from battlesnake_gym.engine_input import Sizes
from battlesnake_gym.nearest import unknown
from battlesnake_gym.rewards import Rewards
from battlesnake_gym.rules import Game, Settings

if TYPE_CHECKING:
    from battlesnake_gym.vector import VectorBattlesnake


@dataclass(frozen=True)
class EnvConfig:
    """What is played, and what a learner sees, may do and gets."""

    num_snakes: Sizes = 4
    """Snakes in a game, 1 to 16; one alone plays ``solo``."""
    width: Sizes = 11
    """Columns of the board, 1 to 25."""
    height: Sizes = 11
    """Rows of the board, 1 to 25."""
    ruleset: str = "standard"
    """A name in `rules.RULESETS`."""
    map: str = "standard"
    """A name in `rules.MAPS`."""
    settings: Settings | Mapping[str, int] | None = None
    """Fields of `rules.Settings`; those left out, and None, are the command line's."""
    observation: str | Mapping[str, Any] | observations.Observation = "planes"
    """What a snake sees: whatever `observations.get` takes."""
    frames: int | None = None
    """How many turns an observation stacks, 1 to 8; None: what ``observation`` says, or 1."""
    rewards: str | Mapping[str, float] | Rewards = "survival"
    """A preset's name or weights by event: whatever `rewards.get` takes."""
    action_mask: str = "forbidden"
    """A kind of mask, or several joined with ``+`` (`masks.KINDS`)."""
    max_turns: int | None = None
    """Truncates a game at this turn; None: never."""
    food: str = "fast"
    """Where food comes from: "fast", the engine's stream, or "seeded", the official engine's."""

    @classmethod
    def of(cls, options: Mapping[str, Any], **fixed: Any) -> EnvConfig:
        """Read ``options`` by name; ``fixed`` are those that the caller settles itself.

        Raises ``ValueError`` for a name that is none, or that is settled.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name in fixed or name not in known:
                raise ValueError(unknown("option", name, [n for n in known if n not in fixed]))
        return cls(**options, **fixed)

    @property
    def game(self) -> Game:
        """Ruleset, map and settings, without a seed. Raises ``ValueError`` for unknown settings."""
        return Game(ruleset=self.ruleset, map=self.map, settings=read_settings(self.settings))

    @property
    def encoder(self) -> observations.Observation:
        """The observation, with ``frames``."""
        encoder = observations.get(self.observation)
        return encoder if self.frames is None else replace(encoder, frames=self.frames)

    def vector(self, num_games: int) -> VectorBattlesnake:
        """``num_games`` such games. Raises ``ValueError`` for values that are out of range."""
        from battlesnake_gym.vector import VectorBattlesnake

        return VectorBattlesnake(
            num_games,
            self.num_snakes,
            self.width,
            self.height,
            game=self.game,
            observation=self.encoder,
            rewards=self.rewards,
            action_mask=self.action_mask,
            max_turns=self.max_turns,
            food=self.food,
        )


def read_settings(settings: Settings | Mapping[str, int] | None) -> Settings:
    """`rules.Settings` from its fields; ``ValueError`` names what is unknown or no number."""
    if settings is None:
        return Settings()
    if isinstance(settings, Settings):
        return settings
    known = list(Settings.__dataclass_fields__)
    for name, value in settings.items():
        if name not in known:
            raise ValueError(unknown("setting", name, known))
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"setting {name} must be a whole number, got {value!r}")
    return Settings(**settings)

"""Inference of the rules of a game from its frames.

Some engines do not send the rules. `RuleEvidence.collect` examines how snakes grow, where heads
move, where hazards appear and how much damage they cause. `RuleEvidence.infer_game` converts the
evidence to a ``game`` object of the API, or raises an error if the frames are ambiguous.
`RuleEvidence.check_game` raises an error if the frames contradict given rules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.rules.maps.snail import pending_trails, trails
from battlesnake_gym.rules.stages import RULESETS, grows_always, wraps
from battlesnake_gym.rules.state import Game, Point, Settings, Snake, State, distance

RULES_BY_MODE = {
    "standard": ("standard", "standard"),
    "royale": ("royale", "standard"),
    "constrictor": ("constrictor", "standard"),
    "snail mode": ("standard", "snail_mode"),
    "solo": ("solo", "standard"),
}
"""Ruleset and map of each game mode of arena.battlesnake.com."""

_REMEDY = "give --ruleset, and --map if the game has a map"


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """Evidence about the rules in the frames of a game.

    Attributes:
        grows: Whether surviving snakes grew on turns without food: one value, both values, or no
            value if no snake survived a turn without food.
        crosses: Whether a head moved over an edge to the opposite side.
        hazards: "" for none, "trails", "shrinking" or "others".
        damage: Damage of one hazard layer; None if unknown.
        every: Number of turns between two shrinkings; None if unknown.
    """

    grows: frozenset[bool]
    crosses: bool
    hazards: str
    damage: int | None
    every: int | None

    @classmethod
    def collect(cls, frames: Sequence[State]) -> RuleEvidence:
        """Collect the evidence in the frames of a game.

        Args:
            frames: Positions, one per turn, with only the living snakes.
        """
        unfed = [step for step in _snake_steps(frames) if step[2].head not in step[0].food]
        costs = {
            (snake.health - 1 - after.health) // layers
            for before, snake, after in unfed
            if (layers := before.hazards.count(after.head))
        }
        changed = [b.turn for a, b in itertools.pairwise(frames) if a.hazards != b.hazards]
        return cls(
            # A snake with segments stacked since the start unfolds before the body grows.
            grows=frozenset(
                len(after.body) > len(snake.body)
                for _, snake, after in unfed
                if len(set(snake.body[-3:])) > 1
            ),
            crosses=any(
                distance(snake.head, after.head) > 1 for _, snake, after in _snake_steps(frames)
            ),
            hazards=_classify_hazards(frames),
            damage=costs.pop() if len(costs) == 1 else None,
            every=math.gcd(*changed) or None,
        )

    def infer_game(self, frames: Sequence[State]) -> dict[str, Any]:
        """Infer the rules from the evidence, and return the ``game`` object of the API.

        Raises:
            BoardError: If the frames are ambiguous.
        """
        if len(self.grows) != 1:
            reason = (
                "the growth of the snakes fits no ruleset"
                if self.grows
                else "no snake survives long enough"
            )
            raise BoardError(f"the frames do not show the rules: {reason}; {_REMEDY}")
        (grows,) = self.grows
        plain = not (grows or self.crosses)
        ruleset = "constrictor" if grows else "standard"
        if self.crosses:
            ruleset = "wrapped_constrictor" if grows else "wrapped"
        if self.hazards == "trails":
            return build_game_object(ruleset, "snail_mode", hazard_damage_per_turn=self.damage)
        if self.hazards == "shrinking" and plain:
            return build_game_object(
                "royale", hazard_damage_per_turn=self.damage, shrink_every_n_turns=self.every
            )
        if self.hazards:
            raise BoardError(f"the frames do not show which map the hazards belong to; {_REMEDY}")
        if plain and len(frames[0].snakes) == 1:
            return build_game_object("solo")
        if plain and frames[-1].turn < Settings().shrink_every_n_turns:
            raise BoardError(
                f"a game of {frames[-1].turn} turns without hazards may be standard or royale; "
                f"{_REMEDY}"
            )
        return build_game_object(ruleset)

    def check_game(self, played: Game) -> None:
        """Check that the frames are consistent with the rules of a game.

        Raises:
            BoardError: If the frames contradict the rules.
        """
        name = played.ruleset
        if name not in RULESETS:
            raise BoardError(f"the ruleset {name!r} is not one of {', '.join(RULESETS)}; {_REMEDY}")
        wrong = ""
        if self.grows and self.grows != {grows_always(played)}:
            wrong = (
                "a snake grows without food"
                if True in self.grows
                else "no snake grows without food"
            )
        elif self.crosses and not wraps(played):
            wrong = "a snake crosses an edge of the board"
        elif self.hazards and name != "royale" and played.map in ("", "standard"):
            wrong = "there are hazards"
        if wrong:
            raise BoardError(f"the game is not {name!r}, because {wrong} in its frames; {_REMEDY}")


def _snake_steps(frames: Sequence[State]) -> Iterator[tuple[State, Snake, Snake]]:
    """Yield (position, snake, snake after the turn) for each turn and surviving snake."""
    for before, after in itertools.pairwise(frames):
        later = {snake.id: snake for snake in after.snakes}
        for snake in before.snakes:
            if snake.id in later:
                yield before, snake, later[snake.id]


def _classify_hazards(frames: Sequence[State]) -> str:
    if not any(frame.hazards for frame in frames):
        return ""
    first = frames[0]
    if all(_is_border(first, cells) for cells in {tuple(frame.hazards) for frame in frames}):
        return "shrinking"
    fading = (
        sorted(_expected_trails(before, after)) == sorted(after.hazards)
        for before, after in itertools.pairwise(add_pending_trails(frames))
    )
    return "trails" if all(fading) else "others"


def _is_border(board: State, cells: Sequence[Point]) -> bool:
    """Return whether one layer of hazards covers all cells outside a rectangle."""
    covered = set(cells)
    free = [
        cell
        for cell in itertools.product(range(board.width), range(board.height))
        if cell not in covered
    ]
    columns, rows = ({cell[axis] for cell in free} or {0} for axis in (0, 1))
    box = (max(columns) - min(columns) + 1) * (max(rows) - min(rows) + 1) if free else 0
    one_each = len(covered) == len(cells) == board.width * board.height - len(free)
    return one_each and box == len(free)


def _expected_trails(before: State, after: State) -> list[Point]:
    """Return the hazards that the map ``snail_mode`` would produce in ``after``."""
    return trails(
        State(after.turn, after.width, after.height, after.snakes, hazards=before.hazards)
    )


def add_pending_trails(frames: Sequence[State]) -> Sequence[State]:
    """Add the pending trails of ``snail_mode`` to frames that omit them.

    Some engines send only the hazards on the board.
    """
    if any(y >= frame.height for frame in frames for _, y in frame.hazards):
        return frames
    return [replace(frame, hazards=frame.hazards + pending_trails(frame)) for frame in frames]


def build_game_object(
    ruleset: str, board_map: str = "standard", **settings: int | None
) -> dict[str, Any]:
    """Create a ``game`` object of the API.

    Args:
        ruleset: Name of the ruleset.
        board_map: Name of the map.
        **settings: Fields of `rules.Settings`; None selects the official default.
    """
    known = {name: value for name, value in settings.items() if value is not None}
    return board_json.game_to_dict(Game(ruleset, board_map, Settings(**known)))


def game_object_of_mode(mode: str) -> dict[str, Any] | None:
    """Return the ``game`` object of a mode of arena.battlesnake.com.

    The result is None if the mode is unknown.
    """
    known = RULES_BY_MODE.get(mode.lower().replace("_", " "))
    return build_game_object(*known) if known else None

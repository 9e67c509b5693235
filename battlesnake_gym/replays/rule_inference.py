"""The rules of a game as its frames show them, for engines that do not say what is played.

`collect_evidence` looks at how snakes grow, where heads go, what hazards do and what they cost. `infer_game`
makes a ``game`` object of it, as in a request of the API, or refuses where the frames leave the
rules open; `check` refuses rules that the frames contradict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.rules.maps.snail import trails, waiting
from battlesnake_gym.rules.rulesets import RULESETS, grows_always, wraps
from battlesnake_gym.rules.state import Game, Point, Settings, Snake, State

MODES = {
    "standard": ("standard", "standard"),
    "royale": ("royale", "standard"),
    "constrictor": ("constrictor", "standard"),
    "snail mode": ("standard", "snail_mode"),
    "solo": ("solo", "standard"),
}
"""The modes of arena.battlesnake.com: the ruleset and the map that are played."""

_REMEDY = "give --ruleset, and --map where the game has one"


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """What frames show of the rules.

    ``grows``: whether snakes grew without food (both where they differ, empty where no snake lived
    on without food). ``crosses``: whether a head left on one side and came back on the other.
    ``hazards``: ``""`` for none, ``"trails"``, ``"shrinking"`` or ``"others"``. ``damage`` of one
    layer and ``every``, the turns from one shrinking to the next, are None where nothing shows it.
    """

    grows: frozenset[bool]
    crosses: bool
    hazards: str
    damage: int | None
    every: int | None


def collect_evidence(frames: Sequence[State]) -> RuleEvidence:
    """What these frames show, one a turn, each with the living snakes alone."""
    unfed = [step for step in _steps(frames) if step[2].head not in step[0].food]
    costs = {
        (snake.health - 1 - after.health) // layers
        for before, snake, after in unfed
        if (layers := before.hazards.count(after.head))
    }
    changed = [b.turn for a, b in itertools.pairwise(frames) if a.hazards != b.hazards]
    return RuleEvidence(
        # A snake that is still stacked from the start unfolds before it grows.
        grows=frozenset(
            len(after.body) > len(snake.body)
            for _, snake, after in unfed
            if len(set(snake.body[-3:])) > 1
        ),
        crosses=any(_far(snake.head, after.head) for _, snake, after in _steps(frames)),
        hazards=_hazards(frames),
        damage=costs.pop() if len(costs) == 1 else None,
        every=math.gcd(*changed) or None,
    )


def _steps(frames: Sequence[State]) -> Iterator[tuple[State, Snake, Snake]]:
    """A position, a snake in it that lives on, and that snake a turn later."""
    for before, after in itertools.pairwise(frames):
        later = {snake.id: snake for snake in after.snakes}
        for snake in before.snakes:
            if snake.id in later:
                yield before, snake, later[snake.id]


def _far(cell: Point, other: Point) -> bool:
    return abs(cell[0] - other[0]) + abs(cell[1] - other[1]) > 1


def _hazards(frames: Sequence[State]) -> str:
    if not any(frame.hazards for frame in frames):
        return ""
    first = frames[0]
    if all(_is_border(first, cells) for cells in {tuple(frame.hazards) for frame in frames}):
        return "shrinking"
    fading = (
        sorted(_trails(before, after)) == sorted(after.hazards)
        for before, after in itertools.pairwise(with_waiting(frames))
    )
    return "trails" if all(fading) else "others"


def _is_border(board: State, cells: Sequence[Point]) -> bool:
    """Whether hazards are all that is outside a rectangle of the board, one on each cell."""
    out = set(cells)
    free = [
        cell
        for cell in itertools.product(range(board.width), range(board.height))
        if cell not in out
    ]
    columns, rows = ({cell[axis] for cell in free} or {0} for axis in (0, 1))
    box = (max(columns) - min(columns) + 1) * (max(rows) - min(rows) + 1) if free else 0
    one_each = len(out) == len(cells) == board.width * board.height - len(free)
    return one_each and box == len(free)


def _trails(before: State, after: State) -> list[Point]:
    """The hazards of ``after`` by the map ``snail_mode``."""
    return trails(
        State(after.turn, after.width, after.height, after.snakes, hazards=before.hazards)
    )


def with_waiting(frames: Sequence[State]) -> Sequence[State]:
    """Frames of ``snail_mode`` with the trails that wait, where they show the board alone."""
    if any(y >= frame.height for frame in frames for _, y in frame.hazards):
        return frames
    return [replace(frame, hazards=frame.hazards + waiting(frame)) for frame in frames]


def infer_game(found: RuleEvidence, frames: Sequence[State]) -> dict[str, Any]:
    """The ``game`` object of the rules that these frames show.

    Raises `BoardError` where they leave open what is played.
    """
    if len(found.grows) != 1:
        why = "the growth of the snakes fits none" if found.grows else "no snake lives long enough"
        raise BoardError(f"the frames do not show the rules: {why}; {_REMEDY}")
    (grows,) = found.grows
    plain = not (grows or found.crosses)
    ruleset = "constrictor" if grows else "standard"
    if found.crosses:
        ruleset = "wrapped_constrictor" if grows else "wrapped"
    if found.hazards == "trails":
        return game(ruleset, "snail_mode", found.damage)
    if found.hazards == "shrinking" and plain:
        return game("royale", damage=found.damage, every=found.every)
    if found.hazards:
        raise BoardError(f"the frames do not show of which map the hazards are; {_REMEDY}")
    if plain and len(frames[0].snakes) == 1:
        return game("solo")
    if plain and frames[-1].turn < Settings().shrink_every_n_turns:
        raise BoardError(
            f"a game of {frames[-1].turn} turns without hazards may be standard or royale; {_REMEDY}"
        )
    return game(ruleset)


def game(
    ruleset: str, board_map: str = "standard", damage: int | None = None, every: int | None = None
) -> dict[str, Any]:
    """A ``game`` object as in a request of the API; None is the official default."""
    usual = Settings()
    settings = {
        "foodSpawnChance": usual.food_spawn_chance,
        "minimumFood": usual.minimum_food,
        "hazardDamagePerTurn": usual.hazard_damage_per_turn if damage is None else damage,
        "royale": {"shrinkEveryNTurns": every or usual.shrink_every_n_turns},
    }
    return {"ruleset": {"name": ruleset, "settings": settings}, "map": board_map}


def of_mode(mode: str) -> dict[str, Any] | None:
    """The ``game`` object of a mode of arena.battlesnake.com; None for a name that is not known."""
    known = MODES.get(mode.lower().replace("_", " "))
    return game(*known) if known else None


def check(played: Game, found: RuleEvidence) -> None:
    """Raise `BoardError` where the frames contradict the rules that a game is said to have."""
    name = played.ruleset
    if name not in RULESETS:
        raise BoardError(f"the ruleset {name!r} is none of {', '.join(RULESETS)}; {_REMEDY}")
    wrong = ""
    if found.grows and found.grows != {grows_always(played)}:
        wrong = "a snake grows without food" if True in found.grows else "no snake grows unfed"
    elif found.crosses and not wraps(played):
        wrong = "a snake crosses the border"
    elif found.hazards and name != "royale" and played.map in ("", "standard"):
        wrong = "there are hazards"
    if wrong:
        raise BoardError(f"the game is not {name!r}, as {wrong} in its frames; {_REMEDY}")

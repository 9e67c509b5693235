"""Maps whose hazards grow around a random cell by sides, rings or cells."""

from __future__ import annotations

from ..food import game_rand, standard_food
from ..gorand import GoRand
from ..state import Game, Point, State
from .base import Map
from .standard import setup

_GROWTH_INTERVAL_TURNS = 12
_EXPANSION_INTERVAL_TURNS = 20
_SCATTER_INTERVAL_TURNS = 2


def _is_due(state: State, every: int) -> bool:
    """Return whether new hazards appear on this turn.

    Hazards appear every ``every`` turns until the board is full.
    """
    full = len(state.hazards) == state.width * state.height
    return state.turn % every == 0 and not full


def _update_grow(game: Game, state: State) -> None:
    """Place the standard food, and then hazards on the next side of the box."""
    standard_food(game, state)
    if _is_due(state, _GROWTH_INTERVAL_TURNS):
        steps = state.turn // _GROWTH_INTERVAL_TURNS
        state.hazards += _grown_side(game_rand(game), state.width, state.height, steps)


def _grown_side(rand: GoRand, width: int, height: int, steps: int) -> list[Point]:
    """List the cells that growth step ``steps`` adds to a box.

    The box starts as one random cell. The list is empty if the box fills the board.
    """
    left = right = rand.between(2, width - 2)
    bottom = top = rand.between(2, height - 2)
    added = [(left, bottom)]
    for _ in range(steps):
        room = {"left": left > 0, "up": top < height - 1, "right": right < width - 1}
        room["down"] = bottom > 0
        sides = [side for side, free in room.items() if free]
        if not sides:
            return []
        side = sides[rand.intn(len(sides))]
        if side in ("left", "right"):
            left, right = left - (side == "left"), right + (side == "right")
            x = left if side == "left" else right
            added = [(x, y) for y in range(bottom, top + 1)]
        else:
            bottom, top = bottom - (side == "down"), top + (side == "up")
            y = bottom if side == "down" else top
            added = [(x, y) for x in range(left, right + 1)]
    return added


def _square_ring(center: Point, radius: int, width: int, height: int) -> list[Point]:
    """List the cells on the board at Chebyshev distance ``radius`` from ``center``."""
    cx, cy = center
    return [
        (x, y)
        for x in range(max(cx - radius, 0), min(cx + radius, width - 1) + 1)
        for y in range(max(cy - radius, 0), min(cy + radius, height - 1) + 1)
        if max(abs(x - cx), abs(y - cy)) == radius
    ]


def _update_expand_box(game: Game, state: State) -> None:
    """Place the standard food, and then hazards on the next ring around a random cell.

    As in the official engine, y is drawn from the range of x. On a board that is wider than high,
    the cell may therefore be off the board. The rings then surround this cell.
    """
    standard_food(game, state)
    if not _is_due(state, _EXPANSION_INTERVAL_TURNS):
        return
    rand = game_rand(game)
    center = rand.between(2, state.width - 2), rand.between(2, state.width - 2)
    radius = state.turn // _EXPANSION_INTERVAL_TURNS
    ring = _square_ring(center, radius, state.width, state.height)
    state.hazards += ring if radius else [center]


def _update_expand_scatter(game: Game, state: State) -> None:
    """Place the standard food and one hazard.

    The hazard is on the next cell of the shuffled rings.
    """
    standard_food(game, state)
    if not _is_due(state, _SCATTER_INTERVAL_TURNS):
        return
    rand = game_rand(game)
    center = rand.between(1, state.width - 1), rand.between(1, state.width - 1)
    cells = [center]
    for radius in range(1, max(state.width, state.height)):
        ring = _square_ring(center, radius, state.width, state.height)
        rand.shuffle(ring)
        cells += ring
    index = state.turn // _SCATTER_INTERVAL_TURNS
    state.hazards += cells[index : index + 1]


GROW_BOX = Map("hz_grow_box", "a box that grows a random side", setup, _update_grow, min_size=4)
EXPAND_BOX = Map(
    "hz_expand_box", "rings around a random cell", setup, _update_expand_box, min_size=4
)
EXPAND_SCATTER = Map(
    "hz_expand_scatter", "the same rings, cell by cell", setup, _update_expand_scatter, min_size=2
)

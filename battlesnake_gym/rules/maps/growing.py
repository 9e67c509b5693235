"""Maps whose hazards grow: by random cells, sides, rings, a spiral or a disc."""

from __future__ import annotations

from collections.abc import Iterator

from ..food import game_rand, standard_food
from ..gorand import GoRand
from ..state import Game, Point, RulesError, State
from .base import Map
from .standard import setup

_GROWTH_INTERVAL_TURNS = 12
_EXPANSION_INTERVAL_TURNS = 20
_SCATTER_INTERVAL_TURNS = 2
_SPIRAL_INTERVAL_TURNS = 3
_FIRST_SINKHOLE_TURN = 1
_DEFAULT_SINKHOLE_INTERVAL_TURNS = 10
_SINKHOLE_RINGS_BY_WIDTH = {7: 3, 19: 7}
_DEFAULT_SINKHOLE_RINGS = 5


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


def _update_scatter(game: Game, state: State) -> None:
    """Place the standard food, and then a hazard on the next cell of a shuffled list."""
    standard_food(game, state)
    turn = state.turn + 1
    if turn % _SCATTER_INTERVAL_TURNS:
        return
    cells = [(x, y) for x in range(state.width) for y in range(state.height)]
    game_rand(game).shuffle(cells)
    state.hazards.append(cells[turn // _SCATTER_INTERVAL_TURNS - 1])


def _check_scatter_turn(game: Game, state: State) -> None:
    """Raise `RulesError` if all cells have hazards.

    The official engine would crash on this turn.
    """
    turn = state.turn + 1
    if (
        turn % _SCATTER_INTERVAL_TURNS == 0
        and turn // _SCATTER_INTERVAL_TURNS > state.width * state.height
    ):
        raise RulesError(
            f"turn {turn} of map 'hz_scatter' needs a cell without a hazard, but all "
            f"{state.width * state.height} cells have hazards: end the game by turn {turn - 1}"
        )


SCATTER = Map(
    "hz_scatter",
    "a random cell every 2 turns",
    setup,
    _update_scatter,
    check_turn=_check_scatter_turn,
)


def _spiral_cells(center: Point, rings: int) -> Iterator[Point]:
    """Yield a clockwise spiral around ``center``, including cells off the board.

    Each ring of the spiral starts beside its upper left corner and ends in the corner.
    """
    for radius in range(1, rings + 1):
        x, y = center[0] - radius, center[1] + radius
        for dx, dy in ((1, 0), (0, -1), (-1, 0), (0, 1)):
            for _ in range(2 * radius):
                x, y = x + dx, y + dy
                yield x, y


def _update_spiral(game: Game, state: State) -> None:
    """Place the standard food, and then a hazard on the next spiral cell.

    A spiral cell off the board gets no hazard.
    """
    standard_food(game, state)
    turn = state.turn + 1
    if turn < _SPIRAL_INTERVAL_TURNS or turn % _SPIRAL_INTERVAL_TURNS:
        return
    rand = game_rand(game)
    width, height = state.width, state.height
    margin_x, margin_y = width * 3 // 10, height * 3 // 10
    x = rand.between(margin_x, width - 1 - margin_x)
    y = rand.between(margin_y, height - 1 - margin_y)
    spiral = [(x, y), *_spiral_cells((x, y), max(x, y, width - x, height - y))]
    index = turn // _SPIRAL_INTERVAL_TURNS - 1
    if index < len(spiral):
        x, y = spiral[index]
        if 0 <= x < width and 0 <= y < height:
            state.hazards.append((x, y))


SPIRAL = Map("hz_spiral", "a spiral from a random center", setup, _update_spiral)


def _update_sinkholes(game: Game, state: State) -> None:
    """Place the standard food, and then one hazard layer on a growing disc.

    Each layer has the next larger radius.
    """
    standard_food(game, state)
    every = game.settings.shrink_every_n_turns
    if every <= 0:
        every = _DEFAULT_SINKHOLE_INTERVAL_TURNS
    rings = _SINKHOLE_RINGS_BY_WIDTH.get(state.width, _DEFAULT_SINKHOLE_RINGS)
    if state.turn > every * rings and state.turn != _FIRST_SINKHOLE_TURN:
        return
    radius, early = divmod(state.turn - _FIRST_SINKHOLE_TURN, every)
    if early or radius < 0:
        return
    x, y = state.width // 2, state.height // 2
    around = range(-radius, radius + 1)
    state.hazards += [
        (x + dx, y + dy)
        for dx in around
        for dy in around
        if radius == 0 or not abs(dx) == abs(dy) == radius
    ]


SINKHOLES = Map(
    "sinkholes",
    "a growing disc in the center, deepest in the middle",
    setup,
    _update_sinkholes,
    sizes=((7, 7), (11, 11), (19, 19)),
    players=(1, 8),
)

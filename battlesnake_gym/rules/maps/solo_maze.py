"""Map ``solo_maze``, which builds a larger maze whenever the only snake eats.

The hazards of the bottom row store the level as a binary number.
"""

from __future__ import annotations

from ..food import game_rand
from ..gorand import GoRand
from ..placement import remove_random_cell
from ..state import MAX_HEALTH, Game, Point, RulesError, State, distance
from .base import Map

_MIN_MAZE_SIZE = 7
_FIRST_MAZE_SIZE = 7
_LEVELS_AFTER_FULL_SIZE = 5
_MAX_FOOD_ATTEMPTS = 100
_MIN_FOOD_DISTANCE = 5
_MAX_BODY_LENGTH = 100_000


def _setup(game: Game, state: State) -> None:
    """Build the maze of level 0."""
    _build_level(game, state, 0)


def _update(game: Game, state: State) -> None:
    """Build the next level if the snake has eaten the food.

    At the last levels, the food moves when the head comes near.
    """
    level = _read_level(state)
    if not state.food:
        _build_level(game, state, level + 1)
    elif level - _LEVELS_AFTER_FULL_SIZE > _max_maze_size(state) - _FIRST_MAZE_SIZE:
        head = state.snakes[0].head
        if distance(head, state.food[0]) < _MIN_FOOD_DISTANCE:
            walls = set(state.hazards)
            state.food = []
            _place_food(game, state, level, walls)


def _check_turn(game: Game, state: State) -> None:
    """Raise `RulesError` unless the position has exactly one snake."""
    if len(state.snakes) != 1:
        raise RulesError(
            f"map 'solo_maze' requires 1 snake, got {len(state.snakes)}; choose another map"
        )


def _max_maze_size(state: State) -> int:
    """Return the side length of the largest maze, in cells.

    The bottom row and the top row stay free.
    """
    return min(state.width, state.height - 2)


def _maze_square(state: State, level: int) -> tuple[int, Point]:
    """Return the side length in cells and the lower left cell of the maze of a level."""
    size = min(_FIRST_MAZE_SIZE + level, _max_maze_size(state))
    return size, ((state.width - size) // 2, (state.height - size) // 2)


def _read_level(state: State) -> int:
    """Return the level, which the hazards of the bottom row encode as a binary number.

    The leftmost cell is the most significant bit.
    """
    bits = {x for x, y in state.hazards if y == 0 and 0 <= x < state.width}
    return sum(1 << (state.width - 1 - x) for x in bits)


def _level_cells(level: int, width: int) -> list[Point]:
    """List the cells of the bottom row that store this level.

    If the number has more binary digits than the board has columns, the last digits are off the
    board. On a board of width 7, for example, level 128 is read as level 64.
    """
    digits = f"{level:0{width}b}"
    return [(x, 0) for x, digit in enumerate(digits) if digit == "1"]


def _build_level(game: Game, state: State, level: int) -> None:
    """Build the maze of ``level``, and place the snake and the food.

    The snake has ``level + 3`` segments. The snake starts at the lower left of the maze.

    Raises:
        RulesError: If the snake would be longer than 100,000 segments.
    """
    if level + 3 > _MAX_BODY_LENGTH:
        raise RulesError(
            f"level {level} of map 'solo_maze' would need a body of {level + 3} segments; more "
            f"than {_MAX_BODY_LENGTH} are not supported; use the solo or standard ruleset"
        )
    size, corner = _maze_square(state, level)
    old_walls = set(state.hazards)
    inside = _maze_walls(game_rand(game, state.turn), size)
    state.hazards = (
        _level_cells(level, state.width)
        + [(x + corner[0], y + corner[1]) for x, y in inside]
        + _cells_outside(state, size, corner)
    )
    snake = state.snakes[0]
    snake.body = [corner] + [(corner[0], corner[1] - 1)] * (level + 2)
    snake.health = MAX_HEALTH
    state.food = []
    _place_food(game, state, level, old_walls.union(state.hazards))


def _cells_outside(state: State, size: int, corner: Point) -> list[Point]:
    """List all cells outside the maze except the bottom row."""
    columns = range(corner[0], corner[0] + size)
    rows = range(corner[1], corner[1] + size)
    return [
        (x, y)
        for x in range(state.width)
        for y in range(1, state.height)
        if not (x in columns and y in rows)
    ]


def _place_food(game: Game, state: State, level: int, walls: set[Point]) -> None:
    """Place one piece of food in the maze at a minimum distance from the head.

    Each attempt uses a generator with another seed.
    """
    size, corner = _maze_square(state, level)
    snake = state.snakes[0]
    taken = walls.union(snake.body)
    near = min(_MIN_FOOD_DISTANCE, size // 2)
    for attempt in range(1, _MAX_FOOD_ATTEMPTS + 1):
        rand = game_rand(game, state.turn + attempt)
        cell = rand.intn(size) + corner[0], rand.intn(size) + corner[1]
        if cell not in taken and distance(cell, snake.head) >= near:
            state.food.append(cell)
            return


def _maze_walls(rand: GoRand, size: int) -> list[Point]:
    """List the walls of a square maze in the order in which the algorithm builds them.

    The algorithm is recursive division: walls with holes divide rooms into smaller rooms.
    """
    built: list[Point] = []
    _divide(rand, (0, 0), (size - 1, size - 1), frozenset(), frozenset(), built)
    return built


def _divide(
    rand: GoRand,
    low: Point,
    high: Point,
    open_rows: frozenset[int],
    open_columns: frozenset[int],
    built: list[Point],
) -> None:
    """Append to ``built`` the walls of the room from cell ``low`` to cell ``high``.

    Walls in ``open_rows`` and ``open_columns`` are excluded, because they would close a hole. A
    wall belongs to the adjacent room on the left or below.
    """
    (x0, y0), (x1, y1) = low, high
    column = _choose_wall(rand, x0, x1, open_columns)
    row = _choose_wall(rand, y0, y1, open_rows)
    if column is None and row is None:
        return
    upright = [(column, y) for y in range(y0, y1 + 1)] if column is not None else []
    level = [(x, row) for x in range(x0, x1 + 1) if x != column] if row is not None else []
    if column is not None and row is not None:
        crossing = row - y0
        open_rows |= {remove_random_cell(upright, rand, 0, crossing)[1]}
        open_rows |= {remove_random_cell(upright, rand, crossing + 1)[1]}
        open_columns |= {remove_random_cell(level, rand, 0, column - x0)[0]}
    else:
        # If the other wall does not fit in this room, it does not fit in any part of this room.
        remove_random_cell(upright or level, rand, 0, len(upright or level) - 1)
    built += [cell for cell in upright + level if cell not in built]
    column_parts = [(x0, column), (column + 1, x1)] if column is not None else [(x0, x1)]
    row_parts = [(y0, row), (row + 1, y1)] if row is not None else [(y0, y1)]
    for bottom, top in row_parts:
        for left, right in column_parts:
            _divide(rand, (left, bottom), (right, top), open_rows, open_columns, built)


def _choose_wall(rand: GoRand, first: int, last: int, excluded: frozenset[int]) -> int | None:
    """Choose the coordinate of a wall that divides the room, or return None."""
    places = [place for place in range(first + 1, last - 1) if place not in excluded]
    return places[rand.intn(len(places))] if places else None


SOLO_MAZE = Map(
    "solo_maze",
    "one snake in a maze that grows with every food",
    _setup,
    _update,
    sizes=((7, 7), (11, 11), (19, 19), (19, 21), (25, 25)),
    players=(1, 1),
    players_enforced=True,
    min_size=_MIN_MAZE_SIZE,
    check_turn=_check_turn,
)

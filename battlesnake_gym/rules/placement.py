"""Placement of snakes and food at the start of a game."""

from __future__ import annotations

from collections.abc import Container, Sequence

from .food import free_cells
from .gorand import GoRand
from .state import START_LENGTH, Point, RulesError, Snake, State

MAX_SNAKES = 16
_NUM_CORNER_AND_SIDE_STARTS = 8
# Snakes start on random cells of smaller boards.
_MIN_BOARD_SIZE_FIXED_STARTS = 7
_MIN_BOARD_SIZE_QUADRANT_STARTS = 11
# With at most this many snakes, food is placed beside each snake on every square board.
_MAX_SNAKES_WITH_FOOD = 4
# On square boards with at least this many cells, food is placed beside every snake.
_MIN_LARGE_BOARD_CELLS = 121
_DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def _put_snake(snake: Snake, cell: Point) -> None:
    """Stack a new snake's body on one cell."""
    snake.body = [cell] * START_LENGTH


def put_snakes(state: State, cells: Sequence[Point]) -> None:
    """Put snake i on ``cells[i]``.

    The list ``cells`` has at least as many cells as there are snakes.
    """
    for snake, cell in zip(state.snakes, cells, strict=False):
        _put_snake(snake, cell)


def place_snakes(state: State, rand: GoRand) -> None:
    """Place the snakes on their start cells.

    The start cells of a square board are fixed. On another board, the snakes start on random cells.

    Raises:
        RulesError: If there are more snakes than start cells.
    """
    width, count = state.width, len(state.snakes)
    square = width == state.height
    if square and count > _NUM_CORNER_AND_SIDE_STARTS and width < _MIN_BOARD_SIZE_FIXED_STARTS:
        raise RulesError(
            f"{count} snakes do not fit on a board of {width}x{width}: "
            f"use at most {_NUM_CORNER_AND_SIDE_STARTS} snakes or a board size of "
            f"{_MIN_BOARD_SIZE_FIXED_STARTS} or more"
        )
    if square and width >= _MIN_BOARD_SIZE_FIXED_STARTS and count <= _NUM_CORNER_AND_SIDE_STARTS:
        _place_on_corners_and_sides(state, rand)
    elif square and width >= _MIN_BOARD_SIZE_QUADRANT_STARTS:
        place_in_quadrants(state, rand, _standard_quadrants(width))
    else:
        _place_on_random_cells(state, rand)


def _place_on_corners_and_sides(state: State, rand: GoRand) -> None:
    low, middle, high = 1, (state.width - 1) // 2, state.width - 2
    corners = [(low, low), (low, high), (high, low), (high, high)]
    sides = [(low, middle), (middle, low), (middle, high), (high, middle)]
    rand.shuffle(corners)
    rand.shuffle(sides)
    put_snakes(state, corners + sides if rand.intn(2) == 0 else sides + corners)


def _standard_quadrants(width: int) -> list[list[Point]]:
    """List the four start cells of each quadrant of a square board.

    The start cells are symmetric.
    """
    quadrant = width // 2
    near = quadrant // 3
    far = quadrant - near
    first = [(near, near), (far, near), (near, far), (far, far)]
    last = width - 1
    return [
        first,
        [(last - x, y) for x, y in first],
        [(x, last - y) for x, y in first],
        [(last - x, last - y) for x, y in first],
    ]


def place_in_quadrants(state: State, rand: GoRand, quadrants: Sequence[Sequence[Point]]) -> None:
    """Assign the snakes to the quadrants in turn, each to a random free start cell.

    Raises:
        RulesError: If there are more snakes than start cells.
    """
    places = [list(cells) for cells in quadrants]
    if len(state.snakes) > sum(map(len, places)):
        raise RulesError(
            f"{len(state.snakes)} snakes are too many for {sum(map(len, places))} start cells: "
            "use fewer snakes"
        )
    turn = rand.intn(len(places))
    for snake in state.snakes:
        cells = places[turn]
        _put_snake(snake, remove_random_cell(cells, rand))
        turn = (turn + 1) % len(places)


def remove_random_cell(
    cells: list[Point], rand: GoRand, start: int = 0, stop: int | None = None
) -> Point:
    """Remove a random cell of ``cells[start:stop]`` from ``cells``, and return the cell.

    The last cell of the list moves to the free index.
    """
    index = start + rand.intn((len(cells) if stop is None else stop) - start)
    cell = cells[index]
    cells[index] = cells[-1]
    cells.pop()
    return cell


def _place_on_random_cells(state: State, rand: GoRand) -> None:
    """Place each snake on a random cell with even x + y, so that all heads can meet."""
    middle = _center_cell(state)
    for i, snake in enumerate(state.snakes):
        taken = {s.head for s in state.snakes[:i]} | set(state.food) | {middle}
        cells = [
            (x, y)
            for x in range(state.width)
            for y in range(state.height)
            if (x + y) % 2 == 0 and (x, y) not in taken
        ]
        if not cells:
            raise RulesError(
                f"a board of {state.width}x{state.height} has start cells for {i} snakes only, "
                f"got {len(state.snakes)}: use fewer snakes or a larger board"
            )
        _put_snake(snake, cells[rand.intn(len(cells))])


def _center_cell(state: State) -> Point:
    """Return the center cell of the board.

    For an even width or height, the lower of the two middle coordinates is used.
    """
    return (state.width - 1) // 2, (state.height - 1) // 2


def place_start_food(state: State, rand: GoRand) -> None:
    """Place the initial food.

    The food is beside every snake and in the center, or on random cells.
    """
    width, height = state.width, state.height
    if width != height or width < _MIN_BOARD_SIZE_FIXED_STARTS:
        for _ in state.snakes:
            cells = free_cells(state)
            if cells:
                state.food.append(cells[rand.intn(len(cells))])
        return
    if len(state.snakes) <= _MAX_SNAKES_WITH_FOOD or width * height >= _MIN_LARGE_BOARD_CELLS:
        place_food_beside(state, rand)
    middle = _center_cell(state)
    if any(middle in snake.body for snake in state.snakes):
        raise RulesError(
            f"a snake starts on the center {middle} of a board of {width}x{height}, which is "
            "reserved for food: use fewer snakes or another board size"
        )
    state.food.append(middle)


def place_food_beside(state: State, rand: GoRand, blocked: Container[Point] = ()) -> None:
    """Place one piece of food per snake, on a cell that is not in ``blocked``.

    The food is diagonal to the head and away from the center.
    """
    for snake in state.snakes:
        cells = [
            cell
            for cell in _diagonal_cells(state, snake.head)
            if cell not in state.food and cell not in blocked
        ]
        if not cells:
            raise RulesError(
                f"no cell for the initial food of snake {snake.id!r} at {snake.head}: "
                "use fewer snakes or a larger board"
            )
        state.food.append(cells[rand.intn(len(cells))])


def _diagonal_cells(state: State, head: Point) -> list[Point]:
    """List the diagonal neighbors of ``head`` away from the center, except corners."""
    middle = _center_cell(state)
    last = state.width - 1, state.height - 1
    cells = [(head[0] + dx, head[1] + dy) for dx, dy in _DIAGONALS]
    return [
        cell
        for cell in cells
        if cell != middle
        and any((head[axis] - cell[axis]) * (middle[axis] - head[axis]) > 0 for axis in (0, 1))
        and not (cell[0] in (0, last[0]) and cell[1] in (0, last[1]))
    ]

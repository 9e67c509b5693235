"""Random placement of food on free cells during a game."""

from __future__ import annotations

from .gorand import GoRand
from .state import Game, Point, State


def game_rand(game: Game, offset: int = 0) -> GoRand:
    """Create a random number generator with the seed ``game.seed + offset``.

    The setup and the hazard patterns use offset 0. The food of a turn uses the turn number as
    offset.
    """
    return GoRand(game.seed + offset)


def neighbors(cell: Point) -> set[Point]:
    """Return the four neighbors of ``cell``, including cells off the board."""
    x, y = cell
    return {(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)}


def free_cells(state: State, *, avoid_hazards: bool = False) -> list[Point]:
    """List the free cells for new food, ordered by x, then by y.

    Cells with food or living bodies and the neighbors of living heads are not free. Bodies of
    eliminated snakes do not block cells.

    Args:
        state: Current position.
        avoid_hazards: Whether to exclude cells with hazards.
    """
    taken = set(state.food)
    for snake in state.snakes:
        if snake.alive:
            taken.update(snake.body)
            taken |= neighbors(snake.head)
    if avoid_hazards:
        taken.update(state.hazards)
    height = range(state.height)
    return [(x, y) for x in range(state.width) for y in height if (x, y) not in taken]


def _place_food(state: State, rand: GoRand, count: int, *, avoid_hazards: bool = False) -> None:
    """Place ``count`` pieces of food on random free cells.

    If too few cells are free, the function places food on all free cells.
    """
    cells = free_cells(state, avoid_hazards=avoid_hazards)
    rand.shuffle(cells)
    state.food.extend(cells[:count])


def standard_food(game: Game, state: State, *, avoid_hazards: bool = False) -> None:
    """Place the food of one turn as on the standard map.

    If there is less food than the minimum, the missing food is added. Otherwise, one piece of food
    is added at random. As in the official engine, the probability of this food is
    ``food_spawn_chance - 1`` percent.
    """
    rand = game_rand(game, state.turn)
    missing = game.settings.minimum_food - len(state.food)
    if missing > 0:
        _place_food(state, rand, missing, avoid_hazards=avoid_hazards)
        return
    chance = game.settings.food_spawn_chance
    if chance > 0 and 100 - rand.intn(100) < chance:
        _place_food(state, rand, 1, avoid_hazards=avoid_hazards)

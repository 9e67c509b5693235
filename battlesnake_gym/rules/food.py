"""Food: which cells are free for it, and how it appears during the game."""

from __future__ import annotations

from .gorand import GoRand
from .state import Game, Point, State


def game_rand(game: Game, offset: int = 0) -> GoRand:
    """A fresh generator ``offset`` turns after the game's seed; every use makes its own.

    The set-up and the hazard patterns use offset 0, the food of a turn uses that turn.
    """
    return GoRand(game.seed + offset)


def beside(cell: Point) -> set[Point]:
    """The four cells around one, on the board or not."""
    x, y = cell
    return {(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)}


def free_cells(state: State, *, spare_hazards: bool = False) -> list[Point]:
    """The cells that may get food, column by column from the left, each from the bottom.

    Food, living bodies and the neighbours of living heads are not free. Dead bodies do not count.
    With ``spare_hazards`` hazards are not free either.
    """
    taken = set(state.food)
    for snake in state.snakes:
        if snake.alive:
            taken.update(snake.body)
            taken |= beside(snake.head)
    if spare_hazards:
        taken.update(state.hazards)
    height = range(state.height)
    return [(x, y) for x in range(state.width) for y in height if (x, y) not in taken]


def place_food(state: State, rand: GoRand, count: int, *, spare_hazards: bool = False) -> None:
    """Add ``count`` food on random free cells, or as many as there are cells."""
    cells = free_cells(state, spare_hazards=spare_hazards)
    rand.shuffle(cells)
    state.food.extend(cells[:count])


def standard_food(game: Game, state: State, *, spare_hazards: bool = False) -> None:
    """The food of one turn: fill up to the minimum, or else perhaps add one.

    The roll passes in ``food_spawn_chance - 1`` of 100 cases, as in the reference.
    """
    rand = game_rand(game, state.turn)
    missing = game.settings.minimum_food - len(state.food)
    if missing > 0:
        place_food(state, rand, missing, spare_hazards=spare_hazards)
        return
    chance = game.settings.food_spawn_chance
    if chance > 0 and 100 - rand.intn(100) < chance:
        place_food(state, rand, 1, spare_hazards=spare_hazards)

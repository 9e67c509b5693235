"""Map ``arcade_maze``: the maze of an arcade game.

The maze has tunnels for wrapped rulesets.
"""

from __future__ import annotations

from ..food import game_rand
from ..placement import put_snakes
from ..state import Game, Point, State
from .base import Map

_WIDTH, _HEIGHT = 19, 21
_MAZE = """
#.###############.#
#........#........#
#.##.###.#.###.##.#
#.................#
#.##.#.#####.#.##.#
#....#...#...#....#
#..#.###.#.###.#..#
#..#.#.......#.#..#
####.#.#.#.#.#.####
.......#...#.......
####.#.#.#.#.#.####
#..#.#.......#.#..#
#..#.#.#####.#.#..#
#........#........#
#.##.###.#.###.##.#
#..#...........#..#
##.#.#.#####.#.#.##
#....#...#...#....#
#.######.#.######.#
#.................#
#.###############.#
"""
WALL_CELLS: list[Point] = [
    (x, _HEIGHT - 1 - row)
    for row, line in enumerate(_MAZE.split())
    for x, mark in enumerate(line)
    if mark == "#"
]
CORNER_STARTS: list[Point] = [(4, 7), (14, 7), (4, 17), (14, 17)]
LATER_STARTS: list[Point] = [(9, 9), (9, 13)]
_FIRST_FOOD: Point = (9, 11)
FOOD_CELLS: list[Point] = [
    *((1, 1), (3, 11), (4, 7), (4, 17), (9, 1), (9, 5)),
    *((9, 11), (9, 17), (14, 7), (14, 17), (15, 11), (17, 1)),
]


def _setup(game: Game, state: State) -> None:
    """Place the snakes, the walls and one piece of food.

    The first four snakes start in the corners, and further snakes start in the middle.
    """
    corners = list(CORNER_STARTS)
    game_rand(game).shuffle(corners)
    put_snakes(state, corners + LATER_STARTS)
    state.hazards = list(WALL_CELLS)
    if game.settings.minimum_food > 0:
        state.food.append(_FIRST_FOOD)


def _update(game: Game, state: State) -> None:
    """Add one piece of food on a free food cell at random.

    The probability is ``food_spawn_chance + 1`` percent.
    """
    chance = game.settings.food_spawn_chance
    if chance == 0:
        return
    rand = game_rand(game, state.turn)
    if rand.intn(100) > chance:
        return
    places = list(FOOD_CELLS)
    rand.shuffle(places)
    taken = set(state.food).union(*(snake.body for snake in state.snakes))
    free = [place for place in places if place not in taken]
    state.food.extend(free[:1])


ARCADE_MAZE = Map(
    "arcade_maze",
    "a maze with tunnels, best with the wrapped rules",
    _setup,
    _update,
    sizes=((_WIDTH, _HEIGHT),),
    players=(1, 6),
    sizes_enforced=True,
    players_enforced=True,
)

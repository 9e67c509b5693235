"""The stages of a turn, each one rule of the game.

A stage changes the state in place. It sees the turn before the moves; eliminations are dated to the
turn that comes out. At the very start of a game all stages run once without moves: only the two of
the constrictor do anything then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .errors import RulesError
from .royale import royale_hazards
from .state import MAX_HEALTH, OFFSETS, Game, Point, Snake, State

Moves = Mapping[str, str]
"""Snake id to move; any other text than the four moves means straight on."""


@dataclass(frozen=True)
class Stage:
    """One rule with the name that it has in a ruleset."""

    name: str
    apply: Callable[[Game, State, Moves], None]


def is_initialisation(state: State, moves: Moves) -> bool:
    """Whether this is the pass before the first turn."""
    return state.turn <= 0 and not moves


def living(state: State) -> list[Snake]:
    """The snakes that still play, in their order."""
    return [snake for snake in state.snakes if not snake.eliminated_cause]


def move(game: Game, state: State, moves: Moves) -> None:
    """Every living snake gets a new head and loses its last segment; without moves none does.

    Raises `RulesError` where only some of the living snakes have a move.
    """
    if not moves:
        return
    players = living(state)
    for snake in players:
        if snake.id not in moves:
            raise RulesError(
                f"moves has no entry for snake {snake.id!r}: every living snake needs a move "
                "(any text that is no move means straight on)"
            )
    for snake in players:
        dx, dy = OFFSETS[legal_move(snake, moves[snake.id])]
        x, y = snake.body[0]
        snake.body.insert(0, (x + dx, y + dy))
        snake.body.pop()


def legal_move(snake: Snake, answer: str) -> str:
    """The answer where it is a move, else the default: the direction the snake goes already."""
    return answer if answer in OFFSETS else default_move(snake.body)


def default_move(body: list[Point]) -> str:
    """Straight on from the neck through the head, also across a border; up from a stacked start."""
    head_x, head_y = body[0]
    neck_x, neck_y = body[1] if len(body) > 1 else body[0]
    ahead = (head_x - neck_x, head_y - neck_y)
    for name, offset in OFFSETS.items():
        if offset == ahead:
            return name
    if head_x == 0 and neck_x > 0:
        return "right"
    if neck_x == 0 and head_x > 0:
        return "left"
    if head_y == 0 and neck_y > 0:
        return "up"
    if neck_y == 0 and head_y > 0:
        return "down"
    return "up"


def move_wrapped(game: Game, state: State, moves: Moves) -> None:
    """As `move`, then a head that left the board enters again on the other side."""
    move(game, state, moves)
    for snake in living(state):
        x, y = snake.body[0]
        snake.body[0] = wrap(x, state.width), wrap(y, state.height)


def wrap(coordinate: int, size: int) -> int:
    """The coordinate, or the opposite border where it lies off the board."""
    if coordinate < 0:
        return size - 1
    return 0 if coordinate >= size else coordinate


def starve(game: Game, state: State, moves: Moves) -> None:
    """Every living snake loses one health."""
    if is_initialisation(state, moves):
        return
    for snake in living(state):
        snake.health -= 1


def hazard(game: Game, state: State, moves: Moves) -> None:
    """A head on a hazard takes its damage, once for each layer, unless food lies there."""
    if is_initialisation(state, moves):
        return
    for snake in living(state):
        layers = state.hazards.count(snake.head)
        if layers and snake.head not in state.food:
            snake.health = max(0, health_after_layers(game, snake.health, layers))
            if not snake.health:
                eliminate(snake, "hazard", state.turn + 1)


def health_after_layers(game: Game, health: int, layers: int) -> int:
    """The health after ``layers`` of hazard, which may heal; 0 or less is death."""
    return min(MAX_HEALTH, health - layers * game.settings.hazard_damage_per_turn)


def health_after(game: Game, health: int, *, food: bool, layers: int) -> int:
    """The health after a turn that ends on a cell with ``layers`` of hazard; 0 or less is death.

    The stages `starve`, `hazard` and `feed` for a snake with ``health``, before it moves.

    >>> [health_after(Game(), 20, food=food, layers=1) for food in (False, True)]
    [5, 100]
    """
    return MAX_HEALTH if food else health_after_layers(game, health - 1, layers)


def eliminate(snake: Snake, cause: str, turn: int, by: str = "") -> None:
    """Take a snake out of the game."""
    snake.eliminated_cause = cause
    snake.eliminated_by = by
    snake.eliminated_on = turn


def feed(game: Game, state: State, moves: Moves) -> None:
    """A head on food: full health and one segment more at the tail. All heads there eat it."""
    left = []
    for cell in state.food:
        eaters = [snake for snake in living(state) if snake.head == cell]
        for snake in eaters:
            snake.health = MAX_HEALTH
            grow(snake)
        if not eaters:
            left.append(cell)
    state.food = left


def grow(snake: Snake) -> None:
    """One segment more, on the cell of the last one."""
    snake.body.append(snake.body[-1])


def eliminate_losers(game: Game, state: State, moves: Moves) -> None:
    """The starved and those off the board leave first; then all collisions at the same time."""
    if is_initialisation(state, moves):
        return
    turn = state.turn + 1
    for snake in living(state):
        if snake.health <= 0:
            eliminate(snake, "out-of-health", turn)
        elif is_off_board(snake, state.width, state.height):
            eliminate(snake, "wall-collision", turn)
    players = living(state)
    longest_first = sorted(players, key=lambda snake: -snake.length)
    collisions = [(snake, collision(snake, longest_first)) for snake in players]
    for snake, (cause, by) in collisions:
        if cause:
            eliminate(snake, cause, turn, by)


def is_off_board(snake: Snake, width: int, height: int) -> bool:
    """Whether any segment lies off the board."""
    return any(not (0 <= x < width and 0 <= y < height) for x, y in snake.body)


def collision(snake: Snake, longest_first: list[Snake]) -> tuple[str, str]:
    """What the snake's head ran into: the cause and the culprit's id, or two empty strings."""
    head = snake.head
    if head in snake.body[1:]:
        return "snake-self-collision", snake.id
    others = [other for other in longest_first if other is not snake]
    for other in others:
        if head in other.body[1:]:
            return "snake-collision", other.id
    for other in others:
        if head == other.head and other.length >= snake.length:
            return "head-collision", other.id
    return "", ""


def wipe_food(game: Game, state: State, moves: Moves) -> None:
    """The constrictor game has no food."""
    state.food = []


def always_grow(game: Game, state: State, moves: Moves) -> None:
    """Every snake, dead ones included, has full health and never frees its tail."""
    for snake in state.snakes:
        snake.health = MAX_HEALTH
        if snake.body[-2:] != [snake.body[-1]] * 2:
            grow(snake)


def shrink(game: Game, state: State, moves: Moves) -> None:
    """The hazards of the royale ruleset replace all others, every turn."""
    if is_initialisation(state, moves):
        return
    state.hazards = royale_hazards(game, state)

"""Stages of a turn, the rulesets, which list their stages, and the end of a game.

Each stage is one rule of the game. A stage changes the state in place. During a stage,
``state.turn`` is the turn before the moves; eliminations have the number of the following turn. At
the start of a game, all stages run once without moves. In this run, only the two stages of the
constrictor ruleset have an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .food import game_rand
from .state import MAX_HEALTH, OFFSETS, Game, Point, RulesError, Snake, State

Moves = Mapping[str, str]
"""Moves by snake id.

Text other than the four moves selects the default move.
"""


Stage = Callable[[Game, State, Moves], None]
"""A stage of a turn: one rule, which changes the state in place."""


def _move(game: Game, state: State, moves: Moves) -> None:
    """Move every living snake: add a head segment, and remove the last segment.

    Without moves, all snakes stay in place.

    Raises:
        RulesError: If only some of the living snakes have a move.
    """
    if not moves:
        return
    players = state.living
    for snake in players:
        if snake.id not in moves:
            raise RulesError(
                f"moves has no entry for snake {snake.id!r}: every living snake needs a move "
                "(text other than the four moves means straight ahead)"
            )
    for snake in players:
        requested = moves[snake.id]
        dx, dy = OFFSETS[requested if requested in OFFSETS else default_move(snake.body)]
        x, y = snake.body[0]
        snake.body.insert(0, (x + dx, y + dy))
        snake.body.pop()


def default_move(body: list[Point]) -> str:
    """Return the default move, which continues in the direction of the snake.

    The snake's direction points from the neck to the head, which may be on opposite edges of the
    board. The default move of a body stacked on one cell is up.
    """
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


def _move_wrapped(game: Game, state: State, moves: Moves) -> None:
    """Move all snakes like `_move`, with wrapped edges of the board.

    A head that leaves the board enters the opposite side.
    """
    _move(game, state, moves)
    for snake in state.living:
        x, y = snake.body[0]
        snake.body[0] = _wrap(x, state.width), _wrap(y, state.height)


def _wrap(coordinate: int, size: int) -> int:
    """Return the coordinate, or the coordinate of the opposite edge if off the board."""
    if coordinate < 0:
        return size - 1
    return 0 if coordinate >= size else coordinate


def _starve(game: Game, state: State, moves: Moves) -> None:
    """Subtract one health from every living snake."""
    for snake in state.living:
        snake.health -= 1


def _damage_on_hazards(game: Game, state: State, moves: Moves) -> None:
    """Reduce the health of snakes with the head on hazards without food."""
    for snake in state.living:
        layers = state.hazards.count(snake.head)
        if layers and snake.head not in state.food:
            snake.health = max(0, _health_after_layers(game, snake.health, layers))
            if not snake.health:
                snake.eliminate("hazard", state.turn + 1)


def _health_after_layers(game: Game, health: int, layers: int) -> int:
    """Return the health after the damage of ``layers`` hazard layers.

    A health of 0 or less is fatal. Negative damage heals, up to the maximum health.
    """
    return min(MAX_HEALTH, health - layers * game.settings.hazard_damage_per_turn)


def health_after(game: Game, health: int, *, food: bool, layers: int) -> int:
    """Return a snake's health after a move to a cell.

    A health of 0 or less means elimination. The function combines the stages `_starve`,
    `_damage_on_hazards` and `_feed`.

    Args:
        game: Rules of the game.
        health: Health before the move.
        food: Whether the cell contains food.
        layers: Number of hazard layers on the cell.

    >>> [health_after(Game(), 20, food=food, layers=1) for food in (False, True)]
    [5, 100]
    """
    return MAX_HEALTH if food else _health_after_layers(game, health - 1, layers)


def _feed(game: Game, state: State, moves: Moves) -> None:
    """Feed snakes with the head on food: restore the health, and add one segment.

    If several heads are on the same food, all these snakes eat.
    """
    left = []
    for cell in state.food:
        eaters = [snake for snake in state.living if snake.head == cell]
        for snake in eaters:
            snake.health = MAX_HEALTH
            snake.grow()
        if not eaters:
            left.append(cell)
    state.food = left


def _eliminate_losers(game: Game, state: State, moves: Moves) -> None:
    """Eliminate snakes without health or off the board, and then colliding snakes."""
    turn = state.turn + 1
    for snake in state.living:
        if snake.health <= 0:
            snake.eliminate("out-of-health", turn)
        elif not all(map(state.inside, snake.body)):
            snake.eliminate("wall-collision", turn)
    players = state.living
    longest_first = sorted(players, key=lambda snake: -snake.length)
    collisions = [(snake, find_collision(snake, longest_first)) for snake in players]
    for snake, (cause, by) in collisions:
        if cause:
            snake.eliminate(cause, turn, by)


def find_collision(snake: Snake, longest_first: list[Snake]) -> tuple[str, str]:
    """Return the cause of a collision and the other snake's id, or two empty strings."""
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


def _wipe_food(game: Game, state: State, moves: Moves) -> None:
    """Remove all food, because the constrictor ruleset has no food."""
    state.food = []


def _always_grow(game: Game, state: State, moves: Moves) -> None:
    """Restore the health of every snake, and stack every tail.

    The stage also changes eliminated snakes, as in the official engine.
    """
    for snake in state.snakes:
        snake.health = MAX_HEALTH
        if snake.body[-2:] != [snake.body[-1]] * 2:
            snake.grow()


def royale_hazards(game: Game, state: State) -> list[Point]:
    """List the hazards of the ruleset and the map ``royale``: the cells outside a rectangle.

    The rectangle shrinks on one random side every ``shrink_every_n_turns`` turns.
    """
    rand = game_rand(game)
    left, right, bottom, top = 0, state.width - 1, 0, state.height - 1
    for _ in range((state.turn + 1) // game.settings.shrink_every_n_turns):
        if left > right or bottom > top:
            # The rectangle is empty, so further draws would have no effect.
            break
        side = rand.intn(4)
        left += side == 0
        right -= side == 1
        bottom += side == 2
        top -= side == 3
    return [
        (x, y)
        for x in range(state.width)
        for y in range(state.height)
        if not (left <= x <= right and bottom <= y <= top)
    ]


def check_shrink_interval(game: Game, state: State) -> None:
    """Raise `RulesError` if ``shrink_every_n_turns`` is less than 1."""
    every = game.settings.shrink_every_n_turns
    if every < 1:
        is_royale = "royale" in (game.ruleset, game.map)
        where = "in a royale game" if is_royale else f"on map {game.map!r}"
        raise RulesError(
            f"shrink_every_n_turns must be 1 or more {where}, got {every}: "
            "set it to 25, the default"
        )


def _shrink(game: Game, state: State, moves: Moves) -> None:
    """Replace all hazards by the hazards of the royale ruleset."""
    state.hazards = royale_hazards(game, state)


STAGES: dict[str, Stage] = {
    "move": _move,
    "starve": _starve,
    "hazard": _damage_on_hazards,
    "feed": _feed,
    "eliminate": _eliminate_losers,
    "shrink": _shrink,
    "move_wrapped": _move_wrapped,
    "wipe_food": _wipe_food,
    "always_grow": _always_grow,
}
"""All stages by name."""

_STANDARD_STAGES = ("move", "starve", "hazard", "feed", "eliminate")
_WRAPPED_STAGES = ("move_wrapped", *_STANDARD_STAGES[1:])
_CONSTRICTOR_STAGES = ("wipe_food", "always_grow")
_STAGES_BEFORE_FIRST_TURN = ("feed", *_CONSTRICTOR_STAGES)

RULESETS: dict[str, tuple[str, ...]] = {
    "standard": _STANDARD_STAGES,
    "solo": _STANDARD_STAGES,
    "royale": (*_STANDARD_STAGES, "shrink"),
    "wrapped": _WRAPPED_STAGES,
    "constrictor": _STANDARD_STAGES + _CONSTRICTOR_STAGES,
    "wrapped_constrictor": _WRAPPED_STAGES + _CONSTRICTOR_STAGES,
}
"""Names of the stages of each ruleset, in order."""


def ruleset_name(name: str) -> str:
    """Return the name of the ruleset that ``name`` selects.

    An unknown name selects "standard".
    """
    return name if name in RULESETS else "standard"


def _ruleset_stages(game: Game) -> tuple[str, ...]:
    return RULESETS[ruleset_name(game.ruleset)]


def play_stages(game: Game, state: State, moves: Moves) -> None:
    """Run the stages of a turn, unless the game is over."""
    is_start = state.turn <= 0 and not moves
    for stage in () if is_over(game, state) else _ruleset_stages(game):
        if not is_start or stage in _STAGES_BEFORE_FIRST_TURN:
            STAGES[stage](game, state, moves)


def move_snakes(game: Game, state: State, moves: Moves) -> None:
    """Run only the first stage of a turn, which moves the snakes."""
    STAGES[_ruleset_stages(game)[0]](game, state, moves)


def wraps(game: Game) -> bool:
    """Return whether the rules wrap the edges of the board.

    A snake that leaves a wrapped board enters the board on the opposite side.
    """
    return _ruleset_stages(game)[0] == "move_wrapped"


def grows_always(game: Game) -> bool:
    """Return whether snakes grow on every turn, so that no tail cell becomes free."""
    return _ruleset_stages(game)[-1] == "always_grow"


def is_over(game: Game, state: State) -> bool:
    """Return whether the game has ended, because at most one snake is living.

    In the ruleset ``solo`` and with ``game.solo``, the game ends when no snake is living.
    """
    return len(state.living) < (1 if game.is_solo else 2)

"""Functions that start a game and play single turns."""

from __future__ import annotations

from collections.abc import Sequence

from battlesnake_gym.common.extensions import unregistered_name_message

from .maps import MAPS, Map, known_maps
from .placement import MAX_SNAKES
from .stages import Moves, check_shrink_interval, play_stages
from .state import Game, RulesError, Snake, State

MAX_SIZE = 25
DEFAULT_BOARD_SIZE = 11


def start(game: Game, width: int, height: int, snake_ids: Sequence[str]) -> State:
    """Create the first position of a game.

    The function runs the map's setup and the rules without moves.

    Args:
        game: Ruleset, map, settings and seed.
        width: Board width in cells, 1 to 25.
        height: Board height in cells, 1 to 25.
        snake_ids: Distinct ids of at most 16 snakes.

    Raises:
        RulesError: If an argument is invalid, or if the map rejects the size or the number of
            snakes.
    """
    board_map = _check_start(game, width, height, snake_ids)
    state = State(0, width, height, [Snake(snake_id, []) for snake_id in snake_ids])
    _check_turn(game, state, board_map)
    board_map.setup(game, state)
    play_stages(game, state, {})
    state.new_food = len(state.food)
    return state


def step(game: Game, state: State, moves: Moves) -> None:
    """Play one turn in place.

    If the game is over, the rules are skipped: only the map's update runs and the turn number
    increases, as in the official engine.

    Args:
        game: Rules of the game.
        state: Position, which is changed in place.
        moves: Move of every living snake, by id; other ids are ignored. The default move replaces
            text other than the four moves.

    Raises:
        RulesError: If a living snake has no move or the map cannot continue. The state does not
            change in this case, with one exception: ``solo_maze`` rejects extreme levels after the
            moves. Such levels require rules that remove food or hazards.
    """
    board_map = _get_map(game.map) if game.map else None
    _check_turn(game, state, board_map)
    play_stages(game, state, moves)
    old_food = len(state.food)
    if board_map:
        board_map.update(game, state)
    state.new_food = max(0, len(state.food) - old_food)
    state.turn += 1


def _check_turn(game: Game, state: State, board_map: Map | None) -> None:
    if game.ruleset == "royale":
        check_shrink_interval(game, state)
    if board_map:
        board_map.check_turn(game, state)


def _get_map(name: str) -> Map:
    if name not in MAPS and name not in known_maps():
        raise RulesError(unregistered_name_message("map", name, MAPS, "battlesnake-gym maps"))
    return MAPS[name]


def _check_start(game: Game, width: int, height: int, snake_ids: Sequence[str]) -> Map:
    """Check the arguments of `start` and return the map."""
    if not game.map:
        raise RulesError("map '' places no snakes: choose a map, or create a State with snakes")
    board_map = _get_map(game.map)
    for field, size in (("width", width), ("height", height)):
        if not 1 <= size <= MAX_SIZE:
            raise RulesError(
                f"{field} must be between 1 and {MAX_SIZE}, got {size}: change the board size"
            )
    if game.seed == 0 or not -(2**63) <= game.seed < 2**63:
        raise RulesError(
            f"seed must be a signed 64-bit integer other than 0, got {game.seed}: "
            "use 1 or any other integer"
        )
    if len(set(snake_ids)) != len(snake_ids):
        raise RulesError(f"snake_ids must all differ, got {list(snake_ids)}: rename the duplicates")
    if len(snake_ids) > MAX_SNAKES:
        raise RulesError(f"snake_ids may name at most {MAX_SNAKES} snakes, got {len(snake_ids)}")
    board_map.check(width, height, len(snake_ids))
    return board_map

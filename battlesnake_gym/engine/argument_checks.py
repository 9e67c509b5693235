"""Checks of the arguments of `engine.Games`, which run before any game is created."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.limited_view import check_view_radius
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.game_spec import STANDARD_GAME, IntPerGame
from battlesnake_gym.rules import Game, RulesError, State, start
from battlesnake_gym.rules.maps import MAPS
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.rules.play import MAX_SIZE
from battlesnake_gym.rules.stages import check_shrink_interval, ruleset_name

NO_MOVE = 4
"""Action of a snake without a valid move; the engine plays the default move."""

FOOD_RNGS = ("fast", "official")
"""Names of the random number streams of food."""

_MAX_VALUES = {"width": MAX_SIZE, "height": MAX_SIZE, "num_snakes": MAX_SNAKES}

GAME_ARRAYS = {"turn": np.int32, "over": np.bool_, "seed": np.int64, "new_food": np.uint16}
"""Dtypes of the engine arrays with shape [N]."""

SEAT_ARRAYS = {
    "alive": np.bool_,
    "health": np.int16,
    "length": np.int32,
    "cause": np.uint8,
    "killer": np.int8,
    "ate": np.bool_,
}
"""Dtypes of the engine arrays with shape [N, S].

The arrays ``heads`` and ``facing`` are missing here, because their shapes or C records differ.
"""


class GameArrays:
    """Arrays that both engines provide.

    `engine.EngineGames` describes each array.
    """

    turn: NDArray[np.int32]
    over: NDArray[np.bool_]
    seed: NDArray[np.int64]
    new_food: NDArray[np.uint16]
    alive: NDArray[np.bool_]
    health: NDArray[np.int16]
    length: NDArray[np.int32]
    heads: NDArray[np.int16]
    cause: NDArray[np.uint8]
    killer: NDArray[np.int8]
    ate: NDArray[np.bool_]
    facing: NDArray[np.uint8]

    def _set_attributes(self, sizes: NDArray[np.int32], game: Game, food_rng: str) -> None:
        self.num_games = len(sizes)
        self.game = game
        self.food_rng = food_rng
        self._sizes = sizes.tolist()
        width, height, self.num_snakes = sizes.max(axis=0).tolist()
        self._largest = width, height, self.num_snakes


def check_game_arguments(
    num_games: int,
    width: IntPerGame = EnvConfig.width,
    height: IntPerGame = EnvConfig.height,
    num_snakes: IntPerGame = EnvConfig.num_snakes,
    game: Game = STANDARD_GAME,
    food_rng: str = EnvConfig.food_rng,
) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    """Check the arguments of new games.

    Returns:
        The results of `_game_sizes` and `_rule_values`.
    """
    if food_rng not in FOOD_RNGS:
        raise ValueError(f"food_rng must be one of {', '.join(FOOD_RNGS)}, got {food_rng!r}")
    sizes = _game_sizes(num_games, width=width, height=height, num_snakes=num_snakes)
    numbers = _rule_values(game, food_rng)
    _check_map_support(game, sizes)
    return sizes, numbers


def _game_sizes(num_games: int, **fields: IntPerGame) -> NDArray[np.int32]:
    """Return int32 [N, 3] with one row (width, height, num_snakes) per game.

    Raises:
        ValueError: If a value is not an integer or out of range.
    """
    if type(num_games) is bool or not isinstance(num_games, int | np.integer) or num_games < 1:
        raise ValueError(
            f"num_games or num_envs must be a whole number of at least 1, got {num_games!r}"
        )
    sizes = np.empty((num_games, len(fields)), np.int32)
    for column, (name, value) in enumerate(fields.items()):
        given = np.asarray(value)
        if given.dtype.kind not in "iu" or given.shape not in ((), (num_games,)):
            raise ValueError(
                f"{name} must be one integer or {num_games} integers, one per game, got {value!r}"
            )
        if np.any(given < 1) or np.any(given > _MAX_VALUES[name]):
            raise ValueError(f"{name} must be between 1 and {_MAX_VALUES[name]}, got {value!r}")
        sizes[:, column] = given
    return sizes


def _check_map_support(game: Game, sizes: NDArray[np.int32]) -> None:
    """Raise `RulesError` if the map rejects a board size or a number of snakes."""
    if not game.map:
        return
    for width, height, num_snakes in np.unique(sizes, axis=0).tolist():
        start(replace(game, seed=1), width, height, default_snake_names(num_snakes))


def check_load(games: Game, largest: tuple[int, int, int], state: State, given: Game) -> None:
    """Check that the games can load ``state`` with the rules ``given``.

    Args:
        games: Rules of the games.
        largest: Maximum width, height and number of snakes of the games.
        state: Position to load.
        given: Rules of the position.

    Raises:
        ValueError: If the games cannot load the position.
    """
    if _shared_rules(given) != _shared_rules(games):
        raise ValueError(
            f"rules must equal the rules of these games, {_shared_rules(games)}, "
            f"got {_shared_rules(given)}; "
            "create new Games to use other rules"
        )
    if not 1 <= state.turn + 1 < 2**31 - 10**6:
        raise ValueError(f"state.turn must be between 0 and {2**31 - 10**6}, got {state.turn}")
    found = state.width, state.height, len(state.snakes)
    for (name, _), size, most in zip(_MAX_VALUES.items(), found, largest, strict=True):
        if size > most or (size < 1 and name != "num_snakes"):
            raise ValueError(
                f"state has {name} {size}, but the maximum of these games is {most}; "
                "create larger Games"
            )
    if games.map:
        try:
            MAPS[games.map].check(*found)
        except RulesError as error:
            raise ValueError(f"state does not fit the games' map: {error}") from error


def _shared_rules(game: Game) -> tuple[Any, ...]:
    """Return the rule fields that all games of a batch must share."""
    return ruleset_name(game.ruleset), game.map, game.settings, game.solo


def _rule_values(game: Game, food_rng: str) -> tuple[Any, ...]:
    """Return the rules as a tuple in the order of the compiled engine's constructor.

    Raises:
        ValueError: If a setting does not fit in 32 bits.
    """
    ruleset = ruleset_name(game.ruleset)
    radius = game.settings.view_radius
    numbers = asdict(game.settings) | {"view_radius": -1 if radius is None else radius}
    for name, number in numbers.items():
        if not -(2**31) <= number < 2**31:
            raise ValueError(f"settings.{name} must fit in 32 bits, got {number}")
    check_view_radius(radius, "settings.view_radius")
    if ruleset == "royale":
        check_shrink_interval(game, State(0, 0, 0, []))
    # Any larger radius has the same effect.
    numbers["view_radius"] = min(numbers["view_radius"], 2 * MAX_SIZE) + 1
    return (
        ruleset.startswith("wrapped"),
        ruleset.endswith("constrictor"),
        ruleset == "royale",
        game.solo or ruleset == "solo",
        food_rng == "official",
        *numbers.values(),
    )


def default_snake_names(count: int) -> list[str]:
    """Return the default ids of ``count`` snakes, one per seat."""
    return [f"snake_{seat}" for seat in range(count)]

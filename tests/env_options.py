"""Every option of an environment: a value that is no default, and its effect."""

from collections.abc import Callable
from typing import Any

from battlesnake_gym import VectorBattlesnake
from battlesnake_gym.rules import State

STARTS, FOOD_AT = [[1, 1], [5, 5]], [[3, 3]]

BASE: dict[str, Any] = {"num_snakes": 2}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("num_snakes", {"num_snakes": 3}),
    ("width", {"width": 9}),
    ("height", {"height": 9}),
    ("ruleset", {"ruleset": "wrapped"}),
    ("map", {"map": "royale"}),
    ("settings", {"settings": {"minimum_food": 5}}),
    ("observation", {"observation": "territory"}),
    ("frame_stack", {"frame_stack": 2}),
    ("rewards", {"rewards": {"ate_food": 2.0}}),
    ("action_mask", {"action_mask": "wall"}),
    ("max_turns", {"max_turns": 9}),
    ("food_rng", {"food_rng": "fast"}),
    ("food_rng", {"food_rng": "official"}),
    ("start_positions", {"start_positions": STARTS}),
    ("food_positions", {"start_positions": STARTS, "food_positions": FOOD_AT}),
]
"""The field under test, and the options that set it."""

_IN_GAMES: dict[str, Callable[[VectorBattlesnake], Any]] = {
    "num_snakes": lambda games: games.num_snakes,
    "width": lambda games: _first(games).width,
    "height": lambda games: _first(games).height,
    "ruleset": lambda games: games.game.ruleset,
    "map": lambda games: games.game.map,
    "settings": lambda games: {"minimum_food": games.game.settings.minimum_food},
    "observation": lambda games: games.observation.name,
    "frame_stack": lambda games: (
        games.single_observation_space.shape[0] // len(games.observation.planes)
    ),
    "rewards": lambda games: dict(games.rewards.weights),  # type: ignore[union-attr]
    "action_mask": lambda games: games.action_mask_kind,
    "max_turns": lambda games: games.max_turns,
    "food_rng": lambda games: games.games.food_rng,
    "start_positions": lambda games: [list(snake.head) for snake in _first(games).snakes],
    "food_positions": lambda games: [list(cell) for cell in _first(games).food],
}


def _first(games: VectorBattlesnake) -> State:
    games.reset(seed=1)
    return games.games.state(0)


def seen(field: str, games: VectorBattlesnake) -> Any:
    """The value of an option in the games themselves."""
    return _IN_GAMES[field](games)

"""The built-in snakes. Most built-in snakes are short pipelines of shared rules.

``battlesnake-gym snakes`` prints the first line of each docstring.
"""

from __future__ import annotations

from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based.conditions import crowded, food_reachable, hungry, longest
from battlesnake_heuristics.rule_based.filters import ALIVE, SAFE, hazards
from battlesnake_heuristics.rule_based.one_turn_search import foresight
from battlesnake_heuristics.rule_based.pipeline import Pipeline, When
from battlesnake_heuristics.rule_based.preferences import (
    center,
    distance,
    edge,
    food,
    hunt,
    known_food,
    path_to_tail,
    space,
    straight,
    tail,
    territory,
    unharmed,
)
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import FrozenSearch, Search


def _random_snake(seed: int) -> Pipeline:
    """Move randomly, even into walls or the snake's own neck; the weakest snake."""
    return Pipeline(seed=seed)


def _safe_random_snake(seed: int) -> Pipeline:
    """Move randomly, but avoid moves that lose immediately."""
    return Pipeline(*ALIVE, seed=seed)


def _straight_snake(seed: int) -> Pipeline:
    """Go straight ahead until the next cell is blocked."""
    return Pipeline(*ALIVE, straight, seed=seed)


def hungry_snake(seed: int) -> Pipeline:
    """Go for the nearest food, even at full health; avoid only walls and bodies."""
    return Pipeline(*ALIVE, food, seed=seed)


def _hungry_blackout_snake(seed: int) -> Pipeline:
    """Go for seen or remembered food, else for the own tail; made for limited view.

    The starter kit of Battlesnake Blackout has a snake of this description.
    """
    return Pipeline(*ALIVE, When(food_reachable, [known_food], [path_to_tail]), seed=seed)


def _cautious_snake(seed: int) -> Pipeline:
    """Avoid all visible risks, eat when hungry, and keep space to move."""
    return Pipeline(*SAFE, hazards, When(hungry, [food], [space, distance]), seed=seed)


def hunter(seed: int) -> Pipeline:
    """Eat until longer than every opponent, then attack the heads of the opponents."""
    return Pipeline(
        *SAFE, When(hungry, [food], [When(longest, [hunt], [food])]), unharmed, seed=seed
    )


def _tail_chaser(seed: int) -> Pipeline:
    """Follow the snake's own tail, except to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [tail]), unharmed, seed=seed)


def _wall_hugger(seed: int) -> Pipeline:
    """Stay at the edge of the board, except to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [edge]), unharmed, seed=seed)


def _center_snake(seed: int) -> Pipeline:
    """Stay in the center of the board, except to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [center]), unharmed, seed=seed)


def _territorial_snake(seed: int) -> Pipeline:
    """Claim the most cells that it can reach before any other snake."""
    return Pipeline(*SAFE, When(hungry, [food * 3]), territory, food * 0.4, unharmed, seed=seed)


def _decision_tree_snake(seed: int) -> Pipeline:
    """Use a decision tree: eat if hungry, hunt if longest, else grow.

    Without opponents, the snake follows its tail.
    """
    crowd = [When(longest, [territory, hunt * 0.3], [food, territory])]
    return Pipeline(
        *SAFE, When(hungry, [food * 3], [When(crowded, crowd, [tail])]), unharmed, seed=seed
    )


def _lookahead_snake(seed: int) -> Pipeline:
    """Simulate the next turn, assuming the worst reply of the nearest opponent."""
    return Pipeline(*SAFE, When(hungry, [food * 3], [food * 0.4]), foresight, unharmed, seed=seed)


def minimax(seed: int) -> Search:
    """Search in C with a handcrafted evaluation, for the whole time budget."""
    return Search()


def champion(seed: int) -> Search:
    """Search in C with an evaluation learned by self-play."""
    return Search(evaluation=load_builtin(), decoupled=True)


def _minimax_2026(seed: int) -> FrozenSearch:
    """Search with the frozen 2026 version of ``minimax``, for the upper rungs of the ladder."""
    return FrozenSearch()


BUILTIN_SNAKES: dict[str, snakes.StrategyFactory] = {
    "random": _random_snake,
    "safe-random": _safe_random_snake,
    "straight": _straight_snake,
    "hungry": hungry_snake,
    "hungry-blackout": _hungry_blackout_snake,
    "cautious": _cautious_snake,
    "hunter": hunter,
    "tail-chaser": _tail_chaser,
    "wall-hugger": _wall_hugger,
    "center": _center_snake,
    "territory": _territorial_snake,
    "tree": _decision_tree_snake,
    "lookahead": _lookahead_snake,
    "minimax-2026": _minimax_2026,
    "minimax": minimax,
    "champion": champion,
}
"""All built-in snakes by name, roughly from weak to strong."""

for name, factory in BUILTIN_SNAKES.items():
    snakes.register(name, factory, in_engine=name in snakes.ENGINE_SNAKES)

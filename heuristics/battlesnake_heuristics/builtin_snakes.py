"""The named snakes: each a few lines made of the shared rules.

The first line of a docstring is what ``battlesnake-gym snakes`` prints.
"""

from __future__ import annotations

from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based.conditions import crowded, hungry, longest
from battlesnake_heuristics.rule_based.filters import ALIVE, SAFE, hazards
from battlesnake_heuristics.rule_based.one_turn_search import foresight
from battlesnake_heuristics.rule_based.pipeline import Pipeline, When
from battlesnake_heuristics.rule_based.preferences import (
    centre,
    distance,
    edge,
    food,
    hunt,
    space,
    straight,
    tail,
    territory,
    unharmed,
)
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import FrozenSearch, Search


def random(seed: int) -> Pipeline:
    """Any of the four moves, walls and necks included: the worst snake there is."""
    return Pipeline(seed=seed)


def safe_random(seed: int) -> Pipeline:
    """Any move that does not kill it at once."""
    return Pipeline(*ALIVE, seed=seed)


def straight_on(seed: int) -> Pipeline:
    """Straight on until something is in the way."""
    return Pipeline(*ALIVE, straight, seed=seed)


def hungry_snake(seed: int) -> Pipeline:
    """Always after the nearest food, with an eye for walls and bodies only."""
    return Pipeline(*ALIVE, food, seed=seed)


def cautious(seed: int) -> Pipeline:
    """Takes no risk that it can see, eats when hungry, and keeps its room."""
    return Pipeline(*SAFE, hazards, When(hungry, [food], [space, distance]), seed=seed)


def hunter(seed: int) -> Pipeline:
    """Eats until it is the longest, then goes for the heads of the others."""
    return Pipeline(
        *SAFE, When(hungry, [food], [When(longest, [hunt], [food])]), unharmed, seed=seed
    )


def tail_chaser(seed: int) -> Pipeline:
    """Circles behind its own tail and leaves it only to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [tail]), unharmed, seed=seed)


def wall_hugger(seed: int) -> Pipeline:
    """Keeps to the edge of the board and comes in only to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [edge]), unharmed, seed=seed)


def centrist(seed: int) -> Pipeline:
    """Holds the middle of the board and leaves it only to eat."""
    return Pipeline(*SAFE, When(hungry, [food], [centre]), unharmed, seed=seed)


def territorial(seed: int) -> Pipeline:
    """Claims the most cells that it can reach before any other snake."""
    return Pipeline(*SAFE, When(hungry, [food * 3]), territory, food * 0.4, unharmed, seed=seed)


def tree(seed: int) -> Pipeline:
    """A decision tree: alone it circles, hungry it eats, longest it hunts, else it grows."""
    crowd = [When(longest, [territory, hunt * 0.3], [food, territory])]
    return Pipeline(
        *SAFE,
        When(hungry, [food * 3], [When(crowded, crowd, [tail])]),
        unharmed,
        seed=seed,
    )


def lookahead(seed: int) -> Pipeline:
    """Plays the next turn in its head and minds the worst answer of the nearest rival."""
    return Pipeline(*SAFE, When(hungry, [food * 3], [food * 0.4]), foresight, unharmed, seed=seed)


def minimax(seed: int) -> Search:
    """Searches ahead in C for as long as the clock allows; its evaluation was made by hand."""
    return Search()


def champion(seed: int) -> Search:
    """Searches in C, too, with an evaluation learned from its own games."""
    return Search(evaluation=load_builtin(), decoupled=True)


def minimax_2026(seed: int) -> FrozenSearch:
    """The search of 2026, which stays as it is: the ladder's upper rungs, like minimax-2026@100."""
    return FrozenSearch()


BUILTIN_SNAKES: dict[str, snakes.Factory] = {
    "random": random,
    "safe-random": safe_random,
    "straight": straight_on,
    "hungry": hungry_snake,
    "cautious": cautious,
    "hunter": hunter,
    "tail-chaser": tail_chaser,
    "wall-hugger": wall_hugger,
    "centre": centrist,
    "territory": territorial,
    "tree": tree,
    "lookahead": lookahead,
    "minimax-2026": minimax_2026,
    "minimax": minimax,
    "champion": champion,
}
"""All of them by name, roughly from weak to strong."""

for name, factory in BUILTIN_SNAKES.items():
    snakes.register(name, factory, in_engine=name in snakes.ENGINE_SNAKES)

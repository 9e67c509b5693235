"""What speaks against a move, from the worst to what merely costs.

The order of `SAFE` is the order of badness: with nothing safe left, a pipeline that begins with
``*SAFE`` risks a head-to-head rather than hit a wall.
"""

from __future__ import annotations

from battlesnake_heuristics.rule_based.pipeline import Filter
from battlesnake_heuristics.rule_based.view import View


@Filter
def walls(view: View, move: str) -> float:
    """Leaves the board."""
    return float(view.targets[move] is None)


@Filter
def neck(view: View, move: str) -> float:
    """Turns back into its own neck."""
    return float(view.targets[move] in view.you.body[1:2] and view.targets[move] != view.you.head)


@Filter
def starvation(view: View, move: str) -> float:
    """Ends with no health, by hunger or by hazards."""
    target = view.targets[move]
    return float(target is not None and view.health_after(target) <= 0)


@Filter
def bodies(view: View, move: str) -> float:
    """Hits a body that will not have moved away."""
    return float(view.targets[move] is not None and view.blocked(move))


@Filter
def head_to_heads(view: View, move: str) -> float:
    """May meet the head of a snake that is as long or longer."""
    # The badness is the chance that the rival comes, if it takes any of its exits; a tie costs half
    # of a loss. Both snakes eat before lengths are compared, so today's lengths decide.
    target = view.grid.bit(view.targets[move])
    worst = 0.0
    for rival in view.rivals:
        exits = view.exits(rival)
        if target & exits and rival.length >= view.you.length:
            loss = 1.0 if rival.length > view.you.length else 0.5
            worst = max(worst, loss / exits.bit_count())
    return worst


@Filter
def dead_ends(view: View, move: str) -> float:
    """Leads to fewer cells than the snake is long, counting tails that will have left."""
    return max(0.0, 1 - view.num_reachable(move) / view.you.length)


@Filter
def hazards(view: View, move: str) -> float:
    """Enters a hazard that hurts."""
    target = view.targets[move]
    if target is None:
        return 0.0
    return max(0.0, float(view.you.health - 1 - view.health_after(target)))


ALIVE = (walls, neck, starvation, bodies)
"""What loses at once: together the action mask ``fatal``."""

SAFE = (*ALIVE, head_to_heads, dead_ends)
"""The filters of a careful snake, worst first."""

FILTERS = {rule.name: rule for rule in (*SAFE, hazards)}
"""All filters by name, worst first; `register` adds to them."""


def register(rule: Filter) -> None:
    """Register a filter under the name of its function, for ``--filters`` and bundles.

    One of the same name is replaced. Raises ``TypeError`` for what is no filter.
    """
    if not isinstance(rule, Filter):
        raise TypeError(f"a filter is a function with @Filter before it, got {rule!r}")
    FILTERS[rule.name] = rule

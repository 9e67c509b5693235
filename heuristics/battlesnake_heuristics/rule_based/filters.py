"""Filters, which rule out moves.

`SAFE` is sorted by decreasing severity. If no move is safe, a pipeline that starts with ``*SAFE``
chooses the risk of a head-to-head collision rather than a wall collision.
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
    """Enters the snake's own neck."""
    return float(view.targets[move] in view.you.body[1:2] and view.targets[move] != view.you.head)


@Filter
def starvation(view: View, move: str) -> float:
    """Leaves no health, because of hunger or hazards."""
    target = view.targets[move]
    return float(target is not None and view.health_after(target) <= 0)


@Filter
def bodies(view: View, move: str) -> float:
    """Hits a body that will still occupy the cell on the next turn."""
    return float(view.targets[move] is not None and view.blocked(move))


@Filter
def head_to_heads(view: View, move: str) -> float:
    """May collide with the head of a snake of equal or greater length."""
    # The penalty assumes that the opponent chooses each exit with equal probability. A tie counts
    # as half a loss. Both snakes eat before their lengths are compared, so the current lengths
    # decide.
    target = view.grid.bit(view.targets[move])
    worst = 0.0
    for opponent in view.opponents:
        exits = view.exits(opponent)
        if target & exits and opponent.length >= view.you.length:
            loss = 1.0 if opponent.length > view.you.length else 0.5
            worst = max(worst, loss / exits.bit_count())
    return worst


@Filter
def dead_ends(view: View, move: str) -> float:
    """Leads to fewer reachable cells than the snake's length.

    Cells that tails leave in time count as reachable.
    """
    return max(0.0, 1 - view.num_reachable(move) / view.you.length)


@Filter
def hazards(view: View, move: str) -> float:
    """Enters a hazard that costs health."""
    target = view.targets[move]
    if target is None:
        return 0.0
    return max(0.0, float(view.you.health - 1 - view.health_after(target)))


ALIVE = (walls, neck, starvation, bodies)
"""Filters of moves that lose immediately.

Together, these filters rule out the same moves as the action mask ``fatal``.
"""

SAFE = (*ALIVE, head_to_heads, dead_ends)
"""The filters of a careful snake, sorted by decreasing severity."""

FILTERS = {rule.name: rule for rule in (*SAFE, hazards)}
"""All filters by name, sorted by decreasing severity.

`register` adds more filters.
"""


def register(rule: Filter) -> None:
    """Register a filter for ``--filters`` and bundles.

    The name of the filter's function is the name of the filter. The filter replaces any filter with
    the same name.

    Raises:
        TypeError: If ``rule`` is not a filter.
    """
    if not isinstance(rule, Filter):
        raise TypeError(f"a filter must be a function decorated with @Filter, got {rule!r}")
    FILTERS[rule.name] = rule

"""Completion of positions whose opponents are partly hidden.

All snakes and the search play on complete positions. For a request with limited view, this module
adds plausible cells for the hidden segments of the opponents. The visible segments do not change,
and each added cell is outside the view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from battlesnake_gym.boards.grid import grid
from battlesnake_gym.boards.limited_view import is_visible
from battlesnake_gym.rules.play import MAX_SIZE
from battlesnake_gym.rules.stages import wraps
from battlesnake_gym.rules.state import MOVES, START_LENGTH, Game, Point, State, distance

SentBody = Sequence[Point | None]
"""Body of a request with limited view; None stands for a run of hidden segments."""

_Neighbors = Callable[[Point], set[Point]]
"""Function that returns the neighbors of a cell on the board."""

_MAX_JOINED_RUNS = 64
"""Maximum number of hidden runs of one position that become paths.

The limit bounds the time of a malicious request.
"""


def complete_bodies(
    game: Game, state: State, head: Point, sent: Sequence[SentBody]
) -> list[list[Point]]:
    """Return complete bodies, in the order of ``sent``.

    A hidden run between two visible segments becomes the shortest hidden path between them. A
    hidden run at an end becomes one cell. A snake without visible segments is placed, with all
    segments stacked, on a hidden cell that is as far from ``head`` as possible. If no hidden cell
    fits, the run is left out; the body of a completely hidden snake is then empty. Runs
    between visible segments are also left out on boards of more than 25x25 cells, and beyond the
    first `_MAX_JOINED_RUNS`.

    Args:
        game: Ruleset, and settings with a view radius.
        state: Position with the board size.
        head: Head of the snake that observes.
        sent: Bodies of all snakes in the request.
    """
    view_radius = game.settings.view_radius
    assert view_radius is not None
    shape = grid(state.width, state.height, wraps(game))

    def neighbors(cell: Point) -> set[Point]:
        return {step for move in MOVES if (step := shape.step(cell, move))}

    unseen = {
        (x, y)
        for x in range(state.width)
        for y in range(state.height)
        if not is_visible((x, y), head, view_radius)
    }
    # A set of sent cells could contain many integers with the same hash.
    hidden = unseen.difference(*sent)
    free = set(hidden)
    supported = state.width * state.height <= MAX_SIZE**2
    runs = iter(range(_MAX_JOINED_RUNS if supported else 0))
    joined = [_join_runs(body, free, hidden, neighbors, runs) for body in sent]
    bodies = [_extend_ends(body, free, hidden, neighbors) for body in joined]
    lost = [index for index, body in enumerate(bodies) if not body and None in sent[index]]
    farthest = sorted(sorted(free), key=lambda cell: -distance(cell, head)) if lost else []
    for index, cell in zip(lost, farthest, strict=False):
        bodies[index] = [cell]
    return [_stack(before, body) for before, body in zip(sent, bodies, strict=True)]


def _stack(sent: SentBody, body: list[Point]) -> list[Point]:
    """Return a body of at least `START_LENGTH` segments if more segments can be on the last cell.

    The rules start with stacked segments, which some engines send only once. A visible last segment
    behind a hidden run is the only segment on its cell.
    """
    can_grow = sent and (sent[-1] is None or None not in sent)
    return body + body[-1:] * (START_LENGTH - len(body)) if can_grow else body


def _join_runs(
    sent: SentBody,
    free: set[Point],
    hidden: set[Point],
    neighbors: _Neighbors,
    runs: Iterator[object],
) -> list[Point | None]:
    """Return a body whose visible runs are joined; None remains only at the ends.

    The function removes the added cells from ``free``. If the free cells do not suffice, all hidden
    cells are used, so that two bodies may overlap. Each path takes one element of ``runs``; without
    elements, runs are left out.
    """
    body: list[Point | None] = []
    for index, cell in enumerate(sent):
        before = body[-1] if body else None
        after = sent[index + 1] if index + 1 < len(sent) else None
        if cell is None and before and after:
            if next(runs, None) is None:
                continue
            path = _hidden_path(before, after, free, neighbors)
            path = path or _hidden_path(before, after, hidden, neighbors)
            free -= set(path)
            body += path
        else:
            body.append(cell)
    return body


def _extend_ends(
    body: SentBody, free: set[Point], hidden: set[Point], neighbors: _Neighbors
) -> list[Point]:
    """Return a body whose hidden ends are one cell each; see `_join_runs` for the two sets.

    An end may overlap its own body if no other hidden cell is beside it.
    """
    cells = [cell for cell in body if cell is not None]
    if not cells:
        return []
    around = {0: neighbors(cells[0]) & hidden, len(cells): neighbors(cells[-1]) & hidden}
    ends = [end for end, cell in ((len(cells), body[-1]), (0, body[0])) if cell is None]
    added: dict[int, list[Point]] = {}
    for end in sorted(ends, key=lambda end: len(around[end] & free)):
        candidates = around[end].difference(cells, *added.values())
        options = candidates & free, candidates, around[end]
        added[end] = next((sorted(cells)[:1] for cells in options if cells), [])
        free -= set(added[end])
    return added.get(0, []) + cells + added.get(len(cells), [])


def _hidden_path(start: Point, end: Point, free: set[Point], neighbors: _Neighbors) -> list[Point]:
    """Return a shortest path through ``free`` between two cells, without the two cells.

    The result is empty if no path exists.
    """
    came_from = {start: start}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        around = neighbors(cell)
        if end in around and cell != start:
            path = [cell]
            while (cell := came_from[cell]) != start:
                path.append(cell)
            return path[::-1]
        for step in sorted(around & free):
            if step not in came_from:
                came_from[step] = cell
                queue.append(step)
    return []

"""Sets of cells as the bits of one integer: flooding a whole board takes microseconds.

Cell ``(x, y)`` of a board is bit ``y * width + x``. Set operations are then ``|``, ``&`` and
``& ~``; counting is ``int.bit_count``; and `Grid.spread` grows a set by one step in all directions
at once, which makes a flood fill a short loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from battlesnake_gym.rules.state import OFFSETS, Point


@dataclass(frozen=True, slots=True)
class Grid:
    """The shape of a board: its size, and whether its edges are joined (the wrapped rulesets)."""

    width: int
    height: int
    wrapped: bool = False
    everything: int = field(init=False, repr=False)
    west: int = field(init=False, repr=False)
    east: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        column = sum(1 << y * self.width for y in range(self.height))
        object.__setattr__(self, "everything", (1 << self.width * self.height) - 1)
        object.__setattr__(self, "west", column)
        object.__setattr__(self, "east", column << self.width - 1)

    def bit(self, cell: Point | None) -> int:
        """The set of that one cell; empty (0) for None and for cells off the board."""
        if cell is None:
            return 0
        x, y = cell
        inside = 0 <= x < self.width and 0 <= y < self.height
        return 1 << y * self.width + x if inside else 0

    def bits(self, cells: Iterable[Point]) -> int:
        """The set of those cells, without the ones off the board."""
        union = 0
        for cell in cells:
            union |= self.bit(cell)
        return union

    def spread(self, cells: int) -> int:
        """All cells one step away from any of ``cells``."""
        steps = (
            cells << self.width
            | cells >> self.width
            | (cells & ~self.west) >> 1
            | (cells & ~self.east) << 1
        )
        if self.wrapped:
            lift = self.width * (self.height - 1)
            row = self.width - 1
            steps |= cells << lift | cells >> lift
            steps |= (cells & self.west) << row | (cells & self.east) >> row
        return steps & self.everything

    def step(self, cell: Point, move: str) -> Point | None:
        """The cell that ``move`` leads to from ``cell``; None where it leaves the board.

        >>> Grid(11, 11).step((0, 5), "left"), Grid(11, 11, wrapped=True).step((0, 5), "left")
        (None, (10, 5))
        """
        x, y = cell[0] + OFFSETS[move][0], cell[1] + OFFSETS[move][1]
        if self.wrapped:
            return x % self.width, y % self.height
        return (x, y) if 0 <= x < self.width and 0 <= y < self.height else None

    def distance(self, a: Point, b: Point) -> int:
        """The number of moves from ``a`` to ``b`` on an empty board.

        >>> Grid(11, 11).distance((0, 0), (10, 3)), Grid(11, 11, True).distance((0, 0), (10, 3))
        (13, 4)
        """
        x, y = abs(a[0] - b[0]), abs(a[1] - b[1])
        if self.wrapped:
            x, y = min(x, self.width - x), min(y, self.height - y)
        return x + y


@lru_cache(maxsize=64)
def grid(width: int, height: int, wrapped: bool = False) -> Grid:
    """The one `Grid` of that shape."""
    return Grid(width, height, wrapped)


def first_reached_by_turn(
    grid: Grid, fronts: Sequence[int], lengths: Sequence[int], taken: Callable[[int], int]
) -> Iterator[list[int]]:
    """What snakes that spread at once reach first: for each turn from now, the new cells of each.

    ``fronts`` are the cells that each may enter on the coming turn, ``taken(turns)`` those that
    are still blocked that many turns from now. A cell reached at the same time goes to the longer
    snake, and to neither if they are equally long.

    >>> row = Grid(6, 1)
    >>> [list(map(bin, cells)) for cells in claims(row, [0b10, 0b10000], [3, 3], lambda turns: 0)]
    [['0b10', '0b10000'], ['0b101', '0b101000']]
    """
    fronts = list(fronts)
    stronger = [
        [j for j, other in enumerate(lengths) if j != i and other >= length]
        for i, length in enumerate(lengths)
    ]
    settled = turns = 0
    while any(fronts):
        won = fronts.copy()
        for i, others in enumerate(stronger):
            for j in others:
                won[i] &= ~fronts[j]
        yield won
        turns += 1
        for front in fronts:
            settled |= front
        free = ~(settled | taken(turns + 1))
        fronts = [grid.spread(cells) & free for cells in won]

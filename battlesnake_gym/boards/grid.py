"""Sets of cells stored as bits of one integer, for flood fills in microseconds.

Cell ``(x, y)`` is bit ``y * width + x``. Set operations are ``|``, ``&`` and ``& ~``, and
``int.bit_count`` counts cells. `Grid.spread` expands a set by one cell in all four directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from battlesnake_gym.rules.state import OFFSETS, Point


@dataclass(frozen=True, slots=True)
class Grid:
    """Board size and whether the edges of the board are connected (wrapped rulesets)."""

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
        """Return the set that contains only ``cell``.

        The set is empty (0) if ``cell`` is None or off the board.
        """
        if cell is None:
            return 0
        x, y = cell
        inside = 0 <= x < self.width and 0 <= y < self.height
        return 1 << y * self.width + x if inside else 0

    def bits(self, cells: Iterable[Point]) -> int:
        """Return the set of the ``cells`` on the board."""
        union = 0
        for cell in cells:
            union |= self.bit(cell)
        return union

    def spread(self, cells: int) -> int:
        """Return the set of all cells that are one move away from ``cells``."""
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
        """Return the cell that ``move`` reaches from ``cell``, or None if off the board.

        >>> Grid(11, 11).step((0, 5), "left"), Grid(11, 11, wrapped=True).step((0, 5), "left")
        (None, (10, 5))
        """
        x, y = cell[0] + OFFSETS[move][0], cell[1] + OFFSETS[move][1]
        if self.wrapped:
            return x % self.width, y % self.height
        return (x, y) if 0 <= x < self.width and 0 <= y < self.height else None

    def distance(self, a: Point, b: Point) -> int:
        """Return the number of moves from ``a`` to ``b`` on an empty board.

        >>> Grid(11, 11).distance((0, 0), (10, 3)), Grid(11, 11, True).distance((0, 0), (10, 3))
        (13, 4)
        """
        x, y = abs(a[0] - b[0]), abs(a[1] - b[1])
        if self.wrapped:
            x, y = min(x, self.width - x), min(y, self.height - y)
        return x + y

    def first_reached_by_turn(
        self, fronts: Sequence[int], lengths: Sequence[int], taken: Callable[[int], int]
    ) -> Iterator[list[int]]:
        """Yield, for each future turn, the cells that each snake reaches first.

        All snakes expand simultaneously. If several snakes reach a cell on the same turn, the
        strictly longest of these snakes owns the cell. If the longest snakes have equal length, no
        snake owns the cell.

        Args:
            fronts: For each snake, the set of cells that the snake can enter on the next turn.
            lengths: Length of each snake.
            taken: Function that returns the set of blocked cells after a number of future turns.

        Yields:
            For each snake, the set of cells that the snake reaches first on that turn.

        >>> row = Grid(6, 1)
        >>> [
        ...     list(map(bin, cells))
        ...     for cells in row.first_reached_by_turn([0b10, 0b10000], [3, 3], lambda turns: 0)
        ... ]
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
            fronts = [self.spread(cells) & free for cells in won]


def cell_indices(cells: int) -> list[int]:
    """Return the indices ``y * width + x`` of the cells of a set, in order.

    >>> cell_indices(0b10110)
    [1, 2, 4]
    """
    indices = []
    while cells:
        indices.append((cells & -cells).bit_length() - 1)
        cells &= cells - 1
    return indices


@lru_cache(maxsize=64)
def grid(width: int, height: int, wrapped: bool = False) -> Grid:
    """Return a cached `Grid` of this board size."""
    return Grid(width, height, wrapped)

"""Base class of all maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..placement import MAX_SNAKES
from ..state import Game, RulesError, State

MapFunction = Callable[[Game, State], None]
"""Function of a map that changes the state in place."""

_ODD_SIZES = tuple((size, size) for size in range(7, 26, 2))


def _accept_position(game: Game, state: State) -> None:
    """Accept every position; this function is the default turn check of a map."""


@dataclass(frozen=True, slots=True)
class Map:
    """A map with its setup, its update and its limits.

    Attributes:
        setup: Function that creates the first board, in place.
        update: Function that runs after the rules of every turn; ``state.turn`` is still the turn
            before the moves.
        sizes: Advertised board sizes (width, height).
        players: Advertised minimum and maximum number of snakes.
        sizes_enforced: Whether other sizes are rejected, as in the official engine.
        players_enforced: Whether other numbers of snakes are rejected, as in the official engine.
        min_size: Minimum width and height, in cells.
        check_turn: Function that runs before the setup and before every turn, and raises
            `RulesError` if the official engine would fail.
    """

    id: str
    description: str
    setup: MapFunction
    update: MapFunction
    sizes: tuple[tuple[int, int], ...] = _ODD_SIZES
    players: tuple[int, int] = (1, MAX_SNAKES)
    sizes_enforced: bool = False
    players_enforced: bool = False
    min_size: int = 1
    check_turn: MapFunction = _accept_position

    def check(self, width: int, height: int, num_snakes: int) -> None:
        """Raise `RulesError` if the official engine rejects the size or number of snakes."""
        size = f"got {width}x{height}: change the board size, or the map"
        if self.sizes_enforced and (width, height) not in self.sizes:
            sizes = ", ".join(f"{w}x{h}" for w, h in self.sizes)
            raise RulesError(f"map {self.id!r} needs a board of {sizes}, {size}")
        if min(width, height) < self.min_size:
            raise RulesError(
                f"map {self.id!r} needs a board of {self.min_size}x{self.min_size} or more, {size}"
            )
        fewest, most = self.players
        if self.players_enforced and not fewest <= num_snakes <= most:
            players = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise RulesError(
                f"map {self.id!r} requires {players} snakes, got {num_snakes}: "
                "change the number of snakes, or the map"
            )

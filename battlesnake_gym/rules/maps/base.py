"""What a map is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import RulesError
from ..placement import MAX_SNAKES
from ..state import Game, State

Hook = Callable[[Game, State], None]
"""Changes the state in place."""

_ODD_SIZES = tuple((size, size) for size in range(7, 26, 2))


def allow(game: Game, state: State) -> None:
    """Refuse nothing."""


@dataclass(frozen=True, slots=True)
class Map:
    """One map: ``setup`` builds the first board, ``update`` runs after the rules of every turn.

    ``update`` still sees the turn before the moves. ``check_turn`` runs before the set-up and
    before every turn; it raises `RulesError` where the reference fails. ``sizes`` (width, height)
    and ``players`` (fewest, most) are advertised; they are enforced only where the reference does
    so. ``smallest`` is the least width and height.
    """

    id: str
    description: str
    setup: Hook
    update: Hook
    sizes: tuple[tuple[int, int], ...] = _ODD_SIZES
    players: tuple[int, int] = (1, MAX_SNAKES)
    sizes_enforced: bool = False
    players_enforced: bool = False
    smallest: int = 1
    check_turn: Hook = allow

    def check(self, width: int, height: int, num_snakes: int) -> None:
        """Raise `RulesError` where the reference refuses to set this map up."""
        size = f"got {width}x{height}: change width and height, or the map"
        if self.sizes_enforced and (width, height) not in self.sizes:
            sizes = ", ".join(f"{w}x{h}" for w, h in self.sizes)
            raise RulesError(f"map {self.id!r} needs a board of {sizes}, {size}")
        if min(width, height) < self.smallest:
            raise RulesError(
                f"map {self.id!r} needs a width and height of {self.smallest} or more, {size}"
            )
        fewest, most = self.players
        if self.players_enforced and not fewest <= num_snakes <= most:
            players = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise RulesError(
                f"map {self.id!r} takes {players} snakes, got {num_snakes}: "
                "change how many snake_ids there are, or the map"
            )

"""Adapter for the search's rules in `battlesnake_heuristics`.

The search implements the rules separately from the engine.
"""

from __future__ import annotations

import numpy as np
from server_loop import Json, UnsupportedGameError, flatten_cells, parse_cells, serve

from battlesnake_gym.rules import MOVES
from battlesnake_heuristics.search import _search

_MAX_SNAKES = 8


class _SearchPosition:
    """One position in the format of the search."""

    def load(self, header: Json, state: Json) -> Json:
        """Load a position."""
        self.header, self.state = header, state
        width, height = header["w"], header["h"]
        self.cell = {(i % width, i // width): i for i in range(width * height)}
        living = [s for s in state["s"] if "x" not in s]
        inside = all(cell in self.cell for s in living for cell in parse_cells(s["b"]))
        bodies = [set(parse_cells(s["b"])) for s in living]
        apart = len(set().union(*bodies)) == sum(map(len, bodies))
        apart = apart and len({*parse_cells(state["f"])}) == len(parse_cells(state["f"]))
        if len(state["s"]) > _MAX_SNAKES or not (apart and inside) or header["map"] == "solo_maze":
            raise UnsupportedGameError(
                f"the search supports at most {_MAX_SNAKES} snakes, no overlapping bodies, and not "
                "the map solo_maze"
            )
        return state

    def _count_layers(self, flat_cells: list[int]) -> bytes:
        """Return the number of occurrences of each cell in a flat list, one byte per cell."""
        layers = bytearray(len(self.cell))
        for cell in parse_cells(flat_cells):
            if cell in self.cell:
                layers[self.cell[cell]] += 1
        return bytes(layers)

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn.

        In the response, eliminated snakes are null.
        """
        header, snakes = self.header, self.state["s"]
        rules, damage = header["ruleset"], header["settings"]["hazardDamagePerTurn"]
        numbers = [self.cell.get(cell, 0) for s in snakes for cell in parse_cells(s["b"])]
        request = (
            *(header["w"], header["h"], "wrapped" in rules, "constrictor" in rules, damage),
            np.array([len(s["b"]) // 2 for s in snakes], np.int32),
            np.array([0 if "x" in s else s["hp"] for s in snakes], np.int32),
            *(np.array(numbers, np.uint16), self._count_layers(self.state["f"])),
            self._count_layers(self.state["hz"]),
        )
        held = _search.play_turns(*request, bytes(MOVES.index(m) if m else 0 for m in moves))[0]
        at = list(self.cell)
        bodies = [
            one and flatten_cells(at[i] for i in np.frombuffer(one[1], np.uint16)) for one in held
        ]
        return {"s": [one and {"hp": one[0], "b": b} for one, b in zip(held, bodies, strict=True)]}


if __name__ == "__main__":
    lacks = ("start", "t", "f", "hz", "x", "by", "on", "dead", "over")
    serve("search in C", _SearchPosition(), *lacks)

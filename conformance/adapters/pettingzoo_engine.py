"""Adapter for pypzbattlesnake, a PettingZoo environment in pure Python.

Install the package with ``pip install pypzbattlesnake``.
"""

from __future__ import annotations

from pypzbattlesnake import BattleSnake
from pypzbattlesnake.common import ACTION_BY_SHIFT, Action
from server_loop import Json, UnsupportedGameError, flatten_cells, parse_cells, serve

_MOVES = ("down", "up", "left", "right")
"""Moves in the order of the environment's actions.

In the environment, y increases downwards.
"""


class _PettingZooGame:
    """One position in an environment of pypzbattlesnake."""

    def load(self, header: Json, state: Json) -> Json:
        """Load a position into the snakes and the food of the environment."""
        if header["ruleset"] not in ("standard", "solo") or header["map"] == "solo_maze":
            raise UnsupportedGameError(
                "this engine supports the rulesets standard and solo, and not the map solo_maze"
            )
        if state["hz"] or min(header["w"], header["h"]) < 7 or "x" in state["s"][0]:
            raise UnsupportedGameError("no hazards, and boards of at least 7x7")
        size = (header["w"], header["h"])
        self.env = BattleSnake(len(state["s"]), 1, size, 0, 10**9, render_mode="none")
        self.env.reset()
        self.names = list(self.env.agents)
        for name, one in zip(self.names, state["s"], strict=True):
            if "x" in one:
                self.env.eliminate([name])
                continue
            snake, body = self.env.snakes[name], parse_cells(one["b"])
            snake.body, snake.health = body[::-1], one["hp"]
            shift = (body[0][0] - body[1][0], body[0][1] - body[1][1])
            snake.action = ACTION_BY_SHIFT.get(shift, Action.NONE)
        self.env.food = set(parse_cells(state["f"]))
        return state

    def play_turn(self, moves: list[str | None]) -> Json:
        """Play one turn."""
        named = zip(self.names, moves, strict=True)
        self.env.step({name: _MOVES.index(move) for name, move in named if move})
        snakes = [self.env.snakes.get(name) for name in self.names]
        return {"s": [s and {"hp": s.health, "b": flatten_cells(s.body[::-1])} for s in snakes]}


if __name__ == "__main__":
    lacks = ("start", "t", "f", "hz", "x", "by", "on", "dead", "over")
    serve("pypzbattlesnake", _PettingZooGame(), *lacks)

"""Loop that serves an engine with the conformance protocol.

Adapters in Python use this loop.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]
MOVES = ("up", "down", "left", "right")


class UnsupportedGameError(Exception):
    """Error for a game whose rules, map or position the engine does not support."""


class CannotContinueError(Exception):
    """Error for a position from which the rules cannot continue."""


def serve(name: str, adapter: Any, *lacks: str, accepts_any_move: bool = False) -> None:
    """Read messages from stdin and write responses to stdout until the input ends.

    Args:
        name: Name of the engine.
        adapter: Object with the method `start(header)`, the method `load(header, state)`, or both
            methods. The method `play_turn(moves)` receives one move per snake, or None for an
            eliminated snake, and returns the position. If the engine has a view radius, the object
            also has the method `limit_view(message)`.
        lacks: Fields and messages that the engine does not support.
        accepts_any_move: Whether the engine plays a turn with an invalid move. A position with an
            invalid move is refused otherwise.
    """
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "hello" in message:
                response: Json = {"engine": name, "lacks": lacks}
            elif "start" in message:
                response = adapter.start(message["start"])
            elif "load" in message:
                if not hasattr(adapter, "load"):
                    raise UnsupportedGameError("the engine cannot load positions")
                response = adapter.load(message["load"], message["state"])
            elif "view" in message:
                if not hasattr(adapter, "limit_view"):
                    raise UnsupportedGameError("the engine has no view radius")
                response = adapter.limit_view(message)
            elif not accepts_any_move and not {None, *MOVES} >= set(message["step"]):
                raise UnsupportedGameError("the engine supports only the four moves")
            else:
                response = adapter.play_turn(message["step"])
        except UnsupportedGameError as error:
            response = {"refused": str(error)}
        except CannotContinueError as error:
            response = {"error": str(error)}
        print(json.dumps(response), flush=True)


def parse_cells(flat: list[int]) -> list[tuple[int, int]]:
    """Convert a flat list ``x0, y0, x1, y1, ...`` to cells."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def flatten_cells(cells: Any) -> list[int]:
    """Convert cells to a flat list ``x0, y0, x1, y1, ...``."""
    return [int(number) for cell in cells for number in cell]

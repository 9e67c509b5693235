"""Engine side of the protocol, for adapters in Python."""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

Json = dict[str, Any]


class RefusedError(Exception):
    """Error for a game whose rules, map or position the engine does not support."""


class OverError(Exception):
    """Error for a position from which the rules cannot continue."""


class Adapter(Protocol):
    """An adapter, which also has `start(header)`, `load(header, state)` or both."""

    def step(self, moves: list[str | None]) -> Json:
        """Play one turn with a move for every living snake."""


def serve(name: str, adapter: Adapter, *lacks: str) -> None:
    """Respond to messages until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "hello" in message:
                response: Json = {"engine": name, "lacks": lacks}
            elif "start" in message:
                response = adapter.start(message["start"])  # type: ignore[attr-defined]
            elif "load" in message:
                if not hasattr(adapter, "load"):
                    raise RefusedError("the engine cannot load positions")
                response = adapter.load(message["load"], message["state"])
            else:
                response = adapter.step(message["step"])
        except RefusedError as error:
            response = {"refused": str(error)}
        except OverError as error:
            response = {"error": str(error)}
        print(json.dumps(response), flush=True)


def pairs(flat: list[int]) -> list[tuple[int, int]]:
    """Return the cells of a flat list ``x0, y0, x1, y1, ...``."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def flat(cells: Any) -> list[int]:
    """Return the flat list ``x0, y0, x1, y1, ...`` of cells."""
    return [int(number) for cell in cells for number in cell]

"""The engine's side of the protocol, for adapters in Python."""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

Json = dict[str, Any]


class RefusedError(Exception):
    """A game that the engine does not play: its rules, map or position."""


class OverError(Exception):
    """The rules cannot go on from here."""


class Door(Protocol):
    """An adapter, with `start(header)` and `load(header, state)` too, or one of them."""

    def step(self, moves: list[str | None]) -> Json:
        """Play one turn, with a move for every living snake."""


def serve(name: str, door: Door, *lacks: str) -> None:
    """Answer questions until there are no more."""
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "hello" in question:
                answer: Json = {"engine": name, "lacks": lacks}
            elif "start" in question:
                answer = door.start(question["start"])  # type: ignore[attr-defined]
            elif "load" in question:
                if not hasattr(door, "load"):
                    raise RefusedError("it begins games only")
                answer = door.load(question["load"], question["state"])
            else:
                answer = door.step(question["step"])
        except RefusedError as error:
            answer = {"refused": str(error)}
        except OverError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def pairs(flat: list[int]) -> list[tuple[int, int]]:
    """The cells of a flat list ``x0, y0, x1, y1, ...``."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def flat(cells: Any) -> list[int]:
    """The flat list of cells."""
    return [int(number) for cell in cells for number in cell]

"""Small malicious replay files, with words of their error messages."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays import limits
from battlesnake_gym.replays.replay import Replay

OFFICIAL: dict[str, Any] = {
    "id": "x", "ruleset": {"name": "standard", "settings": {}}, "map": "", "timeout": 500,
}  # fmt: skip


def head(bodies: list[Any] | None = None, /, **first: Any) -> dict[str, Any]:
    """Return the first line of a game; keywords set the position, ``settings`` or ``map``."""
    line = Replay(Board.from_text("A . . B")).to_lines()[0]
    line["game"]["settings"].update(first.pop("settings", {}))
    line["game"] |= {"map": first.pop("map", "standard"), "seed": 5}
    default = line["first"]["snakes"][0]
    snakes = [
        {**default, "id": str(number), "body": body}
        for number, body in enumerate(bodies or [[[1, 1]], [[5, 5]]])
    ]
    line["first"] |= {"width": 11, "height": 11, "snakes": snakes, **first}
    return line


def turns(count: int, **fields: Any) -> list[Any]:
    """Return ``count`` - 1 turns with the same fields."""
    return [
        {"turn": number, "moves": {"0": "up", "1": "up"}, **fields} for number in range(1, count)
    ]


def official(count: int, **board: Any) -> list[Any]:
    """Return a game in the official CLI's format."""
    snakes = [{"id": "0", "health": 90, "body": [{"x": 1, "y": 1}]}]
    default = {"width": 11, "height": 11, "food": [], "hazards": [], "snakes": snakes}
    return [OFFICIAL, *({"turn": turn, "board": default | board} for turn in range(count))]


@cache
def files() -> dict[str, tuple[bytes, str]]:
    """Return the content of each file, and words of its error message."""
    still = [{"id": name, "body": [[x, 1]] * 3, "health": 100} for name, x in (("0", 1), ("1", 5))]
    plain: dict[str, tuple[list[Any], str]] = {
        "wide": ([head(width=1_000_000)], "first.width"),
        "flat": ([head(height=0)], "first.height"),
        "late": ([head(turn=10**30)], "first.turn"),
        "number": ([head(width=10**399)], "first.width"),
        "latency": (
            [head(), *turns(2, latency={"0": 10**399}), {"end": {}}], "latency.0"
        ),
        "far": ([head([[[0, 10**300]]])], "first.snakes[0].body[0]"),
        "crowd": ([head([[[1, 1]]] * 65)], "65 snakes"),
        "mass": ([head([[[1, 1]]] * 8000)], "MAX_LINE_BYTES"),
        "board": (
            [head(width=100, height=100, food=[[9, 9]], settings={"food_spawn_chance": 0}),
             *turns(900, snakes=still)],
            "8000000 cells",
        ),
        "settings": ([head(settings={"minimum_food": 10**12})], "game.settings.minimum_food"),
        "memory": (
            [head(map="healing_pools", memory={"drawn": 10**12})], "first.memory.drawn"
        ),
        "keys": (
            [head(), *turns(3, moves={str(i): "up" for i in range(90_000)})], "MAX_LINE_BYTES"
        ),
        "official-wide": (official(3, width=10**6), "board.width"),
        "official-crowd": (
            official(2, snakes=[{"id": str(i), "health": 9, "body": [{"x": 1, "y": 1}]}
                                for i in range(65)]), "65 snakes",
        ),
    }  # fmt: skip
    found = {
        f"{name}.jsonl.gz": (gzip.compress("\n".join(map(json.dumps, lines)).encode()), words)
        for name, (lines, words) in plain.items()
    }
    first = json.dumps(head()).encode() + b"\n"
    many = b"{}," * 300_000
    raw = {
        "bomb": (b'{"replay":1,"x":"' + b" " * (64 << 20) + b'"}', "MAX_LINE_BYTES"),
        "lines": ((b" " * 1000 + b"\n") * 40_000, "MAX_REPLAY_BYTES"),
        "deep": (first + b'{"turn":1,"moves":' + b"[" * 300_000, "line 2"),
        "digits": (first + b'{"turn":' + b"9" * 900_000 + b"}", "line 2"),
        "objects": (
            first + (b'{"turn":1,"moves":{"0":"up","1":"up"},"x":[' + many + b"{}]}\n") * 2,
            "line 3",
        ),
    }  # fmt: skip
    found |= {
        f"{name}.jsonl.gz": (gzip.compress(content, 1), words)
        for name, (content, words) in raw.items()
    }
    return found


def write(directory: Path) -> dict[str, str]:
    """Write all files and a large sparse file; return words of each error message."""
    messages = {}
    for name, (content, words) in files().items():
        (directory / name).write_bytes(content)
        messages[name] = words
    with (directory / "hole.jsonl").open("wb") as hole:
        hole.truncate(8 * limits.MAX_REPLAY_BYTES)
    return messages | {"hole.jsonl": "MAX_REPLAY_BYTES"}

"""Record games of an engine, with new seeds and settings.

``python conformance/record.py battlesnake_python --each 4 --to conformance/more``
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from run import _FOLDER, Engine, Json, Recording, engine_command, iter_recordings, parse_cells  # type: ignore[import-not-found]

_MOVES = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
_INVALID_MOVES = ("", "UP", "left ", "nope")
"""Strings that are not valid moves.

A snake with an invalid move continues straight ahead.
"""

_MAX_TURNS = 80
"""Maximum number of turns of a recorded game.

Most events of a map occur before this turn.
"""


def main(argv: list[str] | None = None) -> int:
    """Record new games for each file of recorded games.

    Each output file has the name of its input file.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("engine", metavar="ENGINE",
        help="adapter or NAME=COMMAND of an engine that creates starts and food")  # fmt: skip
    add("--each", type=int, default=4, metavar="N", help="number of new games per recorded game")
    add("--only", default="*", metavar="GLOB",
        help="pattern of the files with recorded games, such as snail_mode*")  # fmt: skip
    add("--to", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(argv)
    options.to.mkdir(parents=True, exist_ok=True)
    engine = Engine(*engine_command(options.engine), 60)
    try:
        for path in sorted((_FOLDER / "games").glob(f"{options.only}.gz")):
            old = list(iter_recordings(path))
            lines = [
                line
                for game in old
                for number in range(options.each)
                for line in _record_game(
                    engine, game, random.Random(f"{game.header['id']} {number}"), old
                )
            ]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            target = options.to / path.with_suffix(".xz").name
            target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
            print(f"{target}: {sum(line['k'] == 'game' for line in lines)} games", flush=True)
    finally:
        engine.stop()
    return 0


def _record_game(
    engine: Engine, game: Recording, rng: random.Random, all_of: list[Recording]
) -> Iterator[Json]:
    """Yield the lines of a new game with random recorded settings.

    The game has the header of ``game``.
    """
    seed = rng.choice((rng.randrange(1, 1000), rng.randrange(-(2**63), 2**63) or 1))
    header = {**game.header, "seed": seed, "recorder": engine.title}
    header["settings"] = rng.choice(all_of).header["settings"]
    what = repr((game.header["id"], seed, header["settings"]))
    header["id"] = f"own-{zlib.crc32(what.encode()):08x}"
    header["maxTurns"] = min(header["maxTurns"], _MAX_TURNS)
    for unused in ("policies", "policySeed"):
        header.pop(unused, None)
    started = engine.request(
        {"start": header} if header["map"] else {"load": header, "state": game.frames[0]}
    )
    if "refused" in started or "error" in started:
        return
    yield header
    position, hazards, moves, reason = started, None, None, "cap"
    first = started["t"]
    while True:
        line = {"k": "t", "t": position["t"], **({"m": moves} if moves else {})}
        line |= {"s": position["s"], "f": position["f"]}
        yield line | ({"hz": position["hz"]} if position["hz"] != hazards else {})
        hazards = position["hz"]
        if position["over"] or position["t"] - first >= header["maxTurns"]:
            reason = "over" if position["over"] else "cap"
            break
        moves = [
            None if "x" in one else _choose_move(header, position, one, rng)
            for one in position["s"]
        ]
        after = engine.request({"step": moves})
        if "error" in after:
            reason = "panic"
            break
        position = after
    yield {"k": "end", "t": position["t"], "reason": reason}


def _choose_move(header: Json, position: Json, snake: Json, rng: random.Random) -> str:
    """Choose a move to a free cell, often toward food.

    Occasionally, the move is an invalid string.
    """
    if rng.random() < 0.03:
        return rng.choice((*_MOVES, *_INVALID_MOVES))
    taken = {cell for one in position["s"] if "x" not in one for cell in parse_cells(one["b"])[:-1]}
    (x, y), free = snake["b"][:2], {}
    for move, (right, up) in _MOVES.items():
        target = x + right, y + up
        if header["ruleset"].startswith("wrapped"):
            target = target[0] % header["w"], target[1] % header["h"]
        if 0 <= target[0] < header["w"] and 0 <= target[1] < header["h"] and target not in taken:
            free[move] = target
    food = parse_cells(position["f"])
    if not free:
        return rng.choice(list(_MOVES))
    if not food or rng.random() < 0.4:
        return rng.choice(list(free))
    return min(free, key=lambda m: min(abs(free[m][0] - a) + abs(free[m][1] - b) for a, b in food))


if __name__ == "__main__":
    sys.exit(main())

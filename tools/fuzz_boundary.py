"""Convert libFuzzer's bytes to calls of the compiled modules.

The calls come from `random_turns` and `random_searches` and include malformed calls. The fuzzer
supplies the random numbers and stores inputs that reach a new branch. Any exception except the
rejection of an argument ends the run.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np
import random_turns

for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
    if folder := os.environ.get("FUZZ_BUILD"):
        path = Path(folder) / f"{name.rpartition('.')[2]}.abi3.so"
        sys.modules[name] = random_turns.load_compiled_module(name, path)

import random_searches  # noqa: E402

from battlesnake_gym.engine.engine import Games  # noqa: E402
from battlesnake_heuristics.search import _search  # noqa: E402

assert Games.__name__ == "EngineGames", "the engine was not compiled"


class _ByteRandom(random.Random):
    """Random number generator that consumes the bytes of ``data``.

    After the last byte, all random bits are 0.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._left = data

    def getrandbits(self, k: int, /) -> int:
        """Return ``k`` bits."""
        count = (k + 7) // 8
        taken, self._left = self._left[:count], self._left[count:]
        return int.from_bytes(taken, "little") & ((1 << k) - 1)

    def random(self) -> float:
        """Return a multiple of 1/65536 in [0, 1), computed from two bytes."""
        return self.getrandbits(16) / (1 << 16)


def fuzz_once(data: bytes) -> None:
    """Run one call sequence of the search or of the engine.

    The random numbers come from ``data``.
    """
    drawn = _ByteRandom(data)
    match drawn.randrange(3):
        case 0:
            random_searches.search_move(_search, drawn, random_searches.random_position(drawn))
        case 1:
            random_searches.play_turns(_search, drawn, random_searches.random_position(drawn))
        case _:
            _fuzz_games(drawn)


def _fuzz_games(drawn: _ByteRandom) -> None:
    """Play some turns, import a damaged position, and read all outputs."""
    made = random_turns.random_games(drawn)
    if made is None:
        return
    player = random_turns.RandomPlayer(made, drawn.getrandbits(8))
    player.play(drawn.randrange(20))
    words = np.frombuffer(made.export_words(0), np.int32).copy()
    for _ in range(drawn.randrange(6)):
        at = drawn.randrange(len(words))
        words[at] += drawn.choice((1, -1, 7, -100, 2**20, -(2**31), 0)) if drawn.randrange(2) else 0
        words = words[: drawn.choice((len(words), len(words), len(words), at + 1))]
    try:
        made.import_words(0, drawn.getrandbits(62) + 1, words.tobytes())
    except ValueError:
        return
    player.read_outputs()
    player.play(drawn.randrange(4))

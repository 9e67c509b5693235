"""Random calls of the compiled modules, for builds with sanitizers.

The calls come from `random_turns` and `random_searches` and include malformed calls. Any exception
except the rejection of an argument ends the run. `fuzz_once` takes its random numbers from the
bytes of libFuzzer, which stores inputs that reach a new branch. The command plays a number of turns
and sends a number of requests to the search. The variable ``FUZZ_BUILD`` names the folder of the
modules (default: the installed modules).
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import random
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
    if folder := os.environ.get("FUZZ_BUILD"):
        path = str(Path(folder) / f"{name.rpartition('.')[2]}.abi3.so")
        loader = importlib.machinery.ExtensionFileLoader(name, path)
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        loader.exec_module(sys.modules[name])

import random_searches  # noqa: E402
import random_turns  # noqa: E402

from battlesnake_gym.engine.engine import Games  # noqa: E402

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
            random_searches.search_move(drawn, random_searches.random_position(drawn))
        case 1:
            random_searches.play_turns(drawn, random_searches.random_position(drawn))
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


def _play_turns(count: int, rand: random.Random) -> None:
    """Play random games until ``count`` turns are played, summed over all games."""
    with tqdm(total=count, unit=" turns", unit_scale=True) as progress:
        while progress.n < count:
            games = random_turns.random_games(rand)
            if games is None:
                continue
            player = random_turns.RandomPlayer(games, rand.getrandbits(32))
            progress.update(player.play(rand.choice((20, 200))))
            player.read_outputs()
            player.import_damaged_positions()
            progress.update(player.play(20))


def _send_requests(count: int, rand: random.Random) -> None:
    """Send ``count`` random requests to the search."""
    calls = random_searches.search_move, random_searches.play_turns, random_searches.search_game
    for _ in tqdm(range(count), unit=" requests"):
        position = random_searches.random_position(rand)
        rand.choice(calls)(rand, position)


def main() -> None:
    """Play random turns, and send random requests to the search."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--turns", type=int, default=1_000_000, help="number of turns to play")
    add("--requests", type=int, default=5000, help="number of requests to the search")
    add("--seed", type=int, default=1, help="seed of the random numbers")
    options = parser.parse_args()
    _play_turns(options.turns, random.Random(options.seed))
    _send_requests(options.requests, random.Random(options.seed))


if __name__ == "__main__":
    main()

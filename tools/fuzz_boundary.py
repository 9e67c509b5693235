"""Random calls of the compiled modules, for builds with sanitizers.

The requests to the search cover all rulesets, board sizes from 1 to 25, up to 16 snakes including
eliminated snakes, overlapping bodies, and all limits. The search must either reject a request with
an invalid field or process the request without a crash.

The games of the engine cover rulesets, maps, board sizes, numbers of snakes, settings and both food
streams. Moves are safe, random or missing.

Any exception except the rejection of an argument ends the run. `fuzz_once` takes its random numbers
from the bytes of libFuzzer, which stores inputs that reach a new branch. The command plays a number
of turns and sends a number of requests to the search. The variable ``FUZZ_BUILD`` names the folder
of the modules (default: the installed modules).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
    if folder := os.environ.get("FUZZ_BUILD"):
        path = Path(folder, f"{name.rpartition('.')[2]}.abi3.so")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])

from battlesnake_gym.engine import _engine  # noqa: E402
from battlesnake_gym.engine.engine import FOOD_RNGS, Games  # noqa: E402
from battlesnake_gym.mdp import masks, observations  # noqa: E402
from battlesnake_gym.rules import MAPS, RULESETS, Game, Settings  # noqa: E402
from battlesnake_gym.snakes import ENGINE_SNAKES  # noqa: E402
from battlesnake_heuristics.search import _search  # noqa: E402
from battlesnake_heuristics.search.evaluation import load_builtin  # noqa: E402
from battlesnake_heuristics.search.search import Weights  # noqa: E402

assert Games.__name__ == "EngineGames", "the engine was not compiled"

_INVALID_VALUES: tuple[Any, ...] = (
    *(-(2**31), -1, 0, 1, 26, 121, 2**31 - 1, 2**63 - 1, 1e308, float("nan"), "", None),
    *(b"", b"\xff" * 7, b"\xff" * 4000, np.full(16, -1, np.int32), np.zeros(9, np.uint8)[1:]),
)
"""Values that are invalid for most fields of a request."""


def _random_position(rand: random.Random) -> dict[str, Any]:
    """Return the fields of a random valid position for the search."""
    width, height = rand.choice(((11, 11), (rand.randint(1, 25), rand.randint(1, 25))))
    cells, snakes = width * height, rand.randint(1, 16)
    lengths, bodies = [], []
    for _ in range(snakes):
        body = [rand.randrange(cells)]
        for _ in range(rand.choice((0, 2, 2, 7, 30, 624))):
            steps = (0, 1, -1, width, -width) if rand.random() < 0.9 else (rand.randrange(cells),)
            body.append((body[-1] + rand.choice(steps)) % cells)
        lengths.append(len(body))
        bodies += body
    return {
        "width": width,
        "height": height,
        "wrapped": rand.random() < 0.5,
        "constrictor": rand.random() < 0.3,
        "damage": rand.choice((-1000, -5, 0, 1, 14, 1000)),
        "lengths": np.array(lengths, np.int32),
        "health": np.array([rand.choice((1, 2, 15, 100))] * snakes, np.int32),
        "bodies": np.array(bodies, np.uint16),
        "food": bytes(rand.random() < 0.2 for _ in range(cells)),
        "hazards": bytes(rand.choice((0, 0, 0, 1, 255)) for _ in range(cells)),
    }


def _search_move(rand: random.Random, position: dict[str, Any]) -> None:
    """Search for a move. Sometimes, one field of the request is invalid."""
    head = {name: position[name] for name in ("width", "height", "wrapped", "constrictor")}
    rest = {name: value for name, value in position.items() if name not in head}
    weights = np.array(Weights().to_array())
    if rand.random() < 0.2:
        weights = weights * 0 + rand.choice((-1000, -1, 0, 1000))
    limits = {
        "weights": weights.astype(np.int32),
        "seconds": 0.0,
        "nodes": rand.choice((1, 20, 300)),
        "max_depth": rand.choice((1, 3, 120)),
        "network": load_builtin().network_bytes if rand.random() < 0.3 else b"",
        "exact": rand.random() < 0.3,
        "decoupled": rand.choice((0, 1, 2, 3)),
        "frozen": rand.random() < 0.3,
        "first_depth": rand.choice((1, 1, 2)),
        "should_stop": rand.choice((None, lambda: False)),
    }
    if rand.random() < 0.02:
        limits["seconds"] = 0.001
    request = head | {"solo": rand.random() < 0.2} | rest | limits
    dead = [i > 0 and rand.random() < 0.1 for i in range(len(position["health"]))]
    request["health"] = np.where(dead, 0, position["health"]).astype(np.int32)
    _call_function(_search.search, rand, request)


def _search_game(rand: random.Random, position: dict[str, Any]) -> None:
    """Search and play up to five turns.

    The time limit of the searches makes decoupled MCTS continue the tree of the previous turn.
    """
    weights, network = np.array(Weights().to_array(), np.int32), load_builtin().network_bytes
    for _ in range(rand.randrange(6)):
        head, rest = list(position.values())[:4], list(position.values())[4:]
        limits = (0.002, 0, rand.choice((2, 120)), network, False, 2, False, 1, None)
        request: list[Any] = [*head, False, *rest, weights, *limits]
        move, *_, lines, _ = _search.search(*request)
        expected = lines[move][0] if rand.random() < 0.9 else bytes(len(position["lengths"]))
        moves = bytes(move if move < 4 else 0 for move in expected)
        played: list[Any] = [*position.values(), moves]
        found, food, _ = _search.play_turns(*played)
        if not found[0] or any(snake and len(snake[1]) > 2 * 625 for snake in found):
            return  # The search rejects longer snakes.
        # An eliminated snake has health 0, and the search ignores its cell.
        snakes = [snake or (0, bytes(2)) for snake in found]
        bodies = [np.frombuffer(body, np.uint16) for _, body in snakes]
        position = position | {
            "lengths": np.array([len(body) for body in bodies], np.int32),
            "health": np.array([health for health, _ in snakes], np.int32),
            "bodies": np.concatenate(bodies),
            "food": food,
        }


def _play_search_turns(rand: random.Random, position: dict[str, Any]) -> None:
    """Play some turns with the search's rules.

    Sometimes, one field of the request is invalid.
    """
    turns, snakes = rand.choice((0, 1, 30, 120)), len(position["lengths"])
    moves = bytes(rand.randrange(4) for _ in range(turns * snakes))
    dead = position["health"] * np.array([rand.random() < 0.9 for _ in range(snakes)])
    _call_function(
        _search.play_turns, rand, position | {"health": dead.astype(np.int32), "moves": moves}
    )


def _call_function(function: Any, rand: random.Random, fields: dict[str, Any]) -> None:
    """Call a search function. In 30% of the calls, one field is invalid.

    An exception of a call with valid fields propagates.
    """
    invalid = rand.random() < 0.3
    if invalid:
        fields[rand.choice(list(fields))] = rand.choice(_INVALID_VALUES)
    nodes = fields.get("nodes")
    if isinstance(nodes, int) and (nodes == 0 or nodes > 1000):
        return  # The call would exceed a reasonable time.
    try:
        function(*fields.values())
    except (ValueError, TypeError, OverflowError, BufferError):
        if not invalid:
            raise


def _random_games(rand: random.Random) -> Any:
    """Create games with random settings.

    The result is None if the rules reject the settings.
    """
    board_map = rand.choice(list(MAPS.values()))
    width, height = rand.choice(board_map.sizes)
    if not board_map.sizes_enforced and rand.random() < 0.5:
        width, height = rand.randint(1, 25), rand.randint(1, 25)
    fewest, most = board_map.players if board_map.players_enforced else (1, 16)
    settings = Settings(
        rand.choice((0, 1, 15, 100, 101)),
        rand.choice((0, 1, 3, 700)),
        rand.choice((-200, -5, 0, 1, 14, 100, 10**6)),
        rand.choice((-1, 0, 1, 2, 3, 25)),
        view_radius=rand.choice((None, None, 0, 1, 5, 30)),
    )
    game = Game(rand.choice(list(RULESETS)), board_map.id, settings, solo=rand.random() < 0.5)
    num_games = 1 if rand.random() < 0.3 else 40
    snakes = [rand.randint(max(1, fewest), most) for _ in range(num_games)]
    widths = [width] * num_games
    if not board_map.sizes_enforced and rand.random() < 0.3:
        widths = [rand.randint(1, width) for _ in range(num_games)]
    try:
        return Games(
            num_games,
            width=widths,
            height=height,
            num_snakes=snakes,
            game=game,
            food_rng=rand.choice(FOOD_RNGS),
        )
    except ValueError:
        return None


class _RandomPlayer:
    """Player of random games in one batch."""

    def __init__(self, games: Any, seed: int) -> None:
        self.games = games
        self.rand = np.random.default_rng(seed)
        self.mask = np.zeros((games.num_games, games.num_snakes, 4), np.bool_)
        self.wildness = self.rand.choice((0.02, 0.1, 1.0))

    def draw_seeds(self) -> NDArray[np.int64]:
        """Return new seeds with random orders of magnitude."""
        span = 1 << int(self.rand.integers(1, 63))
        seeds: NDArray[np.int64] = self.rand.integers(1, span + 1, self.games.num_games)
        return seeds if self.rand.random() < 0.5 else -seeds

    def choose_actions(self) -> NDArray[np.uint8]:
        """Choose random moves.

        Most of the moves are allowed. Eliminated snakes get no moves.
        """
        self.games.action_mask("fatal+head", self.mask)
        chances = np.where(self.mask, self.rand.random(self.mask.shape), -1)
        careful = chances.argmax(-1).astype(np.uint8)
        wild = self.rand.integers(0, 5, careful.shape).astype(np.uint8)
        actions: NDArray[np.uint8] = np.where(
            self.rand.random(careful.shape) < self.wildness, wild, careful
        )
        actions[~self.games.alive] = 255
        return actions

    def play(self, turns: int) -> int:
        """Play up to ``turns`` turns of all games.

        Returns:
            The number of turns played, summed over all games.
        """
        games, played = self.games, 0
        games.reset(self.draw_seeds())
        for _ in range(turns):
            which = self.rand.random(games.num_games) < 0.9
            played += int((which & ~games.over).sum())
            try:
                games.step(self.choose_actions(), which)
            except ValueError:  # The map cannot continue the game.
                games.reset(self.draw_seeds())
            if games.over.any():
                games.reset(self.draw_seeds(), games.over.copy())
        return played

    def read_outputs(self) -> None:
        """Request all observations and action masks in random order, and built-in moves.

        The engine updates the observation arrays on the following turns.
        """
        games = self.games
        largest = int(np.max(games._largest[0])), int(np.max(games._largest[1]))
        for name in self.rand.permutation(observations.ENCODER_NAMES).tolist():
            for frames in self.rand.permutation((1, 3)).tolist():
                observation = observations.Observation(name, frames)
                try:
                    shape = observation.shape(*largest)
                except ValueError:  # The boards are too large for this observation.
                    continue
                out = np.zeros((games.num_games, games.num_snakes, *shape), np.uint8)
                _engine.set_observation_isa(str(self.rand.choice(("plain", "best"))))
                games.observe(observation, out)
        for kind in masks.KINDS:
            games.action_mask(kind, self.mask)
        kinds = self.rand.integers(0, 1 + len(ENGINE_SNAKES), games.alive.shape).astype(np.uint8)
        games.builtin_moves(kinds, np.zeros_like(kinds))

    def import_damaged_positions(self) -> None:
        """Import exported positions unchanged, and with corrupted 32-bit words."""
        games = self.games
        for _ in range(20):
            game = int(self.rand.integers(games.num_games))
            state = games.state(game)
            games.load(game, state)
            words = np.frombuffer(games.export_words(game), np.int32).copy()
            at = self.rand.integers(0, len(words), 3)
            words[at] = self.rand.choice((-(2**31), -1, 0, 1, 5, 25, 26, 127, 128, 2**31 - 1), 3)
            words = words[: int(self.rand.integers(0, len(words) + 1)) or None]
            try:
                games.import_words(game, 1, words.tobytes())
            except ValueError:
                continue


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
            _search_move(drawn, _random_position(drawn))
        case 1:
            _play_search_turns(drawn, _random_position(drawn))
        case _:
            _fuzz_games(drawn)


def _fuzz_games(drawn: _ByteRandom) -> None:
    """Play some turns, import a damaged position, and read all outputs."""
    made = _random_games(drawn)
    if made is None:
        return
    player = _RandomPlayer(made, drawn.getrandbits(8))
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


def _play_games(count: int, rand: random.Random) -> None:
    """Play random games until ``count`` turns are played, summed over all games."""
    with tqdm(total=count, unit=" turns", unit_scale=True) as progress:
        while progress.n < count:
            games = _random_games(rand)
            if games is None:
                continue
            player = _RandomPlayer(games, rand.getrandbits(32))
            progress.update(player.play(rand.choice((20, 200))))
            player.read_outputs()
            player.import_damaged_positions()
            progress.update(player.play(20))


def _send_requests(count: int, rand: random.Random) -> None:
    """Send ``count`` random requests to the search."""
    calls = _search_move, _play_search_turns, _search_game
    for _ in tqdm(range(count), unit=" requests"):
        position = _random_position(rand)
        rand.choice(calls)(rand, position)


def main() -> None:
    """Play random turns, and send random requests to the search."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--turns", type=int, default=1_000_000, help="number of turns to play")
    add("--requests", type=int, default=5000, help="number of requests to the search")
    add("--seed", type=int, default=1, help="seed of the random numbers")
    options = parser.parse_args()
    _play_games(options.turns, random.Random(options.seed))
    _send_requests(options.requests, random.Random(options.seed))


if __name__ == "__main__":
    main()

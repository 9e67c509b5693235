"""Random requests to the search.

The requests cover all rulesets, board sizes from 1 to 25, up to 16 snakes including eliminated
snakes, overlapping bodies, and all limits. The search must either reject a request with an invalid
field or process the request without a crash.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Weights

_INVALID_VALUES: tuple[Any, ...] = (
    *(-(2**31), -1, 0, 1, 26, 121, 2**31 - 1, 2**63 - 1, 1e308, float("nan"), "", None),
    *(b"", b"\xff" * 7, b"\xff" * 4000, np.full(16, -1, np.int32), np.zeros(9, np.uint8)[1:]),
)
"""Values that are invalid for most fields of a request."""


def random_position(rand: random.Random) -> dict[str, Any]:
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


def search_move(rand: random.Random, position: dict[str, Any]) -> None:
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
    request["health"] = _eliminate_some(rand, position["health"])
    _call_function(_search.search, rand, request)


def search_game(rand: random.Random, position: dict[str, Any]) -> None:
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


def _eliminate_some(rand: random.Random, health: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the health of the snakes after the elimination of some snakes, except the first."""
    health = health.copy()
    for i in range(1, len(health)):
        if rand.random() < 0.1:
            health[i] = 0
    return health


def play_turns(rand: random.Random, position: dict[str, Any]) -> None:
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

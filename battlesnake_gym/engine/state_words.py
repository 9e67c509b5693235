"""Conversion between a `State` and the 32-bit words of the compiled engine.

The file ``csrc/state_words.c`` defines the order of the words.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from battlesnake_gym.rules import CAUSES, Point, Snake, State
from battlesnake_gym.rules.maps.castle import CANDIDATES_KEY
from battlesnake_gym.rules.maps.pools import NUM_OUTPUTS_KEY


def pack_state(state: State) -> bytes:
    """Encode the fields of a state that determine the game, without ids and names.

    Raises:
        ValueError: If a number does not fit in 32 bits.
    """
    try:
        return array("i", _state_to_words(state)).tobytes()
    except OverflowError as error:
        raise ValueError(f"state has a number that does not fit in 32 bits: {error}") from error


def unpack_state(words: bytes, ids: Sequence[str]) -> State:
    """Decode a state from its words; the inverse of the encoder.

    Args:
        words: The words in native byte order, 4 bytes each.
        ids: Ids of the snakes, in seat order.
    """
    return _read_state(iter(memoryview(words).cast("i")), ids)


def _state_to_words(state: State) -> Iterator[int]:
    seats = {snake.id: seat for seat, snake in enumerate(state.snakes)}
    yield from (state.turn, state.width, state.height, len(state.snakes))
    for snake in state.snakes:
        killer = seats.get(snake.eliminated_by, -1)
        yield from (CAUSES.index(snake.eliminated_cause), killer, snake.eliminated_on)
        yield snake.health
        yield from _cells_to_words(snake.body)
    yield from _cells_to_words(state.food)
    runs = [(*cell, len(list(run))) for cell, run in groupby(state.hazards)]
    yield len(runs)
    for run in runs:
        yield from run
    yield from _cells_to_words(state.memory.get(CANDIDATES_KEY, ()))
    yield state.memory.get(NUM_OUTPUTS_KEY, 0)


def _cells_to_words(points: Sequence[Point]) -> Iterator[int]:
    yield len(points)
    for point in points:
        yield from point


def _read_state(words: Iterator[int], ids: Sequence[str]) -> State:
    turn, width, height, count = (next(words) for _ in range(4))
    snakes = [_read_snake(words, name, ids) for name in ids[:count]]
    food = _read_cells(words)
    runs = [(next(words), next(words), next(words)) for _ in range(next(words))]
    hazards = [(x, y) for x, y, layers in runs for _ in range(layers)]
    candidates, drawn = _read_cells(words), next(words)
    memory: dict[str, Any] = {}
    if candidates:
        memory[CANDIDATES_KEY] = candidates
    if drawn:
        memory[NUM_OUTPUTS_KEY] = drawn
    return State(turn, width, height, snakes, food, hazards, memory)


def _read_snake(words: Iterator[int], name: str, ids: Sequence[str]) -> Snake:
    cause, killer, eliminated_on, health = (next(words) for _ in range(4))
    by = ids[killer] if killer >= 0 else ""
    return Snake(name, _read_cells(words), health, CAUSES[cause], by, eliminated_on)


def _read_cells(words: Iterator[int]) -> list[Point]:
    return [(next(words), next(words)) for _ in range(next(words))]

from array import array
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

SOURCES: str
"""The hash of the C files that it was compiled from (`build_check.hash_of_sources`)."""

def think(
    width: int,
    height: int,
    wrapped: bool,
    constrictor: bool,
    solo: bool,
    damage: int,
    lengths: NDArray[Any] | array[int],
    health: NDArray[Any] | array[int],
    bodies: NDArray[Any] | array[int],
    food: NDArray[Any] | bytearray,
    hazards: NDArray[Any] | bytearray,
    weights: NDArray[Any] | array[int],
    seconds: float,
    nodes: int,
    max_depth: int,
    network: bytes,
    exact: bool,
    decoupled: bool,
    of_2026: bool,
    first_depth: int,
    stop: Callable[[], object] | None,
    /,
) -> tuple[int, int, int, int, int, dict[int, int], list[bytes], tuple[int, int, int, int]]: ...
def inputs(*question: Any) -> bytes: ...
def play_game(
    width: int,
    height: int,
    wrapped: bool,
    constrictor: bool,
    damage: int,
    lengths: array[int],
    health: array[int],
    bodies: array[int],
    food: bytearray,
    hazards: bytes,
    food_chance: int,
    shrink_every: int,
    players: tuple[tuple[array[int], bytes, int, float, bool], ...],
    seed: int,
    turn: int,
    opening: int,
    careful: int,
    random_share: int,
    max_turns: int,
    /,
) -> tuple[bytes, tuple[float, ...], int, int, int]: ...
def values_by(
    code: int, network: bytes, inputs: bytes | NDArray[Any], living: int, /
) -> bytes | None: ...
def think_by(name: str, /) -> str: ...
def play(
    width: int,
    height: int,
    wrapped: bool,
    constrictor: bool,
    damage: int,
    lengths: NDArray[Any],
    health: NDArray[Any],
    bodies: NDArray[Any],
    food: bytes,
    hazards: bytes,
    moves: bytes,
    /,
) -> tuple[list[tuple[int, bytes] | None], bytes, int]: ...
def use_cpu_clock(on: bool, /) -> bool: ...
def use_pace(share: float, /) -> tuple[float, float]: ...

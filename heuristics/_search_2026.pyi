from typing import Any

from numpy.typing import NDArray

def think(
    width: int,
    height: int,
    wrapped: bool,
    constrictor: bool,
    solo: bool,
    damage: int,
    lengths: NDArray[Any],
    health: NDArray[Any],
    bodies: NDArray[Any],
    food: NDArray[Any],
    hazards: NDArray[Any],
    weights: NDArray[Any],
    seconds: float,
    nodes: int,
    max_depth: int,
    /,
) -> tuple[int, int, int, int, int, dict[int, int], list[bytes]]: ...
def use_cpu_clock(on: bool, /) -> bool: ...

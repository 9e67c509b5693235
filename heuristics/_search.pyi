from typing_extensions import Buffer

def think(
    width: int,
    height: int,
    wrapped: bool,
    constrictor: bool,
    solo: bool,
    damage: int,
    lengths: Buffer,
    health: Buffer,
    bodies: Buffer,
    food: Buffer,
    hazards: Buffer,
    weights: Buffer,
    seconds: float,
    nodes: int,
    max_depth: int,
    /,
) -> tuple[int, int, int, int, int, dict[int, int], list[bytes]]: ...

"""The compiled search, which `search.py` and `self_play.py` use.

Positions are passed as buffers: ``lengths`` and ``health`` int32 (S,), ``bodies`` uint16 cells
(y * width + x, head first, snake after snake), ``food`` and ``hazards`` uint8 (cells,).
"""

from array import array
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

SOURCES_HASH: str
"""Hash of the C files from which the module was compiled (`build_check.sources_hash`)."""

def search(
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
    exact: int,
    decoupled: int,
    frozen: bool,
    first_depth: int,
    should_stop: Callable[[], object] | None,
    /,
) -> tuple[int, int, int, int, int, dict[int, int], list[list[bytes]], tuple[int, int, int, int]]:
    """Search for the best move of snake 0.

    Args:
        width: Width of the board.
        height: Height of the board.
        wrapped: Whether moves wrap around the edges.
        constrictor: Whether snakes grow on every turn.
        solo: Whether the game continues with one snake.
        damage: Damage per hazard layer.
        lengths: Lengths of the snakes.
        health: Health of the snakes.
        bodies: Cells of the bodies.
        food: Food per cell.
        hazards: Hazard layers per cell.
        weights: Weights of the handcrafted evaluation, int32 (`search.Weights`).
        seconds: Time limit in seconds; 0 for no limit.
        nodes: Maximum number of nodes; 0 for no limit.
        max_depth: Maximum depth in turns.
        network: Bytes of a learned evaluation; empty for the handcrafted evaluation.
        exact: 1 computes exact scores for all moves, not only for the best move; 2 also for a
            forced move.
        decoupled: Minimum number of living snakes for decoupled MCTS, which also needs
            ``network``; 0 for never.
        frozen: Use the frozen search, which ignores ``network`` and ``decoupled``.
        first_depth: First depth of iterative deepening; above 1 for a helper thread.
        should_stop: Polled callback; a true return value stops the search.

    Returns:
        (move, depth, proven, leaf_evals, nodes, score by move, lines of the four moves as bytes
        per turn, visits of the four moves in a decoupled search or zeros). Without ``exact``, only
        the best move has a line. The unit of scores is 1/1000 cell of
        territory.

    Raises:
        ValueError: If an argument is outside the limits of the search.
        InterruptedError: If ``should_stop`` returned a true value.
    """

def inputs(*request: Any) -> bytes:
    """Return the network inputs of a position as int16 bytes.

    The arguments are the arguments of `search`.
    """

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
    players: tuple[tuple[array[int], bytes, int, float, int, float, bool], ...],
    seed: int,
    turn: int,
    random_opening_turns: int,
    node_doublings: int,
    random_move_fraction: int,
    max_turns: int,
    first_moves: bytes,
    only_seat: int,
    /,
) -> tuple[bytes, tuple[float, ...], int, int, int]:
    """Play a self-play game; returns (rows, points by seat, turns, finished, nodes)."""

def evaluate_batch(
    kernel: int, network: bytes, inputs: bytes | NDArray[Any], living: int, /
) -> bytes | None:
    """Evaluate network inputs int16 [N, NUM_INPUTS]; returns int32 [N] in 1/1000 cell.

    ``kernel`` is 0 (plain) or 1 (AVX2); the result is None if the processor lacks AVX2.
    """

def set_isa(name: str, /) -> str:
    """Select the instruction set "plain", "avx2" or "best"; returns the selected name."""

def play_turns(
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
) -> tuple[list[tuple[int, bytes] | None], bytes, int]:
    """Play turns by the rules of the search; returns (snakes, food, position hash)."""

def use_cpu_clock(on: bool, /) -> bool:
    """Measure time limits in CPU time of the process; returns the previous setting."""

def set_throttle(fraction: float, /) -> tuple[float, float]:
    """Limit searches to this fraction of a core in the last 0.1 s before their deadline.

    The result is (CPU time of the process, seconds left) when throttling began since the last call,
    or zeros. Fraction 0 disables throttling.
    """

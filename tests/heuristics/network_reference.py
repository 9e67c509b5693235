"""A reference implementation of the network and its inputs in plain Python."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import Grid, grid
from battlesnake_gym.rules import MOVES, Snake, grows_always, wraps

Cell = tuple[int, int]
UNREACHED, MAX_ACTIVATION = 127, 1023


def named_inputs(board: Board) -> list[dict[str, int]]:
    """Return the inputs of the board, the snake itself and its opponents' groups."""
    snakes = [board.you, *(snake for snake in board.living if snake.id != board.you_id)]
    land = _spread(board, snakes)
    own, *rivals = (_snake(board, snakes, land, i) for i in range(len(snakes)))
    away = [_shape(board).distance(board.you.head, snake.head) for snake in snakes[1:]]
    strongest = max(rivals, key=lambda one: (one["cells"] + one["length"], _as_bytes(one.values())))
    nearest = max(range(len(rivals)), key=lambda i: (-away[i], _as_bytes(rivals[i].values())))
    found = [_board(board, snakes, land, nearest + 1, away[nearest]), own, strongest]
    if len(rivals) > 1:
        mean = {name: int(sum(one[name] for one in rivals) / len(rivals)) for name in own}
        found += [rivals[nearest], mean]
    return found


def _clipped(found: dict[str, int]) -> dict[str, int]:
    return {name: max(-MAX_ACTIVATION, min(MAX_ACTIVATION, value)) for name, value in found.items()}


def _as_bytes(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(2, "little", signed=True) for value in values)


def _shape(board: Board) -> Grid:
    return grid(board.width, board.height, wraps(board.game))


def _beside(shape: Grid, cell: Cell) -> list[Cell]:
    return [target for move in MOVES if (target := shape.step(cell, move))]


def _spread(board: Board, snakes: list[Snake]) -> dict[str, Any]:
    """Compute which snake reaches which cell first, and the contested cells."""
    shape = _shape(board)
    free = {(x, y) for x in range(board.width) for y in range(board.height)}
    free -= {cell for snake in snakes for cell in snake.body}
    owned: list[dict[Cell, int]] = [{snake.body[0]: 0} for snake in snakes]
    taken: set[Cell] = set()
    moves, last = [0] * len(snakes), [0] * len(snakes)
    grows = grows_always(board.game)
    for turn in range(1, UNREACHED):
        for snake in snakes:
            stacked = _stacked(snake)
            segments = snake.body[: len(snake.body) - stacked]
            if not grows and 0 <= turn - 1 - stacked < len(segments):
                free.add(segments[-(turn - stacked)])
        reached = [
            {new for cell in own for new in _beside(shape, cell)} & free - taken for own in owned
        ]
        fresh = set().union(*reached)
        if not fresh:
            if turn > 3:
                break
            continue
        if turn == 1:
            moves = [len(cells) for cells in reached]
        for i, snake in enumerate(snakes):
            for cell in reached[i]:
                others = (other for j, other in enumerate(snakes) if j != i and cell in reached[j])
                if all(len(other.body) < len(snake.body) for other in others):
                    owned[i].setdefault(cell, turn)
                    last[i] = turn  # also for the cell of its own head, once the body has left it
        taken |= fresh
    return {"owned": owned, "taken": taken, "moves": moves, "last": last}


def _stacked(snake: Snake) -> int:
    """Count the segments that are stacked on the tail."""
    return sum(cell == snake.body[-1] for cell in snake.body[:-1])


def _share(board: Board, cells: int) -> int:
    size = board.width * board.height
    return cells * ((512 * 65536 + size - 1) // size) >> 16


def _damage(board: Board) -> int:
    return min(max(board.game.settings.hazard_damage_per_turn, 0), 50)


def _snake(board: Board, snakes: list[Snake], land: dict[str, Any], i: int) -> dict[str, int]:
    snake, owned = snakes[i], land["owned"][i]
    food = {cell for cell in board.food if cell in owned and owned[cell] > 0}
    food_at = min((owned[cell] for cell in food), default=UNREACHED)
    slack = snake.health - (40 if food_at == UNREACHED else food_at)
    hazards = {cell: list(board.hazards).count(cell) for cell in board.hazards}
    x, y = snake.body[0]
    edges = min(x, board.width - 1 - x) + min(y, board.height - 1 - y)
    found = {
        "cells": _share(board, len(owned)),
        "cells_soon": 16 * sum(turn <= 4 for turn in owned.values()),
        "cells_later": 8 * sum(turn <= 9 for turn in owned.values()),
        "last": 16 * land["last"][i],
        "cramped": 32 * max(len(snake.body) - len(owned), 0),
        "length": 8 * len(snake.body),
        "health": 5 * snake.health,
        "food_near": 1024 // (food_at + 1) if food_at < UNREACHED else 0,
        "hunger": 16 * max(30 - slack, 0),
        "moves": 128 * land["moves"][i],
        "food_owned": 64 * len(food),
        "tail": 256 if snake.body[-1] in owned else 0,
        "cells_in_hazard": _share(board, sum(cell in hazards for cell in owned))
        * _damage(board)
        // 32,
        "centre": 256 if wraps(board.game) else edges * 512 // (board.width + board.height),
        "stacked": 128 * min(_stacked(snake), 3),
        "in_hazard": 8 * hazards.get(snake.body[0], 0) * _damage(board),
    }
    return _clipped(found)


def _board(
    board: Board, snakes: list[Snake], land: dict[str, Any], nearest: int, apart: int
) -> dict[str, int]:
    lengths = [len(snake.body) for snake in snakes]
    lead, longer = lengths[0] - max(lengths[1:]), lengths[0] - lengths[nearest]
    owned = set().union(*land["owned"])
    bodies = {cell for snake in snakes for cell in snake.body}
    threat = 64 * max(8 - apart, 0)
    hazards = len(set(board.hazards)) if _damage(board) else 0
    size = board.width * board.height
    found = {
        "lead": 64 * max(-8, min(8, lead)),
        "long_lead": 16 * lead,
        "distance": 16 * min(apart, 32),
        "odd_distance": 256 * (apart % 2),
        "closeness": threat,
        "threat": threat if longer > 0 else -threat if longer < 0 else 0,
        "contested": _share(board, len(land["taken"] - owned)),
        "out_of_reach": _share(board, size - len(land["taken"])),
        "food": 32 * len(board.food),
        "bodies": _share(board, len(bodies)),
        "rivals": 128 * (len(snakes) - 2),
        "size": 2 * size,
        "constrictor": 256 * (grows_always(board.game)),
        "wrapped": 256 * (wraps(board.game)),
        "damage": 16 * _damage(board) if hazards else 0,
        "hazards": _share(board, hazards),
    }
    return _clipped(found)


def value_by_definition(stack: np.void, row: Iterable[int]) -> int:
    """Evaluate one weight stack with Python integers."""

    def layer(values: Iterable[int], weights: NDArray[Any], bias: NDArray[Any]) -> list[int]:
        sums = bias.astype(object).copy()
        for i, value in enumerate(values):
            sums += int(value) * weights[i // 2, :, i % 2].astype(object)
        return [min(max((int(s) + 512) >> 10, 0), MAX_ACTIVATION) for s in sums]

    hidden = layer(row, stack["first"], stack["first_bias"])
    second = layer(hidden, stack["second"], stack["second_bias"])
    logit: int = int(stack["last_bias"]) + sum(
        v * int(w) for v, w in zip(second, stack["last"], strict=True)
    )
    return logit * 10_000 >> 18

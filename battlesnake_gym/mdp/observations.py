"""Observations: named encoders from positions to byte planes ``[C, H, W]``.

Every encoder shows the board from the perspective of one snake, the observing snake. In names,
"own" refers to the observing snake. This module encodes a `State` for one snake at a time. The
engine's C code writes the same bytes for all games and snakes in one call (``Games.observe``).
Networks divide the bytes by 255.

An encoder combines:

* *values*: the planes and the meaning of their bytes (``PLANES``, alone or with
  ``_TERRITORY_PLANES`` or ``_MEMORY_PLANES``, or ``_STARTER_PLANES``);
* *view*: the position of the board in the planes. The center of the planes is the center of the
  board or the head of the observing snake. In the view "facing", the board is also rotated so that
  the snake faces up;
* ``frame_stack``: the number of stacked turns, newest first.

``docs/reference/observations.md`` describes every name, plane and value.

>>> observation = get("planes")
>>> observation.shape(11, 11)
(10, 11, 11)
>>> get({"name": "planes", "frame_stack": 2}).shape(11, 11)
(20, 11, 11)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.grid import cell_indices, grid
from battlesnake_gym.boards.limited_view import HIDDEN_POINT, limit_state
from battlesnake_gym.common import extensions
from battlesnake_gym.rules.stages import default_move
from battlesnake_gym.rules.state import MAX_HEALTH, MOVES, Point, Snake, State

Bytes = NDArray[np.uint8]

PLANES = (
    "board",
    "food",
    "hazards",
    "turn",
    "health",
    "length",
    "own_body",
    "other_bodies",
    "longer_heads",
    "shorter_heads",
)
"""Planes of the encoders "planes", "centered" and "facing", in order."""

_TERRITORY_PLANES = (
    "own_territory",
    "other_territory",
    "up_territory",
    "down_territory",
    "left_territory",
    "right_territory",
)
"""Planes that the encoder "territory" appends, in order.

The preceding planes are the planes of the encoder "planes".
"""

_MEMORY_PLANES = ("last_seen_food", "last_seen_bodies", "sighting_recency")
"""Planes that the encoder "memory" appends, in order.

For each cell, they contain the values of the planes "food" and "other_bodies" at the last sighting
of the cell, and how recent this sighting is. The preceding planes are the planes of the encoder
"planes".
"""

_STARTER_PLANES = ("food", "own_snake", "other_snakes", "hazards", "health", "length", "turn")
"""Planes of the starter pack's encoders, in order."""

# These are values of body cells in `PLANES`. A blocked cell has the value 128 plus 4 for each turn
# until the cell is free, up to the maximum.
_FREE_NEXT_TURN_VALUE, _BLOCKED_VALUE, _MAX_BLOCKED_VALUE, _HEAD_VALUE = 32, 128, 224, 255

# In `_TERRITORY_PLANES`, cells reached on the next turn have the maximum value. The value decreases
# by 8 per turn, down to the minimum.
_TERRITORY_MAX, _TERRITORY_STEP, _TERRITORY_MIN = 255, 8, 15

# In the plane "sighting_recency", visible cells have the maximum value. The value decreases by 4
# per turn, down to the minimum. Cells that were never seen have the value 0.
_RECENCY_MAX, _RECENCY_STEP, _RECENCY_MIN = 255, 4, 15

_OUTSIDE_VALUE = 255
"""Value of cells outside the board in the starter pack's encoders.

The starter pack itself uses -1.
"""

MAX_BORDERED_SIZE = 21
"""Width and height of the planes of the "max-bordered" encoders, in cells.

The value is the largest board size of the starter pack, 19, plus a border on both sides.
"""

_VIEWS = ("board", "head", "facing")
"""Names of the views; the C code (engine/csrc/observe.h) uses the indices."""

_MAX_FRAME_STACK = 8

EncodeFn = Callable[[State, str], NDArray[np.uint8]]
"""Function that computes planes, uint8 [planes, rows, columns].

The arguments are a state and the id of a living snake.
"""


_SizeFn = Callable[[int, int], tuple[int, int]]
"""Function from the width and height of a board to the rows and columns of the planes."""


def _board_size(width: int, height: int) -> tuple[int, int]:
    return height, width


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Definition of an encoder.

    Attributes:
        planes: Names of the planes, in order.
        encode: Function that returns the planes of the board, and the values outside the board.
        size: Function that returns the size of the planes.
        view: One of `_VIEWS`.
        code: Code of the values in the C code; None for a custom encoder.
        version: Version of a custom encoder.
    """

    planes: tuple[str, ...]
    encode: Callable[[State, Snake], tuple[Bytes, Bytes]]
    size: _SizeFn = _board_size
    view: str = "board"
    code: int | None = None
    version: int = 1


_custom_encoders: dict[str, _Encoder] = {}


def register(
    name: str,
    planes: Sequence[str],
    encode: EncodeFn,
    *,
    size: _SizeFn = _board_size,
    version: int = 1,
) -> None:
    """Register a custom encoder as an observation name.

    The actions of a custom encoder are absolute. The engine calls ``encode`` in Python for every
    living snake on every turn. These calls take about a hundred times as long as a built-in
    encoder.

    Args:
        name: Name of the observation.
        planes: Names of the planes, in order.
        encode: Function that returns uint8 [len(planes), rows, columns] for a living snake.
        size: Function that returns (rows, columns) for a board; smaller planes are centered in the
            array.
        version: Version of the encoder; change it when the meaning of a plane changes. Policies
            store the version, and policies with another version are rejected.

    Raises:
        ValueError: If ``name`` is built in.
    """
    if name in _ENCODERS:
        raise ValueError(f"the observation {name!r} is built in; choose another name")

    def encode_checked(state: State, own: Snake) -> tuple[Bytes, Bytes]:
        found = np.asarray(encode(state, own.id))
        wanted = (len(planes), *size(state.width, state.height))
        if found.dtype != np.uint8 or found.shape != wanted:
            raise ValueError(
                f"observation {name!r} must return uint8 of shape {wanted}, "
                f"got {found.dtype} of shape {found.shape}"
            )
        return found, np.zeros(len(planes), np.uint8)

    _custom_encoders[name] = _Encoder(tuple(planes), encode_checked, size, version=version)


RELATIVE_TO_ABSOLUTE: NDArray[np.uint8] = np.array(
    [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 1, 0], [3, 2, 0, 1]], dtype=np.uint8
)
"""Absolute action, indexed by ``[facing, relative action]``; uint8 [4, 4].

The relative action "up" keeps the direction of the snake.
"""

# Entry i is the number of clockwise quarter turns that rotate a snake from facing MOVES[i] to
# facing up.
_QUARTER_TURNS = (0, 2, 1, 3)


DEFAULT_NAME = "planes"
"""Name of the default observation."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Encoder of observations, which `get` creates.

    Attributes:
        name: One of `ENCODER_NAMES`, or a registered name.
        frame_stack: Number of stacked turns, 1 to 8.
    """

    name: str = DEFAULT_NAME
    frame_stack: int = 1

    def __post_init__(self) -> None:
        if type(self) is not Observation:
            raise ValueError(
                f"{type(self).__name__} is a subclass of Observation, which the engine cannot use: "
                "register the encoder with observations.register instead"
            )
        if self.name not in [*_ENCODERS, *_custom_encoders]:
            extensions.load_all()
        if self.name not in [*_ENCODERS, *_custom_encoders]:
            raise ValueError(
                extensions.unregistered_name_message(
                    "observation", self.name, [*ENCODER_NAMES, *_custom_encoders]
                )
            )
        if type(self.frame_stack) is not int or not 1 <= self.frame_stack <= _MAX_FRAME_STACK:
            raise ValueError(
                f"frame_stack must be an integer between 1 and {_MAX_FRAME_STACK}, "
                f"got {self.frame_stack!r}"
            )

    @property
    def planes(self) -> tuple[str, ...]:
        """Names of the planes of one turn, in order."""
        return self._encoder.planes

    @property
    def in_engine(self) -> bool:
        """Whether the compiled engine can compute this observation."""
        return self.name in _ENCODERS

    @property
    def relative(self) -> bool:
        """Whether actions are relative to the snake's direction (see `absolute_actions`)."""
        return self._encoder.view == "facing"

    @property
    def depends_on_earlier_turns(self) -> bool:
        """Whether an observation shows more than the current turn (see ``out`` of `encode`)."""
        return self.frame_stack > 1 or self.name == "memory"

    @property
    def codes(self) -> tuple[int, int]:
        """Codes of the values and of the view in the C code of the engine.

        Raises:
            ValueError: If the encoder is custom.
        """
        encoder = self._encoder
        if encoder.code is None:
            raise ValueError(
                f"the engine cannot compute the observation {self.name!r}: it is custom"
            )
        return encoder.code, _VIEWS.index(encoder.view)

    @property
    def _encoder(self) -> _Encoder:
        return _ENCODERS.get(self.name) or _custom_encoders[self.name]

    def shape(self, width: int, height: int) -> tuple[int, int, int]:
        """Return the shape ``(planes * frame_stack, rows, columns)`` of an observation.

        Args:
            width: Width of the largest board, in cells.
            height: Height of the largest board, in cells.

        Raises:
            ValueError: If a board does not fit; the limit for "max-bordered" is 19x19.
        """
        for field, value in (("width", width), ("height", height)):
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        encoder = self._encoder
        if encoder.size is _max_bordered_size and max(width, height) > MAX_BORDERED_SIZE - 2:
            raise ValueError(
                f"observation {self.name!r} fits boards of up to {MAX_BORDERED_SIZE - 2} cells "
                f"a side, got {width} x {height}; use {self.name.removeprefix('max-')!r}"
            )
        return len(encoder.planes) * self.frame_stack, *encoder.size(width, height)

    def space(self, width: int, height: int) -> gymnasium.spaces.Box:
        """Return the Gymnasium space of one snake's observation."""
        return gymnasium.spaces.Box(0, 255, self.shape(width, height), np.uint8)

    def encode(
        self,
        state: State,
        snake_id: str,
        out: Bytes | None = None,
        *,
        view_radius: int | None = None,
    ) -> Bytes:
        """Encode the observation of ``snake_id`` as uint8 with the shape from `shape`.

        Args:
            state: Current position.
            snake_id: Id of the snake that observes; an eliminated snake observes zeros.
            out: Array to write to; None creates a new array. The array may have the shape of a
                larger board. With stacked turns, the array also contains the earlier turns, and
                each call shifts these turns by one. The encoder "memory" updates the memory in the
                array. In both cases, pass the same array on every turn. The stack and the memory
                restart on turn 0 and with an array of zeros.
            view_radius: View radius of the snake in cells (see `boards.limited_view`); None means
                no limit. Custom encoders receive the limited position, in which
                ``limited_view.HIDDEN_POINT`` stands for a run of hidden segments.

        Returns:
            ``out`` or the new array.

        Raises:
            ValueError: If the snake is unknown or ``out`` does not fit.
        """
        state = limit_state(state, snake_id, view_radius)
        snake = state.snake(snake_id)
        shape = self.shape(state.width, state.height)
        if out is None:
            out = np.zeros(shape, np.uint8)
        elif out.dtype != np.uint8 or out.ndim != 3 or out.shape[0] != shape[0]:
            raise ValueError(
                f"out must be a uint8 array of shape {shape} or more, "
                f"got {out.dtype} of shape {out.shape}"
            )
        elif out.shape[1] < shape[1] or out.shape[2] < shape[2]:
            raise ValueError(
                f"out of shape {out.shape} is too small for a board of {state.width} x "
                f"{state.height}; {self.name!r} needs {shape}"
            )
        elif self.relative and (out.shape[1] != out.shape[2] or out.shape[1] % 2 == 0):
            raise ValueError(
                f"rotated planes must be squares with an odd side, got out of shape {out.shape}"
            )
        if not snake.alive:
            out[:] = 0
            return out
        encoder, planes = self._encoder, len(self.planes)
        out[planes:] = 0 if state.turn == 0 else out[:-planes].copy()
        board, outside = encoder.encode(state, snake)
        out[: len(board)] = _paste_board(encoder.view, board, outside, snake, out.shape[1:])
        if self.name == "memory":
            _update_memory(out[:planes], state, snake, view_radius)
        return out

    def absolute_actions(
        self, actions: NDArray[np.integer[Any]], facing: NDArray[np.integer[Any]]
    ) -> NDArray[np.uint8]:
        """Convert the actions of a network to absolute actions.

        Args:
            actions: Actions of the network, any shape.
            facing: Direction of each snake as an index into MOVES, in the same shape: `facing` for
                one snake, ``Games.facing`` for a batch.

        Returns:
            uint8 in the same shape; the values are unchanged if actions are not relative.
        """
        if not self.relative:
            return actions.astype(np.uint8)
        turned: NDArray[np.uint8] = RELATIVE_TO_ABSOLUTE[facing, actions]
        return turned

    def relative_mask(
        self, mask: NDArray[np.bool_], facing: NDArray[np.integer[Any]]
    ) -> NDArray[np.bool_]:
        """Convert an absolute action mask ``[..., 4]`` to the network's actions."""
        if not self.relative:
            return mask
        return np.take_along_axis(mask, RELATIVE_TO_ABSOLUTE[facing].astype(np.intp), axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for policy files, from which `get` creates an equal encoder."""
        content = {"name": self.name, "frame_stack": self.frame_stack, "planes": list(self.planes)}
        return content if self.in_engine else content | {"version": self._encoder.version}


def get(observation: str | Mapping[str, Any] | Observation) -> Observation:
    """Return the encoder that ``observation`` describes.

    Args:
        observation: A name, a dictionary from `Observation.to_dict`, or an encoder, which is
            returned unchanged.

    Raises:
        ValueError: If a name or field is unknown, or if the dictionary lists other planes or
            another version than the encoder. In the latter case, the policy was trained on another
            observation.
    """
    if isinstance(observation, Observation):
        return observation
    if isinstance(observation, str):
        return Observation(observation)
    if not isinstance(observation, Mapping):
        raise ValueError(f"observation must be a name or a dictionary, got {observation!r}")
    unknown = sorted(set(observation) - {"name", "frame_stack", "planes", "version"})
    if unknown:
        raise ValueError(
            f"unknown field of an observation: {unknown[0]!r}; "
            "known are name, frame_stack, planes, version"
        )
    found = Observation(observation.get("name", DEFAULT_NAME), observation.get("frame_stack", 1))
    planes = observation.get("planes", found.planes)
    if tuple(planes) != found.planes:
        raise ValueError(
            f"observation {found.name!r} has the planes {', '.join(found.planes)}, "
            f"got {', '.join(map(str, planes))}; it was stored by another version"
        )
    version = found._encoder.version
    if observation.get("version", version) != version:
        raise ValueError(
            f"observation {found.name!r} has version {version}, got "
            f"{observation['version']}; use the file with which the policy was trained"
        )
    return found


def facing(state: State, snake_id: str) -> int:
    """Return the direction of a snake as an index into MOVES.

    The result is the direction from the neck to the head, or up (0) for a stacked body. On a
    wrapped board, head and neck may be on opposite edges. The rules play a move in this direction
    for a snake without a valid move.
    """
    return MOVES.index(default_move(state.snake(snake_id).body))


def _encode_planes(state: State, own: Snake) -> tuple[Bytes, Bytes]:
    planes = dict.fromkeys(PLANES, 0) | {"board": 255}
    planes |= {
        "turn": min(255, state.turn // 8),
        "health": (max(0, min(MAX_HEALTH, own.health)) + 3) // 4 * 10,
        "length": min(255, 2 * own.length),
    }
    board = _constant_planes(state, planes)
    outside = board[:, 0, 0].copy()
    outside[PLANES.index("board")] = 0
    view = dict(zip(PLANES, board, strict=True))

    for x, y in state.food:
        view["food"][y, x] = 255
    _add_hazards(view["hazards"], state, 51)
    for snake in state.living:
        body = view["own_body" if snake is own else "other_bodies"]
        for (x, y), turns in _turns_until_free(snake).items():
            body[y, x] = (
                _FREE_NEXT_TURN_VALUE
                if turns == 1
                else min(_MAX_BLOCKED_VALUE, _BLOCKED_VALUE + 4 * turns)
            )
        x, y = snake.head
        if snake.head == HIDDEN_POINT:
            continue
        body[y, x] = _HEAD_VALUE
        if snake is not own:
            lead = snake.length - own.length
            heads = view["longer_heads" if lead >= 0 else "shorter_heads"]
            heads[y, x] = min(255, 128 + 8 * abs(lead))
    return board, outside


def _encode_territory(state: State, own: Snake) -> tuple[Bytes, Bytes]:
    board, outside = _encode_planes(state, own)
    return np.concatenate([board, _territory_planes(state, own)]), np.pad(
        outside, (0, len(_TERRITORY_PLANES))
    )


def _territory_planes(state: State, own: Snake) -> Bytes:
    """Compute the territory planes.

    The planes contain which snake reaches each cell first, and in how many turns. All snakes move
    simultaneously, one cell per turn.
    """
    shape = grid(state.width, state.height)
    snakes = [own, *(snake for snake in state.living if snake is not own)]
    lengths = [snake.length for snake in snakes]

    # Entry i of each list is the union of the first i segments of one body.
    bodies = [list(accumulate(map(shape.bit, snake.body), or_, initial=0)) for snake in snakes]

    def blocked_cells(turns: int) -> int:
        return functools.reduce(or_, (body[max(0, len(body) - 1 - turns)] for body in bodies))

    exits = [shape.spread(shape.bit(snake.head)) & ~blocked_cells(1) for snake in snakes]
    planes = np.zeros((len(_TERRITORY_PLANES), state.height * state.width), np.uint8)
    for turn, won in enumerate(shape.first_reached_by_turn(exits, lengths, blocked_cells)):
        planes[0][cell_indices(won[0])] = _territory_value(turn)
        planes[1][cell_indices(functools.reduce(or_, won[1:], 0))] = _territory_value(turn)
    for move, plane in zip(MOVES, planes[2:], strict=True):
        target = shape.step(own.head, move)
        if not shape.bit(target) & exits[0]:
            continue
        fronts = [shape.bit(target), *exits[1:]]
        for turn, won in enumerate(shape.first_reached_by_turn(fronts, lengths, blocked_cells)):
            plane[cell_indices(won[0])] = _territory_value(turn)
    return planes.reshape(-1, state.height, state.width)


def _update_memory(planes: Bytes, state: State, own: Snake, view_radius: int | None) -> None:
    """Update `_MEMORY_PLANES` behind the current `PLANES`, uint8 [C, H, W], in place."""
    top = (planes.shape[1] - state.height) // 2
    left = (planes.shape[2] - state.width) // 2
    board = planes[:, top : top + state.height, left : left + state.width]
    now = board[: len(PLANES)]
    food, bodies, recency = board[len(PLANES) :]
    if state.turn == 0:
        planes[len(PLANES) :] = 0
    # New food is visible outside the view.
    seen = now[PLANES.index("food")] > 0
    rows, columns = np.ogrid[: state.height, : state.width]
    distances = abs(columns - own.head[0]) + abs(rows - own.head[1])
    seen |= distances <= (state.width + state.height if view_radius is None else view_radius)
    np.copyto(food, now[PLANES.index("food")], where=seen)
    np.copyto(bodies, now[PLANES.index("other_bodies")], where=seen)
    aged = np.maximum(_RECENCY_MIN, recency.astype(np.int16) - _RECENCY_STEP)
    recency[:] = np.where(seen, _RECENCY_MAX, np.where(recency > 0, aged, 0))


def _territory_value(turns: int) -> int:
    return max(_TERRITORY_MIN, _TERRITORY_MAX - _TERRITORY_STEP * turns)


def _encode_starter_planes(state: State, own: Snake, numbered: bool = False) -> tuple[Bytes, Bytes]:
    constants = dict.fromkeys(_STARTER_PLANES, 0) | {
        "health": max(0, min(MAX_HEALTH, own.health)) * 255 // MAX_HEALTH,
        "length": min(250, 5 * own.length),
        "turn": min(255, state.turn // 4),
    }
    board = _constant_planes(state, constants)
    outside = board[:, 0, 0].copy()
    outside[: _STARTER_PLANES.index("health")] = _OUTSIDE_VALUE
    view = dict(zip(_STARTER_PLANES, board, strict=True))

    for x, y in state.food:
        view["food"][y, x] = 250
    _add_hazards(view["hazards"], state, 50)
    for snake in state.living:
        plane = view["own_snake" if snake is own else "other_snakes"]
        for position, (x, y) in reversed(list(enumerate(snake.body, start=1))):
            if (x, y) == HIDDEN_POINT:
                continue
            if numbered:
                plane[y, x] = min(250, 5 * position)
            else:
                plane[y, x] = 250 if position == 1 else max(plane[y, x], 50)
    return board, outside


def _constant_planes(state: State, values: Mapping[str, int]) -> Bytes:
    column = np.array(list(values.values()), np.uint8)[:, None, None]
    return np.broadcast_to(column, (len(values), state.height, state.width)).copy()


def _turns_until_free(snake: Snake) -> dict[Point, int]:
    """Return the number of turns until each visible body cell is free.

    The function assumes that the snake does not eat.
    """
    cells: dict[Point, int] = {}
    for index, cell in enumerate(snake.body):
        if cell != HIDDEN_POINT:
            cells.setdefault(cell, snake.length - index)
    return cells


def _add_hazards(plane: Bytes, state: State, step: int) -> None:
    """Add ``step`` to the value of each cell per hazard layer, for up to five layers."""
    for x, y in state.hazards:
        if state.inside((x, y)):
            plane[y, x] = min(5 * step, int(plane[y, x]) + step)


def _paste_board(
    view: str, board: Bytes, outside: Bytes, own: Snake, size: tuple[int, ...]
) -> Bytes:
    """Copy the board into planes of ``size`` (rows, columns).

    The value ``outside`` fills cells off the board.
    """
    height, width = board.shape[1:]
    rows, columns = size
    if view == "board":
        top, left = (rows - height) // 2, (columns - width) // 2
    else:
        top, left = rows // 2 - own.head[1], columns // 2 - own.head[0]
    placed = np.broadcast_to(outside[:, None, None], (len(board), rows, columns)).copy()
    placed[:, top : top + height, left : left + width] = board
    if view == "facing":
        placed = np.rot90(placed, _QUARTER_TURNS[MOVES.index(default_move(own.body))], axes=(1, 2))
    return placed


def _bordered_size(width: int, height: int) -> tuple[int, int]:
    return height + 2, width + 2


def _max_bordered_size(width: int, height: int) -> tuple[int, int]:
    return MAX_BORDERED_SIZE, MAX_BORDERED_SIZE


def _centered_size(width: int, height: int) -> tuple[int, int]:
    return 2 * height - 1, 2 * width - 1


def _facing_size(width: int, height: int) -> tuple[int, int]:
    return _centered_size(max(width, height), max(width, height))


_ENCODERS = {
    "planes": _Encoder(PLANES, _encode_planes, code=0),
    "centered": _Encoder(PLANES, _encode_planes, _centered_size, "head", code=0),
    "facing": _Encoder(PLANES, _encode_planes, _facing_size, "facing", code=0),
    "territory": _Encoder(PLANES + _TERRITORY_PLANES, _encode_territory, code=3),
    "memory": _Encoder(PLANES + _MEMORY_PLANES, _encode_planes, code=4),
    **{
        f"{border}-{values}": _Encoder(_STARTER_PLANES, encode, size, code=code)
        for values, encode, code in (
            ("51s", _encode_starter_planes, 1),
            ("num", functools.partial(_encode_starter_planes, numbered=True), 2),
        )
        for border, size in (
            ("flat", _board_size),
            ("bordered", _bordered_size),
            ("max-bordered", _max_bordered_size),
        )
    },
}

ENCODER_NAMES = tuple(_ENCODERS)
"""Names of the built-in encoders."""

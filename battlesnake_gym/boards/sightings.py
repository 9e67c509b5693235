"""Memory of a snake with limited view: what it last saw in each cell, and on which turn.

A strategy keeps the state of one game in its own object (`battlesnake_gym.snakes`). The server
creates the object at ``/start`` or at the first request of a game and a snake, and deletes the
object at ``/end``, or after ten minutes without a request. A strategy that needs a memory owns a
`Sightings` and calls `Sightings.update` before each move. A `Pipeline` does so, and its rules read
``View.sightings``.

The order of the calls has no effect: a sighting replaces only earlier sightings of the same cell,
and a repeated position changes nothing. After a restart of the server, the memory starts again with
the present position.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from battlesnake_gym.boards.limited_view import is_visible
from battlesnake_gym.rules.play import MAX_SIZE
from battlesnake_gym.rules.state import Point

if TYPE_CHECKING:
    from battlesnake_gym.boards.board import Board

_NEVER = -1
_EMPTY, _FOOD, _FIRST_SNAKE = 0, 1, 2
"""Contents of a cell at its last sighting; the values from `_FIRST_SNAKE` on are other snakes."""

_MAX_SNAKES = 64
"""Maximum number of remembered snakes: four times the limit for a game."""


class Sightings:
    """Last sightings of food, bodies and heads by one snake in one game.

    The object uses at most 16 kB, regardless of the requests. Nothing is remembered on boards of
    more than 25x25 cells. A board with another game id, or of another snake, starts a new memory.
    """

    __slots__ = ("_contents", "_game", "_heads", "_snakes", "_turns", "_width")

    def __init__(self) -> None:
        self._game: int | None = None
        self._clear()

    def _clear(self) -> None:
        self._width = 0
        self._turns = array("i")
        self._contents = bytearray()
        self._snakes: dict[int, int] = {}
        self._heads: dict[int, tuple[Point, int]] = {}

    def update(self, board: Board) -> None:
        """Remember what ``board.you`` sees on this turn."""
        game = hash((board.game.id, board.you_id))
        if game != self._game:
            self._game = game
            self._clear()
        width, height = board.width, board.height
        if not self._turns and width * height <= MAX_SIZE**2:
            self._width = width
            self._turns = array("i", [_NEVER]) * (width * height)
            self._contents = bytearray(width * height)
        if (width, len(self._turns)) != (self._width, width * height):
            return
        own, view_radius = board.you.head, board.game.settings.view_radius
        radius = width + height if view_radius is None else view_radius
        contents = dict.fromkeys(board.food, _FOOD)  # New food is visible outside the view.
        for y in range(max(0, own[1] - radius), min(height, own[1] + radius + 1)):
            reach = radius - abs(y - own[1])
            for x in range(max(0, own[0] - reach), min(width, own[0] + reach + 1)):
                contents.setdefault((x, y), _EMPTY)
        for snake in board.living:
            key = hash(snake.id)
            if snake.id == board.you_id or len({*self._snakes, key}) > _MAX_SNAKES:
                continue
            code = _FIRST_SNAKE + self._snakes.setdefault(key, len(self._snakes))
            contents |= {cell: code for cell in snake.body if is_visible(cell, own, radius)}
            seen_on = self._heads.get(key, (own, _NEVER))[1]
            if is_visible(snake.head, own, radius) and board.turn >= seen_on:
                self._heads[key] = (snake.head, board.turn)
        for (x, y), content in contents.items():
            index = y * width + x
            if board.inside((x, y)) and board.turn >= self._turns[index]:
                self._turns[index], self._contents[index] = board.turn, content

    def food(self, turn: int) -> dict[Point, int]:
        """Return the cells that contained food when last seen, and the turn of each sighting.

        Args:
            turn: Current turn; later sightings are ignored, because a request may be late.
        """
        return self._select(turn, lambda content: content == _FOOD)

    def bodies(self, turn: int, snake_id: str | None = None) -> dict[Point, int]:
        """Return the cells of other snakes when last seen, and the turn of each sighting.

        Args:
            turn: Current turn; later sightings are ignored.
            snake_id: Id of a snake; None selects all other snakes.
        """
        if snake_id is None:
            return self._select(turn, lambda content: content >= _FIRST_SNAKE)
        code = _FIRST_SNAKE + self._snakes.get(hash(snake_id), _MAX_SNAKES)
        return self._select(turn, lambda content: content == code)

    def head(self, turn: int, snake_id: str) -> tuple[Point, int] | None:
        """Return the cell and the turn of the last sighting of a head, or None.

        The head can now be in each hidden cell at a distance of at most the turns since then.
        """
        found = self._heads.get(hash(snake_id))
        return found if found and found[1] <= turn else None

    def _select(self, turn: int, accepts: Callable[[int], bool]) -> dict[Point, int]:
        return {
            (index % self._width, index // self._width): seen_on
            for index, (seen_on, content) in enumerate(
                zip(self._turns, self._contents, strict=True)
            )
            if _NEVER < seen_on <= turn and accepts(content)
        }

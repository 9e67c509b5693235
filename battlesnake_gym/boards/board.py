"""A board: one game as an object that you can inspect, play, copy, draw and send.

    >>> from battlesnake_gym.boards.board import Board
    >>> board = Board.from_text('''
    ... . . . . .
    ... . A < . .
    ... . * ^ . .
    ... . . . . B
    ... . . . . ^
    ... ''')
    >>> board.safe_moves("a")
    ['up', 'down', 'left']
    >>> board.step({"a": "down", "b": "left"})
    >>> print(board)
    turn=1
    . . . . .
    . v < . .
    . A . . .
    . . . B <
    . . . . ^
    A: id=a health=100 length=4
    B: id=b health=99

A `Board` is a `State` of the rules (``turn``, ``width``, ``height``, ``snakes``, ``food``,
``hazards``). It also contains the constants of its game (``game``) and the id of the snake that is
``you``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from battlesnake_gym import rules
from battlesnake_gym.boards import board_json, board_text, limited_view
from battlesnake_gym.boards.board_json import UNKNOWN_SEED
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE
from battlesnake_gym.rules.stages import wraps
from battlesnake_gym.rules.state import MOVES, OFFSETS, Game, Point, Snake, State

__all__ = ["UNKNOWN_SEED", "Board", "BoardError"]


@dataclass(slots=True, eq=False, repr=False)
class Board(State):
    """One position of one game, from the perspective of one snake or of a spectator.

    The moves and ``game.seed`` determine all later positions. A board from a request has no seed
    (``game.seed`` is `UNKNOWN_SEED`, 0), so its future food and hazards are unknown. `step` then
    places no food and leaves the hazards unchanged. ``Board.from_api(request, seed=7)`` sets a
    seed.

    Two boards are equal if the same game follows from both boards. The comparison ignores names,
    shouts, latencies, customizations, and the order of food and hazards. The hash depends on the
    current position; do not change a board while a set or dictionary contains it.

    Attributes:
        game: Constants of the game: ruleset, map, settings and seed.
        you_id: Id of the snake that must move, or None for a spectator.
    """

    game: Game = field(default_factory=Game)
    you_id: str | None = None

    @classmethod
    def new(
        cls,
        width: int = DEFAULT_BOARD_SIZE,
        height: int = DEFAULT_BOARD_SIZE,
        snakes: int | Sequence[str] = 2,
        *,
        game: Game = Game(),  # noqa: B008  (frozen)
    ) -> Self:
        """Set up a new game in the same way as the official engine.

        The same ``game.seed`` results in the same start position. A game that starts with one snake
        is a solo game, which lasts until that snake is eliminated.

        Args:
            width: Width of the board, in cells.
            height: Height of the board, in cells.
            snakes: Ids of the snakes, or the number of snakes (``snake_0``, ``snake_1``, ...).
            game: Ruleset, map, settings and seed.

        Raises:
            rules.RulesError: If the map does not support the board size or the number of snakes.

        >>> print(Board.new(7, 7, 2, game=Game(seed=3)))
        seed=3
        . . . . * . .
        . . . . . B .
        . . . . . . .
        . . . * . . .
        . . . . . . .
        . A . . . . .
        . . * . . . .
        A: id=snake_0 health=100
        B: id=snake_1 health=100
        """
        ids = [f"snake_{i}" for i in range(snakes)] if isinstance(snakes, int) else list(snakes)
        if len(ids) < 2 and not game.solo:
            game = dataclasses.replace(game, solo=True)
        return cls.from_state(rules.start(game, width, height, ids), game)

    @classmethod
    def from_state(cls, state: State, game: Game, you_id: str | None = None) -> Self:
        """Return a new board with a copy of the position of ``state``."""
        return cls(
            turn=state.turn,
            width=state.width,
            height=state.height,
            snakes=[_copy_snake(snake) for snake in state.snakes],
            food=state.food[:],
            hazards=state.hazards[:],
            memory=dict(state.memory),
            new_food=state.new_food,
            game=game,
            you_id=you_id,
        )

    @classmethod
    def from_api(
        cls,
        request: Mapping[str, Any],
        seed: int = UNKNOWN_SEED,
        tracker: EliminationTracker | None = None,
        errors: list[str] | None = None,
    ) -> Self:
        """Create a board from the body of a ``/start``, ``/move`` or ``/end`` request.

        Unknown and missing fields are accepted; see `boards.board_json`. A board with fewer than
        two living snakes counts as a solo game.

        Args:
            request: Body of the request.
            seed: Seed of the game, which requests do not contain.
            tracker: Observations of earlier turns of the game. The tracker detects eliminated
                snakes that the engine still lists and whose bodies have not moved. If None, only
                the position is examined.
            errors: List that receives the errors. The parser then skips the affected fields, and
                raises an exception only for an unreadable board size or ``you``.

        Raises:
            BoardError: If a field cannot be read; the message contains the JSON path of the field.

        >>> snake = {"id": "a", "health": 54, "body": [{"x": 1, "y": 1}, {"x": 1, "y": 0}]}
        >>> request = {"board": {"width": 3, "height": 3, "snakes": [snake]}, "you": snake}
        >>> print(Board.from_api(request))
        map=''
        . . .
        . A .
        . ^ .
        A: id=a health=54 length=2 you
        >>> snake["body"][0]["x"] = None
        >>> Board.from_api(request)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        battlesnake_gym.boards.json_fields.BoardError: board.snakes[0].body[0].x is missing; ...
        """
        return cls.from_state(*board_json.parse_request(request, seed, tracker, errors))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse a text drawing of a board, as returned by ``str(board)``.

        The module `boards.board_text` describes the format. The seed is unknown unless the text
        contains a seed, so a drawn board continues deterministically. A board with one snake is a
        solo game unless the text contains ``solo=False``.

        >>> board = Board.from_text("A < . *")
        >>> board.snakes[0].body, board.food
        ([(0, 0), (1, 0), (1, 0)], [(3, 0)])
        """
        return cls.from_state(*board_text.parse_board(text))

    def copy(self) -> Self:
        """Return an independent copy of the board.

        A search can copy boards with this method, because copying is fast.
        """
        return type(self).from_state(self, self.game, self.you_id)

    def without_seed(self) -> Self:
        """Return a copy of the board without the seed.

        Players receive copies without the seed, because the seed determines future food.
        """
        return type(self).from_state(
            self, dataclasses.replace(self.game, seed=UNKNOWN_SEED), self.you_id
        )

    def limited(self) -> Self:
        """Return the board that ``you`` sees, with plausible cells for hidden segments.

        Without a view radius, the method returns the board itself.

        >>> board = Board.from_text("A < < . . B . . *").limited()
        >>> board.snake("b").head
        (5, 0)
        """
        if self.game.settings.view_radius is None:
            return self
        seen = type(self).from_api(self.to_limited_api())
        # A request shows neither the result of the game nor the cause of an elimination.
        seen.game = dataclasses.replace(self.game, seed=UNKNOWN_SEED)
        seen.snakes = [_copy_snake(self.you) if s.id == self.you_id else s for s in seen.snakes]
        return seen

    @property
    def you(self) -> Snake:
        """The snake that must move.

        Raises:
            BoardError: If the board has no ``you``.
        """
        if self.you_id is None:
            raise BoardError("this board has no you; set board.you_id to the id of a snake")
        return self.snake(self.you_id)

    @property
    def winner(self) -> Snake | None:
        """The last living snake of a finished game.

        The value is None for an unfinished game, a draw or a solo game.
        """
        living = self.living
        return living[0] if len(living) == 1 and self.is_over() else None

    def is_over(self) -> bool:
        """Return whether the game has ended.

        A game ends when at most one snake is living; a solo game ends when no snake is living.
        """
        return rules.is_over(self.game, self)

    def target(self, cell: Point, move: str) -> Point:
        """Return the cell that ``move`` reaches from ``cell``.

        The result may be off the board. In rulesets with wrapped edges, moves over an edge lead to
        the opposite side.

        >>> Board.from_text("A .").target((0, 0), "left")
        (-1, 0)
        """
        dx, dy = OFFSETS[move]
        x, y = cell[0] + dx, cell[1] + dy
        return (x % self.width, y % self.height) if wraps(self.game) else (x, y)

    def safe_moves(self, snake_id: str | None = None) -> list[str]:
        """Return the moves of a snake that are not certainly fatal, in `MOVES` order.

        The result excludes moves off the board and moves onto body cells, except tails. A tail cell
        becomes free unless other segments are stacked on the tail. The result also excludes moves
        that reduce the health to 0, by starvation or by hazards. The method assumes that all other
        snakes survive. Moves into possible head-to-head collisions are therefore included. An
        eliminated snake has no moves.

        Args:
            snake_id: Id of the snake (default: ``you``).

        >>> board = Board.from_text('''
        ... turn=9
        ... > v .
        ... ^ A .~
        ... A: health=2
        ... ''')
        >>> board.safe_moves("a")
        ['left']
        """
        snake = self.you if snake_id is None else self.snake(snake_id)
        if snake.eliminated_cause:
            return []
        taken = {cell for other in self.living for cell in other.body[:-1]}
        return [
            move
            for move in MOVES
            if self.inside(cell := self.target(snake.head, move))
            and cell not in taken
            and self._health_after_move(snake, cell) > 0
        ]

    def _health_after_move(self, snake: Snake, cell: Point) -> int:
        """Return the health of ``snake`` after a move to ``cell``.

        A health of 0 or less is fatal.
        """
        layers = self.hazards.count(cell)
        return rules.health_after(self.game, snake.health, food=cell in self.food, layers=layers)

    def step(self, moves: Mapping[str, str]) -> None:
        """Play one turn in place.

        Args:
            moves: Move of every living snake by id; moves of eliminated snakes are ignored.

        Raises:
            BoardError: If a living snake has no move, or a move is invalid.
            rules.RulesError: If a snake is unknown. The board does not change after an error.

        >>> board = Board.from_text("A . . B")
        >>> board.step({"a": "right"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        battlesnake_gym.boards.json_fields.BoardError: 'b' has no move; give one of up, down, ...
        >>> board.step({"a": "right", "b": "left"})
        >>> board.snakes[0].body
        [(1, 0), (0, 0), (0, 0)]
        """
        self._check_moves(moves)
        self.advance(moves)

    def advance(self, moves: Mapping[str, str]) -> None:
        """Play one turn like `step`, but replace invalid moves by the default move.

        The default move repeats the direction of the previous move. Use this method to replay the
        moves that snakes sent.

        Raises:
            rules.RulesError: If a living snake has no move.
        """
        known = self.game.seed != UNKNOWN_SEED
        rules.step(self.game if known else _remove_randomness(self.game), self, moves)

    def _check_moves(self, moves: Mapping[str, str]) -> None:
        for snake_id, move in moves.items():
            snake = self.snake(snake_id)
            if move not in OFFSETS and not snake.eliminated_cause:
                raise BoardError(
                    f"the move of {snake_id!r} must be one of {', '.join(MOVES)}, "
                    f"got {format_value(move)}"
                )
        for snake in self.living:
            if snake.id not in moves:
                raise BoardError(f"{snake.id!r} has no move; give one of {', '.join(MOVES)}")

    def to_api(self, you_id: str | None = None) -> dict[str, Any]:
        """Return the body of a request for this board.

        The body lists only the living snakes, like the requests from the official engine.

        Args:
            you_id: Id of the snake that is ``you`` (default: ``self.you_id``). If no snake is
                ``you``, the body has no key ``you``.
        """
        name = self.you_id if you_id is None else you_id
        return board_json.request_to_dict(
            self.game, self, None if name is None else self.snake(name)
        )

    def to_limited_api(self) -> dict[str, Any]:
        """Return the body of the request that ``you`` receives, with only what ``you`` sees."""
        view_radius = self.game.settings.view_radius
        request = self.to_api()
        return request if view_radius is None else limited_view.limit_view(request, view_radius)

    def _comparison_key(self) -> tuple[object, ...]:
        return (
            self.turn,
            self.width,
            self.height,
            tuple((s.id, tuple(s.body), s.health, s.eliminated_cause) for s in self.snakes),
            tuple(sorted(self.food)),
            tuple(sorted(self.hazards)),
            self.game,
            self.you_id,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Board):
            return NotImplemented
        return self._comparison_key() == other._comparison_key() and self.memory == other.memory

    def __hash__(self) -> int:
        return hash(self._comparison_key())

    def __str__(self) -> str:
        return board_text.format_board(self.game, self, self.you_id)

    def __repr__(self) -> str:
        size = f"{self.width}x{self.height}"
        return f"<Board turn {self.turn}, {size}, {len(self.living)} of {len(self.snakes)} alive>"

    def _repr_svg_(self) -> str:
        # The module is imported here, because snakes start faster without the drawing code.
        from battlesnake_gym.draw import drawing

        return drawing.svg(self)


def _copy_snake(snake: Snake) -> Snake:
    """Return a copy of ``snake`` that shares the customizations, which never change."""
    return Snake(
        snake.id,
        snake.body[:],
        snake.health,
        snake.eliminated_cause,
        snake.eliminated_by,
        snake.eliminated_on,
        snake.name,
        snake.latency,
        snake.shout,
        snake.customizations,
    )


@functools.lru_cache(maxsize=256)
def _remove_randomness(game: Game) -> Game:
    """Return a copy of ``game`` without map updates and shrinking hazards.

    Both need the seed.
    """
    ruleset = "standard" if game.ruleset == "royale" else game.ruleset
    return dataclasses.replace(game, map="", ruleset=ruleset, seed=1)

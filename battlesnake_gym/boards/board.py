"""One game as an object: look at it, play it, copy it, draw it, send it.

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
``hazards``) that knows its ``game`` and which snake is ``you``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from battlesnake_gym import rules
from battlesnake_gym.boards import board_json, board_text
from battlesnake_gym.boards.board_json import UNKNOWN_SEED
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE
from battlesnake_gym.rules.rulesets import wraps
from battlesnake_gym.rules.state import MOVES, OFFSETS, Game, Point, Snake, State

if TYPE_CHECKING:
    from typing import Self  # a packed snake plays with Python 3.10, which lacks it

__all__ = ["UNKNOWN_SEED", "Board", "BoardError"]


@dataclass(slots=True, eq=False, repr=False)
class Board(State):
    """One position of one game, as one snake or an onlooker sees it.

    ``game`` holds what stays the same during a game: ruleset, map, settings, seed. ``you_id`` is
    the id of the snake that is asked to move, or None for an onlooker.

    A board's future is decided by its moves and ``game.seed``. A board that came as a request has
    no seed (``game.seed`` is `UNKNOWN_SEED`, 0). Such a board plays on without chance: `step`
    places no new food and leaves the hazards as they are, because what will come is unknown.
    ``Board.from_api(request, seed=7)`` gives it one.

    Two boards are equal when the same game follows from both: names, shouts, latencies and looks
    do not count, nor does the order of food and hazards. The hash is that of the present position;
    do not change a board while a set or dictionary holds it.
    """

    game: Game = field(default_factory=Game)
    you_id: str | None = None

    # --- making -------------------------------------------------------------------------------

    @classmethod
    def new(
        cls,
        width: int = DEFAULT_BOARD_SIZE,
        height: int = DEFAULT_BOARD_SIZE,
        snakes: int | Sequence[str] = 2,
        *,
        game: Game = Game(),  # noqa: B008  (frozen)
    ) -> Self:
        """Set up a new game as the reference does; the same ``game.seed``, the same start.

        ``snakes`` are their ids, or their number (``snake_0``, ``snake_1``, ...). One
        snake alone plays until it is out. Raises `rules.RulesError` where the map refuses the size
        or the number of snakes.

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
        """A new board with a copy of the position of ``state``."""
        return cls(
            turn=state.turn,
            width=state.width,
            height=state.height,
            snakes=[_copy_snake(snake) for snake in state.snakes],
            food=state.food[:],
            hazards=state.hazards[:],
            memory=dict(state.memory),
            game=game,
            you_id=you_id,
        )

    @classmethod
    def from_api(
        cls,
        request: Mapping[str, Any],
        seed: int = UNKNOWN_SEED,
        corpses: EliminationTracker | None = None,
        errors: list[str] | None = None,
    ) -> Self:
        """Read the body of a ``/start``, ``/move`` or ``/end`` request.

        Reading is tolerant: see `boards.board_json`. A snake that the position shows to be out is
        out; ``corpses`` also knows those whose bodies have not moved since an earlier turn. A board
        with fewer than two living snakes is taken for a solo game. Raises `BoardError` with the
        JSON path of what cannot be read. With ``errors``, it is raised only for the board's size
        and for ``you``; all other errors are added to that list and passed over.

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
        return cls._of(board_json.read(request, seed, corpses, errors))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a picture such as `str` draws; `boards.board_text` describes its alphabet.

        The seed is unknown unless the text has one, so that a drawn board plays on predictably;
        a board with one snake is a solo game unless the text says ``solo=False``.

        >>> board = Board.from_text("A < . *")
        >>> board.snakes[0].body, board.food
        ([(0, 0), (1, 0), (1, 0)], [(3, 0)])
        """
        return cls._of(board_text.read(text))

    @classmethod
    def _of(cls, read: tuple[Game, State, str | None]) -> Self:
        game, state, you_id = read
        return cls.from_state(state, game, you_id)

    def copy(self) -> Self:
        """An independent copy, made quickly enough for a search."""
        return type(self).from_state(self, self.game, self.you_id)

    def without_seed(self) -> Self:
        """A copy for a player or a search, which cannot know which food will come."""
        return type(self).from_state(
            self, dataclasses.replace(self.game, seed=UNKNOWN_SEED), self.you_id
        )

    # --- looking ------------------------------------------------------------------------------

    @property
    def living(self) -> list[Snake]:
        """The snakes that still play, in board order."""
        return [snake for snake in self.snakes if not snake.eliminated_cause]

    @property
    def you(self) -> Snake:
        """The snake that is asked to move; raises `BoardError` for an onlooker's board."""
        if self.you_id is None:
            raise BoardError("this board has no you; set board.you_id to the id of a snake")
        return self.snake(self.you_id)

    @property
    def winner(self) -> Snake | None:
        """The last living snake of a game that is over; None before, after a draw or solo."""
        living = self.living
        return living[0] if len(living) == 1 and self.is_over() else None

    def is_over(self) -> bool:
        """Whether the game has ended: one living snake left, or none in a solo game."""
        return rules.is_over(self.game, self)

    def snake(self, snake_id: str) -> Snake:
        """The snake called ``snake_id``; raises `BoardError` with the known ids otherwise."""
        for snake in self.snakes:
            if snake.id == snake_id:
                return snake
        known = ", ".join(repr(snake.id) for snake in self.snakes) or "none"
        raise BoardError(f"no snake has the id {format_value(snake_id)}; the board has {known}")

    def target(self, cell: Point, move: str) -> Point:
        """Where ``move`` leads from ``cell``: over the edge where the ruleset wraps, else maybe
        off the board.

        >>> Board.from_text("A .").target((0, 0), "left")
        (-1, 0)
        """
        dx, dy = OFFSETS[move]
        x, y = cell[0] + dx, cell[1] + dy
        return (x % self.width, y % self.height) if wraps(self.game) else (x, y)

    def inside(self, cell: Point) -> bool:
        """Whether ``cell`` lies on the board."""
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height

    def safe_moves(self, snake_id: str | None = None) -> list[str]:
        """The moves of a snake (default: ``you``) that are not certain death, in `MOVES` order.

        Left out are moves off the board, onto a body cell that will still be taken (a tail moves
        away unless segments are stacked on it), into starvation, and into hazards that take all
        health; food in the cell saves from both. All other snakes are assumed to live on. A
        head-to-head is never certain death. An eliminated snake has no moves.

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
            and self._health_after(snake, cell) > 0
        ]

    def _health_after(self, snake: Snake, cell: Point) -> int:
        """The health of ``snake`` after entering ``cell`` next turn; 0 or less is death."""
        layers = self.hazards.count(cell)
        return rules.health_after(self.game, snake.health, food=cell in self.food, layers=layers)

    # --- playing ------------------------------------------------------------------------------

    def step(self, moves: Mapping[str, str]) -> None:
        """Play one turn, in place: ``moves`` maps the id of every living snake to its move.

        Moves of eliminated snakes are ignored. Raises `BoardError`, before anything changes,
        for an unknown snake, a missing one or a word that is no move.

        >>> board = Board.from_text("A . . B")
        >>> board.step({"a": "right"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        battlesnake_gym.boards.json_fields.BoardError: 'b' has no move; give one of up, down, ...
        >>> board.step({"a": "right", "b": "left"})
        >>> board.snakes[0].body
        [(1, 0), (0, 0), (0, 0)]
        """
        self._check(moves)
        self.advance(moves)

    def advance(self, moves: Mapping[str, str]) -> None:
        """Play one turn as `step` does, but any word that is no move means straight on.

        For replaying what snakes have sent; raises `rules.RulesError` where a living snake has no
        entry.
        """
        known = self.game.seed != UNKNOWN_SEED
        rules.step(self.game if known else _without_randomness(self.game), self, moves)

    def _check(self, moves: Mapping[str, str]) -> None:
        for snake_id, move in moves.items():
            snake = self.snake(snake_id)
            if move not in OFFSETS and not snake.eliminated_cause:
                raise BoardError(
                    f"the move of {snake_id!r} must be one of {', '.join(MOVES)}, got {format_value(move)}"
                )
        for snake in self.living:
            if snake.id not in moves:
                raise BoardError(f"{snake.id!r} has no move; give one of {', '.join(MOVES)}")

    # --- writing ------------------------------------------------------------------------------

    def to_api(self, you_id: str | None = None) -> dict[str, Any]:
        """The request body that a snake is sent (default: ``you``; an onlooker's has no ``you``).

        Only living snakes are on the board, as in the official engine's requests.
        """
        name = self.you_id if you_id is None else you_id
        return board_json.write(self.game, self, None if name is None else self.snake(name))

    def _key(self) -> tuple[object, ...]:
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
        return self._key() == other._key() and self.memory == other.memory

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return board_text.write(self.game, self, self.you_id)

    def __repr__(self) -> str:
        size = f"{self.width}x{self.height}"
        return f"<Board turn {self.turn}, {size}, {len(self.living)} of {len(self.snakes)} alive>"

    def _repr_svg_(self) -> str:
        from battlesnake_gym.draw import drawing  # keeps the picture code out of a snake's start-up

        return drawing.svg(self)


def _copy_snake(snake: Snake) -> Snake:
    """A copy of a snake; it shares the customizations, which no rule changes."""
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
def _without_randomness(game: Game) -> Game:
    """``game`` without all that needs its seed: map hooks, and the shrinking of royale."""
    ruleset = "standard" if game.ruleset == "royale" else game.ruleset
    return dataclasses.replace(game, map="", ruleset=ruleset, seed=1)

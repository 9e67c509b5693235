"""A snake's view of a board.

All rules of a pipeline share one `View`, which caches its results. A view computes the cell after
each move, the turns on which cells become free, the reachable cells, and the territories of the
snakes. Turn numbers are relative to the current turn: turn 1 is the board after the next moves.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from itertools import accumulate
from operator import or_

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import grid
from battlesnake_gym.boards.limited_view import is_visible
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.rules.state import MAX_HEALTH, MOVES, Point, Snake


class View:
    """A board from the perspective of ``board.you``.

    Attributes:
        you: The snake to move.
        opponents: The other living snakes.
        grid: Geometry of the board.
        food: Cells with food, as bits (see `boards.grid`).
        hazards: Number of hazard layers by cell.

    Args:
        board: Position of ``board.you``.
        sightings: Memory of the snake, to which a limited view adds ``board``.

    Raises:
        BoardError: If ``board.you_id`` is not set.
    """

    def __init__(self, board: Board, sightings: Sightings | None = None) -> None:
        self.board = board
        self.values: dict[str, float] = {}
        """The policy's values by move; empty without a policy (see `policy_rules`)."""
        self.sightings: Sightings | None = None
        """What the snake saw on earlier turns; None without a limited view."""
        if sightings and board.game.settings.view_radius is not None:
            sightings.update(board)
            self.sightings = sightings
        self.you: Snake = board.you
        self.opponents = [snake for snake in board.living if snake.id != self.you.id]
        self.grid = grid(board.width, board.height, rules.wraps(board.game))
        self.food = self.grid.bits(board.food)
        self.hazards = Counter(board.hazards)
        self.targets = {move: self.grid.step(self.you.head, move) for move in MOVES}
        """Target cell of each move; None if the cell is off the board."""
        self._bodies = [
            list(accumulate(map(self.grid.bit, snake.body), or_, initial=0))
            for snake in (self.you, *self.opponents)
        ]
        longest = max(snake.length for snake in (self.you, *self.opponents))
        self._horizon = 1 if rules.grows_always(board.game) else longest
        self._deadly = self.grid.bits(
            cell for cell in self.hazards if self.health_after(cell, MAX_HEALTH) <= 0
        )
        self._blocked: list[int] = []
        self._floods: dict[str, list[int]] = {}
        self._first_reached: dict[str, int] = {}

    def blocked_cells(self, turns: int) -> int:
        """Return the cells that no snake can enter on turn ``turns``, as bits.

        These cells contain bodies or deadly hazards. Cells of a body become free from the tail end,
        one cell per turn; stacked segments leave the cell one after another. In constrictor games,
        no cell becomes free after turn 1. The function ignores food that snakes eat on the way.
        """
        while len(self._blocked) <= min(turns, self._horizon):
            turn = len(self._blocked)
            union = self._deadly
            for body in self._bodies:
                union |= body[max(0, len(body) - 1 - turn)]
            self._blocked.append(union)
        return self._blocked[min(turns, self._horizon)]

    def blocked(self, move: str) -> bool:
        """Return whether ``move`` leads off the board or to a cell that remains occupied."""
        target = self.grid.bit(self.targets[move])
        return not target or any(target & body[-2] for body in self._bodies)

    @cached_property
    def known_food(self) -> int:
        """The cells with visible or remembered food, as bits."""
        remembered = self.sightings.food(self.board.turn) if self.sightings else ()
        return self.food | self.grid.bits(remembered)

    @cached_property
    def _visible_segments(self) -> int:
        """The visible segments of all snakes, as bits."""
        radius = self.board.game.settings.view_radius
        return self.grid.bits(
            cell
            for snake in (self.you, *self.opponents)
            for cell in snake.body
            if radius is None or is_visible(cell, self.you.head, radius)
        )

    def path_length(self, move: str, goals: int, free: int = 0) -> int | None:
        """Return the number of moves to the nearest of ``goals``, starting with ``move``.

        All visible segments are walls for the whole path. The result is None without a path.

        Args:
            move: First move.
            goals: Cells, as bits.
            free: Cells that are no walls, as bits.
        """
        allowed = self.grid.everything & ~(self._visible_segments & ~free)
        reached, before, moves = self.grid.bit(self.targets[move]) & allowed, 0, 1
        while reached != before:
            if reached & goals:
                return moves
            before, moves = reached, moves + 1
            reached |= self.grid.spread(reached) & allowed
        return None

    def exits(self, snake: Snake) -> int:
        """Return the cells that ``snake`` can enter on the next turn, as bits."""
        return self.grid.spread(self.grid.bit(snake.head)) & ~self.blocked_cells(1)

    def health_after(self, cell: Point, health: int | None = None) -> int:
        """Return the health after a move to ``cell`` (100 on food); 0 or less is fatal."""
        health = self.you.health if health is None else health
        food, layers = bool(self.grid.bit(cell) & self.food), self.hazards[cell]
        return rules.health_after(self.board.game, health, food=food, layers=layers)

    def flood(self, move: str) -> list[int]:
        """Return the cells reachable within 1, 2, ... turns after ``move``.

        Each element of the list contains the cells of one turn as bits. A cell becomes reachable on
        the turn on which the occupant leaves the cell. The snake can move in its reachable cells
        until then, but for at most one turn per reachable cell. The list is empty if the move leads
        off the board.
        """
        if move not in self._floods:
            self._floods[move] = self._flood_fill(self.grid.bit(self.targets[move]))
        return self._floods[move]

    def _flood_fill(self, start: int) -> list[int]:
        """Return the cells reachable within 1, 2, ... turns from ``start``, as bits."""
        layers = [start] if start else []
        reached, grown = start, 0
        while start and (grown != reached or len(layers) < self._horizon):
            turns = len(layers) + 1
            if turns > reached.bit_count() + 1:
                break
            grown = reached
            reached |= self.grid.spread(reached) & ~self.blocked_cells(turns)
            layers.append(reached)
        return layers

    def num_reachable(self, move: str) -> int:
        """Return the number of cells reachable after ``move``."""
        layers = self.flood(move)
        return layers[-1].bit_count() if layers else 0

    def turns_to(self, move: str, cells: int) -> int | None:
        """Return the turns until the snake reaches one of ``cells`` after ``move``.

        The result is None if none of the cells is reachable.
        """
        for turns, layer in enumerate(self.flood(move), start=1):
            if layer & cells:
                return turns
        return None

    def first_reached(self, move: str) -> int:
        """Return the cells that the snake reaches first after ``move``, as bits."""
        if move not in self._first_reached:
            self._first_reached[move] = self.territories(self.grid.bit(self.targets[move]))[0]
        return self._first_reached[move]

    def territories(self, first: int | None = None) -> list[int]:
        """Return the territory of each snake, as bits.

        The territory contains the cells that the snake reaches first. The list starts with the
        territory of ``you``, followed by the territories of the opponents in order. A cell that two
        snakes reach on the same turn belongs to the longer snake. If both snakes are equally long,
        the cell belongs to no snake.

        Args:
            first: Cells that ``you`` may enter on the next turn (default: all exits of ``you``).
        """
        snakes = [self.you, *self.opponents]
        fronts = [self.exits(snake) for snake in snakes]
        if first is not None:
            fronts[0] = first
        lengths = [snake.length for snake in snakes]
        owned = [0] * len(snakes)
        for won in self.grid.first_reached_by_turn(fronts, lengths, self.blocked_cells):
            owned = [cells | more for cells, more in zip(owned, won, strict=True)]
        return owned

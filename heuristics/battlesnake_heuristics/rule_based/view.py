"""A snake's view of a board.

All rules share one view, whose facts are computed only once. Rules use a `View` to compute the cell
after a move, the time for which cells stay occupied, the free space, and the snake that reaches a
cell first. Time counts in turns from now: turn 1 is the board after the next moves.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from operator import or_

from battlesnake_gym import rules
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import first_reached_by_turn, grid
from battlesnake_gym.rules.state import MAX_HEALTH, MOVES, Point, Snake


class View:
    """A board from the view of ``board.you``.

    Attributes:
        you: The snake to move.
        opponents: The other living snakes.
        grid: Shape of the board.
        food: Cells with food, as bits (see `boards.grid`).
        hazards: Number of hazard layers by cell.

    Raises:
        BoardError: If ``board.you_id`` is not set.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.values: dict[str, float] = {}
        """The policy's values by move; empty unless a policy plays (see `policy_rules`)."""
        self.you: Snake = board.you
        self.opponents = [snake for snake in board.living if snake.id != self.you.id]
        self.grid = grid(board.width, board.height, rules.wraps(board.game))
        self.food = self.grid.bits(board.food)
        self.hazards = Counter(board.hazards)
        self.targets = {move: self.grid.step(self.you.head, move) for move in MOVES}
        """Cell to which each move leads; None if the cell is off the board."""
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
        """Return the cells that no snake can enter in ``turns`` turns.

        These cells contain bodies or deadly hazards. The tail end of a body becomes free first, one
        cell per turn; stacked segments leave one after another. In constrictor games no cell
        becomes free after turn 1. Food eaten on the way is ignored.
        """
        while len(self._blocked) <= min(turns, self._horizon):
            turn = len(self._blocked)
            union = self._deadly
            for body in self._bodies:
                union |= body[max(0, len(body) - 1 - turn)]
            self._blocked.append(union)
        return self._blocked[min(turns, self._horizon)]

    def blocked(self, move: str) -> bool:
        """Return whether ``move`` leads off the board or onto a cell that stays occupied."""
        target = self.grid.bit(self.targets[move])
        return not target or any(target & body[-2] for body in self._bodies)

    def exits(self, snake: Snake) -> int:
        """Return the cells that ``snake`` can enter on the next turn."""
        return self.grid.spread(self.grid.bit(snake.head)) & ~self.blocked_cells(1)

    def health_after(self, cell: Point, health: int | None = None) -> int:
        """Return the health after a move onto ``cell`` (100 on food); 0 or less is fatal."""
        health = self.you.health if health is None else health
        food, layers = bool(self.grid.bit(cell) & self.food), self.hazards[cell]
        return rules.health_after(self.board.game, health, food=food, layers=layers)

    def flood(self, move: str) -> list[int]:
        """Return the cells reachable after 1, 2, ... turns, starting with ``move``.

        A cell becomes reachable on the turn on which the occupant leaves the cell. The snake may
        wait until then, but only for as many turns as the snake has cells to wait in. The list is
        empty if the move leads off the board.
        """
        if move not in self._floods:
            self._floods[move] = self._flood(self.grid.bit(self.targets[move]))
        return self._floods[move]

    def _flood(self, start: int) -> list[int]:
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
        """Return the number of turns until ``move`` reaches one of ``cells``.

        The result is None if no cell is reachable.
        """
        for turns, layer in enumerate(self.flood(move), start=1):
            if layer & cells:
                return turns
        return None

    def first_reached(self, move: str) -> int:
        """Return the cells reached before any opponent, starting with ``move``."""
        if move not in self._first_reached:
            self._first_reached[move] = self.territories(self.grid.bit(self.targets[move]))[0]
        return self._first_reached[move]

    def territories(self, first: int | None = None) -> list[int]:
        """Return the cells that each snake reaches first.

        The list starts with the cells of ``you``, followed by the cells of the opponents in order.
        A cell that two snakes reach at the same time belongs to the longer snake. If both are
        equally long, the cell belongs to neither.

        Args:
            first: Cells that ``you`` may enter on the next turn (default: all exits of ``you``).
        """
        snakes = [self.you, *self.opponents]
        fronts = [self.exits(snake) for snake in snakes]
        if first is not None:
            fronts[0] = first
        lengths = [snake.length for snake in snakes]
        owned = [0] * len(snakes)
        for won in first_reached_by_turn(self.grid, fronts, lengths, self.blocked_cells):
            owned = [cells | more for cells, more in zip(owned, won, strict=True)]
        return owned

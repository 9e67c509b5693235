"""What a snake can know of a board: the facts that the rules share, each worked out once.

A rule asks a `View` where a move leads, how long cells stay occupied, how much room there is and
who reaches what first. Time is counted in turns from now: turn 1 is the board after the coming
moves.
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
    """A board as ``board.you`` sees it.

    ``you`` is that snake, ``rivals`` are the other living ones, ``grid`` is the shape of the board,
    ``food`` the set of cells with food (as bits, see `boards.grid`), ``hazards`` how many hazards
    lie on a cell. Raises `BoardError` where the board names no ``you``.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.values: dict[str, float] = {}
        """What a policy thinks of each move, where one plays (`own_rules`)."""
        self.you: Snake = board.you
        self.rivals = [snake for snake in board.living if snake.id != self.you.id]
        self.grid = grid(board.width, board.height, rules.wraps(board.game))
        self.food = self.grid.bits(board.food)
        self.hazards = Counter(board.hazards)
        self.targets = {move: self.grid.step(self.you.head, move) for move in MOVES}
        """Where each move leads; None is off the board."""
        self._bodies = [
            list(accumulate(map(self.grid.bit, snake.body), or_, initial=0))
            for snake in (self.you, *self.rivals)
        ]
        longest = max(snake.length for snake in (self.you, *self.rivals))
        self._horizon = 1 if rules.grows_always(board.game) else longest
        self._deadly = self.grid.bits(
            cell for cell in self.hazards if self.health_after(cell, MAX_HEALTH) <= 0
        )
        self._taken: list[int] = []
        self._floods: dict[str, list[int]] = {}
        self._firsts: dict[str, int] = {}

    # Where one can go ---------------------------------------------------------------------------

    def blocked_cells(self, turns: int) -> int:
        """The cells that no snake can enter ``turns`` turns from now: bodies, and deadly hazards.

        A body leaves from its tail, one cell a turn; stacked segments leave one after the other. In
        constrictor games none leaves after turn 1. A snake that eats on the way stays longer.
        """
        while len(self._taken) <= min(turns, self._horizon):
            passed = len(self._taken)
            union = self._deadly
            for body in self._bodies:
                union |= body[max(0, len(body) - 1 - passed)]
            self._taken.append(union)
        return self._taken[min(turns, self._horizon)]

    def blocked(self, move: str) -> bool:
        """Whether ``move`` leads off the board or onto a body that will still be there."""
        target = self.grid.bit(self.targets[move])
        return not target or any(target & body[-2] for body in self._bodies)

    def exits(self, snake: Snake) -> int:
        """The cells that ``snake`` can enter on the coming turn."""
        return self.grid.spread(self.grid.bit(snake.head)) & ~self.blocked_cells(1)

    def health_after(self, cell: Point, health: int | None = None) -> int:
        """The health left after moving onto ``cell`` (100 on food); 0 or less is death."""
        health = self.you.health if health is None else health
        food, layers = bool(self.grid.bit(cell) & self.food), self.hazards[cell]
        return rules.health_after(self.board.game, health, food=food, layers=layers)

    # How far and how wide -----------------------------------------------------------------------

    def flood(self, move: str) -> list[int]:
        """The cells within reach after 1, 2, ... turns when ``move`` comes first.

        A cell counts from the turn on which its occupant has left. The snake may dawdle until then,
        but not for more turns than there are cells to dawdle in. Empty for moves off the board.
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
        """How many cells can be reached after ``move``."""
        layers = self.flood(move)
        return layers[-1].bit_count() if layers else 0

    def turns_to(self, move: str, cells: int) -> int | None:
        """How many turns until one of ``cells`` can be reached by ``move``; None for never."""
        for turns, layer in enumerate(self.flood(move), start=1):
            if layer & cells:
                return turns
        return None

    def first_reached(self, move: str) -> int:
        """The cells that are reached sooner than by any rival, when ``move`` comes first."""
        if move not in self._firsts:
            self._firsts[move] = self.territories(self.grid.bit(self.targets[move]))[0]
        return self._firsts[move]

    def territories(self, first: int | None = None) -> list[int]:
        """Who reaches which cells first: the cells of ``you``, then of each rival.

        ``first`` are the cells ``you`` may enter on the coming turn (default: all its exits). A
        cell reached at the same time goes to the longer snake, and to neither between equals.
        """
        snakes = [self.you, *self.rivals]
        fronts = [self.exits(snake) for snake in snakes]
        if first is not None:
            fronts[0] = first
        lengths = [snake.length for snake in snakes]
        owned = [0] * len(snakes)
        for won in first_reached_by_turn(self.grid, fronts, lengths, self.blocked_cells):
            owned = [cells | more for cells, more in zip(owned, won, strict=True)]
        return owned

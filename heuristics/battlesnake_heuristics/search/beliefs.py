"""Complete positions that agree with the requests of a game with limited view.

A particle filter (Gordon, Salmond and Smith 1993) keeps hypotheses about each opponent: its body,
its health and the food that it ate. On each turn, every hypothesis makes each legal move, and the
hypotheses that contradict the request are deleted. If none remains, new hypotheses are made from
the request and the lengths of the deleted ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import Grid, cell_indices, grid
from battlesnake_gym.boards.limited_view import collapse_hidden, is_visible
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.rules import MAX_HEALTH, grows_always, health_after, wraps
from battlesnake_gym.rules.state import MOVES, START_LENGTH, Snake
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.search.evaluation import probability_to_score, score_to_probability

_MAX_HYPOTHESES = 32
"""Maximum number of hypotheses about one opponent."""

_MAX_SEGMENTS = 4096
"""Approximate maximum number of segments of all hypotheses, which bounds their memory to 40 kB."""

_FOOD_WEIGHT = 3.0
"""Weight of a hidden move toward food; other moves have the weight 1."""

_DEAD_END_WEIGHT = 0.05
"""Weight of a hidden move to a cell without a free neighbor."""

_MAX_HIDDEN_STEPS = 3
"""Maximum number of moves of a hidden head beyond its nearest possible cell, without memory."""

_NUM_DRAWS = 8
"""Number of attempts to draw a body that overlaps no other body."""

_HIDDEN = -1
"""Element that stands for a run of hidden segments."""


class _Hypothesis(NamedTuple):
    """A possible state of an opponent.

    Cells are ``y * width + x``. The attribute ``eaten`` contains the cells of remembered food that
    the snake has eaten, as bits.
    """

    body: tuple[int, ...]
    health: int
    eaten: int = 0


class Beliefs:
    """Hypotheses of one snake about its opponents in one game.

    The object keeps at most `_MAX_HYPOTHESES` bodies per opponent. A repeated request changes
    nothing. A late request is answered without the hypotheses of later turns, which are kept. A
    request of another game or snake starts a new memory.
    """

    def __init__(self) -> None:
        self._game: object = None
        self._reset()

    def _reset(self) -> None:
        self._sightings = Sightings()
        self._turn = -1
        self._position = 0
        self._food = 0
        self._hypotheses: dict[int, list[_Hypothesis]] = {}

    def sample(self, board: Board, count: int) -> dict[Board, int]:
        """Draw complete positions that agree with ``board`` and with earlier turns.

        The result depends only on the boards of this call and of earlier calls.

        Args:
            board: Position from a request with limited view, with ``you`` set.
            count: Number of draws, 1 or more.

        Returns:
            The distinct positions, and how often each position was drawn. Each position contains
            the remembered food.
        """
        game = (hash(board.game.id), hash(board.you_id), board.width, board.height)
        if game != self._game:
            self._game = game
            self._reset()
        turn, position = board.turn, hash(board)
        self._sightings.update(board)
        scene = _Scene(board, self._food, self._sightings.food(turn))
        hypotheses = self._hypotheses
        if position != self._position:
            known = hypotheses if turn > self._turn else {}
            hypotheses = {
                hash(snake.id): scene.update(
                    snake, known.get(hash(snake.id), []), turn == self._turn + 1
                )
                for snake in scene.opponents
            }
            if turn > self._turn:
                self._turn, self._position = turn, position
                self._food, self._hypotheses = scene.food, hypotheses
        rng = random.Random(-1 - turn)
        draws = Counter(scene.draw(hypotheses, rng) for _ in range(count))
        return {scene.complete(draw): times for draw, times in draws.items()}


class _Scene:
    """One position with limited view.

    Args:
        board: The position.
        food_before: Cells with food on the last turn, as bits.
        known_food: Cells with visible or remembered food.
    """

    def __init__(
        self, board: Board, food_before: int, known_food: Mapping[tuple[int, int], int]
    ) -> None:
        self.board = board
        self.rng = random.Random(board.turn)
        shape = self.grid = grid(board.width, board.height, wraps(board.game))
        self.neighbors = _neighbors(shape)
        you, radius = board.you, board.game.settings.view_radius
        self.opponents = [s for s in board.living if s is not you]
        self.visible = bytes(
            radius is None or is_visible((x, y), you.head, radius)
            for y in range(board.height)
            for x in range(board.width)
        )
        self.layers = Counter(self.cell(point) for point in board.hazards)
        self.own_body = {self.cell(point) for point in you.body}
        self.food_before, self.food = food_before, shape.bits(known_food)
        self.visible_food = shape.bits(board.food)
        self.distance_to_food = cache(self._distance_to_food)
        vanished = food_before & ~self.food & ~shape.bit(you.head)
        self.must_have_eaten = vanished if len(self.opponents) == 1 else 0

    def cell(self, point: tuple[int, int]) -> int:
        return point[1] * self.board.width + point[0]

    def see(self, body: Sequence[int]) -> list[int]:
        """Return the visible cells of ``body`` in order, with `_HIDDEN` for each hidden run."""
        return collapse_hidden(body, self.visible.__getitem__, _HIDDEN)

    def update(self, snake: Snake, known: list[_Hypothesis], is_next: bool) -> list[_Hypothesis]:
        """Return the hypotheses about ``snake`` on this turn.

        Args:
            snake: Opponent, with the cells that the parser added.
            known: Earlier hypotheses.
            is_next: Whether the earlier hypotheses are those of the last turn.
        """
        completed = [self.cell(point) for point in snake.body]
        seen = self.see(completed)
        lengths = [len(one.body) for one in known] or [self.board.you.length]
        longest = max(len(completed), *lengths)
        count = min(_MAX_HYPOTHESES, 1 + _MAX_SEGMENTS // (longest * len(self.opponents)))
        moved: dict[_Hypothesis, float] = {}
        if is_next:
            # After a meal, some engines list the two segments on the last cell once.
            moved = self._move_all(known, seen) or self._move_all(known, [*seen, seen[-1]])
        if not moved:
            return list(dict.fromkeys(
                self._rebuild(completed, seen, known) for _ in range(count)
            ))  # fmt: skip
        # Weighted sampling without replacement (Efraimidis and Spirakis 2006).
        order = sorted(moved, key=lambda one: self.rng.random() ** (1 / moved[one]), reverse=True)
        return order[:count]

    def _move_all(
        self, known: Sequence[_Hypothesis], seen: Sequence[int]
    ) -> dict[_Hypothesis, float]:
        """Return the moves of all hypotheses that agree with ``seen``, and their weights."""
        moved: dict[_Hypothesis, float] = {}
        for one in known:
            for after, weight in self._moves(one, seen):
                moved[after] = moved.get(after, 0) + weight
        return moved

    def _moves(self, one: _Hypothesis, seen: Sequence[int]) -> list[tuple[_Hypothesis, float]]:
        """Return the moves of a hypothesis that agree with ``seen``, and their probabilities."""
        tail = one.body[:-1]
        behind = self.see(tail)
        food = self.food_before & ~one.eaten
        here = self.distance_to_food(food)[one.body[0]]
        found, total = [], 0.0
        for cell in self.neighbors[one.body[0]]:
            if cell in tail or cell in self.own_body:
                continue
            weight = 1.0
            if self.distance_to_food(food)[cell] < here:
                weight = _FOOD_WEIGHT
            if all(step in tail or step in self.own_body for step in self.neighbors[cell]):
                weight = _DEAD_END_WEIGHT
            total += weight
            after = self._move(one, cell, tail, food, behind, seen)
            if after:
                found.append((after, weight))
        return [(after, weight / total) for after, weight in found]

    def _move(
        self,
        one: _Hypothesis,
        cell: int,
        tail: tuple[int, ...],
        food: int,
        behind: Sequence[int],
        seen: Sequence[int],
    ) -> _Hypothesis | None:
        """Return the hypothesis after a move to ``cell``, or None if it contradicts ``seen``."""
        eats = bool(food >> cell & 1)
        constrictor = grows_always(self.board.game)
        grows = eats or (constrictor and tail[-2:] != tail[-1:] * 2)
        head = [cell] if self.visible[cell] else [] if behind[:1] == [_HIDDEN] else [_HIDDEN]
        last = (tail or (cell,))[-1]
        end = [last] if grows and self.visible[last] else []
        if [*head, *behind, *end] != seen:
            return None
        feeds = eats or constrictor
        health = health_after(self.board.game, one.health, food=feeds, layers=self.layers[cell])
        eaten = one.eaten | eats << cell
        if health <= 0 or eaten & self.visible_food or self.must_have_eaten & ~eaten:
            return None
        return _Hypothesis((cell, *tail, *((last,) if grows else ())), health, eaten & self.food)

    def _rebuild(
        self, completed: Sequence[int], seen: Sequence[int], known: list[_Hypothesis]
    ) -> _Hypothesis:
        """Return a random hypothesis that agrees with ``seen``.

        The snake is at least as long as it was; without memory, it is as long as ``you``.
        """
        old = self.rng.choice(known) if known else None
        length = max(len(completed), len(old.body) if old else self.board.you.length)
        body, cells = list(completed), set(completed)
        is_start = self.board.turn == 0
        if seen == [_HIDDEN]:
            free = [cell for cell in range(len(self.visible)) if self._is_free(cell)]
            free = self._start_cells(free) if is_start else free
            body = [self.rng.choice(free)]
            length, cells = START_LENGTH if is_start else length, set(body)
        elif seen[0] == _HIDDEN:
            steps = length - len(body)
            if seen[-1] == _HIDDEN:
                steps = self.rng.randrange(_MAX_HIDDEN_STEPS + 1)
            body = self._walk(body[0], steps, cells)[::-1] + body
        if seen[-1] == _HIDDEN:
            while len(body) > 1 and body[-1] == body[-2]:
                body.pop()  # The parser stacks segments on the last cell.
            missing = length - len(body)
            body += [] if is_start else self._walk(body[-1], missing, cells)
            body += body[-1:] * (length - len(body))
        return _Hypothesis(tuple(body), old.health if old else MAX_HEALTH)

    def _is_free(self, cell: int) -> bool:
        """Return whether a hidden segment may be on ``cell``."""
        return not self.visible[cell] and cell not in self.own_body

    def _start_cells(self, free: list[int]) -> list[int]:
        """Return the cells diagonal to food, on which snakes start, or ``free`` if none is free."""
        diagonal = self.grid.bits(
            (x + right, y + up) for x, y in self.board.food for right in (-1, 1) for up in (-1, 1)
        )
        return [cell for cell in free if diagonal >> cell & 1] or free

    def _walk(self, cell: int, steps: int, taken: set[int]) -> list[int]:
        """Return a random path through hidden cells from ``cell``, and add it to ``taken``."""
        path: list[int] = []
        for _ in range(steps):
            free = [
                step for step in self.neighbors[cell] if self._is_free(step) and step not in taken
            ]
            if not free:
                break
            cell = self.rng.choice(free)
            taken.add(cell)
            path.append(cell)
        return path

    def _distance_to_food(self, food: int) -> list[int]:
        """Return the distance of each cell to the nearest of ``food``, on an empty board."""
        count = self.board.width * self.board.height
        distances, reached, turns = [count] * count, 0, 0
        front = food
        while front:
            for cell in cell_indices(front):
                distances[cell] = turns
            reached |= front
            front, turns = self.grid.spread(front) & ~reached, turns + 1
        return distances

    def draw(
        self, hypotheses: Mapping[int, Sequence[_Hypothesis]], rng: random.Random
    ) -> tuple[_Hypothesis, ...]:
        """Draw one hypothesis per opponent; bodies overlap only if no other draw is found."""
        taken = set(self.own_body)
        drawn = []
        for snake in self.opponents:
            options = hypotheses[hash(snake.id)]
            for _ in range(_NUM_DRAWS):
                one = rng.choice(options)
                if taken.isdisjoint(one.body):
                    break
            taken.update(one.body)
            drawn.append(one)
        return tuple(drawn)

    def complete(self, drawn: Sequence[_Hypothesis]) -> Board:
        """Return the position with the drawn opponents and with the food that they left."""
        board, width = self.board.copy(), self.board.width
        food = self.food & ~self.visible_food
        for snake, one in zip(self.opponents, drawn, strict=True):
            position = board.snake(snake.id)
            position.body = [(cell % width, cell // width) for cell in one.body]
            position.health = one.health
            food &= ~(one.eaten | self.grid.bits(position.body))
        board.food = [(cell % width, cell // width) for cell in cell_indices(food)] + board.food
        return board


def combine_decisions(found: Sequence[tuple[Decision, int]]) -> Decision:
    """Return the decision with the highest mean of the expected scores.

    A move that loses immediately in a position has the expected score 0 there. If means are equal,
    the most frequent move of the decisions is chosen.

    Args:
        found: Decisions of a search in complete positions, and the weights of the positions.
    """
    if len(found) == 1:
        return found[0][0]
    total = sum(weight for _, weight in found)
    means: dict[str, float] = {}
    votes: Counter[str] = Counter()
    for decision, weight in found:
        votes[decision.move] += weight
        for move, score in (decision.scores or {decision.move: 0.0}).items():
            means[move] = means.get(move, 0.0) + weight / total * score_to_probability(score)
    best = max(means, key=lambda move: (means[move], votes[move]))
    scores = {move: probability_to_score(mean) for move, mean in means.items()}
    note = f"{len(found)} samples of the hidden cells; expected score {means[best]:.0%}"
    return Decision(best, (Reason("search", scores=scores, note=note),), scores)


@lru_cache(maxsize=16)
def _neighbors(shape: Grid) -> list[list[int]]:
    """Return the neighbors of each cell, in the order of `MOVES`."""
    points = [(x, y) for y in range(shape.height) for x in range(shape.width)]
    return [
        [p[1] * shape.width + p[0] for move in MOVES if (p := shape.step(point, move))]
        for point in points
    ]

"""Detection of eliminated snakes in requests that do not mark eliminated snakes.

The official engine lists only living snakes. Other engines list all snakes until the end of the
game. Eliminated snakes then keep their last health and body, without a flag. If eliminated snakes
counted as living, their bodies would be obstacles that do not exist.

Two observations identify eliminated snakes:

* The position, according to the rules. The health is 0, or the head is off the board, in a body, or
  on the head of a snake of equal or greater length. This test works until the snake that caused the
  elimination has moved away.
* Earlier turns. A living snake moves, so a snake whose body did not change is eliminated.

On the first observed turn of a running game (after a server restart), no earlier turns are known.
An eliminated snake whose opponent has moved away then counts as living until the next turn. No
other field of a request identifies this snake. The health and body are unchanged since the snake's
last turn, and all latencies are 0. If the bodies of two opponents overlap, one of the two opponents
is eliminated, but the position does not show which opponent.
"""

from __future__ import annotations

from battlesnake_gym.rules.stages import find_collision
from battlesnake_gym.rules.state import State

_MAX_COMPARED_SNAKES = 64
"""Maximum number of snakes that are compared: four times the limit for a game."""

ASSUMED_CAUSE = "snake-collision"
"""Assumed cause of an elimination that no position shows: the most frequent cause."""


_MIN_LOOP_TURNS = 4
"""Minimum number of turns after which a snake can occupy the same cells again."""


class EliminationTracker:
    """Detector of eliminated snakes, which stores observations of one game.

    A new tracker has no observations and uses only the position. A tracker stores hashes instead of
    ids and bodies, so the tracker uses less than 10 kB for any input.

    Attributes:
        has_hidden_segments: Whether a snake had hidden segments on any observed turn. The health of
            living opponents is then 0.
    """

    __slots__ = ("_eliminated", "_seen", "_turn", "has_hidden_segments")

    def __init__(self) -> None:
        self.has_hidden_segments = False
        self._turn = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self._eliminated: set[int] = set()

    def update(self, state: State, you_id: str | None) -> None:
        """Mark the detected snakes of ``state`` as eliminated, in place.

        A turn before the last observed turn starts a new game. A repeated turn does not add an
        observation.

        Args:
            state: Current position.
            you_id: Id of the snake that must move and is therefore living.
        """
        self._record_bodies(state, you_id)
        for snake in state.snakes:
            if snake.alive and hash(snake.id) in self._eliminated:
                snake.eliminate(ASSUMED_CAUSE, state.turn)
        if len(state.snakes) <= _MAX_COMPARED_SNAKES:
            _eliminate_collided_snakes(state, you_id)

    def _record_bodies(self, state: State, you_id: str | None) -> None:
        """Record the body of each snake and the snakes that have not moved.

        A living snake that moves in a loop can occupy the same cells again, but with less health.
        """
        passed = state.turn - self._turn
        if passed < 0:
            self._seen, self._eliminated = {}, set()
        seen = {
            hash(snake.id): (hash(tuple(snake.body)), snake.health)
            for snake in state.snakes[:_MAX_COMPARED_SNAKES]
            if snake.id != you_id
        }
        unmoved = {
            snake
            for snake, (body, health) in seen.items()
            if (before := self._seen.get(snake)) is not None
            and body == before[0]
            and (passed < _MIN_LOOP_TURNS or health == before[1])
        }
        self._eliminated = unmoved if passed > 0 else unmoved & self._eliminated
        self._turn, self._seen = state.turn, seen


def _eliminate_collided_snakes(state: State, you_id: str | None) -> None:
    """Eliminate the snakes whose collision is visible in the position.

    No living head is in the body of ``you``, and the head of ``you`` is in no living body. A snake
    that shares a cell with ``you`` is therefore eliminated.
    """
    players = state.living
    yours = {cell for snake in players if snake.id == you_id for cell in snake.body}
    others = [snake for snake in players if snake.id != you_id]
    for snake in others:
        if not yours.isdisjoint(snake.body):
            snake.eliminate("snake-collision", state.turn, you_id or "")
    moved = [snake for snake in others if snake.alive and len(set(snake.body)) > 1]
    longest_first = sorted(moved, key=lambda snake: -snake.length)
    collisions = [(snake, *find_collision(snake, longest_first)) for snake in moved]
    for snake, cause, by in collisions:
        if cause:
            snake.eliminate(cause, state.turn, by)

"""Which of the snakes that a request lists are out, where the engine does not say.

The official engine lists living snakes only. Other engines list all snakes until the game ends, the
dead ones with the health and body they died with, and without a flag. Taken for alive, they would
be walls and rivals that are not there.

Two things give them away. The first is the position itself, as the rules read it: a head in another
body or its own, on the head of a snake as long or longer, off the board, no health left. That holds
until the snake that killed it has moved on. The second is the turns before: a living snake moves,
so a body that is the same on a later turn is a corpse.

On the first turn seen of a game under way (after a restart of the server) there are no turns
before, and a corpse whose killer has moved on passes for alive until the next turn. Nothing else in
a request gives it away: health and body are those of its last turn, latency is 0 for all. Where the
bodies of two rivals overlap, one of them is out, but the position does not show which.
"""

from __future__ import annotations

from battlesnake_gym.rules.stages import collision, eliminate
from battlesnake_gym.rules.state import State

_MAX_COMPARED_SNAKES = 64
"""Snakes that are compared with each other: four times as many as in any game."""

_ASSUMED_CAUSE = "snake-collision"
"""The cause reported for a death that no position shows: the most frequent one."""


_MIN_LOOP_LENGTH = 4
"""Turns after which a living snake may lie on the same cells as before."""


class EliminationTracker:
    """What one snake has seen of one game: enough to tell who is out.

    A new one has seen nothing and knows the position alone. Hashes are kept, not ids and bodies, so
    it stays below 10 kB whatever it is shown.
    """

    __slots__ = ("_out", "_seen", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self._out: set[int] = set()

    def update(self, state: State, you_id: str | None) -> None:
        """Eliminate, in place, the snakes of ``state`` that are out.

        ``you_id`` is the snake asked for a move, so it is alive. A turn older than those seen is
        of another game; the same turn again adds nothing.
        """
        self._remember(state, you_id)
        for snake in state.snakes:
            if snake.alive and hash(snake.id) in self._out:
                eliminate(snake, _ASSUMED_CAUSE, state.turn)
        if len(state.snakes) <= _MAX_COMPARED_SNAKES:
            _mark_collisions(state, you_id)

    def _remember(self, state: State, you_id: str | None) -> None:
        """Note where each snake lies, and which have not moved since.

        A living snake that moves in a circle lies as before, but with less health.
        """
        passed = state.turn - self._turn
        if passed < 0:
            self._seen, self._out = {}, set()
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
            and (passed < _MIN_LOOP_LENGTH or health == before[1])
        }
        self._out = unmoved if passed > 0 else unmoved & self._out
        self._turn, self._seen = state.turn, seen


def _mark_collisions(state: State, you_id: str | None) -> None:
    """Eliminate whom the position itself shows to be out.

    No living head is in the body of ``you``, nor is the head of ``you`` in a living body: a snake
    that shares a cell with ``you`` is out.
    """
    players = [snake for snake in state.snakes if snake.alive]
    yours = {cell for snake in players if snake.id == you_id for cell in snake.body}
    others = [snake for snake in players if snake.id != you_id]
    for snake in others:
        if not yours.isdisjoint(snake.body):
            eliminate(snake, "snake-collision", state.turn, you_id or "")
    moved = [snake for snake in others if snake.alive and len(set(snake.body)) > 1]
    longest_first = sorted(moved, key=lambda snake: -snake.length)
    collisions = [(snake, *collision(snake, longest_first)) for snake in moved]
    for snake, cause, by in collisions:
        if cause:
            eliminate(snake, cause, state.turn, by)

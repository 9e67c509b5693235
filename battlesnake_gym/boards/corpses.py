"""Which of the snakes that a request lists are out, where the engine does not say.

The official engine lists living snakes only. Others list all snakes of the game to its end, the
dead ones with health and body as they were when they died and without a flag. Taken for alive they
are walls and rivals that are not there.

Two things give them away. The position itself, as the rules read it: a head in another's body or
its own, on the head of a snake as long or longer, off the board, no health left. That holds until
who killed it has moved on. And the turns before: who lives moves, so a body that is the same on a
later turn is a corpse.

On the first turn that is seen of a game under way (after a restart of the server) there are no
turns before, and a corpse whose killer has moved on passes for alive, until the next turn. Nothing
else in a request tells it: health and body are those of its last turn, latency is 0 for all. Bodies
of two rivals that overlap say that one of them is out, but not which.
"""

from __future__ import annotations

from battlesnake_gym.rules.stages import collision, eliminate
from battlesnake_gym.rules.state import State

MOST_COMPARED = 64
"""Snakes that are compared with each other: four times as many as in any game."""

UNSEEN_CAUSE = "snake-collision"
"""What is told of a death that nobody saw: the most frequent one."""


LEAST_LOOP = 4
"""Turns in which a living snake may come to lie as it lay before."""


class Corpses:
    """What one snake has seen of one game: enough to tell who is out.

    A new one has seen nothing and knows the position alone. Hashes are kept, not ids and bodies, so
    it stays below 10 kB whatever it is shown.
    """

    __slots__ = ("_out", "_seen", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._seen: dict[int, tuple[int, int]] = {}
        self._out: set[int] = set()

    def mark(self, state: State, you_id: str | None) -> None:
        """Eliminate, in place, the snakes of ``state`` that are out.

        ``you_id`` is who is asked for a move, and so is alive. Older turns than those seen are
        another game; the same turn again tells nothing new.
        """
        self._remember(state, you_id)
        for snake in state.snakes:
            if snake.alive and hash(snake.id) in self._out:
                eliminate(snake, UNSEEN_CAUSE, state.turn)
        if len(state.snakes) <= MOST_COMPARED:
            _mark_collisions(state, you_id)

    def _remember(self, state: State, you_id: str | None) -> None:
        """Note who lies where, and who has not moved since.

        A living snake that goes round in circles lies as before with less health.
        """
        passed = state.turn - self._turn
        if passed < 0:
            self._seen, self._out = {}, set()
        seen = {
            hash(snake.id): (hash(tuple(snake.body)), snake.health)
            for snake in state.snakes[:MOST_COMPARED]
            if snake.id != you_id
        }
        unmoved = {
            snake
            for snake, (body, health) in seen.items()
            if (before := self._seen.get(snake)) is not None
            and body == before[0]
            and (passed < LEAST_LOOP or health == before[1])
        }
        self._out = unmoved if passed > 0 else unmoved & self._out
        self._turn, self._seen = state.turn, seen


def _mark_collisions(state: State, you_id: str | None) -> None:
    """Eliminate whom the position itself shows to be out.

    Nobody's head is in the body of ``you``, nor is the head of ``you`` in a living body: whoever
    shares a cell with ``you`` is out.
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

"""Data types of strategies: a decision, its reasons, and the interface of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from battlesnake_gym.rules.state import MOVES

if TYPE_CHECKING:
    from battlesnake_gym.boards.board import Board


@dataclass(frozen=True, slots=True)
class Reason:
    """Effect of one rule on one decision of a strategy.

    Attributes:
        vetoed: The moves that the rule excluded.
        scores: The score that the rule added to each move.
    """

    rule: str
    vetoed: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A strategy's move and the reasons for the move.

    Attributes:
        reasons: The rules that had an effect, in order of application.
        scores: The total score of each move.
        line: The expected moves of each snake, by id; empty if the strategy does not search.
    """

    move: str
    reasons: tuple[Reason, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    shout: str = ""
    line: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Strategy(Protocol):
    """A callable that can play one snake in one game."""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you`` within ``seconds``.

        If ``seconds`` is None, the time is unlimited. A strategy may also return the move as text;
        see `to_decision`.
        """
        ...


def to_decision(chosen: Decision | str) -> Decision:
    """Convert the result of a strategy to a decision.

    A move as text becomes a decision without reasons.

    Raises:
        TypeError: If ``chosen`` is neither a decision nor text.
        ValueError: If the move is none of `MOVES`.

    >>> to_decision("up")
    Decision(move='up', reasons=(), scores={}, shout='', line={})
    """
    decision = Decision(chosen) if isinstance(chosen, str) else chosen
    if isinstance(chosen, Coroutine):
        chosen.close()  # Otherwise Python warns that nothing awaited the coroutine.
        raise TypeError("the strategy is async; write def, not async def")
    if not hasattr(decision, "move"):
        raise TypeError(
            f'a strategy returns a Decision or a move such as "up", got {chosen!r:.100}'
        )
    if decision.move not in MOVES:
        raise ValueError(f"move must be one of {', '.join(MOVES)}, got {decision.move!r:.100}")
    return decision


StrategyFactory = Callable[[int], Strategy]
"""Function that builds a new strategy from a seed."""

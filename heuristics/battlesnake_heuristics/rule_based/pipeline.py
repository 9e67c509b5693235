"""How rules make a decision: filters rule moves out, preferences score what is left.

A strategy is a `Pipeline` of nodes, read from top to bottom:

* a `Filter` says how bad a move is, 0 for nothing against it. The moves with the least badness
  stay. So a filter rules out the bad moves where there is a better one, and where all are bad it
  leaves the least bad: there is always a move, and earlier filters weigh more than later ones.
* a `Preference` adds a score to each move that is left; ``preference * 2`` counts double.
* `When` asks a question and goes on with one list of nodes or the other: a decision tree.

Whatever speaks leaves a `Reason`. The best score wins; the seed decides between equals.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules.state import MOVES, Game, State
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.view import View

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Measure = Callable[[View, str], float]
"""Judges one move on one view."""


@dataclass(slots=True)
class Verdict:
    """What the rules have said so far: the moves left, their scores, and the reasons."""

    remaining: list[str] = field(default_factory=lambda: list(MOVES))
    scores: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MOVES, 0.0))
    reasons: list[Reason] = field(default_factory=list)

    def decide(self, choose: Callable[[list[str]], str] = lambda best: best[0]) -> Decision:
        """Take the best move left; ``choose`` decides between moves of equal score."""
        top = max(self.scores[move] for move in self.remaining)
        best = [move for move in self.remaining if self.scores[move] == top]
        scores = {move: self.scores[move] for move in self.remaining}
        return Decision(choose(best), tuple(self.reasons), scores)


class PipelineStep(Protocol):
    """A step of a pipeline."""

    def apply(self, view: View, verdict: Verdict) -> None:
        """Speak on ``view``: change the verdict and add a reason."""
        ...


def _decorated(module: str, name: str) -> Measure:
    """The function behind a rule of a module, which has the function's name there."""
    rule: Filter | Preference = getattr(importlib.import_module(module), name)
    return rule.badness if isinstance(rule, Filter) else rule.score


def _reduced(rule: Filter | Preference, function: Measure, *more: float) -> tuple[Any, ...]:
    """How a rule is pickled: its function cannot be found by name, only the rule itself can."""
    place = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    found = getattr(sys.modules.get(place[0]), place[1], None)
    if isinstance(found, Filter | Preference) and _decorated(*place) is function:
        return _rebuilt, (type(rule), place, *more)
    return type(rule), (function, *more)


def _rebuilt(kind: Callable[..., Any], place: tuple[str, str], *more: float) -> Any:
    return kind(_decorated(*place), *more)


@dataclass(frozen=True)
class Filter:
    """Rules out moves. Decorates a function that returns how bad a move is, 0 for not at all."""

    badness: Measure

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced(self, self.badness)

    @property
    def name(self) -> str:
        """The name of the decorated function."""
        return _name(self.badness)

    def apply(self, view: View, verdict: Verdict) -> None:
        """Keep the least bad of the moves left."""
        badness = {move: self.badness(view, move) for move in verdict.remaining}
        least = min(badness.values())
        vetoed = tuple(move for move in verdict.remaining if badness[move] > least)
        if not vetoed and least == 0:
            return
        note = _description(self.badness)
        if least > 0:
            left = [move for move in verdict.remaining if move not in vetoed]
            note += f" (so does {' or '.join(left)}, the least bad left)"
        verdict.remaining = [move for move in verdict.remaining if move not in vetoed]
        verdict.reasons.append(Reason(self.name, vetoed, note=note))


@dataclass(frozen=True)
class Preference:
    """Scores moves. Decorates a function that gives a move a score, by habit from 0 to 1."""

    score: Measure
    weight: float = 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced(self, self.score, self.weight)

    @property
    def name(self) -> str:
        """The name of the decorated function."""
        return _name(self.score)

    def __mul__(self, factor: float) -> Preference:
        """The same preference, ``factor`` times as strong."""
        return replace(self, weight=self.weight * factor)

    __rmul__ = __mul__

    def apply(self, view: View, verdict: Verdict) -> None:
        """Add to the scores of the moves left."""
        added = {move: self.weight * self.score(view, move) for move in verdict.remaining}
        for move, score in added.items():
            verdict.scores[move] += score
        verdict.reasons.append(Reason(self.name, scores=added, note=_description(self.score)))


@dataclass(frozen=True)
class When:
    """Goes on with ``then`` where the condition holds on the view, otherwise with ``otherwise``."""

    condition: Callable[[View], bool]
    then: Sequence[PipelineStep]
    otherwise: Sequence[PipelineStep] = ()

    def apply(self, view: View, verdict: Verdict) -> None:
        """Ask, note the answer, and walk the branch."""
        holds = self.condition(view)
        note = f"{_description(self.condition)}: {'yes' if holds else 'no'}"
        verdict.reasons.append(Reason(f"{_name(self.condition)}?", note=note))
        apply_nodes(self.then if holds else self.otherwise, view, verdict)


def apply_nodes(nodes: Sequence[PipelineStep], view: View, verdict: Verdict) -> None:
    """Let the nodes speak one after the other."""
    for node in nodes:
        node.apply(view, verdict)


class Pipeline:
    """A strategy made of nodes; the same seed breaks ties in the same way."""

    def __init__(self, *nodes: PipelineStep, seed: int = 0) -> None:
        self.nodes = nodes
        self._random = random.Random(seed)

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``; a pipeline needs no more than milliseconds."""
        verdict = Verdict()
        apply_nodes(self.nodes, View(board), verdict)
        return verdict.decide(self._random.choice)


def best_after_filters(
    values: Mapping[str, float] | Sequence[float], board: Board, filters: Sequence[Filter]
) -> Decision:
    """Let ``filters`` rule moves out, then take the highest of ``values`` among those left.

    ``values`` are a policy's, by move or in the order of ``MOVES``; any real numbers do, negative
    ones too: a move that is ruled out never wins. NaN and missing moves count below all others.
    Equal values go to the first in the order of ``MOVES``. Raises ``ValueError`` for unknown moves
    or a sequence of another length than 4.
    """
    if not isinstance(values, Mapping):
        if len(values) != len(MOVES):
            raise ValueError(f"values must have one number for each of {MOVES}, got {len(values)}")
        values = dict(zip(MOVES, values, strict=True))
    if unknown := values.keys() - set(MOVES):
        raise ValueError(f"values has unknown moves {sorted(unknown)}; the moves are {MOVES}")
    numbers = {move: float(value) for move, value in values.items() if not math.isnan(value)}
    missing = [move for move in MOVES if move not in numbers]
    verdict = Verdict(scores={move: numbers.get(move, -math.inf) for move in MOVES})
    note = f"no number for {', '.join(missing)}" if missing else ""
    verdict.reasons.append(Reason("values", scores=numbers, note=note))
    apply_nodes(filters, View(board), verdict)
    return verdict.decide()


def filter_mask(board: Board, nodes: Sequence[PipelineStep]) -> NDArray[np.bool_]:
    """Which moves the filters leave, as an action mask: bool[4] in the order of ``MOVES``.

    A filter that has something against every move left is passed over, however bad each is; so the
    mask is never all False, and it agrees with `mdp.masks`. Trees are walked;
    preferences rule nothing out.
    """
    import numpy as np  # here: a packed snake plays without it

    kept = _left(nodes, View(board), list(MOVES))
    return np.array([move in kept for move in MOVES])


def _left(nodes: Sequence[PipelineStep], view: View, kept: list[str]) -> list[str]:
    for node in nodes:
        if isinstance(node, When):
            kept = _left(node.then if node.condition(view) else node.otherwise, view, kept)
        elif isinstance(node, Filter):
            kept = [move for move in kept if node.badness(view, move) == 0] or kept
    return kept


def to_mask_function(nodes: Sequence[PipelineStep]) -> Callable[[Game, State, str], list[bool]]:
    """`filter_mask` in the form that `see.masks.register` takes: a snake's rules as a training mask.

    >>> from battlesnake_gym.mdp import masks
    >>> from battlesnake_heuristics.rule_based.filters import SAFE
    >>> masks.register("as-cautious", as_mask(SAFE))
    """

    def allows(game: Game, state: State, snake_id: str) -> list[bool]:
        allowed: list[bool] = filter_mask(Board.from_state(state, game, snake_id), nodes).tolist()
        return allowed

    return allows


def explain(decision: Decision) -> str:
    """A decision as text: the move, then a line for each rule that spoke."""
    rows = []
    for reason in decision.reasons:
        said = [f"not {move}" for move in reason.vetoed]
        said += [f"{move} {score:+.2f}" for move, score in reason.scores.items()]
        rows.append((reason.rule, ", ".join(said), reason.note))
    first, second = (max((len(row[i]) for row in rows), default=0) for i in range(2))
    lines = [f"  {rule:<{first}}  {said:<{second}}  {note}".rstrip() for rule, said, note in rows]
    return "\n".join([decision.move or "no move", *lines])


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _description(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")

"""Pipelines of filters and preferences that choose a move.

A strategy is a `Pipeline` of steps. The pipeline applies the steps from first to last:

* A `Filter` computes a penalty for each move: 0 if the move is acceptable. The moves with the
  lowest penalty remain. If every move has a penalty, the least bad moves remain. At least one move
  always remains, and earlier filters have priority.
* A `Preference` adds a score to each remaining move; ``preference * 2`` doubles its weight.
* `When` evaluates a condition and applies one of two lists of steps. Nested `When` steps form a
  decision tree.

Each step records a `Reason`. The pipeline chooses the move with the highest score. Random numbers
from the seed break ties.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.rules.state import MOVES, Game, State
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.view import View

Measure = Callable[[View, str], float]
"""Function that computes a number for one move in a view of the board."""


@dataclass(slots=True)
class Verdict:
    """The state of a decision.

    The state contains the remaining moves, the scores of the moves, and the reasons.
    """

    remaining: list[str] = field(default_factory=lambda: list(MOVES))
    scores: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MOVES, 0.0))
    reasons: list[Reason] = field(default_factory=list)

    def decide(self, choose: Callable[[list[str]], str] = lambda best: best[0]) -> Decision:
        """Choose the remaining move with the highest score.

        Args:
            choose: Function that breaks ties.
        """
        top = max(self.scores[move] for move in self.remaining)
        best = [move for move in self.remaining if self.scores[move] == top]
        scores = {move: self.scores[move] for move in self.remaining}
        return Decision(choose(best), tuple(self.reasons), scores)


class PipelineStep(Protocol):
    """A step of a pipeline, such as a filter or a preference."""

    def apply(self, view: View, verdict: Verdict) -> None:
        """Apply the step to ``view``: update the verdict and append a reason."""
        ...


def _rule_function(module: str, name: str) -> Measure:
    """Return the function of the rule ``name`` in ``module``."""
    rule: Filter | Preference = getattr(importlib.import_module(module), name)
    return rule.penalty if isinstance(rule, Filter) else rule.score


def _reduce_rule(rule: Filter | Preference, function: Measure, *more: float) -> tuple[Any, ...]:
    """Return the pickle state of a rule: the module and the name of its function.

    The function cannot be pickled directly, because the function's name refers to the rule.
    """
    location = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    found = getattr(sys.modules.get(location[0]), location[1], None)
    if isinstance(found, Filter | Preference) and _rule_function(*location) is function:
        return _restore_rule, (type(rule), location, *more)
    return type(rule), (function, *more)


def _restore_rule(kind: Callable[..., Any], location: tuple[str, str], *more: float) -> Any:
    """Create a rule from its pickle state."""
    return kind(_rule_function(*location), *more)


@dataclass(frozen=True)
class Filter:
    """A filter that rules out moves.

    The class decorates a function that returns the penalty of a move: 0 if the move is acceptable.
    """

    penalty: Measure

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduce_rule(self, self.penalty)

    @property
    def name(self) -> str:
        """The name of the decorated function."""
        return _function_name(self.penalty)

    def apply(self, view: View, verdict: Verdict) -> None:
        """Keep the remaining moves with the lowest penalty.

        The function records the other moves as ruled out.
        """
        penalties = {move: _number(self.penalty, view, move) for move in verdict.remaining}
        least = min(penalties.values())
        vetoed = tuple(move for move in verdict.remaining if penalties[move] > least)
        if not vetoed and least == 0:
            return
        note = _first_docstring_line(self.penalty)
        if least > 0:
            left = [move for move in verdict.remaining if move not in vetoed]
            note += f" (also {' or '.join(left)}, the least bad moves)"
        verdict.remaining = [move for move in verdict.remaining if move not in vetoed]
        verdict.reasons.append(Reason(self.name, vetoed, note=note))


@dataclass(frozen=True)
class Preference:
    """A preference that scores moves.

    The class decorates a function that returns the score of a move, usually in [0, 1].
    """

    score: Measure
    weight: float = 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduce_rule(self, self.score, self.weight)

    @property
    def name(self) -> str:
        """The name of the decorated function."""
        return _function_name(self.score)

    def __mul__(self, factor: float) -> Preference:
        """Return the preference with its weight multiplied by ``factor``."""
        return replace(self, weight=self.weight * factor)

    __rmul__ = __mul__

    def apply(self, view: View, verdict: Verdict) -> None:
        """Add the weighted score of each remaining move."""
        added = {move: self.weight * _number(self.score, view, move) for move in verdict.remaining}
        for move, score in added.items():
            verdict.scores[move] += score
        verdict.reasons.append(
            Reason(self.name, scores=added, note=_first_docstring_line(self.score))
        )


@dataclass(frozen=True)
class When:
    """A branch of a decision tree.

    The branch applies the steps ``then`` if the condition is true, otherwise the steps
    ``otherwise``.
    """

    condition: Callable[[View], bool]
    then: Sequence[PipelineStep]
    otherwise: Sequence[PipelineStep] = ()

    def __post_init__(self) -> None:
        if not callable(self.condition):
            raise ValueError(f"a condition must be a function, got {self.condition!r:.40}")
        check_steps(self.then)
        check_steps(self.otherwise)

    def apply(self, view: View, verdict: Verdict) -> None:
        """Evaluate the condition and apply the steps of the selected branch.

        The function records the result of the condition.
        """
        holds = self.condition(view)
        note = f"{_first_docstring_line(self.condition)}: {'yes' if holds else 'no'}"
        verdict.reasons.append(Reason(f"{_function_name(self.condition)}?", note=note))
        apply_steps(self.then if holds else self.otherwise, view, verdict)


def check_steps(steps: Sequence[PipelineStep]) -> None:
    """Raise ``ValueError`` if ``steps`` is not a list of steps."""
    if not isinstance(steps, Sequence):
        raise ValueError(f"rules must be a list, got {steps!r:.40}")
    for step in steps:
        if not hasattr(step, "apply"):
            name = getattr(step, "__name__", repr(step))
            raise ValueError(
                f"{name:.40} is not a rule; decorate a function with @Filter or @Preference, use "
                "a condition in a When, and write * before a list"
            )


def apply_steps(steps: Sequence[PipelineStep], view: View, verdict: Verdict) -> None:
    """Apply ``steps`` in order."""
    for step in steps:
        step.apply(view, verdict)


class Pipeline:
    """A strategy that consists of steps. Random numbers from ``seed`` break ties.

    With limited view, the object remembers what the snake saw in its game. A decision then depends
    only on the seed, the position and the memory, so that a repeated request gets the same move.
    """

    def __init__(self, *steps: PipelineStep, seed: int = 0) -> None:
        check_steps(steps)
        self.steps = steps
        self._seed = seed
        self._random = random.Random(seed)
        self._sightings = Sightings()

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you`` within a few milliseconds.

        The pipeline ignores the time budget ``seconds``.

        Raises:
            TypeError: If ``board`` is no board, because the pipeline was registered as a factory.
        """
        if not isinstance(board, Board):
            raise TypeError(
                "register a function that returns the pipeline, such as lambda seed: Pipeline(...)"
            )
        verdict, view = Verdict(), View(board, self._sightings)
        if view.sightings:
            self._random.seed(f"{self._seed} {board.turn}")
        apply_steps(self.steps, view, verdict)
        return verdict.decide(self._random.choice)


def best_after_filters(
    values: Mapping[str, float] | Sequence[float], board: Board, filters: Sequence[Filter]
) -> Decision:
    """Apply ``filters``, then choose the remaining move with the highest value.

    NaN and missing values rank below all other values. Ties select the first move in the order of
    ``MOVES``.

    Args:
        values: A policy's values, by move or in the order of ``MOVES``. The values may be any real
            numbers, including negative numbers. A move that a filter rules out is never chosen.
        board: Position of ``board.you``.
        filters: Filters, in order.

    Raises:
        ValueError: If a move is unknown, or a sequence does not have four values.
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
    apply_steps(filters, View(board), verdict)
    return verdict.decide()


def filter_mask(board: Board, steps: Sequence[PipelineStep]) -> NDArray[np.bool_]:
    """Convert the filters in ``steps`` to an action mask.

    A filter that penalizes all remaining moves is ignored, even if the penalties differ. The mask
    therefore always allows at least one move, and the mask agrees with `mdp.masks`. Preferences are
    ignored, and so are `When` steps without filters, because their conditions may need a policy.

    Returns:
        bool (4,) in the order of ``MOVES``.
    """
    remaining = _filter_moves(steps, View(board), list(MOVES))
    return np.array([move in remaining for move in MOVES])


def _filter_moves(steps: Sequence[PipelineStep], view: View, remaining: list[str]) -> list[str]:
    """Return the moves that remain after the filters in ``steps``."""
    for step in steps:
        if isinstance(step, When):
            if _has_filters((*step.then, *step.otherwise)):
                chosen = step.then if step.condition(view) else step.otherwise
                remaining = _filter_moves(chosen, view, remaining)
        elif isinstance(step, Filter):
            penalties = {move: _number(step.penalty, view, move) for move in remaining}
            remaining = [move for move in remaining if penalties[move] == 0] or remaining
    return remaining


def _has_filters(steps: Sequence[PipelineStep]) -> bool:
    """Return whether the steps or their branches contain a filter."""
    return any(
        _has_filters((*step.then, *step.otherwise))
        if isinstance(step, When)
        else isinstance(step, Filter)
        for step in steps
    )


def to_mask_function(steps: Sequence[PipelineStep]) -> Callable[[Game, State, str], list[bool]]:
    """Convert a snake's steps to a function for `mdp.masks.register`.

    A training can then use the filters of the snake as an action mask.

    >>> from battlesnake_gym.mdp import masks
    >>> from battlesnake_heuristics.rule_based.filters import SAFE
    >>> masks.register("as-cautious", to_mask_function(SAFE))
    """

    def compute_mask(game: Game, state: State, snake_id: str) -> list[bool]:
        allowed: list[bool] = filter_mask(Board.from_state(state, game, snake_id), steps).tolist()
        return allowed

    return compute_mask


def explain(decision: Decision) -> str:
    """Format a decision as text: the move, then one line per reason."""
    rows = []
    for reason in decision.reasons:
        moves = [f"not {move}" for move in reason.vetoed]
        moves += [f"{move} {score:+.2f}" for move, score in reason.scores.items()]
        rows.append((reason.rule, ", ".join(moves), reason.note))
    first, second = (max((len(row[i]) for row in rows), default=0) for i in range(2))
    lines = [f"  {rule:<{first}}  {moves:<{second}}  {note}".rstrip() for rule, moves, note in rows]
    return "\n".join([decision.move or "no move", *lines])


def _number(function: Measure, view: View, move: str) -> float:
    """Return the number of a rule for a move.

    Raises:
        ValueError: If the rule returns no number; the message names the rule.
    """
    value = function(view, move)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(
            f"{_function_name(function)} must return a number for {move}, got {value!r:.80}"
        )
    return number


def _function_name(function: Callable[..., object]) -> str:
    """Return the name of a function, or the class name of another callable."""
    return getattr(function, "__name__", type(function).__name__)


def _first_docstring_line(function: Callable[..., object]) -> str:
    """Return the first line of a docstring without its period."""
    return (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")

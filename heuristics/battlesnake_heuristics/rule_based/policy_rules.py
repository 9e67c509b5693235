"""Policy rules: pipeline steps from a file, applied to a policy's values.

The file defines a list named ``rules`` with the steps of a `Pipeline`: filters, preferences and
branches. The policy's values act as the first preference. The values of the moves that do not lose
immediately are scaled: the best value becomes 1, and the worst value becomes 0. Then the rules are
applied in order. Conditions and rules can read the unscaled values as ``view.values``.
"""

from __future__ import annotations

import functools
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.common import extensions
from battlesnake_gym.mdp import masks
from battlesnake_gym.rules.state import MOVES
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.filters import ALIVE
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    PipelineStep,
    Verdict,
    apply_steps,
    check_steps,
)
from battlesnake_heuristics.rule_based.view import View

RULES_VARIABLE = "rules"
"""Name of the list in the file."""

_POLICY_REASON, _DECIDED_REASON = "policy", "decided"
"""Names of two reasons.

The reasons are the policy's values and the step that determined the move.
"""

log = logging.getLogger(__name__)


def load(path: str | Path) -> tuple[PipelineStep, ...]:
    """Load the policy rules in a file.

    Raises:
        ValueError: If the file does not exist, or has no list of steps named ``rules``.
    """
    return validate_rules(
        getattr(extensions.load_file(Path(path), "rules"), RULES_VARIABLE, None), path
    )


def validate_rules(found: object, path: str | Path) -> tuple[PipelineStep, ...]:
    """Check that ``found``, read from the file ``path``, is a list of steps.

    Raises:
        ValueError: If ``found`` is not a list of steps.
    """
    if not isinstance(found, Sequence) or not found:
        raise ValueError(
            f"{path} must define a list named {RULES_VARIABLE}, such as "
            f"rules = [walls, center * 2]; got {found!r:.80}"
        )
    try:
        check_steps(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return tuple(found)


@functools.lru_cache(64)
def policy_filters(kind: str) -> tuple[Filter, ...]:
    """Return the filters of a policy's moves: ``ALIVE``, and the policy's action mask.

    An unknown mask is logged once and has no effect.

    Args:
        kind: Kind of the action mask (`masks.KINDS`).
    """
    try:
        flags = masks.fault_flags(kind)
    except ValueError as error:
        log.warning("the policy plays without its action mask: %.200s", error)
        return ALIVE
    if flags is not None and not any(flag & masks.HEAD for flag in flags):
        return ALIVE  # ALIVE rules out all other faults.
    mask = functools.partial(action_mask, kind)
    return (*ALIVE, Filter(functools.update_wrapper(mask, action_mask)))


def action_mask(kind: str, view: View, move: str) -> float:
    """Is not allowed by the policy's action mask."""
    board = view.board
    mask = masks.action_mask(board.game, board, view.you.id, kind)
    return float(not mask[MOVES.index(move)])


def apply_policy_rules(
    values: Mapping[str, float],
    board: Board,
    rules: Sequence[PipelineStep],
    always: Sequence[Filter] = (),
    sightings: Sightings | None = None,
) -> Decision:
    """Apply the filters ``always``, then ``rules``, to a policy's values.

    The last reason names the step that determined the move. The step is the policy, a filter of the
    policy's move, or the preferences for another move.

    Args:
        values: The policy's values by move.
        board: Position of ``board.you``.
        rules: Rules, in order.
        always: Filters that are applied before the values are scaled.
        sightings: Memory of the snake for limited view.
    """
    view = View(board, sightings)
    view.values = dict(values)
    verdict = Verdict()
    apply_steps(always, view, verdict)
    verdict.scores = dict.fromkeys(MOVES, 0.0) | _scale_values(values, verdict.remaining)
    scaled = {move: verdict.scores[move] for move in verdict.remaining}
    wanted = max(scaled, key=scaled.__getitem__)
    verdict.reasons.append(
        Reason(_POLICY_REASON, scores=scaled, note=f"prefers {wanted}; values scaled to [0, 1]")
    )
    first = len(verdict.reasons)
    apply_steps(rules, view, verdict)
    decision = verdict.decide()
    note = _describe_decision(decision.move, wanted, verdict.reasons[first:])
    return replace(decision, reasons=(*decision.reasons, Reason(_DECIDED_REASON, note=note)))


def _scale_values(values: Mapping[str, float], moves: Sequence[str]) -> dict[str, float]:
    """Scale the values of ``moves`` to [0, 1].

    Values that are not finite become 0.
    """
    numbers = {move: values.get(move, -math.inf) for move in moves}
    finite = [number for number in numbers.values() if math.isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = (high - low) or 1.0
    return {
        move: (number - low) / span if math.isfinite(number) else 0.0
        for move, number in numbers.items()
    }


def _describe_decision(move: str, wanted: str, reasons: Sequence[Reason]) -> str:
    """Return the name of the step that determined the move, with an explanation."""
    if move == wanted:
        return f"the policy; no rule outweighs its {move}"
    for reason in reasons:
        if wanted in reason.vetoed:
            return f"{reason.rule}, which rules out the policy's {wanted}"
    gained: defaultdict[str, float] = defaultdict(float)
    for reason in reasons:
        if move in reason.scores and wanted in reason.scores:
            gained[reason.rule] += reason.scores[move] - reason.scores[wanted]
    rules = [rule for rule, more in gained.items() if more > 0]
    return f"{' and '.join(rules)}, over the policy's {wanted}"

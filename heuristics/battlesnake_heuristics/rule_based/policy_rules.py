"""Your own rules over a policy: a file with filters, preferences and trees.

The file has a list called ``rules``, of the nodes that a `Pipeline` is made of. The policy's values
are the first preference: scaled so that its best move among those that do not lose at once is worth
1 and the worst of them 0. Then the rules speak, in their order. Conditions and rules may look at
the unscaled values as ``view.values``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import extensions
from battlesnake_gym.rules.state import MOVES
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_heuristics.rule_based.pipeline import Filter, PipelineStep, Verdict, apply_nodes
from battlesnake_heuristics.rule_based.view import View

RULES_VARIABLE = "rules"
"""What the list is called in a file."""

_POLICY_REASON, _DECIDED_REASON = "policy", "decided"
"""The rules under which a decision shows what the policy said, and who decided."""


def load(path: str | Path) -> tuple[PipelineStep, ...]:
    """The rules in a file.

    Raises ``ValueError`` where there is no such file, or no list of nodes called ``rules`` in it.
    """
    return validate_rules(
        getattr(extensions.module(Path(path), "rules"), RULES_VARIABLE, None), path
    )


def validate_rules(found: object, path: str | Path) -> tuple[PipelineStep, ...]:
    """The list of rules that was ``found`` in a file; raises as `load`."""
    if not isinstance(found, Sequence) or not found:
        raise ValueError(
            f"{path} must have a list called {RULES_VARIABLE}, such as rules = [walls, centre * 2]; "
            f"got {found!r:.80}"
        )
    for node in found:
        if not hasattr(node, "apply"):
            name = getattr(node, "__name__", repr(node))
            raise ValueError(
                f"{path}: {name:.80} in {RULES_VARIABLE} is no rule; decorate the function with @Filter or "
                "@Preference, or ask it in a When"
            )
    return tuple(found)


def apply_policy_rules(
    values: Mapping[str, float],
    board: Board,
    rules: Sequence[PipelineStep],
    always: Sequence[Filter] = (),
) -> Decision:
    """Let ``always`` rule moves out, then apply ``rules`` over what the policy says.

    ``values`` are the policy's, by move. The last reason says who decided: the policy, the rule
    that ruled its move out, or the preferences that another move is worth more to.
    """
    view = View(board)
    view.values = dict(values)
    verdict = Verdict()
    apply_nodes(always, view, verdict)
    verdict.scores = dict.fromkeys(MOVES, 0.0) | _scaled(values, verdict.remaining)
    said = {move: verdict.scores[move] for move in verdict.remaining}
    wanted = max(said, key=said.__getitem__)
    verdict.reasons.append(
        Reason(_POLICY_REASON, scores=said, note=f"wants {wanted}; its values, scaled to 0 and 1")
    )
    first = len(verdict.reasons)
    apply_nodes(rules, view, verdict)
    decision = verdict.decide()
    note = _who(decision.move, wanted, verdict.reasons[first:])
    return replace(decision, reasons=(*decision.reasons, Reason(_DECIDED_REASON, note=note)))


def _scaled(values: Mapping[str, float], kept: Sequence[str]) -> dict[str, float]:
    """0 for the worst of the moves that are ``kept``, 1 for the best; not finite: 0."""
    numbers = {move: values.get(move, -math.inf) for move in kept}
    finite = [number for number in numbers.values() if math.isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = (high - low) or 1.0
    return {
        move: (number - low) / span if math.isfinite(number) else 0.0
        for move, number in numbers.items()
    }


def _who(move: str, wanted: str, reasons: Sequence[Reason]) -> str:
    if move == wanted:
        return f"the policy, whose {move} no rule outweighs"
    for reason in reasons:
        if wanted in reason.vetoed:
            return f"{reason.rule}, which rules out the policy's {wanted}"
    gained = {
        reason.rule: reason.scores[move] - reason.scores[wanted]
        for reason in reasons
        if move in reason.scores and wanted in reason.scores
    }
    rules = [rule for rule, more in gained.items() if more > 0]
    return f"{' and '.join(rules)}, over the policy's {wanted}"

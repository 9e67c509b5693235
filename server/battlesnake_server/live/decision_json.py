"""Decisions of snakes as an extra field of ``/move`` responses.

An example is ``{"move": "up", "decision": {"scores": ..., "reasons": [...], "line": ...}}``. The
decision has the format of `battlesnake_server.replay_json.decision_to_dict`. Official engines
ignore the field. The arena of this project stores the decision for its pages. Responses come from
untrusted servers, so `parse_decision` limits the size and drops malformed parts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason

MAX_DECISION_BYTES = 1 << 14
"""Maximum size in bytes of a response from which the arena reads a decision.

The response of a rule-based snake has about 1 kB.
"""

_MAX_REASONS, _MAX_LINE_SNAKES, _MAX_LINE_MOVES = 32, 16, 64
_MAX_RULE_CHARS, _MAX_NOTE_CHARS = 60, 200


def parse_decision(content: bytes) -> Decision | None:
    """Return the decision in a valid ``/move`` response, or None.

    Args:
        content: Body of a response that `players.parse_move` accepted.

    >>> body = b'{"move": "up", "decision": {"reasons": [{"rule": "walls", "vetoed": ["left"]}]}}'
    >>> parse_decision(body).reasons
    (Reason(rule='walls', vetoed=('left',), scores={}, note=''),)
    >>> parse_decision(b'{"move": "up"}')
    """
    if b'"decision"' not in content or len(content) > MAX_DECISION_BYTES:
        return None
    answer = json.loads(content)
    decision = answer.get("decision")
    if not isinstance(decision, Mapping):
        return None
    reasons = [_parse_reason(item) for item in _get_list(decision, "reasons")[:_MAX_REASONS]]
    line = decision.get("line")
    named = list(line.items())[:_MAX_LINE_SNAKES] if isinstance(line, Mapping) else []
    return Decision(
        answer["move"],
        tuple(reason for reason in reasons if reason is not None),
        _parse_scores(decision),
        line={
            sanitize_text(snake, _MAX_RULE_CHARS): _filter_moves(moves)[:_MAX_LINE_MOVES]
            for snake, moves in named
            if isinstance(moves, list)
        },
    )


def _parse_reason(item: object) -> Reason | None:
    """Parse one reason, or return None for malformed JSON."""
    if not isinstance(item, Mapping) or not isinstance(item.get("rule"), str):
        return None
    note = item.get("note")
    return Reason(
        sanitize_text(item["rule"], _MAX_RULE_CHARS),
        _filter_moves(_get_list(item, "vetoed")),
        _parse_scores(item),
        sanitize_text(note, _MAX_NOTE_CHARS) if isinstance(note, str) else "",
    )


def _get_list(parent: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list at ``key``, or an empty list."""
    value = parent.get(key)
    return value if isinstance(value, list) else []


def _filter_moves(values: list[Any]) -> tuple[str, ...]:
    """Return the values that are moves."""
    return tuple(move for move in values if move in MOVES)


def _parse_scores(parent: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores, keyed by move.

    A null score becomes negative infinity.
    """
    scores = parent.get("scores")
    if not isinstance(scores, Mapping):
        return {}
    return {move: _parse_score(scores[move]) for move in MOVES if move in scores}


def _parse_score(value: object) -> float:
    """Convert a JSON value to a score; malformed values become -inf."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return -math.inf
    try:
        return float(value)
    except OverflowError:
        return -math.inf

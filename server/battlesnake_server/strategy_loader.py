"""What can play here: named snakes, and policies with move filters to overrule them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import shown
from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown
from battlesnake_gym.mdp.observations import facing
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Factory, Strategy
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.filters import ALIVE, FILTERS, SAFE
from battlesnake_heuristics.rule_based.pipeline import Filter, Node, Pipeline, filtered
from battlesnake_heuristics.search import search
from battlesnake_server.onnx_policy import Policy, PolicyError

STRONGEST = "champion" if search.COMPILED else "lookahead"
"""The strongest named snake there is: it plays where no other is named."""

SHIPPED = Path(str(resources.files("battlesnake_server"))) / "default_policy" / "policy.onnx"
"""The policy that comes with the package and answers to `SHIPPED_NAME`; its card lies beside it."""

SHIPPED_NAME = snakes.SHIPPED

CAREFUL = tuple(rule.name for rule in SAFE)
"""The filters of a careful snake: those of ``--heuristics`` without names."""

ELSEWHERE_SECONDS = 0.02
"""Time of `STRONGEST` in games that the shipped policy was not trained for: a policy is chosen for
quick answers."""

log = logging.getLogger(__name__)


class PolicySnake:
    """A strategy that takes the policy's best move among those that the filters leave.

    The filters ``ALIVE`` always come first: they are the action mask of training, and what the
    policy says of moves that it never could take means nothing.

    The user's own ``rules`` (`battlesnake_heuristics.rule_based.policy_rules`) come next. One object
    plays one snake in one game: with several frames it remembers the turns before.
    """

    def __init__(
        self, policy: Policy, filters: Sequence[Filter] = (), rules: Sequence[Node] = ()
    ) -> None:
        self._policy = policy
        self._rules = rules
        self._filters = tuple(dict.fromkeys((*ALIVE, *filters)))
        self._frames = np.zeros((0, 0, 0), np.uint8)

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``; raises `PolicyError` on a board of another size."""
        policy = self._policy
        policy.check_size(board.width, board.height)
        you = board.you
        if not self._frames.size:
            self._frames = np.zeros(policy.shape(board.width, board.height), np.uint8)
        policy.observation.encode(board, you.id, out=self._frames)
        values = policy.q_values(self._frames[np.newaxis])[0]
        actions = policy.observation.absolute_actions(
            np.arange(len(MOVES)), np.full(len(MOVES), facing(board, you.id))
        )
        by_move = {MOVES[int(a)]: float(v) for a, v in zip(actions, values, strict=True)}
        if self._rules:
            return policy_rules.ruled(by_move, board, self._rules, self._filters)
        return filtered(by_move, board, self._filters)


@dataclass(frozen=True)
class PolicyFactory:
    """Builds the snakes of a ``policy`` alone, which many games may ask for all at once instead."""

    policy: Policy

    def __call__(self, seed: int) -> PolicySnake:
        """A snake for one game."""
        return PolicySnake(self.policy)


def open_factory(path: str) -> PolicyFactory:
    """What plays a policy's file, or as `SHIPPED_NAME`; one that has not changed is loaded once."""
    return _loaded(*as_it_is(str(SHIPPED) if path == SHIPPED_NAME else path))


def as_it_is(path: str) -> tuple[str, int, int]:
    """The file, and what differs once it has changed."""
    try:
        state = Path(path).stat()
    except OSError:
        return path, 0, 0  # whoever opens it says what is wrong
    return str(Path(path).resolve()), state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=64)
def _loaded(path: str, *state: int) -> PolicyFactory:
    return PolicyFactory(Policy.load(path))


class ShippedPolicySnake:
    """A policy in the games that it was trained for, and the snake `STRONGEST` in all others.

    Each game that is played elsewhere is logged, with the reason.
    """

    def __init__(
        self, policy: Policy, filters: Sequence[Filter], seed: int, rules: Sequence[Node] = ()
    ) -> None:
        self._policy = policy
        self._learned = PolicySnake(policy, filters, rules)
        self._elsewhere = snakes.make(STRONGEST, seed)
        self._told = False

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``."""
        try:
            self._policy.check_game(board)
        except PolicyError as error:
            if not self._told:
                log.warning("%s plays game %s: %s", STRONGEST, shown(board.game.id), error)
            self._told = True
            return self._elsewhere(board, min(seconds or ELSEWHERE_SECONDS, ELSEWHERE_SECONDS))
        return self._learned(board, seconds)


def strategy_factory(
    *,
    snake: str | None = None,
    policy: str | Path | None = None,
    filters: Sequence[str] = (),
    rules: str | Path | None = None,
) -> Factory:
    """Build the factory of a named snake, or of a policy with filters (by name) and own rules.

    ``rules`` is a file (`battlesnake_heuristics.rule_based.policy_rules`); ``POLICY.onnx+RULES.py``
    names both in one. With neither it is the snake `STRONGEST`. The policy `SHIPPED_NAME` makes a
    `ShippedPolicySnake`, which plays with the filters of a careful snake unless others are named.

    Raises ``ValueError`` naming what is unknown or does not go together, before anything is played.
    """
    if snake is not None and policy is not None:
        raise ValueError(f"give either a snake or a policy, got {snake!r} and {policy!r}")
    chosen = [choose(name) for name in filters]
    if policy is None:
        name = snake or STRONGEST
        if rules is not None:
            raise ValueError(
                f"the rules in {rules} speak over a policy, and {name!r} is not one; name one: a "
                f"file, or {SHIPPED_NAME!r}. A snake of rules alone is registered (docs/own.md)"
            )
        if filters:
            raise ValueError(
                f"filters {', '.join(filters)} need a policy; {name!r} has its own. "
                f"Name a policy too: a file, or {SHIPPED_NAME!r}"
            )
        factory = snakes.factory(name)
        try:
            factory(0)  # what cannot play is refused now, not in the first game
        except RuntimeError as error:
            raise ValueError(f"{name} cannot play here: {error}") from error
        return factory
    policy, named_with_it = split_rules(str(policy))
    if rules is not None and named_with_it is not None:
        raise ValueError(f"give either the rules {rules} or {named_with_it}")
    file = rules or named_with_it
    nodes = policy_rules.load(file) if file is not None else ()
    if policy == SHIPPED_NAME:
        shipped = Policy.load(SHIPPED)
        return lambda seed: ShippedPolicySnake(shipped, chosen or SAFE, seed, nodes)
    loaded = Policy.load(policy)
    return lambda seed: PolicySnake(loaded, chosen, nodes)


def split_rules(source: str) -> tuple[str, str | None]:
    """A policy's path and the file of rules that is named with it, if one is.

    >>> split_rules("policy.onnx+my_rules.py"), split_rules("policy.onnx")
    (('policy.onnx', 'my_rules.py'), ('policy.onnx', None))
    """
    policy, plus, rules = source.rpartition("+")
    if plus and rules.endswith(".py") and (policy.endswith(".onnx") or policy == SHIPPED_NAME):
        return policy, rules
    return source, None


def is_quick(strategy: Strategy) -> bool:
    """Whether ``strategy`` is known to answer in milliseconds, whatever time it is given."""
    return isinstance(strategy, Pipeline | PolicySnake | ShippedPolicySnake)


def choose(name: str) -> Filter:
    """The filter of this name; raises ``ValueError`` with the nearest where there is none."""
    extensions.load()
    if name not in FILTERS:
        raise ValueError(unknown("filter", name, FILTERS))
    return FILTERS[name]

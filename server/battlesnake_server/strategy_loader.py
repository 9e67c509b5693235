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
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.mdp.observations import facing
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Factory, Strategy
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.filters import ALIVE, FILTERS, SAFE
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    Pipeline,
    PipelineStep,
    best_after_filters,
)
from battlesnake_heuristics.search import search
from battlesnake_server.onnx_policy import OnnxPolicy, PolicyError

DEFAULT_SNAKE = "champion" if search.COMPILED else "lookahead"
"""The strongest named snake there is: it plays where no other is named."""

DEFAULT_POLICY_PATH = (
    Path(str(resources.files("battlesnake_server"))) / "default_policy" / "policy.onnx"
)
"""The policy that comes with the package and answers to `DEFAULT_POLICY_NAME`; its card lies beside it."""

DEFAULT_POLICY_NAME = snakes.BUILTIN_POLICY

SAFE_FILTER_NAMES = tuple(rule.name for rule in SAFE)
"""The filters of a careful snake: those of ``--heuristics`` without names."""

_DEFAULT_POLICY_FALLBACK_S = 0.02
"""Time of `DEFAULT_SNAKE` in games that the shipped policy was not trained for: a policy is chosen for
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
        self, policy: OnnxPolicy, filters: Sequence[Filter] = (), rules: Sequence[PipelineStep] = ()
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
            return policy_rules.apply_policy_rules(by_move, board, self._rules, self._filters)
        return best_after_filters(by_move, board, self._filters)


@dataclass(frozen=True)
class PolicyFactory:
    """Builds the snakes of a ``policy`` alone, which many games may ask for all at once instead."""

    policy: OnnxPolicy

    def __call__(self, seed: int) -> PolicySnake:
        """A snake for one game."""
        return PolicySnake(self.policy)


def open_factory(path: str) -> PolicyFactory:
    """What plays a policy's file, or as `DEFAULT_POLICY_NAME`; one that has not changed is loaded once."""
    return _loaded(*file_state(str(DEFAULT_POLICY_PATH) if path == DEFAULT_POLICY_NAME else path))


def file_state(path: str) -> tuple[str, int, int]:
    """The file, and what differs once it has changed."""
    try:
        state = Path(path).stat()
    except OSError:
        return path, 0, 0  # whoever opens it says what is wrong
    return str(Path(path).resolve()), state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=64)
def _loaded(path: str, *state: int) -> PolicyFactory:
    return PolicyFactory(OnnxPolicy.load(path))


class DefaultPolicySnake:
    """A policy in the games that it was trained for, and the snake `DEFAULT_SNAKE` in all others.

    Each game that is played elsewhere is logged, with the reason.
    """

    def __init__(
        self,
        policy: OnnxPolicy,
        filters: Sequence[Filter],
        seed: int,
        rules: Sequence[PipelineStep] = (),
    ) -> None:
        self._policy = policy
        self._learned = PolicySnake(policy, filters, rules)
        self._elsewhere = snakes.make(DEFAULT_SNAKE, seed)
        self._told = False

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``."""
        try:
            self._policy.check_game(board)
        except PolicyError as error:
            if not self._told:
                log.warning(
                    "%s plays game %s: %s", DEFAULT_SNAKE, format_value(board.game.id), error
                )
            self._told = True
            return self._elsewhere(
                board, min(seconds or _DEFAULT_POLICY_FALLBACK_S, _DEFAULT_POLICY_FALLBACK_S)
            )
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
    names both in one. With neither it is the snake `DEFAULT_SNAKE`. The policy `DEFAULT_POLICY_NAME` makes a
    `DefaultPolicySnake`, which plays with the filters of a careful snake unless others are named.

    Raises ``ValueError`` naming what is unknown or does not go together, before anything is played.
    """
    if snake is not None and policy is not None:
        raise ValueError(f"give either a snake or a policy, got {snake!r} and {policy!r}")
    chosen = [filter_by_name(name) for name in filters]
    if policy is None:
        name = snake or DEFAULT_SNAKE
        if rules is not None:
            raise ValueError(
                f"the rules in {rules} speak over a policy, and {name!r} is not one; name one: a "
                f"file, or {DEFAULT_POLICY_NAME!r}. A snake of rules alone is registered (docs/own.md)"
            )
        if filters:
            raise ValueError(
                f"filters {', '.join(filters)} need a policy; {name!r} has its own. "
                f"Name a policy too: a file, or {DEFAULT_POLICY_NAME!r}"
            )
        factory = snakes.factory(name)
        try:
            factory(0)  # what cannot play is refused now, not in the first game
        except RuntimeError as error:
            raise ValueError(f"{name} cannot play here: {error}") from error
        return factory
    policy, named_with_it = split_policy_and_rules(str(policy))
    if rules is not None and named_with_it is not None:
        raise ValueError(f"give either the rules {rules} or {named_with_it}")
    file = rules or named_with_it
    nodes = policy_rules.load(file) if file is not None else ()
    if policy == DEFAULT_POLICY_NAME:
        shipped = OnnxPolicy.load(DEFAULT_POLICY_PATH)
        return lambda seed: DefaultPolicySnake(shipped, chosen or SAFE, seed, nodes)
    loaded = OnnxPolicy.load(policy)
    return lambda seed: PolicySnake(loaded, chosen, nodes)


def split_policy_and_rules(source: str) -> tuple[str, str | None]:
    """A policy's path and the file of rules that is named with it, if one is.

    >>> split_rules("policy.onnx+my_rules.py"), split_rules("policy.onnx")
    (('policy.onnx', 'my_rules.py'), ('policy.onnx', None))
    """
    policy, plus, rules = source.rpartition("+")
    if (
        plus
        and rules.endswith(".py")
        and (policy.endswith(".onnx") or policy == DEFAULT_POLICY_NAME)
    ):
        return policy, rules
    return source, None


def is_instant(strategy: Strategy) -> bool:
    """Whether ``strategy`` is known to answer in milliseconds, whatever time it is given."""
    return isinstance(strategy, Pipeline | PolicySnake | DefaultPolicySnake)


def filter_by_name(name: str) -> Filter:
    """The filter of this name; raises ``ValueError`` with the nearest where there is none."""
    extensions.load()
    if name not in FILTERS:
        raise ValueError(unknown_name_message("filter", name, FILTERS))
    return FILTERS[name]

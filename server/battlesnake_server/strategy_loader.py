"""Loaders of strategies.

A strategy is a built-in snake, or a policy with move filters and policy rules.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
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
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_heuristics.rule_based import (
    conditions,
    filters,
    one_turn_search,
    policy_rules,
    preferences,
)
from battlesnake_heuristics.rule_based.filters import ALIVE, FILTERS, SAFE
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    Pipeline,
    PipelineStep,
    Preference,
    When,
    best_after_filters,
)
from battlesnake_heuristics.search import search
from battlesnake_server.onnx_policy import OnnxPolicy, PolicyError
from battlesnake_server.recurrent_memory import RecurrentMemory

DEFAULT_SNAKE = "champion" if search.COMPILED else "lookahead"
"""Name of the strongest built-in snake that this installation can run."""

DEFAULT_SNAKE_NOTICE = (
    ""
    if search.COMPILED
    else f"{DEFAULT_SNAKE} plays instead of champion: {search.NOT_COMPILED_MESSAGE}"
)
"""Warning for the operator, or an empty string if the search is compiled."""

DEFAULT_POLICY_PATH = (
    Path(str(resources.files("battlesnake_server"))) / "default_policy" / "policy.onnx"
)
"""Path of the bundled policy `DEFAULT_POLICY_NAME`.

The model card of the policy is in the same directory.
"""

DEFAULT_POLICY_NAME = snakes.BUILTIN_POLICY_NAME

SAFE_FILTER_NAMES = tuple(rule.name for rule in SAFE)
"""Names of the safe filters, the default of ``--filters``."""

_DEFAULT_POLICY_FALLBACK_S = 0.02
"""Time per move of `DEFAULT_SNAKE` in unsupported games, in seconds.

`DEFAULT_SNAKE` plays the games that the bundled policy cannot play. The duration is short, because
users choose a policy for fast moves.
"""

_BUILTIN_RULE_MODULES = frozenset(
    module.__name__ for module in (conditions, filters, one_turn_search, preferences)
)
"""Modules of the built-in rules."""

_MAX_INSTANT_RULES = 50
"""Maximum number of rules of an instant strategy.

Built-in snakes have up to 20 rules.
"""

log = logging.getLogger(__name__)


class PolicySnake:
    """Strategy that applies move filters and plays the policy's best remaining move.

    The first filters are always ``ALIVE``, which correspond to the action mask of training. The
    policy's values of masked moves are meaningless. The user's policy rules follow the filters
    (`battlesnake_heuristics.rule_based.policy_rules`). Each snake of each game needs a new object,
    because the frame stack and a recurrent state depend on earlier turns.

    Args:
        policy: Trained policy.
        filters: Additional filters, in order.
        rules: Policy rules.
    """

    def __init__(
        self, policy: OnnxPolicy, filters: Sequence[Filter] = (), rules: Sequence[PipelineStep] = ()
    ) -> None:
        self._policy = policy
        self._rules = rules
        self._filters = tuple(dict.fromkeys((*ALIVE, *filters)))
        self._frame_stack = np.zeros((0, 0, 0), np.uint8)
        self._memory = RecurrentMemory(policy)

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``.

        Raises:
            PolicyError: If the policy was not trained for boards of this size.
        """
        policy = self._policy
        policy.check_board_size(board.width, board.height)
        you = board.you
        if not self._frame_stack.size:
            self._frame_stack = np.zeros(
                policy.observation_shape(board.width, board.height), np.uint8
            )
        policy.observation.encode(
            board, you.id, self._frame_stack, view_radius=board.game.settings.view_radius
        )
        values = self._memory.action_scores(board, self._frame_stack, seconds)
        actions = policy.observation.absolute_actions(
            np.arange(len(MOVES)), np.full(len(MOVES), facing(board, you.id))
        )
        by_move = {MOVES[int(a)]: float(v) for a, v in zip(actions, values, strict=True)}
        if self._rules:
            return policy_rules.apply_policy_rules(by_move, board, self._rules, self._filters)
        return best_after_filters(by_move, board, self._filters)


@dataclass(frozen=True)
class PolicyFactory:
    """Factory of snakes that play ``policy`` without filters or policy rules.

    Callers may batch the observations of several games.
    """

    policy: OnnxPolicy

    def __call__(self, seed: int) -> PolicySnake:
        """Return a snake for one game."""
        return PolicySnake(self.policy)


def open_factory(path: str) -> PolicyFactory:
    """Return the factory of a policy file or of `DEFAULT_POLICY_NAME`.

    The factories of unchanged files are cached.
    """
    return _load_policy_factory(
        *file_cache_key(str(DEFAULT_POLICY_PATH) if path == DEFAULT_POLICY_NAME else path)
    )


def file_cache_key(path: str) -> tuple[str, int, int]:
    """Return a cache key of a file: path, modification time in ns and size in bytes."""
    try:
        state = Path(path).stat()
    except OSError:
        return path, 0, 0  # The code that opens the file reports the error.
    return str(Path(path).resolve()), state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=64)
def _load_policy_factory(path: str, *state: int) -> PolicyFactory:
    """Load the factory of a policy file; the results are cached."""
    return PolicyFactory(OnnxPolicy.load(path))


class DefaultPolicySnake:
    """Strategy of the bundled policy; `DEFAULT_SNAKE` plays unsupported games.

    Every game that `DEFAULT_SNAKE` plays is logged with the reason.
    """

    def __init__(
        self,
        policy: OnnxPolicy,
        filters: Sequence[Filter],
        seed: int,
        rules: Sequence[PipelineStep] = (),
    ) -> None:
        self._policy = policy
        self._policy_snake = PolicySnake(policy, filters, rules)
        self.steps = (*filters, *rules)
        self._fallback_snake = snakes.make(DEFAULT_SNAKE, seed)
        self._logged = False

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``."""
        try:
            self._policy.check_game(board)
        except PolicyError as error:
            if not self._logged:
                log.warning(
                    "%s plays game %s: %s", DEFAULT_SNAKE, format_value(board.game.id), error
                )
            self._logged = True
            return self._fallback_snake(
                board, min(seconds or _DEFAULT_POLICY_FALLBACK_S, _DEFAULT_POLICY_FALLBACK_S)
            )
        return self._policy_snake(board, seconds)


def strategy_factory(
    *,
    snake: str | None = None,
    policy: str | Path | None = None,
    filters: Sequence[str] = (),
    rules: str | Path | None = None,
) -> StrategyFactory:
    """Return the factory of a built-in snake, a bundle or a policy.

    The bundled policy plays as a `DefaultPolicySnake` and uses the safe filters by default.

    Args:
        snake: Name of a built-in snake, or path of a bundle; the default is `DEFAULT_SNAKE`. The
            parameters ``snake`` and ``policy`` exclude each other.
        policy: Path of a policy, ``POLICY.onnx+RULES.py``, or `DEFAULT_POLICY_NAME`.
        filters: Names of move filters applied to the policy, in order.
        rules: File of policy rules (`battlesnake_heuristics.rule_based.policy_rules`).

    Raises:
        ValueError: If a name is unknown, or arguments exclude each other.
    """
    if snake is not None and policy is not None:
        raise ValueError(f"give either a snake or a policy, got {snake!r} and {policy!r}")
    chosen = [filter_by_name(name) for name in filters]
    if policy is None:
        name = snake or DEFAULT_SNAKE
        if rules is not None:
            raise ValueError(
                f"the policy rules in {rules} need a policy, and {name!r} is not a policy; give a "
                f"file or {DEFAULT_POLICY_NAME!r}, or register a snake of rules "
                "(docs/how-to/add-rules-to-a-policy.md)"
            )
        if filters:
            raise ValueError(
                f"filters {', '.join(filters)} need a policy; {name!r} uses no additional filters; "
                f"give a policy: a file, or {DEFAULT_POLICY_NAME!r}"
            )
        factory = snakes.factory(name)
        try:
            factory(0)  # Reject a snake that cannot play before its first game.
        except RuntimeError as error:
            raise ValueError(f"{name} cannot play on this machine: {error}") from error
        except ValueError:
            raise
        except (
            BaseException
        ) as error:  # A user's code may raise any exception, including SystemExit.
            raise ValueError(f"{name} cannot play: {type(error).__name__}: {error}") from error
        return factory
    policy, named_with_it = split_policy_and_rules(str(policy))
    if rules is not None and named_with_it is not None:
        raise ValueError(f"give either the policy rules {rules} or {named_with_it}")
    file = rules or named_with_it
    steps = policy_rules.load(file) if file is not None else ()
    if policy == DEFAULT_POLICY_NAME:
        shipped = OnnxPolicy.load(DEFAULT_POLICY_PATH)
        return lambda seed: DefaultPolicySnake(shipped, chosen or SAFE, seed, steps)
    loaded = OnnxPolicy.load(policy)
    return lambda seed: PolicySnake(loaded, chosen, steps)


def split_policy_and_rules(source: str) -> tuple[str, str | None]:
    """Split a policy's source into the path and the file of policy rules (or None).

    >>> split_policy_and_rules("policy.onnx+my_rules.py"), split_policy_and_rules("policy.onnx")
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
    """Return whether ``strategy`` moves within milliseconds for any time budget.

    Only pipelines of built-in rules and the bundled policy are instant, because their work is
    bounded. The work of a user's rule or network is unbounded.
    """
    if type(strategy) is DefaultPolicySnake:
        return _are_builtin_rules(strategy.steps)
    return type(strategy) is Pipeline and _are_builtin_rules(strategy.steps)


def _are_builtin_rules(steps: Iterable[PipelineStep]) -> bool:
    """Return whether all steps and branches are built-in rules.

    The number of rules is limited to `_MAX_INSTANT_RULES`.
    """
    unseen, num_rules = list(steps), 0
    while unseen:
        step = unseen.pop()
        rule: object = None
        if type(step) is When:
            unseen += (*step.then, *step.otherwise)
            rule = step.condition
        elif type(step) is Filter:
            rule = step.penalty
        elif type(step) is Preference:
            rule = step.score
        num_rules += 1
        if (
            getattr(rule, "__module__", "") not in _BUILTIN_RULE_MODULES
            or num_rules > _MAX_INSTANT_RULES
        ):
            return False
    return True


def filter_by_name(name: str) -> Filter:
    """Return the registered filter with this name.

    Raises:
        ValueError: If the name is unknown; the message suggests the nearest name.
    """
    extensions.load_all()
    if name not in FILTERS:
        raise ValueError(unknown_name_message("filter", name, FILTERS))
    return FILTERS[name]

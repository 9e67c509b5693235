"""Loaders of strategies.

A strategy is a built-in snake, or a policy with move filters and policy rules.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.mdp.observations import facing
from battlesnake_gym.policy_file import OnnxPolicy, PolicyError
from battlesnake_gym.rules import MOVES
from battlesnake_gym.rules.play import DEFAULT_BOARD_SIZE
from battlesnake_gym.snake_spec import BUILTIN_POLICY_NAME, SnakeSpec
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_heuristics.rule_based import (
    conditions,
    filters,
    one_turn_search,
    policy_rules,
    preferences,
)
from battlesnake_heuristics.rule_based.filters import FILTERS, SAFE
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    Pipeline,
    PipelineStep,
    Preference,
    When,
    best_after_filters,
)
from battlesnake_heuristics.search import search
from battlesnake_server.file_cache import cache_by_file
from battlesnake_server.policy_memory import PolicyMemory

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
"""Path of the bundled policy `BUILTIN_POLICY_NAME`.

The model card of the policy is in the same directory.
"""

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


class _PolicySnake:
    """Strategy that applies move filters and plays the policy's best remaining move.

    The first filters are always ``ALIVE`` and the action mask of training. The policy's values of
    masked moves are meaningless. The user's policy rules follow the filters
    (`battlesnake_heuristics.rule_based.policy_rules`). Each snake of each game needs a new object,
    because the policy's memory depends on earlier turns.

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
        self._filters = tuple(
            dict.fromkeys((*policy_rules.policy_filters(policy.action_mask_kind), *filters))
        )
        self._memory = PolicyMemory(policy)
        self._sightings = Sightings()

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``.

        Raises:
            PolicyError: If the policy was not trained for boards of this size.
        """
        policy = self._policy
        policy.check_board_size(board.width, board.height)
        values = self._memory.action_scores(board, seconds)
        actions = policy.observation.absolute_actions(
            np.arange(len(MOVES)), np.full(len(MOVES), facing(board, board.you.id))
        )
        by_move = {MOVES[int(a)]: float(v) for a, v in zip(actions, values, strict=True)}
        if self._rules:
            return policy_rules.apply_policy_rules(
                by_move, board, self._rules, self._filters, self._sightings
            )
        return best_after_filters(by_move, board, self._filters)


@dataclass(frozen=True)
class PolicyFactory:
    """Factory of snakes that play ``onnx_policy``."""

    onnx_policy: OnnxPolicy
    filters: Sequence[Filter] = ()
    rules: Sequence[PipelineStep] = ()

    @property
    def policy(self) -> OnnxPolicy | None:
        """Policy for batches of several games, or None with filters or policy rules."""
        return None if self.filters or self.rules else self.onnx_policy

    def __call__(self, seed: int) -> _PolicySnake:
        """Return a snake for one game."""
        return _PolicySnake(self.onnx_policy, self.filters, self.rules)


def open_factory(path: str, rules: str = "") -> PolicyFactory:
    """Return the factory of a policy file or of the bundled policy, with a file of policy rules.

    The policies of unchanged files are cached.
    """
    file = str(DEFAULT_POLICY_PATH) if path == BUILTIN_POLICY_NAME else path
    steps = policy_rules.load(rules) if rules else ()
    return PolicyFactory(_load_policy(file), rules=steps)


_load_policy = cache_by_file(64)(OnnxPolicy.load)


class _DefaultPolicySnake(_PolicySnake):
    """Strategy of the bundled policy; `DEFAULT_SNAKE` plays unsupported games.

    Every game that `DEFAULT_SNAKE` plays is logged with the reason.
    """

    def __init__(
        self,
        policy: OnnxPolicy,
        filters: Sequence[Filter],
        rules: Sequence[PipelineStep],
        seed: int,
    ) -> None:
        super().__init__(policy, filters, rules)
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
        return super().__call__(board, seconds)


def strategy_factory(
    snake: str | Path | None = None,
    *,
    filters: Sequence[str] = (),
    rules: str | Path | None = None,
) -> StrategyFactory:
    """Return the factory of a snake with move filters and policy rules.

    The bundled policy plays as a `_DefaultPolicySnake` and uses the safe filters by default.

    Args:
        snake: A snake (`SnakeSpec`); the default is `DEFAULT_SNAKE`.
        filters: Names of move filters applied to the policy, in order.
        rules: File of policy rules (`battlesnake_heuristics.rule_based.policy_rules`).

    Raises:
        ValueError: If a name is unknown, or if filters or rules have no effect on the snake.
    """
    spec = SnakeSpec.parse(str(snake or DEFAULT_SNAKE))
    if rules is not None:
        if spec.rules:
            raise ValueError(f"give either the policy rules {rules} or {spec.rules}")
        spec = replace(spec, rules=str(rules))
    chosen = [filter_by_name(name) for name in filters]
    if (filters or spec.rules) and (spec.is_remote or snakes.policy_path(spec) is None):
        unused = f"policy rules {spec.rules}" if spec.rules else f"filters {', '.join(filters)}"
        raise ValueError(
            f"the {unused} need a policy, and {spec.source!r} is not a policy; give a .onnx file, "
            f"a run directory or {BUILTIN_POLICY_NAME!r} (docs/how-to/add-rules-to-a-policy.md)"
        )
    factory, _ = snakes.load(str(spec))
    if not isinstance(factory, PolicyFactory) or spec.is_bundle:
        return factory
    if spec.source == BUILTIN_POLICY_NAME:
        return functools.partial(
            _DefaultPolicySnake, factory.onnx_policy, chosen or SAFE, factory.rules
        )
    return replace(factory, filters=chosen)


def example_board_size(factory: StrategyFactory) -> tuple[int, int]:
    """Return the width and height of boards on which the snakes of ``factory`` play examples.

    The size is the default, or the largest size of a policy that does not support the default.
    """
    default = DEFAULT_BOARD_SIZE, DEFAULT_BOARD_SIZE
    sizes = factory.onnx_policy.board_sizes if isinstance(factory, PolicyFactory) else {default}
    return default if default in sizes else max(sizes)


def is_instant(strategy: Strategy) -> bool:
    """Return whether ``strategy`` moves within milliseconds for any time budget.

    Only pipelines of built-in rules and the bundled policy are instant, because their work is
    bounded. The work of a user's rule or network is unbounded.
    """
    if type(strategy) is _DefaultPolicySnake:
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

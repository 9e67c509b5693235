"""Interface of all strategies, and the registry of strategies by name.

A *strategy* is a callable. It receives a board (``board.you`` is the snake to move) and a time
budget in seconds, and returns a `Decision` or a move as text. One strategy object plays one snake
in one game, and may keep state between turns. Packages add strategies with `register`; `make`
builds a strategy by name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from battlesnake_gym.common import extensions
from battlesnake_gym.common.exceptions import SnakeError, describe_exception, user_frames
from battlesnake_gym.decisions import Decision as Decision
from battlesnake_gym.decisions import Reason as Reason
from battlesnake_gym.decisions import Strategy as Strategy
from battlesnake_gym.decisions import StrategyFactory as StrategyFactory
from battlesnake_gym.decisions import to_decision as to_decision
from battlesnake_gym.snake_spec import BUILTIN_POLICY_NAME, SnakeSpec

if TYPE_CHECKING:
    from battlesnake_gym.boards.board import Board
    from battlesnake_gym.policy_file import OnnxPolicy


@runtime_checkable
class NodeLimitedStrategy(Protocol):
    """A strategy that can search a fixed number of nodes.

    The number of nodes replaces the time budget.
    """

    def set_nodes(self, nodes: int) -> None:
        """Set the number of nodes per move."""
        ...

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move; see `Strategy.__call__`."""
        ...


class FixedNodesSearch:
    """A search with a fixed number of nodes per move, regardless of the time budget.

    The search plays the same moves on every processor.

    Args:
        search: The search to limit.
        nodes: Nodes per move, 1 to 2147483647.

    Raises:
        ValueError: If ``nodes`` is out of range.
    """

    def __init__(self, search: NodeLimitedStrategy, nodes: int) -> None:
        if not 1 <= nodes < 2**31:
            raise ValueError(f"nodes must be between 1 and 2147483647, got {nodes}")
        search.set_nodes(nodes)
        self._search = search

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move without a time limit; ``seconds`` is ignored."""
        return self._search(board)


def with_nodes(name: str, build: StrategyFactory, nodes: int) -> StrategyFactory:
    """Return a factory of the searches of the snake ``name`` with ``nodes`` nodes per move.

    The returned factory raises ``ValueError`` if the snake does not search, or if ``nodes`` is out
    of range.
    """

    @functools.wraps(build)
    def make_search(seed: int) -> FixedNodesSearch:
        strategy = build(seed)
        if not isinstance(strategy, NodeLimitedStrategy):
            raise ValueError(f"{name!r} does not search or sets its own nodes, so omit @{nodes}")
        return FixedNodesSearch(strategy, nodes)

    return make_search


def play(
    board: Board,
    strategies: Mapping[str, Strategy],
    seconds: float | None = None,
    max_turns: int = 1000,
) -> Iterator[dict[str, Decision]]:
    """Continue the game on ``board`` in place until the game is over.

    Args:
        board: The position to start from; ``board.you_id`` is set to the deciding snake.
        strategies: The strategies of all living snakes, by id.
        seconds: Time budget of each move; None means no limit.
        max_turns: The turn at which the iteration ends, even if the game continues.

    Yields:
        The decisions of each turn by snake id, after the turn was played.
    """
    while not board.is_over() and board.turn < max_turns:
        decisions = {}
        for snake in board.living:
            board.you_id = snake.id
            decisions[snake.id] = to_decision(strategies[snake.id](board.limited(), seconds))
        board.step({snake_id: decision.move for snake_id, decision in decisions.items()})
        yield decisions


ENGINE_SNAKES = ("random", "safe-random", "hungry", "cautious", "hunter", "territory")
"""Names of the snakes that the compiled engine plays for whole batches.

`engine_code` returns the index of a snake, counted from 1.
"""

_ENTRY_POINT_GROUP = "battlesnake_gym.snake_files"
"""Entry point group for loaders of files that define snakes.

The name of an entry point is the suffix of these files; the entry point returns a factory for a
path.
"""

_factories: dict[str, StrategyFactory] = {}
_engine_names: set[str] = set()
_extension_files: dict[str, Path | None] = {}
"""Extension file that registered each name, or None."""


def register(name: str, factory: StrategyFactory, *, in_engine: bool = False) -> None:
    """Register ``factory`` as ``name`` and replace any existing registration.

    Args:
        name: The name of the snake.
        factory: Function that builds a strategy from a seed.
        in_engine: Whether the snake plays like the engine's snake of the same name
            (`ENGINE_SNAKES`).

    Raises:
        ValueError: If commands would read the name as another snake.
    """
    spec = SnakeSpec.parse(str(name))
    is_other = spec.is_remote or spec.is_file or name in ("", BUILTIN_POLICY_NAME)
    if is_other or spec != SnakeSpec(name):
        raise ValueError(f"commands cannot find a snake named {name!r}; register it as my-snake")
    _factories[name] = factory
    _extension_files[name] = extensions.current_extension_file()
    (_engine_names.add if in_engine else _engine_names.discard)(name)


def engine_code(name: str) -> int:
    """Return the engine's code of the snake ``name``, or 0 for other snakes.

    A user's snake with the name of an engine snake has code 0.
    """
    extensions.load_all()
    return ENGINE_SNAKES.index(name) + 1 if name in _engine_names else 0


def names() -> list[str]:
    """Return all registered names, sorted."""
    extensions.load_all()
    return sorted(_factories)


def make(name: str, seed: int = 0) -> Strategy:
    """Build a new strategy by name.

    The same seed results in the same moves.

    Args:
        name: A snake in this process (`SnakeSpec`). A ``.py`` file registers one snake or defines
            one (`api_snakes`).
        seed: The seed of the strategy's random choices.

    Raises:
        ValueError: If ``name`` is unknown, or if the snake's code raises an exception. For an
            unknown name, the message suggests the nearest name. For an exception, the message names
            the file and the line.
        OSError: If a file cannot be read.
    """
    return load(name, seed)[1]


def load(name: str, seed: int = 0) -> tuple[StrategyFactory, Strategy]:
    """Return the factory of a snake that can play, and a strategy; see `make` for the errors."""
    with named_errors(name, (ValueError, OSError)):
        found = factory(name)
        strategy = found(seed)
        if not callable(strategy):
            raise TypeError(f"the snake's factory must return a strategy, got {strategy!r:.60}")
        return found, strategy


@contextlib.contextmanager
def named_errors(name: str, kept: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Convert each exception to `SnakeError` with the snake ``name``, the file and the line.

    Args:
        name: The snake whose code runs in the context.
        kept: Types of exceptions that propagate unchanged unless a user's code raises them.

    Raises:
        SnakeError: If an exception occurs. ``KeyboardInterrupt`` propagates unchanged.
    """
    try:
        yield
    except BaseException as error:  # A user's code may raise any exception, including SystemExit.
        is_own = isinstance(error, kept) and not user_frames(error)
        if is_own or isinstance(error, KeyboardInterrupt):
            raise
        raise SnakeError(f"{name} cannot play: {describe_exception(error)}") from error


@dataclass(frozen=True, slots=True)
class NamedStrategy:
    """The strategy of the snake ``name``, whose failed moves raise the errors of `named_errors`."""

    name: str
    strategy: Strategy

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move; see `Strategy.__call__`."""
        with named_errors(self.name):
            return to_decision(self.strategy(board, seconds))


def make_named(name: str, seed: int = 0) -> Strategy:
    """Create a strategy by name. The error of a failed move contains the name."""
    return NamedStrategy(name, make(name, seed))


def may_use_time(name: str, strategy: Strategy) -> bool:
    """Return whether the moves of the snake ``name`` may depend on the time budget.

    The function returns True for every snake of a user, because the code may read the budget. For
    other snakes, ``strategy`` must be a search.
    """
    spec = SnakeSpec.parse(name)
    is_own = spec.is_bundle or spec.source.endswith(".py") or _extension_files.get(spec.source)
    return bool(is_own) or isinstance(strategy, NodeLimitedStrategy)


def policy_path(spec: SnakeSpec) -> str | None:
    """Return the path of the policy that ``spec`` names, or None for other snakes.

    The policy is a ``.onnx`` file, the policy in a run directory, or "shipped" for the package's
    own policy.

    >>> policy_path(SnakeSpec("my.onnx")), policy_path(SnakeSpec("hungry"))
    ('my.onnx', None)

    Raises:
        ValueError: If ``spec`` names a directory without a policy.
    """
    name = spec.source
    if name == BUILTIN_POLICY_NAME or (name.endswith(".onnx") and spec.is_file):
        return name
    if not is_path(spec) or spec.is_file:
        return None
    there = [*Path(name).glob("policy.onnx"), *Path(name, "model").glob("policy.onnx")]
    if not there:
        raise ValueError(
            f"{name} has no policy.onnx, nor has its directory model; a run writes it at its end, "
            "and `battlesnake-gym runs export` writes it from a checkpoint"
        )
    return str(there[0])


def is_path(spec: SnakeSpec) -> bool:
    """Return whether the source of a snake in this process is a file or a directory."""
    return spec.is_file or (spec.source not in names() and os.path.isdir(spec.source))  # noqa: PTH112


def batch_policy(name: str) -> OnnxPolicy | None:
    """Return the policy ``name`` if it plays without filters and rules, otherwise None.

    Raises:
        ValueError: If ``name`` is unknown.
    """
    from battlesnake_gym.policy_file import OnnxPolicy

    found = getattr(factory(name), "policy", None)
    return found if isinstance(found, OnnxPolicy) else None


@contextlib.contextmanager
def capture_registrations() -> Iterator[dict[str, StrategyFactory]]:
    """Collect the registrations in the context, and then restore the registry.

    The names of two files therefore cannot collide.

    Yields:
        A dictionary that contains the registered factories when the block ends.
    """
    extensions.load_all()
    registries: tuple[Any, ...] = _factories, _engine_names, _extension_files
    before = [registry.copy() for registry in registries]
    found: dict[str, StrategyFactory] = {}
    try:
        yield found
    finally:
        old = before[0]
        found |= {name: made for name, made in _factories.items() if old.get(name) is not made}
        for registry, content in zip(registries, before, strict=True):
            registry.clear()
            registry.update(content)


def description(name: str) -> str:
    """Return the first line of the factory's docstring, or "" without a docstring.

    Raises:
        ValueError: If ``name`` is unknown; the message suggests the nearest name.
    """
    return (inspect.getdoc(factory(name)) or "").partition("\n")[0]


def factory(name: str) -> StrategyFactory:
    """Return the factory that `make` uses for ``name``.

    Raises:
        ValueError: If ``name`` is unknown; the message suggests the nearest name.
    """
    spec = SnakeSpec.parse(name)
    if spec.label:
        raise ValueError(f"{name}: the label {spec.label!r} has no effect here; give {spec}")
    if spec.is_remote:
        raise ValueError(
            f"{name} is a URL, which only arena, ladder, league, gauntlet and the pages play; give "
            "a name or a file"
        )
    if spec.is_frozen:
        raise ValueError(f"{name} is for opponents in a training; give {spec.path} here")
    if spec.nodes is not None and not spec.nodes.isdecimal():
        raise ValueError(
            f"{spec.source}@ needs a number of nodes, got {spec.nodes!r}; try {spec.source}@400"
        )
    found = _load_factory(spec)
    return found if spec.nodes is None else with_nodes(spec.source, found, int(spec.nodes))


def _load_factory(spec: SnakeSpec) -> StrategyFactory:
    """Return the factory of a snake without a number of nodes."""
    if path := spec.source if spec.is_bundle else policy_path(spec):
        return _load_file_factory(path, spec.rules)
    if spec.is_file:
        return _load_python_factory(Path(spec.source).resolve())
    extensions.load_all()
    if not _factories:
        raise ValueError(
            f"no snake {spec.source!r}: none is registered, because the project is not installed; "
            "pip install it, or import battlesnake_heuristics first"
        )
    if spec.source not in _factories:
        if {*spec.source} & {*"/:"}:
            raise ValueError(
                f"there is no file or directory {spec.source!r:.60}; give the path of a snake, or "
                "a URL that begins with http:// or https://"
            )
        raise ValueError(
            extensions.unregistered_name_message(
                "snake", spec.source, names(), "battlesnake-gym snakes"
            )
        )
    return _factories[spec.source]


@functools.cache
def _load_python_factory(path: Path) -> StrategyFactory:
    """Return the factory of the only snake that a Python file registers or defines.

    The registration is undone, so the name is not added to the registry.
    """
    from battlesnake_gym import api_snakes

    if not path.is_file():
        remedy = "`battlesnake-gym snakes new` writes a snake"
        if "+" in path.name:
            remedy = "+RULES.py follows only policy.onnx or shipped"
        raise ValueError(f"{path} does not exist; {remedy}")
    with capture_registrations() as found:
        module = extensions.load_file(path, "the snake")
    # A file listed in the environment variable has already run, and its names stay registered.
    found = found or {
        name: made for name, made in _factories.items() if _extension_files.get(name) == path
    }
    if not found and (factory := api_snakes.find_factory(module)):
        return factory
    if not found:
        raise ValueError(
            f"{path} has no snake; define a function move or a web application app, or register a "
            "snake"
        )
    if len(found) > 1:
        raise ValueError(
            f"{path} registers {' and '.join(found)}; register one snake, or list the file in "
            f"{extensions.EXTENSIONS_VARIABLE}"
        )
    return next(iter(found.values()))


def _load_file_factory(path: str, rules: str) -> StrategyFactory:
    """Return the strategy factory for a bundle, or for a policy file with or without rules.

    Packages of the extra ``server`` provide the factory.
    """
    for entry in importlib.metadata.entry_points(group=_ENTRY_POINT_GROUP):
        if not path.endswith(entry.name):
            continue
        try:
            opened: StrategyFactory = entry.load()(path, *filter(None, [rules]))
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{path} needs the extra 'server', and {error.name!r} is missing; install "
                "battlesnake-gym[server]"
            ) from error
        return opened
    raise ValueError(f"{path}: no installed package can load this file; install battlesnake-gym")

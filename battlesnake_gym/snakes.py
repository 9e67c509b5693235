"""Who plays: the one interface of every strategy, and the register of strategies by name.

A *strategy* is a callable: it is given a board (``board.you`` is the snake to move) and the seconds
it may think, and answers with a `Decision`. One strategy object plays one snake in one game, so it
may remember between turns. Packages add theirs with `register`; `make` builds one by name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from battlesnake_gym.common import extensions
from battlesnake_gym.common.suggestions import unknown_name_message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from battlesnake_gym.boards.board import Board
    from battlesnake_gym.mdp.observations import Observation


@dataclass(frozen=True, slots=True)
class Reason:
    """What one rule said of one decision.

    ``vetoed`` are the moves it ruled out; ``scores`` is what it added to each move.
    """

    rule: str
    vetoed: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """A move and why: the rules that spoke, in their order, and the total score of each move.

    ``line`` is for a strategy that looks ahead: the moves expected of each snake (by id) from here
    on, until it dies or the line ends.
    """

    move: str
    reasons: tuple[Reason, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    shout: str = ""
    line: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Strategy(Protocol):
    """Anything that can play one snake in one game."""

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you`` within ``seconds`` (None: no limit)."""
        ...


@runtime_checkable
class NodeLimitedStrategy(Protocol):
    """A strategy that looks at a fixed number of positions when it is given no seconds."""

    def set_nodes(self, positions: int) -> None:
        """Look at ``positions`` positions a move."""
        ...

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """As `Strategy.__call__`."""
        ...


class FixedNodes:
    """A search that looks at ``positions`` positions a move, whatever time it is given.

    So it plays the same moves on every processor. Raises ``ValueError`` for less than one.
    """

    def __init__(self, search: NodeLimitedStrategy, positions: int) -> None:
        if positions < 1:
            raise ValueError(f"positions must be 1 or more, got {positions}")
        search.set_nodes(positions)
        self._search = search

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search, without a clock."""
        return self._search(board)


def decide(
    board: Board, strategies: Mapping[str, Strategy], seconds: float | None = None
) -> dict[str, Decision]:
    """The decisions of the living snakes in ``strategies`` (by id); ``you`` is each in turn."""
    decisions = {}
    for snake in board.living:
        if snake.id in strategies:
            board.you_id = snake.id
            decisions[snake.id] = strategies[snake.id](board, seconds)
    return decisions


def play(
    board: Board,
    strategies: Mapping[str, Strategy],
    seconds: float | None = None,
    max_turns: int = 1000,
) -> Iterator[dict[str, Decision]]:
    """Play ``board`` on, in place, until the game is over or ``max_turns`` is reached.

    ``strategies`` are those of all living snakes, by id; each has ``seconds`` for a move. Yields
    what was decided after each turn; a caller may stop there.
    """
    while not board.is_over() and board.turn < max_turns:
        decisions = decide(board, strategies, seconds)
        board.step({snake: decision.move for snake, decision in decisions.items()})
        yield decisions


class BatchPolicy(Protocol):
    """A trained network, which answers for any number of snakes at once."""

    @property
    def observation(self) -> Observation:
        """What it is shown."""
        ...

    @property
    def action_mask(self) -> str:
        """The kind of mask it was trained with."""
        ...

    def shape(self, width: int, height: int) -> tuple[int, int, int]:
        """(C, H, W) of one observation of a board."""
        ...

    def action_scores(self, batch: NDArray[np.uint8], /) -> NDArray[np.float32]:
        """The value of every move, float32 [B, 4], for observations uint8 [B, C, H, W]."""
        ...

    def check_size(self, width: int, height: int) -> None:
        """Raise ``ValueError`` where it was not trained for boards of this size."""
        ...


Factory = Callable[[int], Strategy]
"""Builds a fresh strategy from a seed."""

ENGINE_SNAKES = ("random", "safe-random", "hungry", "cautious", "hunter", "territory")
"""The snakes that the compiled engine can play for whole batches; `engine_code` counts from 1."""

_SNAKE_FILES = "battlesnake_gym.snake_files"
"""The group of entry points that play files: each is named as those files end, and makes a factory
of a path."""

BUILTIN_POLICY = "shipped"
"""The policy that comes with the package."""

_factories: dict[str, Factory] = {}
_in_engine: set[str] = set()


def register(name: str, factory: Factory, *, in_engine: bool = False) -> None:
    """Make ``factory`` known as ``name``; registering a name twice replaces it.

    ``in_engine``: it is the snake of this name that the compiled engine plays too (`IN_ENGINE`).
    """
    _factories[name] = factory
    (_in_engine.add if in_engine else _in_engine.discard)(name)


def engine_code(name: str) -> int:
    """The number by which the engine knows the snake called ``name``; 0 where it does not.

    Your own snake of the same name is not the engine's.
    """
    extensions.load()
    return ENGINE_SNAKES.index(name) + 1 if name in _in_engine else 0


def names() -> list[str]:
    """All registered names, sorted."""
    extensions.load()
    return sorted(_factories)


def make(name: str, seed: int = 0) -> Strategy:
    """Build a fresh strategy; the same seed plays the same moves.

    ``minimax@400`` is the search ``minimax`` with 400 positions a move (`FixedNodes`), and what is in
    a file plays too: `resolve_file`, or a ``.py`` of your own that registers one snake. Raises
    ``ValueError`` with the nearest name where ``name`` is unknown.
    """
    return factory(name)(seed)


def is_bundle(name: str) -> bool:
    """Whether ``name`` is the path of a bundle, packed or unpacked.

    >>> is_bundle("snakes/mine.zip"), is_bundle("/var/task/snake.json"), is_bundle("hungry")
    (True, True, False)
    """
    return name.endswith((".zip", "snake.json"))


def resolve_file(name: str) -> str | None:
    """The file that plays as ``name``; None for a registered name, and for one that means nothing.

    It is a bundle, a ``.onnx`` file, that of a run in its folder, or "shipped": the package's own.

    >>> file_of("my.onnx"), file_of("shipped"), file_of("hungry")
    ('my.onnx', 'shipped', None)
    """
    if is_bundle(name) or name.endswith(".onnx") or name == BUILTIN_POLICY:
        return name
    extensions.load()
    if name in _factories or not Path(name).is_dir():
        return None
    there = [*Path(name).glob("policy.onnx"), *Path(name, "model").glob("policy.onnx")]
    if not there:
        raise ValueError(
            f"{name} holds no policy.onnx, nor does its folder model; a run writes it at its end, "
            "and `battlesnake-gym runs export` makes one of a checkpoint"
        )
    return str(there[0])


def batch_policy(name: str) -> BatchPolicy | None:
    """The policy that plays all alone as ``name``: the one of a file; None for other strategies.

    Raises as `make` does.
    """
    found: BatchPolicy | None = (
        getattr(factory(name), "policy", None) if resolve_file(name) else None
    )
    return found


@contextlib.contextmanager
def capture_registrations() -> Iterator[dict[str, Factory]]:
    """Inside the block, registrations are collected; the dictionary given has them at its end.

    The register is then as it was before, so that names of one file do not clash with another's.
    """
    extensions.load()
    before, in_engine = dict(_factories), set(_in_engine)
    found: dict[str, Factory] = {}
    try:
        yield found
    finally:
        found |= {name: made for name, made in _factories.items() if before.get(name) is not made}
        _factories.clear()
        _factories.update(before)
        _in_engine.clear()
        _in_engine.update(in_engine)


def description(name: str) -> str:
    """The first line of the docstring of the factory called ``name``, "" where it has none.

    Raises ``ValueError`` with the nearest name where ``name`` is unknown.
    """
    return (inspect.getdoc(factory(name)) or "").partition("\n")[0]


def factory(name: str) -> Factory:
    """What `make` builds the strategies of ``name`` with; raises as `make` does."""
    if file := resolve_file(name):
        return _of_file(file)
    if name.endswith(".py"):
        return _registered_in(Path(name).resolve())
    extensions.load()
    base, at, positions = name.rpartition("@") if "@" in name else (name, "", "")
    if is_bundle(base):
        return functools.partial(_bounded, base, _of_file(base), positions)
    if not _factories:
        raise ValueError(
            f"no snake {base!r}: none are registered, since the project is not installed; "
            "pip install it, or import battlesnake_heuristics first"
        )
    if base not in _factories:
        raise ValueError(unknown_name_message("snake", base, names(), "battlesnake-gym snakes"))
    found = _factories[base]
    return functools.partial(_bounded, base, found, positions) if at else found


@functools.cache
def _registered_in(path: Path) -> Factory:
    """The one snake that a Python file registers; it takes no other's name."""
    with capture_registrations() as found:
        extensions.module(path, "the snake")
    if len(found) != 1:
        raise ValueError(
            f"{path} registers {' and '.join(found) or 'no new snake'}; a file that plays "
            f"registers one, and {extensions.EXTENSIONS_VARIABLE} makes all names of a file known"
        )
    return next(iter(found.values()))


def _of_file(path: str) -> Factory:
    """What plays the file ``path``; the packages of the extra ``server`` do."""
    for entry in importlib.metadata.entry_points(group=_SNAKE_FILES):
        if not path.endswith(entry.name):
            continue
        try:
            opened: Factory = entry.load()(path)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{path} is played with the extra 'server', and {error.name!r} is missing"
            ) from error
        return opened
    raise ValueError(f"{path}: no installed package plays such a file; install battlesnake-gym")


def _bounded(name: str, build: Factory, positions: str, seed: int) -> FixedNodes:
    """The search called ``name`` with ``positions`` positions a move."""
    if not positions.isdecimal():
        raise ValueError(f"{name}@ wants a number of positions, got {positions!r}; try {name}@400")
    strategy = build(seed)
    if not isinstance(strategy, NodeLimitedStrategy):
        raise ValueError(f"{name!r} does not search, so @{positions} means nothing; leave it out")
    return FixedNodes(strategy, int(positions))

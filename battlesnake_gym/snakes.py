"""Who plays: the one interface of every strategy, and the register of strategies by name.

A *strategy* is a callable: it is given a board (``board.you`` is the snake to move) and the seconds
it may think, and answers with a `Decision`. One strategy object plays one snake in one game, so it
may remember between turns. Packages add theirs with `register`; `make` builds one by name.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from battlesnake_gym import own_files
from battlesnake_gym.nearest import unknown

if TYPE_CHECKING:
    from battlesnake_gym.board import Board


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

    ``line`` is for who thinks ahead: the moves expected of each snake (by id) from here on, until
    it dies or the line ends.
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
class Searcher(Protocol):
    """A strategy that looks at a fixed number of positions when it is given no seconds."""

    def set_positions(self, positions: int) -> None:
        """Look at so many positions a move."""
        ...

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """As `Strategy.__call__`."""
        ...


class Bounded:
    """A search that looks at ``positions`` positions a move, whatever time it is given.

    So it plays the same moves on every processor. Raises ``ValueError`` for less than one.
    """

    def __init__(self, search: Searcher, positions: int) -> None:
        if positions < 1:
            raise ValueError(f"positions must be 1 or more, got {positions}")
        search.set_positions(positions)
        self._search = search

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search, without a clock."""
        return self._search(board)


Factory = Callable[[int], Strategy]
"""Builds a fresh strategy from a seed."""

PLUGINS = ("heuristics",)
"""Packages that register strategies when imported; loaded at the first look-up, where present."""

IN_ENGINE = ("random", "safe-random", "hungry", "cautious", "hunter", "territory")
"""The snakes that the compiled engine can play for whole batches (``csrc/named.h``, from 1 on)."""

_factories: dict[str, Factory] = {}
_in_engine: set[str] = set()


def register(name: str, factory: Factory, *, in_engine: bool = False) -> None:
    """Make ``factory`` known as ``name``; registering a name twice replaces it.

    ``in_engine``: it is the snake of this name that the compiled engine plays too (`IN_ENGINE`).
    """
    _factories[name] = factory
    (_in_engine.add if in_engine else _in_engine.discard)(name)


def engine_code(name: str) -> int:
    """By which number the engine knows the snake called ``name``; 0 where it does not.

    Somebody's own snake of the same name is not the engine's.
    """
    _load_plugins()
    return IN_ENGINE.index(name) + 1 if name in _in_engine else 0


def names() -> list[str]:
    """All registered names, sorted."""
    _load_plugins()
    return sorted(_factories)


def make(name: str, seed: int = 0) -> Strategy:
    """Build a fresh strategy; the same seed plays the same moves.

    ``minimax@400`` is the search ``minimax`` with 400 positions a move (`Bounded`). Raises
    ``ValueError`` with the nearest name where ``name`` is unknown.
    """
    return _factory(name)(seed)


def description(name: str) -> str:
    """The first line of the docstring of the factory called ``name``, "" where it has none.

    Raises ``ValueError`` with the nearest name where ``name`` is unknown.
    """
    return (inspect.getdoc(_factory(name)) or "").partition("\n")[0]


def _factory(name: str) -> Factory:
    _load_plugins()
    base, at, positions = name.partition("@")
    if base not in _factories:
        raise ValueError(unknown("snake", base, names(), "battlesnake-gym snakes"))
    return functools.partial(_bounded, base, positions) if at else _factories[base]


def _bounded(name: str, positions: str, seed: int) -> Bounded:
    """The search called ``name`` with so many positions a move."""
    if not positions.isdecimal():
        raise ValueError(f"{name}@ wants a number of positions, got {positions!r}; try {name}@400")
    strategy = _factories[name](seed)
    if not isinstance(strategy, Searcher):
        raise ValueError(f"{name!r} does not search, so @{positions} means nothing; leave it out")
    return Bounded(strategy, int(positions))


def _load_plugins() -> None:
    for plugin in PLUGINS:
        if importlib.util.find_spec(plugin) is not None:
            importlib.import_module(plugin)
    own_files.load()

"""Snakes that think ahead: alpha-beta search in C, from a board to a decision that shows its line.

The search looks whole turns ahead, deeper and deeper until time is up, and values the end of each
line by territory: which cells each snake reaches first, bodies giving way as they move on. We move
first and the rivals answer knowing it, so a value is one to rely on; with one rival left that is
exact. With several, each in turn may play its worst against us while the others keep to one move,
what has hurt us most so far (best-reply search, Schadd and Winands 2011). The C is in ``csrc``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import statistics
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from battlesnake_gym import snakes as snakes_by_name
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.engine import build_check
from battlesnake_gym.rules import MAX_HEALTH, MOVES, Snake, State, grows_always, wraps
from battlesnake_gym.snakes import Decision, Reason, Strategy
from battlesnake_heuristics.search.evaluation import Evaluation, score_to_probability

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from battlesnake_heuristics.search import _search
else:
    _search = build_check.load(
        "battlesnake_heuristics.search._search", "no snake of the search plays (minimax)"
    )

COMPILED: bool = _search is not None
"""Whether there is a search here: without a C compiler there is none."""

NOT_COMPILED_MESSAGE = "the search is not compiled; install with a C compiler: pip install ."

MAX_SEARCH_BOARD_SIZE = 25
"""Of a board that the C code holds."""

_UNSUPPORTED_BOARD_SNAKE = "cautious"
"""The snake that plays on all others."""

_MAX_DEPTH = 120
_DEFAULT_NODES = 20_000
SHOULD_STOP: ContextVar[Callable[[], object] | None] = ContextVar("SHOULD_STOP", default=None)
"""Whether searches of this context should give up, asked some fifty times a second; None: never."""

_VALUE_PER_CELL = 1000
"""Scores of the search are in thousandths of a cell of territory."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a position is worth, in thousandths of a cell of territory, in the order of the C code.

    ``hunger_threshold`` (a health) and ``lead_cap`` (segments) are not in thousandths. Found once, by
    games of the search against itself (SPSA, Spall 1992).
    """

    territory: int = 1000
    hazard_cell: int = 350
    length: int = 6400
    lead_cap: int = 5
    longest: int = 6200
    food_near: int = 8400
    hunger: int = 280
    hunger_threshold: int = 53
    starving: int = 600_000
    cramped: int = 7000
    eliminated_opponent: int = 16_000
    draw: int = 500_000

    def to_array(self) -> array[int]:
        """All weights as int32 in their order."""
        return array("i", dataclasses.astuple(self))


log = logging.getLogger(__name__)


class NodeCounts(NamedTuple):
    """How many a search valued and played."""

    leaf_evals: int
    nodes: int


class SearchResult(NamedTuple):
    """What the C code answers (``csrc/search_bindings.c``)."""

    move: int
    depth: int
    proven: int
    leaf_evals: int
    nodes: int
    scores: dict[int, int]
    line: list[bytes]
    visits: tuple[int, int, int, int]


class ThreadTuner:
    """With how many of ``cores`` threads to think: with those that the system gives time to.

    A process may see more cores than it is given time on: functions on AWS Lambda do, and shared
    machines. So where ``cores`` threads got less than ``MIN_CPU_FRACTION`` of their time, as many are tried
    as it would have been enough for, and kept for a while if they get as much together. Beside
    other busy programs they get less, and all are kept. ``share`` is what one thread got, at first
    what is known of it.
    """

    SAMPLE_SEARCHES, RETRY_SEARCHES = 8, 100
    """Thoughts to judge by, and until the other way is tried again."""

    MIN_CPU_FRACTION, KEEP_CPU_FRACTION = 0.75, 0.85

    def __init__(self, cores: int, share: float = 1.0) -> None:
        self.cores = self.threads = cores
        self.share = share
        self._samples: list[float] = []
        self._sample_size, self._all_cpu = self.SAMPLE_SEARCHES, 0.0

    def observe(self, cpu_per_second: float) -> None:
        """The last thought, with ``threads``, took ``cpu_per_second`` seconds of processor in a second."""
        self._samples.append(cpu_per_second)
        if len(self._samples) < self._sample_size:
            return
        median = statistics.median(self._samples)
        self._samples = []
        if self.threads == 1:
            self.share = median
        if self.threads < self.cores and self._sample_size == self.SAMPLE_SEARCHES:
            self._sample_size = self.RETRY_SEARCHES
            if median < self.KEEP_CPU_FRACTION * self._all_cpu:
                self.threads = self.cores
            return
        self._sample_size = self.SAMPLE_SEARCHES
        if self.threads < self.cores:
            self.threads = self.cores
        elif median < self.MIN_CPU_FRACTION * self.cores:
            self.threads, self._all_cpu = max(1, round(median)), median

    @property
    def throttle_fraction(self) -> float:
        """Of a core, what a search is to take near its end, so that its answer is not stopped."""
        return (
            _THROTTLE_FRACTION * self.share
            if self.threads == 1 and self.share < _FULL_CORE_FRACTION
            else 0.0
        )


_FULL_CORE_FRACTION = 0.9
"""From this share of a core on it counts as a whole one."""

_THROTTLE_FRACTION = 0.75
"""Of its share, what a search takes near its end: the rest is for the answer."""

_MIN_MEASURED_S = 0.05
"""Seconds of a thought that says how much processor there is."""

_HELPER_JOIN_TIMEOUT_S = 0.005
"""How long the answer waits for what the other threads have counted."""


class SearchCores:
    """The cores that searches against the clock share; a search takes those that are free.

    All search the same position and write into one table, each at a depth of its own, so that the
    one that answers finds there what the others know already (lazy SMP, as in Stockfish). Decoupled
    searches grow a tree each, and choose together (Chaslot, Winands, van den Herik 2008). A search
    that begins while no core is free has one all the same, and one that has all has no more threads
    than its `ThreadTuner` says.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._tuner = ThreadTuner(1)
        self._pool = ThreadPoolExecutor(1, "search")

    def use(self, count: int, share: float = 1.0) -> None:
        """Use ``count`` cores from now on (1 at first).

        ``share`` is what the process is given of a core, where that is less than one: then a search
        is careful not to be stopped by the system when its answer is due.

        Raises ``ValueError`` for less than one core.
        """
        if count < 1:
            raise ValueError(f"count must be 1 or more, got {count}")
        self._pool = ThreadPoolExecutor(count, "search")
        self._tuner = ThreadTuner(count, share)

    @property
    def _free(self) -> int:
        return self._tuner.cores - self._taken

    def think(self, request: tuple[Any, ...]) -> tuple[SearchResult, NodeCounts]:
        """What the C code answers, and how many positions the other cores looked at."""
        with self._lock:
            alone, tuner = self._taken == 0, self._tuner
            taken = tuner.threads if alone else max(1, self._free)
            self._taken += taken
        done = threading.Event()
        _search.set_throttle(tuner.throttle_fraction if alone else 0.0)
        began, worked = time.perf_counter(), time.process_time()
        try:
            others = [self._start_helper(request, 1 + n, done) for n in range(1, taken)]
            try:
                found = SearchResult(*_search.search(*(*request, 1, SHOULD_STOP.get())))
            finally:
                done.set()
            # One that the system keeps waiting just now must not keep the answer waiting.
            left = (other.result() for other in wait(others, _HELPER_JOIN_TIMEOUT_S).done)
            helped = [other for other in left if other is not None]
        finally:
            with self._lock:
                self._taken -= taken
        # Of a search that rested, what it was given before counts.
        until, rested = _search.set_throttle(0.0)
        seconds = time.perf_counter() - began - rested
        if alone and seconds > _MIN_MEASURED_S:
            tuner.observe(((until or time.process_time()) - worked) / seconds)
        return _merge_results([found, *helped]), NodeCounts(
            sum(other.leaf_evals for other in helped), sum(other.nodes for other in helped)
        )

    def _start_helper(
        self, request: tuple[Any, ...], first_depth: int, done: threading.Event
    ) -> Future[SearchResult | None]:
        """Search beside, beginning at another depth, until the one that answers is ``done``."""

        def help_out() -> SearchResult | None:
            try:
                return SearchResult(*_search.search(*(*request, first_depth, done.is_set)))
            except InterruptedError:
                return None

        return self._pool.submit(help_out)


def _merge_results(found: list[SearchResult]) -> SearchResult:
    """What the first of searches side by side found, or the decoupled one whose move all like."""
    return max(found, key=lambda one: sum(other.visits[one.move] for other in found))


SEARCH_CORES = SearchCores()
"""The cores of this process."""


@dataclass(frozen=True, slots=True)
class SearchStats:
    """Turns searched to the end, whether the game is decided, positions valued and played."""

    depth: int
    proven: bool
    leaf_evals: int
    nodes: int

    def __str__(self) -> str:
        proven = ", proven" if self.proven else ""
        return f"depth {self.depth}{proven}, {self.leaf_evals} leaf evaluations"


class Search:
    """A strategy that searches for ``seconds``, or a fixed number of positions without a clock.

    The score of the best move is exact, those of the others are bounds, unless ``exact`` asks for
    exact ones, which takes longer. ``decoupled``: while three snakes or more are alive and the
    evaluation values them, every snake picks its moves for itself (``csrc/decoupled_mcts.h``); scores
    are then estimates, and nothing is proven.

    Raises ``RuntimeError`` where the compiled part is missing, ``ValueError`` for invalid limits.
    """

    def __init__(
        self,
        weights: Weights = Weights(),
        nodes: int = _DEFAULT_NODES,
        max_depth: int = _MAX_DEPTH,
        evaluation: Evaluation | None = None,
        exact: bool = False,
        decoupled: bool = False,
    ) -> None:
        if not COMPILED:
            raise RuntimeError(NOT_COMPILED_MESSAGE)
        if nodes < 1:
            raise ValueError(f"nodes must be a positive number, got {nodes}")
        if decoupled and (exact or evaluation is None):
            raise ValueError("a decoupled search needs an evaluation and has no exact scores")
        self.weights = weights.to_array()
        self.nodes = nodes
        self.max_depth = max_depth
        self.evaluation = evaluation
        self.exact = exact
        self.decoupled = decoupled
        self._fallback: Strategy | None = None

    def set_nodes(self, nodes: int) -> None:
        """Set the node limit of searches without a time budget."""
        self.nodes = nodes

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search for the best move of ``board.you``; `_UNSUPPORTED_BOARD_SNAKE` chooses where none can be held."""
        reason = unsupported_reason(board)
        if not reason:
            return self.think(board, seconds)[0]
        if self._fallback is None:
            log.warning(
                "%s plays game %s: %s",
                _UNSUPPORTED_BOARD_SNAKE,
                format_value(board.game.id),
                reason,
            )
            self._fallback = snakes_by_name.make(_UNSUPPORTED_BOARD_SNAKE)
        return self._fallback(board, seconds)

    def think(self, board: Board, seconds: float | None = None) -> tuple[Decision, SearchStats]:
        """The decision, and what the search did to find it.

        Raises ``ValueError`` for ``seconds`` that are no positive number, and ``InterruptedError``
        where `SHOULD_STOP` says so. In the main thread, Ctrl-C interrupts it.
        """
        request, snakes, reason = self._build_request(board, seconds)
        if seconds is None:
            found, others = (
                SearchResult(*_search.search(*(*request, 1, SHOULD_STOP.get()))),
                NodeCounts(0, 0),
            )
        else:
            found, others = SEARCH_CORES.think(request)
        move, depth, proven, leaf_evals, nodes, scores, line, _ = found
        stats = SearchStats(
            depth, bool(proven), leaf_evals + others.leaf_evals, nodes + others.nodes
        )
        values = {MOVES[index]: value / _VALUE_PER_CELL for index, value in scores.items()}
        best = values.get(MOVES[move], 0.0)  # none where one position was all
        note = f"{stats}; line {_format_line(line, snakes)}"
        if reason:
            note += f"; handcrafted evaluation: the network is {reason}"
        elif self.evaluation:
            note += f"; expected score {score_to_probability(best):.0%}"
        return Decision(
            MOVES[move],
            (Reason("search", scores=values, note=note),),
            values,
            line=_moves(line, snakes),
        ), stats

    def ponder(self, board: Board, decision: Decision, seconds: float) -> None:
        """Search on one core what comes after ``decision`` on ``board``, if all play as expected.

        There is no answer: what it finds is in the table when that position is asked about; a
        decoupled search keeps nothing there, so that it does not begin. It ends after
        ``seconds``, or when `SHOULD_STOP` says so.
        """
        predicted = _predicted_board(board, decision)
        if predicted is not None:
            request, snakes, reason = self._build_request(predicted, seconds)
            if self.decoupled and not reason and len(snakes) > 2:
                return
            with contextlib.suppress(InterruptedError):
                _search.search(*(*request, 1, SHOULD_STOP.get()))

    def _build_request(
        self, board: Board, seconds: float | None
    ) -> tuple[tuple[Any, ...], list[Snake], str]:
        """What the C code asks for, the snakes in its order, and why they are valued by hand."""
        if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(
                f"seconds must be a positive number, got {seconds}; "
                "None searches a fixed number of nodes"
            )
        snakes = _you_first(board)
        reason = self.evaluation.unsupported_reason(board) if self.evaluation else ""
        network = self.evaluation.network_bytes if self.evaluation and not reason else b""
        request = _request_tuple(
            board, snakes, self.weights, seconds, self.nodes, self.max_depth, network, self.exact,
            self.decoupled,
        )  # fmt: skip
        return request, snakes, reason


class FrozenSearch:
    """The search of 2026: what plays on the upper rungs of the ladder, and stays as it is.

    It is `Search` without what was found since (``frozen`` in ``csrc``), with the weights of then
    and on one core. The same board and the same number of positions have the same answer for ever,
    that of the build with which the ladder was measured; with a clock it is as fast as its
    processor. Raises ``RuntimeError`` where the compiled part is missing.
    """

    WEIGHTS = Weights(1000, 350, 6400, 5, 6200, 8400, 280, 53, 600_000, 7000, 16_000, 500_000)

    def __init__(self, nodes: int = _DEFAULT_NODES) -> None:
        if not COMPILED:
            raise RuntimeError(NOT_COMPILED_MESSAGE)
        self.nodes = nodes

    def set_nodes(self, nodes: int) -> None:
        """Set the node limit of searches without a time budget."""
        self.nodes = nodes

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search for the best move of ``board.you``; its score is exact, the others are bounds."""
        request = _request_tuple(
            board,
            _you_first(board),
            self.WEIGHTS.to_array(),
            seconds or None,
            self.nodes,
            _MAX_DEPTH,
            b"",
            frozen=True,
        )
        move, depth, proven, leaf_evals, _, scores, *_ = _search.search(
            *(*request, 1, SHOULD_STOP.get())
        )
        values = {MOVES[index]: value / _VALUE_PER_CELL for index, value in scores.items()}
        note = f"depth {depth}{', proven' if proven else ''}, {leaf_evals} leaf evaluations"
        return Decision(MOVES[move], (Reason("search", scores=values, note=note),), values)


def unsupported_reason(board: Board) -> str:
    """Why no search holds ``board``, or "" where one does."""
    if max(board.width, board.height) > MAX_SEARCH_BOARD_SIZE:
        return (
            f"the search supports boards of at most {MAX_SEARCH_BOARD_SIZE}x{MAX_SEARCH_BOARD_SIZE}"
        )
    if any(len(snake.body) > MAX_SEARCH_BOARD_SIZE**2 for snake in board.living):
        return f"the search supports snakes of at most {MAX_SEARCH_BOARD_SIZE**2} cells"
    return ""


def use_cpu_clock(on: bool) -> bool:
    """Whether the seconds of this search are CPU time of the process from now on; what was."""
    return COMPILED and _search.use_cpu_clock(on)


def network_inputs(board: Board) -> NDArray[np.int16]:
    """The inputs of a learned evaluation for the position of ``board.you``, int16 in 1/256.

    ``csrc/network_inputs.h`` lists them. Raises ``ValueError`` without a rival.
    """
    import numpy as np  # here: a packed snake plays without it

    snakes = _you_first(board)
    request = _request_tuple(board, snakes, Weights().to_array(), None, 0, 1, b"")
    return np.frombuffer(_search.inputs(*(*request, 1, None)), np.int16)


def _request_tuple(
    board: Board,
    snakes: list[Snake],
    weights: array[int],
    seconds: float | None,
    nodes: int,
    max_depth: int,
    network: bytes,
    exact: bool = False,
    decoupled: bool = False,
    frozen: bool = False,
) -> tuple[Any, ...]:
    """What the C code asks for, but for its last two arguments."""
    return (
        board.width,
        board.height,
        wraps(board.game),
        grows_always(board.game),
        board.game.solo or board.game.ruleset == "solo",
        clamped_hazard_damage(board),
        *position_arrays(board, snakes),
        weights,
        seconds or 0.0,
        nodes if seconds is None else 0,
        max_depth,
        network,
        exact,
        decoupled,
        frozen,
    )


def _predicted_board(board: Board, decision: Decision) -> Board | None:
    """The board after the line's first moves; None where not all have one, or the game is over."""
    moves = {snake: line[0] for snake, line in decision.line.items() if line}
    if any(snake.id not in moves for snake in board.living):
        return None
    predicted = board.without_seed()
    predicted.step(moves)
    return predicted if predicted.you.alive and len(predicted.living) > 1 else None


def _you_first(board: Board) -> list[Snake]:
    you = board.you
    if you is None or not you.alive:
        raise ValueError("board.you must be a living snake; set board.you_id to one")
    return [you, *(snake for snake in board.snakes if snake.alive and snake is not you)][:16]


def position_arrays(board: Board, snakes: list[Snake]) -> tuple[Any, ...]:
    """Lengths and health (C's int), bodies (uint16 cells), food and hazards, as C has them."""
    return (
        array("i", [len(snake.body) for snake in snakes]),
        array("i", [snake.health for snake in snakes]),
        array("H", [y * board.width + x for snake in snakes for x, y in snake.body]),
        count_per_cell(board, board.food),
        count_per_cell(board, board.hazards),
    )


def count_per_cell(board: State, points: list[tuple[int, int]]) -> bytearray:
    """How often each cell of the board is listed; 255 means 255 or more.

    That is exact: 100 layers of hazard already decide a turn.
    """
    counts = bytearray(board.width * board.height)
    for x, y in points:
        if 0 <= x < board.width and 0 <= y < board.height:
            cell = y * board.width + x
            counts[cell] = min(255, counts[cell] + 1)
    return counts


def clamped_hazard_damage(board: Board) -> int:
    """What a layer of hazard takes; more than all health is as much as all of it."""
    damage = board.game.settings.hazard_damage_per_turn
    return min(max(damage, -MAX_HEALTH), MAX_HEALTH)


def _moves(line: list[bytes], snakes: list[Snake]) -> dict[str, tuple[str, ...]]:
    """The expected line by snake id, each snake's as long as it lives."""
    return {
        snake.id: tuple(MOVES[turn[seat]] for turn in line if turn[seat] < len(MOVES))
        for seat, snake in enumerate(snakes)
    }


def _format_line(line: list[bytes], snakes: list[Snake]) -> str:
    """The expected line: every snake's moves by their first letters, ``.`` once it is out."""
    letters = "".join(move[0] for move in MOVES) + "."
    return " / ".join(
        f"{snake.name or snake.id} {''.join(letters[turn[seat]] for turn in line)}"
        for seat, snake in enumerate(snakes)
    )

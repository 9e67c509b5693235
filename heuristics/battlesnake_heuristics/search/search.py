"""Strategies that use the C search: alpha-beta search and decoupled MCTS.

The alpha-beta search deepens iteratively, one turn at a time, until its time or node limit. The
evaluation of a leaf is territory: the cells that each snake reaches first, considering that bodies
move out of the way. We move first and the opponents reply to our move, so a value is
guaranteed. With one opponent, the value is exact at the given depth. With several opponents, one
opponent plays its best reply, and the others keep to the move that has hurt us most so far
(best-reply search, Schadd and Winands 2011). The C code is in ``csrc``.
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
    _search = build_check.load_compiled_module(
        "battlesnake_heuristics.search._search", "no snake of the search plays (minimax)"
    )

COMPILED: bool = _search is not None
"""Whether the C search is compiled; the compilation needs a C compiler."""

NOT_COMPILED_MESSAGE = "the search is not compiled; install with a C compiler: pip install ."

MAX_SEARCH_BOARD_SIZE = 25
"""Maximum width and height of a board for the search."""

_UNSUPPORTED_BOARD_SNAKE = "cautious"
"""Built-in snake that plays on boards that the search does not support."""

_MAX_DEPTH = 120
_DEFAULT_NODES = 20_000
SHOULD_STOP: ContextVar[Callable[[], object] | None] = ContextVar("SHOULD_STOP", default=None)
"""Callback that is polled about 50 times per second.

A true value stops the searches of this context.
"""

_VALUE_PER_CELL = 1000
"""Search scores per cell of territory."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the handcrafted evaluation, in the order of the C code.

    The unit is 1/1000 cell, except that ``hunger_threshold`` is a health value and ``lead_cap`` is
    a number of segments. The weights were tuned by self-play of the search (SPSA, Spall 1992).
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
        """Return all weights as int32, in order."""
        return array("i", dataclasses.astuple(self))


log = logging.getLogger(__name__)


class NodeCounts(NamedTuple):
    """Numbers of leaf evaluations and of visited nodes of a search."""

    leaf_evals: int
    nodes: int


class SearchResult(NamedTuple):
    """The result of the C function ``search`` (``csrc/search_bindings.c``)."""

    move: int
    depth: int
    proven: int
    leaf_evals: int
    nodes: int
    scores: dict[int, int]
    line: list[bytes]
    visits: tuple[int, int, int, int]


class ThreadTuner:
    """Tuner of the number of search threads to the CPU time that is available.

    A process may have access to more cores than its CPU time allows, for example on AWS Lambda or
    on shared machines. If ``cores`` threads together get less than `MIN_CPU_FRACTION` of their
    time, the tuner tries the number of threads for which the CPU time would suffice. The tuner
    keeps this number for a while if the threads still get about as much CPU time together. If the
    threads get less, other programs compete for the cores, and the tuner returns to all threads.

    Args:
        cores: Number of cores that searches may use.
        share: Initial estimate of the CPU time per second that a single thread gets, in (0, 1].
    """

    SAMPLE_SEARCHES, RETRY_SEARCHES = 8, 100
    """Numbers of searches per measurement, and before another attempt."""

    MIN_CPU_FRACTION, KEEP_CPU_FRACTION = 0.75, 0.85

    def __init__(self, cores: int, share: float = 1.0) -> None:
        self.cores = self.threads = cores
        self.share = share
        self._samples: list[float] = []
        self._sample_size, self._all_cpu = self.SAMPLE_SEARCHES, 0.0

    def observe(self, cpu_per_second: float) -> None:
        """Record a search with ``threads`` threads, in CPU seconds per second."""
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
        """Fraction of a core to which a search throttles near its deadline.

        0 disables throttling. Throttling keeps the operating system from suspending the process
        when the response is due.
        """
        return (
            _THROTTLE_FRACTION * self.share
            if self.threads == 1 and self.share < _FULL_CORE_FRACTION
            else 0.0
        )


_FULL_CORE_FRACTION = 0.9
"""Minimum fraction of a core that counts as a full core."""

_THROTTLE_FRACTION = 0.75
"""Fraction of the CPU share that a search uses near its deadline.

The response needs the rest.
"""

_MIN_MEASURED_S = 0.05
"""Minimum duration of a search that is used to measure CPU shares, in seconds."""

_HELPER_JOIN_TIMEOUT_S = 0.005
"""Maximum time to wait for the node counts of helper threads, in seconds."""


class SearchCores:
    """The cores that time-limited searches share; a search uses the free cores.

    The threads of a search work on the same position and share one transposition table. Each thread
    starts at a different depth, so that the main thread finds results of the other threads in the
    table (lazy SMP, as in Stockfish). Decoupled searches build one tree per thread and vote on the
    move (root parallelization, Chaslot, Winands and van den Herik 2008). A search always gets at
    least one core. A search that runs alone uses as many threads as its `ThreadTuner` allows.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._tuner = ThreadTuner(1)
        self._pool = ThreadPoolExecutor(1, "search")

    def use(self, count: int, share: float = 1.0) -> None:
        """Set the number of cores (initially 1).

        Args:
            count: Number of cores, 1 or more.
            share: CPU time per second that the process gets of one core. Below 1, searches throttle
                near their deadline so that the operating system does not suspend the process when
                the response is due.

        Raises:
            ValueError: If ``count`` is less than 1.
        """
        if count < 1:
            raise ValueError(f"count must be 1 or more, got {count}")
        self._pool = ThreadPoolExecutor(count, "search")
        self._tuner = ThreadTuner(count, share)

    @property
    def _free(self) -> int:
        return self._tuner.cores - self._taken

    def search(self, request: tuple[Any, ...]) -> tuple[SearchResult, NodeCounts]:
        """Search with all free cores.

        Returns:
            The result, and the node counts of the helper threads.
        """
        with self._lock:
            is_alone, tuner = self._taken == 0, self._tuner
            taken = tuner.threads if is_alone else max(1, self._free)
            self._taken += taken
        done = threading.Event()
        _search.set_throttle(tuner.throttle_fraction if is_alone else 0.0)
        start, cpu_start = time.perf_counter(), time.process_time()
        try:
            helpers = [self._start_helper(request, 1 + n, done) for n in range(1, taken)]
            try:
                found = SearchResult(*_search.search(*(*request, 1, SHOULD_STOP.get())))
            finally:
                done.set()
            # Do not wait for a helper thread that the operating system has suspended.
            finished = (helper.result() for helper in wait(helpers, _HELPER_JOIN_TIMEOUT_S).done)
            helped = [result for result in finished if result is not None]
        finally:
            with self._lock:
                self._taken -= taken
        # For a throttled search, measure only the time before throttling began.
        throttled_at, throttled_s = _search.set_throttle(0.0)
        seconds = time.perf_counter() - start - throttled_s
        if is_alone and seconds > _MIN_MEASURED_S:
            tuner.observe(((throttled_at or time.process_time()) - cpu_start) / seconds)
        return _merge_results([found, *helped]), NodeCounts(
            sum(result.leaf_evals for result in helped), sum(result.nodes for result in helped)
        )

    def _start_helper(
        self, request: tuple[Any, ...], first_depth: int, done: threading.Event
    ) -> Future[SearchResult | None]:
        """Start a helper thread at depth ``first_depth``.

        The thread runs until ``done`` is set.
        """

        def help_out() -> SearchResult | None:
            try:
                return SearchResult(*_search.search(*(*request, first_depth, done.is_set)))
            except InterruptedError:
                return None

        return self._pool.submit(help_out)


def _merge_results(found: list[SearchResult]) -> SearchResult:
    """Return the result whose move has the most visits in all threads.

    Without decoupled search, the main thread's result is returned.
    """
    return max(found, key=lambda one: sum(other.visits[one.move] for other in found))


SEARCH_CORES = SearchCores()
"""The cores of this process."""


@dataclass(frozen=True, slots=True)
class SearchStats:
    """Statistics of a search: completed depth in turns, proof, and node counts."""

    depth: int
    proven: bool
    leaf_evals: int
    nodes: int

    def __str__(self) -> str:
        proven = ", proven" if self.proven else ""
        return f"depth {self.depth}{proven}, {self.leaf_evals} leaf evaluations"


class Search:
    """A strategy that searches for a time budget or up to a node limit.

    The node limit applies to searches without a time budget.

    Args:
        weights: Weights of the handcrafted evaluation.
        nodes: Maximum number of nodes of a search without a time budget.
        max_depth: Maximum depth in turns, 1 to 120.
        evaluation: Learned evaluation; None for the handcrafted evaluation.
        exact: Whether to compute exact scores for all moves, which takes longer. By default, only
            the score of the best move is exact, and the other scores are upper bounds.
        decoupled: Whether to use decoupled MCTS (``csrc/decoupled_mcts.h``) while three or more
            snakes are alive and the evaluation supports the game. Scores are then estimates, and
            nothing is proven.

    Raises:
        RuntimeError: If the search is not compiled.
        ValueError: If ``nodes`` is less than 1, or ``decoupled`` is given without ``evaluation`` or
            with ``exact``.
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
        """Search for the best move of ``board.you``.

        A rule-based snake plays on boards that the search does not support.
        """
        reason = unsupported_reason(board)
        if not reason:
            return self.search(board, seconds)[0]
        if self._fallback is None:
            log.warning(
                "%s plays game %s: %s",
                _UNSUPPORTED_BOARD_SNAKE,
                format_value(board.game.id),
                reason,
            )
            self._fallback = snakes_by_name.make(_UNSUPPORTED_BOARD_SNAKE)
        return self._fallback(board, seconds)

    def search(self, board: Board, seconds: float | None = None) -> tuple[Decision, SearchStats]:
        """Search for the best move and return the decision with statistics of the search.

        Ctrl-C in the main thread interrupts the search.

        Args:
            board: Position with a living ``board.you``, on a board that the search supports.
            seconds: Time budget; None for the node limit.

        Raises:
            ValueError: If ``seconds`` is not a positive number.
            InterruptedError: If `SHOULD_STOP` returned a true value.
        """
        request, snakes, reason = self._build_request(board, seconds)
        if seconds is None:
            result, helper_counts = (
                SearchResult(*_search.search(*(*request, 1, SHOULD_STOP.get()))),
                NodeCounts(0, 0),
            )
        else:
            result, helper_counts = SEARCH_CORES.search(request)
        move, depth, proven, leaf_evals, nodes, scores, line, _ = result
        stats = SearchStats(
            depth, bool(proven), leaf_evals + helper_counts.leaf_evals, nodes + helper_counts.nodes
        )
        values = {MOVES[index]: value / _VALUE_PER_CELL for index, value in scores.items()}
        best = values.get(MOVES[move], 0.0)  # ``values`` is empty if only the root was evaluated.
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
        """Search the position that ``decision`` predicts, to fill the transposition table.

        The search uses one core. The search stops after ``seconds``, or if `SHOULD_STOP` returns a
        true value. The method does nothing if the decision has no complete line. Decoupled searches
        do not use the transposition table, so the method also does nothing if the search would be
        decoupled.
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
        """Build the arguments of a search.

        Returns:
            The request, the snakes of the request, and the reason why the network does not support
            the board (or "").
        """
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
    """The frozen search of 2026, which forms the upper rungs of the ladder.

    This is `Search` without later improvements (``frozen`` in ``csrc``), with fixed weights and on
    one core. With a node limit, the decisions are identical to those of the build that calibrated
    the ladder. With a time budget, the playing strength depends on the processor.

    Raises:
        RuntimeError: If the search is not compiled.
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
        """Search for the best move.

        The score of the best move is exact, and the other scores are upper bounds.
        """
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
    """Return why the search does not support ``board``.

    The result is "" if the search supports the board.
    """
    if max(board.width, board.height) > MAX_SEARCH_BOARD_SIZE:
        return (
            f"the search supports boards of at most {MAX_SEARCH_BOARD_SIZE}x{MAX_SEARCH_BOARD_SIZE}"
        )
    if any(len(snake.body) > MAX_SEARCH_BOARD_SIZE**2 for snake in board.living):
        return f"the search supports snakes of at most {MAX_SEARCH_BOARD_SIZE**2} cells"
    return ""


def use_cpu_clock(on: bool) -> bool:
    """Measure time budgets in CPU time if ``on``, else in wall-clock time.

    Returns:
        The previous value of ``on``.
    """
    return COMPILED and _search.use_cpu_clock(on)


def network_inputs(board: Board) -> NDArray[np.int16]:
    """Return the network inputs for ``board.you``: int16 (NUM_INPUTS,), in 1/256.

    ``csrc/input_table.h`` defines the inputs.

    Raises:
        ValueError: If no opponent is alive.
    """
    import numpy as np  # This import is local because bundles play without NumPy.

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
    """Return all arguments of ``_search.search`` except the last two."""
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
    """Return the board after the first moves of the line.

    The result is None if a move is missing or the moves end the game.
    """
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
    """Return a position as arrays for the C code.

    Returns:
        Lengths (int32), health (int32), bodies (uint16), food (uint8 per cell) and hazard layers
        (uint8 per cell).
    """
    return (
        array("i", [len(snake.body) for snake in snakes]),
        array("i", [snake.health for snake in snakes]),
        array("H", [y * board.width + x for snake in snakes for x, y in snake.body]),
        count_per_cell(board, board.food),
        count_per_cell(board, board.hazards),
    )


def count_per_cell(board: State, points: list[tuple[int, int]]) -> bytearray:
    """Count how often each cell occurs in ``points``, clamped to 255.

    The clamp changes no game, because 100 hazard layers already eliminate a snake.
    """
    counts = bytearray(board.width * board.height)
    for x, y in points:
        if 0 <= x < board.width and 0 <= y < board.height:
            cell = y * board.width + x
            counts[cell] = min(255, counts[cell] + 1)
    return counts


def clamped_hazard_damage(board: Board) -> int:
    """Return the damage per hazard layer, clamped to the maximum health."""
    damage = board.game.settings.hazard_damage_per_turn
    return min(max(damage, -MAX_HEALTH), MAX_HEALTH)


def _moves(line: list[bytes], snakes: list[Snake]) -> dict[str, tuple[str, ...]]:
    """Return the line by snake id; the moves of each snake end at its elimination."""
    return {
        snake.id: tuple(MOVES[turn[seat]] for turn in line if turn[seat] < len(MOVES))
        for seat, snake in enumerate(snakes)
    }


def _format_line(line: list[bytes], snakes: list[Snake]) -> str:
    """Format the line as the first letters of every snake's moves.

    ``.`` marks the turns after a snake's elimination.
    """
    letters = "".join(move[0] for move in MOVES) + "."
    return " / ".join(
        f"{snake.name or snake.id} {''.join(letters[turn[seat]] for turn in line)}"
        for seat, snake in enumerate(snakes)
    )

"""Strategies that use the C search: alpha-beta search and decoupled MCTS.

The alpha-beta search deepens iteratively, one turn at a time, until it reaches a time or node
limit. The handcrafted evaluation of a leaf is mainly territory: the cells that a snake reaches
before all other snakes. The territory includes cells that bodies vacate in time. The search chooses
the opponents' moves after our move, so a value is a lower bound. With several opponents, one
opponent at a time plays its best reply. All other opponents keep their best replies so far
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

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes as snakes_by_name
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.engine import build_check
from battlesnake_gym.rules import MAX_HEALTH, MOVES, Snake, State, grows_always, wraps
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.snakes import Decision, Reason, Strategy
from battlesnake_heuristics.search.beliefs import Beliefs, combine_decisions
from battlesnake_heuristics.search.evaluation import Evaluation, score_to_probability

if TYPE_CHECKING:
    from battlesnake_heuristics.search import _search
else:
    _search = build_check.load_compiled_module(
        "battlesnake_heuristics.search._search", "snakes that search, such as minimax, cannot play"
    )

COMPILED: bool = _search is not None
"""Whether the C search is compiled, which requires a C compiler."""

NOT_COMPILED_MESSAGE = "the search is not compiled; install with a C compiler: pip install ."

MAX_SEARCH_BOARD_SIZE = 25
"""Maximum board width and height that the search supports, in cells."""

_UNSUPPORTED_BOARD_SNAKE = "cautious"
"""Built-in snake that moves on boards that the search does not support."""

_MAX_DEPTH = 120
_DEFAULT_NODES = 20_000
SHOULD_STOP: ContextVar[Callable[[], object] | None] = ContextVar("SHOULD_STOP", default=None)
"""Callback that a search polls about 50 times per second.

The searches of a context (`contextvars`) stop if its callback returns a true value.
"""

_NUM_SAMPLES = 4
"""Number of complete positions that a search with limited view draws."""

_MIN_TIME_PER_SAMPLE_S = 0.0005
"""Minimum time budget of the search of one sample, in seconds."""

_VALUE_PER_CELL = 1000
"""Search score of one cell of territory."""


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


_clock: Callable[[], float] = time.perf_counter
"""Clock of the time budgets, in seconds; see `use_cpu_clock`."""

log = logging.getLogger(__name__)


class _NodeLimitedSearch:
    """Base class of searches; the snake ``cautious`` plays boards that they do not support."""

    _fallback: Strategy | None = None

    def __init__(self, nodes: int = _DEFAULT_NODES) -> None:
        if not COMPILED:
            raise RuntimeError(NOT_COMPILED_MESSAGE)
        if not 1 <= nodes < 2**31:
            raise ValueError(f"nodes must be between 1 and 2147483647, got {nodes}")
        self.nodes = nodes

    def set_nodes(self, nodes: int) -> None:
        """Set the node limit for searches without a time budget."""
        self.nodes = nodes

    def _play_unsupported(self, board: Board, seconds: float | None, reason: str) -> Decision:
        if self._fallback is None:
            log.warning(
                "%s plays game %s instead of the search: %s",
                _UNSUPPORTED_BOARD_SNAKE,
                format_value(board.game.id),
                reason,
            )
            self._fallback = snakes_by_name.make(_UNSUPPORTED_BOARD_SNAKE)
        return self._fallback(board, seconds)


class SearchStats(NamedTuple):
    """Statistics of a search: the return value of the C function ``search`` in ``csrc``.

    Attributes:
        move: Index of the best move.
        depth: Last completed depth in turns.
        proven: Whether the value is a forced win or loss.
        leaf_evals: Number of leaf evaluations.
        nodes: Number of visited nodes.
        scores: Score of each move by index, in thousandths of a cell.
        lines: Line by index of the first move; complete only for the best move, unless the search
            is exact.
        visits: Number of visits of each move.
    """

    move: int
    depth: int
    proven: int
    leaf_evals: int
    nodes: int
    scores: dict[int, int]
    lines: list[list[bytes]]
    visits: tuple[int, int, int, int]

    @property
    def values(self) -> dict[str, float]:
        """Scores of the moves by name, in cells of territory."""
        return {MOVES[index]: value / _VALUE_PER_CELL for index, value in self.scores.items()}

    def lines_by_move(self, board: Board) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return the line of each first move, as moves by snake id."""
        snakes = _list_snakes_you_first(board)
        return {MOVES[index]: _moves_by_snake(self.lines[index], snakes) for index in self.scores}

    def __str__(self) -> str:
        proven = ", proven" if self.proven else ""
        return f"depth {self.depth}{proven}, {self.leaf_evals} leaf evaluations"


def _run_search(request: tuple[Any, ...]) -> SearchStats:
    """Search in this thread until the search is complete or `SHOULD_STOP` stops the search."""
    return SearchStats(*_search.search(*(*request, 1, SHOULD_STOP.get())))


class _ThreadTuner:
    """Adjustment of the number of search threads to the available CPU time.

    A process may have access to more cores than its CPU time allows, for example on AWS Lambda or
    on shared machines. The tuner compares the CPU time of ``num_cores`` threads with their total
    wall time. Below `MIN_CPU_FRACTION`, it reduces the number of threads to the measured CPU
    seconds per second. If the remaining threads use at least `KEEP_CPU_FRACTION` of the earlier CPU
    time, the tuner keeps the reduced number for `NUM_RETRY_SEARCHES` searches. Otherwise, other
    programs compete for the cores, and the tuner returns to all threads.

    Args:
        num_cores: Number of cores that searches may use.
        cpu_fraction: Initial estimate of the CPU seconds per second of a single thread, in (0, 1].
    """

    NUM_SAMPLE_SEARCHES, NUM_RETRY_SEARCHES = 8, 100
    """Numbers of searches per measurement, and between attempts with all threads."""

    MIN_CPU_FRACTION, KEEP_CPU_FRACTION = 0.75, 0.85

    def __init__(self, num_cores: int, cpu_fraction: float = 1.0) -> None:
        self.num_cores = self.num_threads = num_cores
        self.cpu_fraction = cpu_fraction
        self._samples: list[float] = []
        self._sample_size, self._cpu_of_all_threads = self.NUM_SAMPLE_SEARCHES, 0.0

    def observe(self, cpu_per_second: float) -> None:
        """Record the CPU seconds per second of a search with ``num_threads`` threads."""
        self._samples.append(cpu_per_second)
        if len(self._samples) < self._sample_size:
            return
        median = statistics.median(self._samples)
        self._samples = []
        if self.num_threads == 1:
            self.cpu_fraction = median
        if self.num_threads < self.num_cores and self._sample_size == self.NUM_SAMPLE_SEARCHES:
            self._sample_size = self.NUM_RETRY_SEARCHES
            if median < self.KEEP_CPU_FRACTION * self._cpu_of_all_threads:
                self.num_threads = self.num_cores
            return
        self._sample_size = self.NUM_SAMPLE_SEARCHES
        if self.num_threads < self.num_cores:
            self.num_threads = self.num_cores
        elif median < self.MIN_CPU_FRACTION * self.num_cores:
            self.num_threads, self._cpu_of_all_threads = max(1, round(median)), median

    @property
    def throttle_fraction(self) -> float:
        """Fraction of a core to which a search throttles near its deadline.

        0 disables throttling. Without throttling, the operating system could suspend the process
        when the response is due.
        """
        return (
            _THROTTLE_FRACTION * self.cpu_fraction
            if self.num_threads == 1 and self.cpu_fraction < _FULL_CORE_FRACTION
            else 0.0
        )


_FULL_CORE_FRACTION = 0.9
"""Minimum fraction of a core that counts as a full core."""

_THROTTLE_FRACTION = 0.75
"""Fraction of the available CPU time that a search uses near its deadline.

The server uses the remaining CPU time for the response.
"""

_MIN_SAMPLE_DURATION_S = 0.05
"""Minimum duration of a search whose CPU time the tuner records, in seconds."""

_HELPER_JOIN_TIMEOUT_S = 0.005
"""Maximum time to wait for the results of helper threads, in seconds."""


class _SearchCores:
    """Cores that concurrent time-limited searches share.

    A search uses all free cores, or one core if no core is free. A search that runs alone uses as
    many threads as the `_ThreadTuner` allows. The threads of a search work on the same position and
    share one transposition table. Each thread starts at a different depth. The main thread then
    finds results of the other threads in the table (lazy SMP, as in Stockfish). Decoupled searches
    build one tree per thread and vote on the move (root parallelization, Chaslot, Winands and van
    den Herik 2008).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_busy_cores = 0
        self._tuner = _ThreadTuner(1)
        self._pool = ThreadPoolExecutor(1, "search")

    def configure(self, num_cores: int, cpu_fraction: float = 1.0) -> None:
        """Set the number of cores, which is initially 1.

        Args:
            num_cores: Number of cores, 1 or more.
            cpu_fraction: CPU seconds per second that the process gets of one core, in (0, 1]. If
                only a fraction of one core is available, searches throttle near their deadline.
                Otherwise, the operating system could suspend the process when the response is due.

        Raises:
            ValueError: If ``num_cores`` is less than 1.
        """
        if num_cores < 1:
            raise ValueError(f"num_cores must be 1 or more, got {num_cores}")
        self._pool = ThreadPoolExecutor(num_cores, "search")
        self._tuner = _ThreadTuner(num_cores, cpu_fraction)

    @property
    def _num_free_cores(self) -> int:
        return self._tuner.num_cores - self._num_busy_cores

    def search(self, request: tuple[Any, ...]) -> SearchStats:
        """Search with all free cores; the result counts the nodes of all threads."""
        with self._lock:
            is_alone, tuner = self._num_busy_cores == 0, self._tuner
            taken = tuner.num_threads if is_alone else max(1, self._num_free_cores)
            self._num_busy_cores += taken
        done = threading.Event()
        _search.set_throttle(tuner.throttle_fraction if is_alone else 0.0)
        start, cpu_start = time.perf_counter(), time.process_time()
        try:
            helpers = [self._start_helper(request, 1 + n, done) for n in range(1, taken)]
            try:
                found = _run_search(request)
            finally:
                done.set()
            # The wait is short, because the operating system may have suspended a helper thread.
            finished = (helper.result() for helper in wait(helpers, _HELPER_JOIN_TIMEOUT_S).done)
            helped = [result for result in finished if result is not None]
        finally:
            with self._lock:
                self._num_busy_cores -= taken
        # The CPU measurement of a throttled search ends when throttling begins.
        throttled_at, throttled_s = _search.set_throttle(0.0)
        seconds = time.perf_counter() - start - throttled_s
        if is_alone and seconds > _MIN_SAMPLE_DURATION_S:
            tuner.observe(((throttled_at or time.process_time()) - cpu_start) / seconds)
        return _select_result([found, *helped])

    def _start_helper(
        self, request: tuple[Any, ...], first_depth: int, done: threading.Event
    ) -> Future[SearchStats | None]:
        """Start a helper search at depth ``first_depth`` that runs until ``done`` is set.

        Returns:
            A future of the result; None if the search was interrupted.
        """

        def run_helper_search() -> SearchStats | None:
            try:
                return SearchStats(*_search.search(*(*request, first_depth, done.is_set)))
            except InterruptedError:
                return None

        return self._pool.submit(run_helper_search)


def _select_result(found: list[SearchStats]) -> SearchStats:
    """Return the result whose move has the most visits, with the node counts of all threads.

    Results of the alpha-beta search have no visits; the first result, which comes from the main
    thread, is then returned.
    """
    chosen = max(found, key=lambda one: sum(other.visits[one.move] for other in found))
    return chosen._replace(
        leaf_evals=sum(one.leaf_evals for one in found), nodes=sum(one.nodes for one in found)
    )


SEARCH_CORES = _SearchCores()
"""Cores that all time-limited searches of this process share."""


class Search(_NodeLimitedSearch):
    """A strategy that searches until it reaches a time or node limit.

    The node limit applies only to searches without a time budget.

    Args:
        weights: Weights of the handcrafted evaluation.
        nodes: Maximum number of nodes of a search without a time budget.
        max_depth: Maximum depth in turns, 1 to 120.
        evaluation: Learned evaluation; None for the handcrafted evaluation.
        exact: Whether to compute exact scores for all moves, which takes longer. By default, only
            the score of the best move is exact, and the other scores are upper bounds.
        exact_forced: Whether to compute the exact score of a forced move, which needs no search.
        decoupled: Whether to use decoupled MCTS (``csrc/decoupled_mcts.h``) while opponents are
            alive and the evaluation supports the game, except in duels while both heads can reach
            the same cell and the snakes are equally long. The scores of decoupled MCTS are
            estimates without proofs.

    Raises:
        RuntimeError: If the search is not compiled.
        ValueError: If ``nodes`` is not between 1 and 2147483647, or ``decoupled`` is given without
            ``evaluation`` or with ``exact``.
    """

    def __init__(
        self,
        weights: Weights = Weights(),
        nodes: int = _DEFAULT_NODES,
        max_depth: int = _MAX_DEPTH,
        evaluation: Evaluation | None = None,
        exact: bool = False,
        exact_forced: bool = False,
        decoupled: bool = False,
    ) -> None:
        super().__init__(nodes)
        if decoupled and (exact or evaluation is None):
            raise ValueError("a decoupled search needs an evaluation and has no exact scores")
        self.weights = weights.to_array()
        self.max_depth = max_depth
        self.evaluation = evaluation
        self.exact = 2 * exact_forced or int(exact)
        self.decoupled = decoupled
        self._beliefs = Beliefs()

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search for the best move of ``board.you``.

        On boards that the search does not support, the built-in snake ``cautious`` selects the
        move. With limited view, the search examines several complete positions that agree with the
        game so far (`beliefs`).
        """
        if reason := unsupported_reason(board):
            return self._play_unsupported(board, seconds, reason)
        if board.game.settings.view_radius is not None:
            return self._search_samples(board, seconds)
        return self.search(board, seconds)[0]

    def _search_samples(self, board: Board, seconds: float | None) -> Decision:
        """Search complete positions that agree with a limited view.

        The samples share the time or the nodes.
        """
        deadline = _clock() + (math.inf if seconds is None else seconds)
        found: list[tuple[Decision, int]] = []
        missing = _NUM_SAMPLES
        for sample, times in self._beliefs.sample(board, _NUM_SAMPLES).items():
            left = max((deadline - _clock()) * times / missing, _MIN_TIME_PER_SAMPLE_S)
            nodes = max(1, self.nodes * times // _NUM_SAMPLES)
            decision, _ = self.search(sample, None if seconds is None else left, nodes)
            found.append((decision, times))
            missing -= times
            if _clock() >= deadline:
                break
        return combine_decisions(found)

    def search(
        self, board: Board, seconds: float | None = None, nodes: int | None = None
    ) -> tuple[Decision, SearchStats]:
        """Search for the best move and return the decision with statistics of the search.

        Ctrl-C in the main thread interrupts the search.

        Args:
            board: Complete position with a living ``board.you``, on a board that the search
                supports.
            seconds: Time budget in seconds; None applies the node limit.
            nodes: Node limit; None for the node limit of this object.

        Raises:
            ValueError: If ``seconds`` is not a positive number.
            InterruptedError: If `SHOULD_STOP` returned a true value.
        """
        request, snakes, reason = self._build_request(board, seconds, nodes)
        stats = _run_search(request) if seconds is None else SEARCH_CORES.search(request)
        move, values, line = MOVES[stats.move], stats.values, stats.lines[stats.move]
        best = values.get(move, 0.0)  # ``values`` is empty if only the root was evaluated.
        note = f"{stats}; line {_format_line(line, snakes)}"
        if reason:
            note += f"; handcrafted evaluation: the network is {reason}"
        elif self.evaluation:
            note += f"; expected score {score_to_probability(best):.0%}"
        reasons = (Reason("search", scores=values, note=note),)
        return Decision(move, reasons, values, line=_moves_by_snake(line, snakes)), stats

    def move_scores(self, board: Board) -> dict[str, float]:
        """Search with the node limit, and return only the score of each move, in cells.

        Without the decision's notes and lines, a search of 500 nodes takes a third less time.
        """
        request, _, _ = self._build_request(board, None)
        return _run_search(request).values

    def ponder(self, board: Board, decision: Decision, seconds: float) -> None:
        """Search while the opponents choose their moves, to speed up the next search.

        Decoupled MCTS continues the tree of ``board``. The alpha-beta search examines the position
        that ``decision`` predicts, and fills the transposition table; if the decision has no
        complete line, the method does nothing. The method also does nothing with limited view and
        on boards that the search does not support. The search uses one core and stops after
        ``seconds``, or if `SHOULD_STOP` returns a true value.
        """
        if unsupported_reason(board) or board.game.settings.view_radius is not None:
            return
        request, snakes, reason = self._build_request(board, seconds)
        if not self.decoupled or reason or len(snakes) < 2:
            predicted = _predict_board(board, decision)
            if predicted is None:
                return
            request, _, _ = self._build_request(predicted, seconds)
        with contextlib.suppress(InterruptedError):
            _run_search(request)

    def _build_request(
        self, board: Board, seconds: float | None, nodes: int | None = None
    ) -> tuple[tuple[Any, ...], list[Snake], str]:
        """Build the arguments of a search.

        Returns:
            The arguments of ``_search.search`` without the last two, the snakes in the order of the
            request, and a reason. The reason is "" if the network supports the board.
        """
        if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
            raise ValueError(
                f"seconds must be a positive number, got {seconds}; "
                "None searches a fixed number of nodes"
            )
        snakes = _list_snakes_you_first(board)
        reason = self.evaluation.unsupported_reason(board) if self.evaluation else ""
        network = self.evaluation.network_bytes if self.evaluation and not reason else b""
        request = _search_arguments(
            board, snakes, self.weights, seconds, nodes or self.nodes, self.max_depth, network,
            self.exact, 2 if self.decoupled else 0,
        )  # fmt: skip
        return request, snakes, reason


class FrozenSearch(_NodeLimitedSearch):
    """The frozen search of 2026, which forms the upper rungs of the ladder.

    The frozen search is an earlier version of `Search` (``FROZEN`` in ``csrc``), with fixed weights
    and on one core. With a node limit, the decisions equal the decisions of the build that
    calibrated the ladder. With a time budget, the playing strength depends on the processor.

    Raises:
        RuntimeError: If the search is not compiled.
    """

    WEIGHTS = Weights(1000, 350, 6400, 5, 6200, 8400, 280, 53, 600_000, 7000, 16_000, 500_000)

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Search for the best move of ``board.you``.

        The score of the best move is exact, and the other scores are upper bounds.
        """
        if reason := unsupported_reason(board):
            return self._play_unsupported(board, seconds, reason)
        request = _search_arguments(
            board,
            _list_snakes_you_first(board),
            self.WEIGHTS.to_array(),
            seconds or None,
            self.nodes,
            _MAX_DEPTH,
            b"",
            frozen=True,
        )
        stats = _run_search(request)
        reasons = (Reason("search", scores=stats.values, note=str(stats)),)
        return Decision(MOVES[stats.move], reasons, stats.values)


def unsupported_reason(board: Board) -> str:
    """Return why the search does not support ``board``.

    The result is "" if the search supports the board.
    """
    if max(board.width, board.height) > MAX_SEARCH_BOARD_SIZE:
        return (
            f"the search supports boards of at most {MAX_SEARCH_BOARD_SIZE}x{MAX_SEARCH_BOARD_SIZE}"
        )
    if len(board.living) > MAX_SNAKES:
        return f"the search supports at most {MAX_SNAKES} living snakes"
    if any(len(snake.body) > MAX_SEARCH_BOARD_SIZE**2 for snake in board.living):
        return f"the search supports snakes of at most {MAX_SEARCH_BOARD_SIZE**2} cells"
    return ""


def use_cpu_clock(on: bool) -> bool:
    """Measure time budgets in CPU time if ``on``, else in wall-clock time.

    Returns:
        The previous setting; False if the search is not compiled.
    """
    global _clock
    _clock = time.process_time if on else time.perf_counter
    return COMPILED and _search.use_cpu_clock(on)


def network_inputs(board: Board) -> NDArray[np.int16]:
    """Return the network inputs for ``board.you``: int16 (NUM_INPUTS,), scale 1/256.

    ``csrc/input_table.h`` defines the inputs.

    Raises:
        ValueError: If no opponent is alive.
    """
    snakes = _list_snakes_you_first(board)
    request = _search_arguments(board, snakes, Weights().to_array(), None, 0, 1, b"")
    return np.frombuffer(_search.inputs(*(*request, 1, None)), np.int16)


def _search_arguments(
    board: Board,
    snakes: list[Snake],
    weights: array[int],
    seconds: float | None,
    nodes: int,
    max_depth: int,
    network: bytes,
    exact: int = 0,
    decoupled: int = 0,
    frozen: bool = False,
) -> tuple[Any, ...]:
    """Return all arguments of ``_search.search`` except the last two."""
    return (
        board.width,
        board.height,
        wraps(board.game),
        grows_always(board.game),
        board.game.is_solo,
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


def _predict_board(board: Board, decision: Decision) -> Board | None:
    """Return the board after the first moves of the decision's line.

    The result is None if a move is missing, or if the moves eliminate us or end the game.
    """
    moves = {snake: line[0] for snake, line in decision.line.items() if line}
    if any(snake.id not in moves for snake in board.living):
        return None
    predicted = board.without_seed()
    predicted.step(moves)
    return predicted if predicted.you.alive and len(predicted.living) > 1 else None


def _list_snakes_you_first(board: Board) -> list[Snake]:
    """Return the living snakes, with ``board.you`` first."""
    you = board.you
    if not you.alive:
        raise ValueError(
            "board.you must be a living snake; set board.you_id to the id of a living snake"
        )
    return [you, *(snake for snake in board.snakes if snake.alive and snake is not you)]


def position_arrays(board: Board, snakes: list[Snake]) -> tuple[Any, ...]:
    """Convert a position to arrays for the C code.

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
    """Return how often each cell occurs in ``points``, clamped to 255.

    The clamp does not change any game, because 100 hazard layers already eliminate a snake.
    """
    counts = bytearray(board.width * board.height)
    for x, y in filter(board.inside, points):
        cell = y * board.width + x
        counts[cell] = min(255, counts[cell] + 1)
    return counts


def clamped_hazard_damage(board: Board) -> int:
    """Return the damage per hazard layer, clamped to +-`MAX_HEALTH`."""
    damage = board.game.settings.hazard_damage_per_turn
    return min(max(damage, -MAX_HEALTH), MAX_HEALTH)


def _moves_by_snake(line: list[bytes], snakes: list[Snake]) -> dict[str, tuple[str, ...]]:
    """Return the line as moves by snake id.

    The moves of each snake end at its elimination.
    """
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

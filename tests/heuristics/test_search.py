import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game, Settings, Snake, State
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.search import evaluation
from battlesnake_heuristics.search.search import (
    SEARCH_CORES,
    SHOULD_STOP,
    Search,
    SearchStats,
    Weights,
    _select_result,
    _ThreadTuner,
    use_cpu_clock,
)
from tests.heuristics.conftest import board_of, start_of

pytest.importorskip("battlesnake_heuristics.search._search")

PROVEN = 900  # cells of territory; larger scores are proven results
ORDER = ("loss", "draw", "open", "win")
DRAWN = -Weights().draw / 1000


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """Set one core, because a live snake of another test may have set more."""
    SEARCH_CORES.configure(1)
    yield
    SEARCH_CORES.configure(1)


def duel(seed: int) -> Board:
    """Return the start of a duel from the view of the first snake."""
    return start_of(11, 11, 2, game=Game(seed=seed))


def after(board: Board, moves: dict[str, str]) -> Board:
    child = board.copy()
    child.step(moves)
    return child


def worst_result(board: Board, move: str) -> str:
    """Return the result of our move after the opponent's best reply, by brute force."""
    opponent = next(snake for snake in board.living if snake.id != board.you_id)
    results = []
    for answer in MOVES:
        child = after(board, {board.you.id: move, opponent.id: answer})
        alive = {snake.id for snake in child.living}
        mine, theirs = board.you_id in alive, opponent.id in alive
        results.append(
            "open" if mine and theirs else "win" if mine else "loss" if theirs else "draw"
        )
    return min(results, key=ORDER.index)


def named(score: float) -> str:
    if score == DRAWN:
        return "draw"
    return "win" if score > PROVEN else "loss" if score < -PROVEN else "open"


def played(ruleset: str, seed: int, turns: int, size: int, damage: int) -> Board:
    """Return a position reached by random moves, most of them safe."""
    rng = random.Random(seed)
    game = Game(ruleset, "", Settings(15, 1, damage, 25), seed=seed)
    snakes = [
        Snake(str(i), [cell] * 3, health=rng.randint(5, 100))
        for i, cell in enumerate(rng.sample([(x, y) for x in range(size) for y in range(size)], 2))
    ]
    food = [(rng.randrange(size), rng.randrange(size)) for _ in range(4)]
    hazards = [(rng.randrange(size), rng.randrange(size)) for _ in range(8)]
    board = Board.from_state(State(0, size, size, snakes, sorted(set(food)), hazards), game)
    for _ in range(turns):
        moves = {s.id: rng.choice(board.safe_moves(s.id) or MOVES) for s in board.living}
        following = after(board, moves)
        if following.is_over():
            break
        board = following
    board.you_id = board.living[0].id
    return board


@hypothesis_settings(max_examples=300)
@given(
    st.sampled_from(["standard", "royale", "wrapped", "constrictor", "wrapped_constrictor"]),
    st.integers(1, 10**6),
    st.integers(0, 30),
    st.sampled_from([3, 5, 7, 12]),
    st.sampled_from([0, 5, 14, -20]),
)
def test_one_turn_ahead_it_sees_what_the_law_does(
    ruleset: str, seed: int, turns: int, size: int, damage: int
) -> None:
    board = played(ruleset, seed, turns, size, damage)
    # The search treats every body as solid, even that of a snake that certainly dies this turn.
    assume(all(snake.health > 1 + 3 * max(damage, 0) for snake in board.living))
    assume(all(board.safe_moves(snake.id) for snake in board.living))
    decision = Search(max_depth=1)(board)
    assert named(decision.scores[decision.move]) == worst_result(board, decision.move)
    for move, score in decision.scores.items():  # upper bounds of the other moves
        assert ORDER.index(worst_result(board, move)) <= ORDER.index(named(score))
    assert not (set(board.safe_moves()) - set(decision.scores))


def test_it_finds_a_win_some_turns_away() -> None:
    board = board_of(
        """
        . . . . . . .
        . . . . . . .
        . v < < < . .
        . v . . ^ . .
        . v . . ^ . .
        . A . . ^ . .
        B < < . . . .
        """
    )
    decision = Search(nodes=200_000)(board)
    assert isinstance(decision, Decision)
    assert "proven" in decision.reasons[0].note
    assert max(decision.scores.values()) > PROVEN


@pytest.mark.parametrize("draw", [0, 500_000])
def test_a_line_ends_with_the_last_snakes(draw: int) -> None:
    board = board_of("A . B")
    board.game = Game("constrictor")
    decision = Search(Weights(draw=draw), nodes=500, exact_forced=True)(board)
    assert decision.line == {"a": ("right",), "b": ("left",)}


def test_it_takes_the_move_that_lives_longest_when_all_are_lost() -> None:
    board = board_of(
        """
        ruleset=constrictor
        > > > > v
        . . A . v
        . . ^ < <
        """
    )
    decision = Search()(board)
    assert decision.move == "left"
    assert max(decision.scores.values()) < -PROVEN


def test_an_evaluation_that_saw_nothing_knows_nothing() -> None:
    board = duel(1)
    decision = Search(evaluation=evaluation.load_builtin(), nodes=1)(board)
    assert decision.move in MOVES
    assert "50%" in decision.reasons[0].note


@pytest.mark.parametrize(("dx", "dy"), [(1, 0), (-1, 0), (0, 1), (0, -1)])
def test_where_all_is_lost_it_takes_the_move_that_a_rival_may_spare(dx: int, dy: int) -> None:
    """Two moves enter fatal hazards; the third is beside the head of a longer snake."""
    ours, theirs = [(0, 0), (-1, 0), (-2, 0)], [(2, 0), (3, 0), (3, 1), (3, 2)]

    def turned(cells: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(4 + x * dx - y * dy, 4 + x * dy + y * dx) for x, y in cells]

    snakes = [Snake("a", turned(ours), health=10), Snake("b", turned(theirs))]
    board = Board.from_state(
        State(5, 9, 9, snakes, hazards=turned([(0, 1), (0, -1)])), Game("standard")
    )
    board.you_id = "a"
    decision = Search()(board)
    assert len(set(decision.scores.values())) == 1, "they are worth the same"
    assert [decision.move] == board.safe_moves()


@pytest.mark.parametrize("other", ["weights", "hazards", "damage"])
def test_in_a_table_that_is_shared_another_question_has_answers_of_its_own(other: str) -> None:
    def asked(changed: str) -> tuple[Search, Board]:
        damage = 5 if changed == "damage" else 4
        game = Game(seed=8, settings=Settings(hazard_damage_per_turn=damage))
        board = start_of(11, 11, 2, game=game)
        for snake in board.snakes:
            snake.health = 40
        # No hazard is one turn away. Otherwise health, and thus the positions, would differ.
        near = {board.target(snake.body[0], move) for snake in board.snakes for move in MOVES}
        cells = {(x, y) for x in range(11) for y in range(11 - (changed == "hazards"))}
        board.hazards = sorted(cells - near)
        weights = Weights(hunger=317 if changed == "weights" else 281)
        # Exact scores without the reductions of deeper searches do not depend on the table.
        return Search(weights, 10**7, 2, exact=True), board

    search, board = asked("nothing")
    other_search, other_board = asked(other)
    alone = other_search(other_board).scores
    assert search(board, 60).scores == search(board).scores != alone
    assert other_search(other_board, 60).scores == alone


@pytest.mark.parametrize("nodes", [1, 50, 700, 3001])
def test_wherever_it_is_cut_off_the_chosen_move_has_the_best_score(nodes: int) -> None:
    for seed in range(1, 6):
        board = Board.new(11, 11, 3, game=Game(seed=seed * 99_991))
        for _ in range(10):
            moves = {}
            for snake in board.living:
                board.you_id = snake.id
                decision = Search(nodes=nodes)(board)
                assert decision.scores.get(decision.move) == max(
                    decision.scores.values(), default=None
                )
                moves[snake.id] = decision.move
            board.step(moves)


@pytest.mark.parametrize("size", [3, 11, 12, 19, 20, 25])
@pytest.mark.parametrize("ruleset", ["standard", "wrapped"])
def test_every_board_size_fits(size: int, ruleset: str) -> None:
    board = start_of(size, size, 2, game=Game(ruleset, seed=5))
    assert Search(nodes=2000)(board).move in board.safe_moves()


def test_sixteen_snakes_fit_and_the_clock_is_kept() -> None:
    board = start_of(19, 19, 16, game=Game(seed=5))
    assert Search()(board, seconds=0.05).move in board.safe_moves()


def test_the_last_of_seventeen_snakes_blocks_its_cells() -> None:
    snakes = [Snake(str(x), [(x, 0), (x, 1)]) for x in range(15)]
    snakes = [
        Snake("a", [(5, 7), (5, 6), (5, 5)]),
        *snakes,
        Snake("z", [(4, y) for y in range(9, 5, -1)]),
    ]
    board = Board.from_state(State(9, 19, 19, snakes), Game(), "a")
    decision = Search()(board)
    assert decision.move in board.safe_moves()
    assert "left" not in decision.scores


def test_a_board_without_a_living_you_is_refused() -> None:
    board = Board.new(11, 11, 2, game=Game(seed=1))
    with pytest.raises(ValueError, match="you"):
        Search()(board)


def test_the_compiled_part_trusts_nothing() -> None:
    import numpy as np

    from battlesnake_heuristics.search import _search

    def call_search(ask: Callable[..., Any] = _search.search, /, **changed: Any) -> Any:
        arguments: dict[str, Any] = {
            "width": 3,
            "height": 3,
            "wrapped": False,
            "constrictor": False,
            "solo": True,
            "damage": 14,
            "lengths": np.array([1], np.int32),
            "health": np.array([100], np.int32),
            "bodies": np.array([4], np.uint16),
            "food": np.zeros(9, np.uint8),
            "hazards": np.zeros(9, np.uint8),
            "weights": Weights().to_array(),
            "seconds": 0.0,
            "nodes": 100,
            "max_depth": 5,
            "network": b"",
            "exact": False,
            "decoupled": True,
            "frozen": False,
            "first_depth": 1,
            "should_stop": None,
        }
        return ask(*(arguments | changed).values())

    assert call_search()[0] in range(4)
    for field, value in [
        ("width", 26),
        ("height", 0),
        ("lengths", np.array([700], np.int32)),
        ("health", np.array([0], np.int32)),
        ("health", np.array([101], np.int32)),
        ("bodies", np.array([9], np.uint16)),
        ("food", np.zeros(8, np.uint8)),
        ("max_depth", 121),
        ("first_depth", 0),
        ("network", b"short"),
        ("damage", 1001),
        ("seconds", float("nan")),
        ("nodes", -1),
        ("weights", np.full(12, 2**31 - 1, np.int32)),
        ("weights", np.full(12, -(2**31), np.int32)),
        ("health", np.frombuffer(bytes(5), np.uint8)[1:]),
    ]:
        with pytest.raises(ValueError, match=field):
            call_search(**{field: value})
    with pytest.raises(ValueError, match="snakes"):
        call_search(lengths=np.ones(17, np.int32))
    with pytest.raises(ValueError, match=r"snakes.* 2"):
        call_search(_search.inputs)
    with pytest.raises(ValueError, match="width"):
        call_search(_search.inputs, width=26)
    for name in ("set_throttle", "play_turns", "set_isa", "use_cpu_clock"):
        wrong: Any = getattr(_search, name)
        with pytest.raises(TypeError):
            wrong(3, 3)


def test_a_search_stops_when_it_is_told_to() -> None:
    board = duel(1)
    asked = []

    def stop() -> bool:
        asked.append(threading.get_ident())
        return len(asked) == 3

    token = SHOULD_STOP.set(stop)
    try:
        with pytest.raises(InterruptedError, match="should_stop"):
            Search()(board, seconds=3600)
        assert asked == [threading.get_ident()] * 3
        SHOULD_STOP.set(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Search()(board, seconds=3600)
    finally:
        SHOULD_STOP.reset(token)
    assert Search(nodes=100)(board).move in MOVES


def test_a_search_that_takes_long_per_node_also_stops_soon() -> None:
    token = SHOULD_STOP.set(lambda: True)
    try:
        with pytest.raises(InterruptedError):
            Search(nodes=600)(duel(1))
    finally:
        SHOULD_STOP.reset(token)


def test_what_was_pondered_over_is_known_when_it_comes() -> None:
    board = duel(1)
    # No other test uses these weights, so the table contains none of their results.
    pondered, new = (Search(Weights(draw=draw), max_depth=7) for draw in (500_017, 500_018))
    decision = Search(max_depth=1)(board)
    after = board.without_seed()
    after.step({snake: line[0] for snake, line in decision.line.items()})
    pondered.ponder(board, decision, seconds=200.0)
    asked = [search.search(after, seconds=200.0)[1] for search in (pondered, new)]
    assert [one.depth for one in asked] == [7, 7]
    assert asked[0].nodes < asked[1].nodes / 4


def test_where_nothing_is_expected_there_is_nothing_to_ponder_over() -> None:
    board = board_of("A . B")
    Search().ponder(board, Decision("right"), seconds=3600)  # without a line
    over = Decision("right", line={"a": ("right",), "b": ("left",)})
    Search().ponder(board, over, seconds=3600)  # both heads in one cell


def test_pondering_stops_when_it_is_told_to() -> None:
    board = duel(1)
    decision = Search()(board, seconds=0.02)
    began = time.monotonic()
    token = SHOULD_STOP.set(lambda: True)
    try:
        Search().ponder(board, decision, seconds=3600)
    finally:
        SHOULD_STOP.reset(token)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("seconds", [-0.001, 0.0, float("nan"), float("inf")])
def test_seconds_that_are_no_time_are_refused(seconds: float) -> None:
    board = duel(1)
    with pytest.raises(ValueError, match="seconds"):
        Search()(board, seconds=seconds)


def test_no_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="nodes"):
        Search(nodes=0)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_interrupts_a_search() -> None:
    program = """
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_heuristics.search.search import Search
board = Board.new(19, 19, 8, game=Game(seed=1))
board.you_id = board.snakes[0].id
try:
    print("thinks", flush=True)
    Search()(board, seconds=100_000)
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"thinks\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[0] == b"interrupted\n"
        assert process.returncode == 0


def test_hazards_that_are_beyond_counting_still_kill() -> None:
    board = board_of(
        """
        . . . . .
        . A < . .
        . . . . .
        """
    )
    board.hazards = [cell for cell in [(0, 1), (1, 2)] for _ in range(256)]
    decision = Search(nodes=500)(board)
    assert decision.move == "down"
    assert decision.scores.get("left", -PROVEN) < 0


def test_damage_of_any_size_is_played() -> None:
    for damage in (-(10**30), 10**30):
        game = Game(settings=Settings(hazard_damage_per_turn=damage))
        board = start_of(11, 11, 2, game=game)
        board.hazards = [(x, 5) for x in range(11)]
        assert Search(nodes=500)(board).move in board.safe_moves()


@pytest.fixture
def isa() -> Iterator[Callable[[str], str]]:
    """Yield the function that selects the instruction set; restore the best one afterwards."""
    from battlesnake_heuristics.search import _search

    yield _search.set_isa
    _search.set_isa("best")


@pytest.mark.parametrize("size", [7, 11, 19, 25])
def test_every_code_gives_the_same_answers(isa: Callable[[str], str], size: int) -> None:
    try:
        isa("avx2")
    except ValueError:
        pytest.skip("a processor without AVX2")
    for ruleset, seed in (("standard", 1), ("wrapped", 2), ("constrictor", 3), ("royale", 4)):
        board = played(ruleset, seed, 20, size, 14)
        answers = []
        for name in ("plain", "avx2", "best"):
            isa(name)
            answers.append(Search(nodes=1500).search(board))
        assert answers[0] == answers[1] == answers[2]


def test_a_code_that_is_unknown_is_refused(isa: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match="sse9"):
        isa("sse9")


def test_every_score_is_exact_where_that_is_asked_for() -> None:
    for seed in range(1, 5):
        board = Board.new(7, 7, 2, game=Game(seed=seed))
        for turn in range(10):
            if board.is_over():
                break
            board.you_id = board.snakes[turn % 2].id
            usual, exact = (Search(max_depth=3, exact=exact) for exact in (False, True))
            bounds, scores = (search(board, seconds=200.0).scores for search in (usual, exact))
            best = max(scores.values())
            assert max(bounds.values()) == best
            assert all(score <= bounds[move] for move, score in scores.items())
            board.step({one.id: (board.safe_moves(one.id) or ["up"])[0] for one in board.living})


def _think_twice_then_with_other_weights() -> list[SearchStats]:
    board = duel(99)
    search, other = (Search(Weights(lead_cap=lead), max_depth=9) for lead in (7, 6))
    return [searcher.search(board, seconds=200.0)[1] for searcher in (search, search, other)]


def test_what_was_learnt_for_one_move_is_there_for_the_next() -> None:
    # A process of its own has an empty table.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        first, again, other = pool.submit(_think_twice_then_with_other_weights).result()
    assert again.depth == first.depth == 9
    assert again.nodes < first.nodes / 4
    # Other weights share the table but not its entries.
    assert other.nodes > 1000


def test_games_at_once_in_threads_share_one_table() -> None:
    boards = []
    for seed in range(8):
        board = start_of(11, 11, 2 + seed % 3, game=Game(seed=1 + seed * 9973))
        boards.append(board)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            decisions = list(pool.map(lambda board: Search()(board, seconds=0.05), boards))
            for board, decision in zip(boards, decisions, strict=True):
                assert decision.move in board.safe_moves()
                assert decision.scores[decision.move] == max(decision.scores.values())


@pytest.fixture
def two_cores(one_core: None) -> None:
    SEARCH_CORES.configure(2)


@pytest.mark.usefixtures("two_cores")
def test_two_cores_look_at_one_position() -> None:
    board = duel(7)
    alone, helped = (Search(Weights(lead_cap=lead), max_depth=8) for lead in (3, 4))
    SEARCH_CORES.configure(1)
    visited = alone.search(board, seconds=200.0)[1].nodes
    SEARCH_CORES.configure(2)
    found, statistics = helped.search(board, seconds=200.0)
    assert statistics.depth == 8, "the one that answers gets as deep"
    assert found.scores[found.move] == max(found.scores.values())
    assert statistics.nodes > 0.3 * visited


def test_the_nodes_of_each_thread_count_once() -> None:
    main = SearchStats(0, 5, 0, 100, 1000, {}, [], (3, 0, 0, 0))
    helper = SearchStats(1, 6, 0, 20, 200, {}, [], (0, 9, 0, 0))
    chosen = _select_result([main, helper])
    assert (chosen.move, chosen.depth) == (1, 6)
    assert (chosen.leaf_evals, chosen.nodes) == (120, 1200)


@pytest.mark.usefixtures("two_cores")
def test_searches_at_once_get_by_with_the_cores_that_are_free() -> None:
    board = duel(9)
    search = Search(max_depth=6)
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            found = list(pool.map(lambda _: search(board, seconds=100.0), range(6)))
            assert {decision.move for decision in found} <= set(board.safe_moves())
    assert SEARCH_CORES._num_free_cores == 2


def test_there_is_at_least_one_core() -> None:
    with pytest.raises(ValueError, match=r"num_cores.* 1.* 0"):
        SEARCH_CORES.configure(0)


@pytest.mark.parametrize(
    ("cores", "granted", "threads"),
    [
        (2, lambda threads: 0.97 * threads, 2),  # all visible cores are granted
        (2, lambda threads: 0.3, 1),  # a quota, which a second thread does not increase
        (16, lambda threads: min(threads, 3.9), 4),
        (2, lambda threads: [0.66, 1.0][threads - 1], 2),  # beside two busy programs
    ],
)
def test_as_many_threads_as_are_given_time(
    cores: int, granted: Callable[[int], float], threads: int
) -> None:
    tuner, used = _ThreadTuner(cores), []
    for _ in range(3 * _ThreadTuner.NUM_RETRY_SEARCHES):
        used.append(tuner.num_threads)
        tuner.observe(granted(tuner.num_threads))
    assert used[0] == cores
    assert used.count(threads) >= 0.85 * len(used)
    assert tuner.throttle_fraction == (pytest.approx(0.75 * 0.3) if threads == 1 else 0)


def test_only_one_thread_says_what_is_given_of_a_core() -> None:
    for cores, granted, share, threads in ((1, 0.3, 0.3, 1), (2, 1.6, 1.0, 2), (4, 3.2, 1.0, 4)):
        tuner = _ThreadTuner(cores)
        for _ in range(_ThreadTuner.NUM_SAMPLE_SEARCHES):
            tuner.observe(granted)
        assert (tuner.cpu_fraction, tuner.num_threads) == (share, threads)


def test_near_its_end_a_search_keeps_to_its_pace() -> None:
    board = duel(7)
    search = Search()
    search(board, 0.05)
    SEARCH_CORES.configure(1, cpu_fraction=0.2)
    worked = time.process_time()
    search(board, 0.1)
    assert time.process_time() - worked < 0.05


@pytest.mark.parametrize(("taken", "min_measured_s", "judged"), [(0, 0, 1), (0, 1e9, 0), (1, 0, 0)])
def test_only_a_long_search_that_is_alone_is_judged(
    taken: int, min_measured_s: float, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    monkeypatch.setattr(_ThreadTuner, "observe", lambda self, granted: seen.append(granted))
    monkeypatch.setattr(
        "battlesnake_heuristics.search.search._MIN_SAMPLE_DURATION_S", min_measured_s
    )
    monkeypatch.setattr(SEARCH_CORES, "_num_busy_cores", taken)
    Search()(duel(1), 0.01)
    assert len(seen) == judged


def test_what_a_search_is_given_is_judged_before_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    board = duel(7)
    search, seen = Search(), []
    search(board, 0.05)
    monkeypatch.setattr(_ThreadTuner, "observe", lambda self, granted: seen.append(granted))
    SEARCH_CORES.configure(1, cpu_fraction=0.03)  # less than a busy machine leaves
    began, worked = time.perf_counter(), time.process_time()
    search(board, 0.2)
    used = (time.process_time() - worked) / (time.perf_counter() - began)
    assert seen[0] > 1.2 * used


def test_a_search_by_processor_time_never_rests() -> None:
    board = duel(7)
    before = use_cpu_clock(True)
    try:
        SEARCH_CORES.configure(1, cpu_fraction=0.01)
        began = time.monotonic()
        Search()(board, 0.05)
        assert time.monotonic() - began < 3  # at least 7 s if it used a hundredth of a core
    finally:
        use_cpu_clock(before)

"""Decoupled MCTS, compared with its reference implementation."""

import dataclasses
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game, Settings, Snake, State
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import (
    SEARCH_CORES,
    SHOULD_STOP,
    Search,
    _list_snakes_you_first,
    _search_arguments,
)
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlaySettings, play_game

from .decoupled_reference import Tree
from .test_inputs import positions

_search = pytest.importorskip("battlesnake_heuristics.search._search")

KINDS = (
    *(("standard", side, count) for side, count in ((11, 2), (7, 3), (11, 4), (19, 8))),
    ("constrictor", 9, 2),
    ("royale", 11, 4),
    ("wrapped", 9, 4),
)


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    SEARCH_CORES.configure(1)
    yield
    SEARCH_CORES.configure(1)


def champion(nodes: int = 1000) -> Search:
    return Search(evaluation=load_builtin(), nodes=nodes, decoupled=True)


def visits(
    board: Board, nodes: int = 0, first_depth: int = 1, seconds: float | None = None
) -> tuple[int, ...]:
    request = _search_arguments(
        board, _list_snakes_you_first(board), champion().weights, seconds, nodes, 120,
        load_builtin().network_bytes, decoupled=2,
    )  # fmt: skip
    tried: tuple[int, ...] = _search.search(*request, first_depth, None)[-1]
    return tried


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_tries_moves_as_often_as_its_slow_definition(kind: tuple[str, int, int]) -> None:
    boards = positions(*kind, wanted=200)
    several = (b for b in boards if len(b.safe_moves()) > 1 and sum(visits(b, 9)) > 0)
    for board, nodes in zip(several, (120, 120, 120, 120, 1500), strict=False):
        tree = Tree(board, load_builtin(), nodes)
        assert visits(board, nodes) == tuple(tree.root.action_stats[board.you.id].visits)


def test_every_code_tries_the_same(four: Board) -> None:
    tried = []
    try:
        for name in ("plain", "best"):
            _search.set_isa(name)
            tried.append(visits(four, 3000))
    finally:
        _search.set_isa("best")
    assert tried[0] == tried[1]
    assert sum(tried[0]) > 1000


@pytest.fixture
def four() -> Board:
    """Return a position with four snakes in the middle of a game."""
    boards = (board for board in positions("standard", 11, 4) if len(board.living) == 4)
    return next(board for board in boards if board.turn > 20 and len(board.safe_moves()) == 3)


def test_it_also_plays_duels_but_not_alone() -> None:
    duel, alone = (
        dataclasses.replace(Board.new(11, 11, count, game=Game(ruleset, seed=3)), you_id="snake_0")
        for ruleset, count in (("standard", 2), ("solo", 1))
    )
    assert sum(visits(duel, 500)) > 300
    assert visits(alone, 500) == (0, 0, 0, 0)


@pytest.mark.parametrize(("steps", "length"), [(1, 3), (2, 3), (2, 4), (3, 3)])
def test_alpha_beta_decides_while_heads_of_equal_snakes_may_meet(steps: int, length: int) -> None:
    snakes = [Snake("a", [(4, y) for y in (5, 4, 3)]), Snake("b", [(4 + steps, 5)] * length)]
    board = Board.from_state(State(9, 11, 11, snakes), Game("standard"))
    board.you_id = "a"
    assert (sum(visits(board, 100)) == 0) == (steps == 2 and length == 3)


CONTESTED_FOOD = """
turn=7
. . . . . . . . . . .
. . . . . v . . . . .
. . . . . v . . . . .
. . . . . v . . . . .
. . > > v B . . . . .
. . . . C * . . . . .
. . . . . A . . v . .
. . . . . ^ . . > v .
. . . . . ^ . . . D .
. . . . . ^ . . . . .
. . . . . . . . . . .
C: you
"""


def test_it_does_not_rely_on_equal_opponents_to_yield() -> None:
    board = Board.from_text(CONTESTED_FOOD)
    assert champion(2000)(board).move != "right"
    tree = Tree(board, load_builtin(), 120)
    assert visits(board, 120) == tuple(tree.root.action_stats[board.you.id].visits)


def test_without_an_evaluation_or_with_exact_scores_it_is_refused() -> None:
    with pytest.raises(ValueError, match="evaluation"):
        Search(decoupled=True)
    with pytest.raises(ValueError, match="scores"):
        Search(evaluation=load_builtin(), exact=True, decoupled=True)


def test_it_says_what_it_expects(four: Board) -> None:
    decision, statistics = champion(5000).search(four)
    assert statistics.depth >= 3
    assert not statistics.proven
    assert 4000 < statistics.leaf_evals <= statistics.nodes + 1 < 5100
    assert decision.line[four.you.id][0] == decision.move
    assert sorted(decision.scores) == sorted(four.safe_moves())
    assert "expected score" in decision.reasons[0].note


def test_scores_are_the_mean_values_of_the_moves(four: Board) -> None:
    decision, _ = champion(300).search(four)
    stats = Tree(four, load_builtin(), 300).root.action_stats[four.you.id]
    for move, score in decision.scores.items():
        index = MOVES.index(move)
        mean = stats.sum[index] / stats.visits[index] if stats.visits[index] else stats.value
        assert score_to_probability(score) == pytest.approx(mean, abs=0.002)


def test_it_goes_on_when_the_tree_is_full(four: Board) -> None:
    decision, statistics = champion(800_000).search(four)
    assert statistics.nodes > 700_000  # 64 MB hold about 500,000 positions with four snakes
    assert decision.move in four.safe_moves()


def test_it_keeps_to_its_time_and_to_its_depth(four: Board) -> None:
    began = time.process_time()
    _, statistics = champion().search(four, seconds=0.05)
    assert time.process_time() - began < 1
    assert statistics.nodes > 500
    shallow = Search(evaluation=load_builtin(), nodes=500, max_depth=2, decoupled=True)
    assert shallow.search(four)[1].depth == 2


def test_a_single_move_is_answered_at_once() -> None:
    forced = (b for b in positions("standard", 7, 4) if len(b.living) > 2)
    board = next(board for board in forced if len(board.safe_moves()) == 1)
    decision, statistics = champion().search(board, seconds=600)
    assert [decision.move] == board.safe_moves()
    assert statistics.nodes < 10


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[0] != "constrictor"], ids=str)
def test_a_search_continues_the_tree_of_the_turn_before(kind: tuple[str, int, int]) -> None:
    board = next(board for board in positions(*kind, wanted=200) if sum(visits(board, 9)))
    tree, continued = Tree(board, load_builtin(), 0), 0
    for _ in range(4):
        board, before = tree.root.board, tree.root.visits
        found = visits(board, seconds=0.0005)
        for _ in range(100):  # A slow or busy machine needs several searches.
            if sum(found) < 64:
                found = visits(board, seconds=0.0005)
        while tree.root.visits < sum(found):
            tree.simulate()
        assert found == tuple(tree.root.action_stats[board.you.id].visits)
        continued += before > 0
        tree.root = max(tree.root.children.values(), key=lambda child: child.visits)
        if len(tree.root.board.living) < len(tree.ids):
            break
    assert continued > 1


def _after_first_moves(board: Board) -> Board:
    """Return the position after a search of ``board`` and the moves that it expects."""
    line = champion().search(board, seconds=0.01)[0].line
    after = board.without_seed()
    after.advance({snake.id: line[snake.id][0] for snake in board.living})
    return after


def test_a_search_forgets_the_tree_if_the_position_is_another(four: Board) -> None:
    after = _after_first_moves(four)
    assert sum(visits(after, seconds=1e-9)) > 10  # the same position
    free = next(
        cell for cell in ((x, y) for x in range(11) for y in range(11))
        if cell not in after.food and all(cell not in snake.body for snake in after.living)
    )  # fmt: skip
    after = _after_first_moves(four)
    after.food.append(free)
    assert sum(visits(after, seconds=1e-9)) == 1  # with new food
    after = _after_first_moves(four)
    after.living[1].health -= 1
    assert sum(visits(after, seconds=1e-9)) == 1
    other = next(snake.id for snake in four.living if snake.id != four.you.id)
    after = dataclasses.replace(_after_first_moves(four), you_id=other)
    assert sum(visits(after, seconds=1e-9)) == 1


def test_searches_of_threads_share_the_kept_trees(four: Board) -> None:
    def play(_: int) -> None:
        board, strategy = four.without_seed(), champion()
        for _ in range(30):
            decision = strategy(board, seconds=0.0005)
            assert decision.move in board.safe_moves()
            if not all(decision.line[snake.id] for snake in board.living):
                return
            board.advance({snake.id: decision.line[snake.id][0] for snake in board.living})
            if len(board.living) < 3 or not board.you.alive or not board.safe_moves():
                return

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(play, range(40)))


def test_searches_side_by_side_choose_together(four: Board) -> None:
    SEARCH_CORES.configure(2)
    decision, statistics = champion().search(four, seconds=0.1)
    assert decision.move in four.safe_moves()
    assert statistics.nodes > 500
    assert visits(four, 3000, 1) != visits(four, 3000, 2)


def test_pondering_goes_on_with_the_tree(four: Board) -> None:
    strategy = champion()
    decision, _ = strategy.search(four, seconds=0.001)
    begun = sum(visits(four, seconds=1e-9))
    strategy.ponder(four, decision, seconds=0.1)
    pondered = sum(visits(four, seconds=1e-9))
    assert pondered > begun + 500
    after = four.without_seed()
    after.advance({snake.id: decision.line[snake.id][0] for snake in four.living})
    assert pondered > sum(visits(after, seconds=1e-9)) > 10


@pytest.mark.parametrize("case", ["view", "long"])
def test_nothing_is_pondered_that_no_search_continues(four: Board, case: str) -> None:
    if case == "view":
        four.game = dataclasses.replace(four.game, settings=Settings(view_radius=3))
    else:
        four.living[1].body *= 300
    decision = champion(100)(four)
    began = time.monotonic()
    champion().ponder(four, decision, seconds=60)
    assert time.monotonic() - began < 30


def test_interrupted_pondering_keeps_the_tree(four: Board) -> None:
    decision = champion(100)(four)
    begun = sum(visits(four, seconds=1e-9))
    polls = iter([False, True])
    before = SHOULD_STOP.set(lambda: next(polls))
    try:
        champion().ponder(four, decision, seconds=600)
    finally:
        SHOULD_STOP.reset(before)
    assert sum(visits(four, seconds=1e-9)) > begun + 60


def test_games_between_both_kinds_of_search_are_played_to_their_end() -> None:
    coupled = SearchPlayer(evaluation=load_builtin(), nodes=50)
    decoupled = dataclasses.replace(coupled, decoupled=True)
    setup = SelfPlaySettings(num_snakes=4, random_opening_turns=4, random_move_fraction=0.0)
    played = [play_game(5, setup, players) for players in ([decoupled, coupled] * 2, [coupled] * 4)]
    assert all(one.points.sum() == pytest.approx(1) for one in played)
    assert not np.array_equal(played[0].rows["move"][:200], played[1].rows["move"][:200])


def test_root_noise_changes_the_visits_and_repeats_with_the_seed() -> None:
    plain = SearchPlayer(evaluation=load_builtin(), nodes=60, decoupled=True)
    setup = SelfPlaySettings(7, 7, 3, random_move_fraction=0.0, max_turns=40)
    none, noisy, again, other = (
        play_game(seed, setup, [dataclasses.replace(plain, root_noise=noise)] * 3).rows
        for seed, noise in ((3, 0.0), (3, 0.5), (3, 0.5), (4, 0.5))
    )
    assert np.array_equal(noisy, again)
    assert not np.array_equal(none["visits"][:40], noisy["visits"][:40])
    assert not np.array_equal(other["visits"][:40], noisy["visits"][:40])
    with pytest.raises(ValueError, match=r"root_noise.* 0.* 1"):
        play_game(3, setup, [dataclasses.replace(plain, root_noise=1.5)] * 3)


def test_root_noise_is_uniform_on_the_simplex() -> None:
    """With priors of noise alone, no move of a snake with three moves is preferred."""
    player = SearchPlayer(
        evaluation=load_builtin(), nodes=30, decoupled=True, root_noise=1.0, shared_tree=True
    )
    setup = SelfPlaySettings(
        19, 19, 4, random_opening_turns=0, random_move_fraction=0.0, max_turns=12
    )
    rows = np.concatenate([play_game(seed, setup, [player] * 4).rows for seed in range(1, 61)])
    free = rows["visits"][(rows["visits"] > 0).sum(1) == 3] / 255
    assert len(free) > 1000
    # The largest of three uniform spacings has the mean 11/18.
    assert free.max(1).mean() == pytest.approx(11 / 18, abs=0.1)


def test_snakes_with_equal_players_share_one_search_per_turn() -> None:
    alone = SearchPlayer(evaluation=load_builtin(), nodes=80, decoupled=True)
    shared = dataclasses.replace(alone, shared_tree=True)
    opponent = dataclasses.replace(shared, nodes=81)
    setup = SelfPlaySettings(
        num_snakes=4, random_opening_turns=0, random_move_fraction=0.0, max_turns=1
    )
    each = play_game(7, setup, [alone] * 4).rows
    together = play_game(7, setup, [shared] * 4).rows
    for rows in (together, play_game(7, setup, [shared, opponent] * 2).rows):
        assert (rows["inputs"] == each["inputs"]).all()
        assert (rows["visits"].sum(1) > 250).all()
        # The tree is that of the first snake, so the first row does not change.
        assert rows[0] == together[0]
    assert together[0]["value"] != each[0]["value"], "all snakes explore equally in a shared tree"
    values = 1 / (1 + np.exp(-together["value"] / 10_000))
    assert values.sum() == pytest.approx(1, abs=0.1), "the values of one tree sum to one"

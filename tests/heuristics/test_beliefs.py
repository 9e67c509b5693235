"""Searches with limited view: the positions that they draw, and their moves."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import HIDDEN_CELL, limit_view
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.builtin_snakes import champion
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.beliefs import Beliefs

SAMPLES = 3


def start(seed: int, radius: int | None = 3, snakes: int = 4, **changes: Any) -> Board:
    rules = Settings(view_radius=radius, food_spawn_chance=30)
    game = Game(seed=seed, settings=rules, id=f"night {seed}", **changes)
    return Board.new(11, 11, snakes, game=game)


def seen_by(board: Board, snake_id: str) -> Board:
    board.you_id = snake_id
    return board.limited()


def play_randomly(board: Board, rng: random.Random) -> None:
    board.step({s.id: rng.choice(board.safe_moves(s.id) or ["up"]) for s in board.living})


def request(board: Board, radius: int) -> Any:
    """What ``you`` is sent, without the fields that no snake uses."""
    sent = limit_view(board.to_api(), radius)
    snakes = [(s["id"], s["health"], s["length"], s["body"]) for s in sent["board"]["snakes"]]
    return snakes, sorted((f["x"], f["y"]) for f in sent["board"]["food"])


@pytest.mark.parametrize("ruleset", ["standard", "wrapped", "constrictor", "royale"])
@pytest.mark.parametrize("snakes", [2, 4])
def test_each_sample_has_the_view_that_was_received(ruleset: str, snakes: int) -> None:
    checked = 0
    for seed in (1, 2, 3, 4, 19):  # With radius 20, all snakes are visible.
        radius = 1 + seed
        board, rng = start(seed, radius, snakes, ruleset=ruleset), random.Random(seed)
        minds = {snake.id: Beliefs() for snake in board.snakes}
        while not board.is_over() and board.turn < 60:
            for snake in board.living:
                seen = seen_by(board, snake.id)
                expected = request(board, radius)
                for sample in minds[snake.id].sample(seen, SAMPLES):
                    assert request(sample, radius) == expected
                    assert all(0 < s.health <= 100 for s in sample.living)
                    checked += 1
            play_randomly(board, rng)
    assert checked > 200


def duel(me: list[tuple[int, int]], it: list[tuple[int, int]], turn: int, **changes: Any) -> Board:
    board = start(1, 2, snakes=2)
    board.snakes[0].body, board.snakes[1].body = me, it
    board.turn, board.food = turn, []
    for name, value in changes.items():
        setattr(board, name, value)
    return seen_by(board, "snake_0")


LONG = [(7, 9), (7, 8), (7, 7), (7, 6), (7, 5), (7, 4)]


def test_an_opponent_keeps_its_length_and_its_body_when_it_leaves_the_view() -> None:
    mind, board = Beliefs(), start(1, 9, snakes=2)
    board.snakes[0].body, board.snakes[1].body = [(7, 2), (6, 2), (5, 2)], LONG[:]
    board.snakes[1].health, board.food = 80, []
    mind.sample(seen_by(board, "snake_0"), SAMPLES)
    hidden = replace(board.game, settings=replace(board.game.settings, view_radius=2))
    board.game = hidden
    for turn in range(1, 4):
        board.step({"snake_0": "left" if turn > 1 else "down", "snake_1": "left"})
        samples = mind.sample(seen_by(board, "snake_0"), 30)
        assert {sample.snake("snake_1").length for sample in samples} == {6}
        heads = {sample.snake("snake_1").head for sample in samples}
        assert all(abs(x - 7) + abs(y - 9) <= turn for x, y in heads)
        assert any(sample.snake("snake_1").body[turn:] == LONG[:-turn] for sample in samples)
    assert len(heads) > 3


def listing_stacks_once(board: Board, snake_id: str, radius: int) -> Board:
    """The position that ``snake_id`` receives from engines that list stacked segments once."""
    sent = limit_view(board.to_api(snake_id), radius)
    for snake in (*sent["board"]["snakes"], sent["you"]):
        snake["body"] = [cell for cell, _ in itertools.groupby(snake["body"])]
    return Board.from_api(sent)


def test_an_opponent_that_eats_is_remembered_if_stacked_segments_are_listed_once() -> None:
    board, mind = start(1, 4, snakes=2), Beliefs()
    board.snakes[0].body = [(7, 2), (8, 2), (9, 2)]
    board.snakes[1].body = [(6, 4), (6, 5), (6, 6), (5, 6), (4, 6), (4, 5), (4, 4), (4, 3)]
    board.snakes[1].health, board.food = 60, [(5, 4)]
    mind.sample(listing_stacks_once(board, "snake_0", 20), SAMPLES)  # every segment is visible
    for turn, moves in enumerate([("up", "left"), ("right", "down"), ("right", "down")], 1):
        board.step({"snake_0": moves[0], "snake_1": moves[1]})
        board.food = []
        samples = mind.sample(listing_stacks_once(board, "snake_0", 4), 30)
        found = {(s.snake("snake_1").health, *s.snake("snake_1").body) for s in samples}
        assert (101 - turn, *board.snake("snake_1").body) in found


def test_samples_contain_remembered_food_that_no_opponent_ate() -> None:
    mind = Beliefs()
    me, it = [(1, 1), (1, 2), (1, 3)], [(9, 9), (9, 8), (9, 7)]
    mind.sample(duel(me, it, 0, food=[(8, 9), (4, 4)]), SAMPLES)
    mind.sample(duel([(0, 1), (1, 1), (1, 2)], it, 1), SAMPLES)
    unseen = duel([(0, 2), (0, 1), (1, 1)], it, 2)
    left = {(len(s.food), s.snake("snake_1").length) for s in mind.sample(unseen, 100)}
    assert left == {(2, 3), (1, 4)}


def test_food_that_vanished_was_eaten_by_the_only_opponent() -> None:
    mind, it = Beliefs(), [(9, 9), (9, 8), (9, 7)]
    path = [(1, 5), (2, 5), (3, 5), (3, 4), (2, 4), (1, 4), (1, 5), (1, 6), (2, 6), (2, 5), (3, 5)]
    lengths = []
    for turn in range(9):
        board = duel(path[turn : turn + 3][::-1], it, turn, food=[] if turn else [(5, 5)])
        samples = mind.sample(board, 60)
        lengths.append({sample.snake("snake_1").length for sample in samples})
    assert lengths[:2] == [{3}, {3}]
    assert lengths[2:8] == [{3, 4}] * 6
    assert lengths[8] == {4}, "the cell of the food is visible on the first and the last turn"


def test_a_memory_that_begins_in_the_middle_draws_a_snake_as_long_as_you() -> None:
    me = [(1, y) for y in range(1, 9)]
    board = duel(me, [(9, 9), (9, 8), (9, 7)], 70)
    samples = Beliefs().sample(board, 40)
    assert len({sample.snake("snake_1").head for sample in samples}) > 10
    assert {sample.snake("snake_1").length for sample in samples} == {8}


def test_the_memory_for_snakes_as_long_as_you_is_bounded() -> None:
    board = start(3, radius=0, snakes=8)
    board.turn, board.you_id = 9, "snake_0"
    board.you.body = [board.you.head] * 600
    mind = Beliefs()
    mind.sample(board.limited(), SAMPLES)
    assert sum(len(one.body) for found in mind._hypotheses.values() for one in found) < 10_000


def test_repeated_and_late_requests_do_not_change_later_samples() -> None:
    board, rng = start(3), random.Random(3)
    seen = []
    for _ in range(12):
        seen.append(seen_by(board, "snake_0"))
        play_randomly(board, rng)
    straight, disturbed = Beliefs(), Beliefs()
    for number, view in enumerate(seen):
        expected = straight.sample(view, SAMPLES)
        assert disturbed.sample(view, SAMPLES) == expected
        assert disturbed.sample(view, SAMPLES) == expected
        late = seen[number // 2]
        for sample in disturbed.sample(late, SAMPLES):
            assert request(sample, 3) == request(late, 3)


def test_another_game_or_snake_begins_a_new_memory() -> None:
    before, after = start(3), start(3)
    play_randomly(after, random.Random(3))
    other = after.copy()
    other.game = replace(other.game, id="another night")
    for view in (seen_by(after.copy(), "snake_1"), seen_by(other, "snake_0")):
        mind = Beliefs()
        mind.sample(seen_by(before, "snake_0"), SAMPLES)
        assert mind.sample(view, SAMPLES) == Beliefs().sample(view, SAMPLES)


cells = st.tuples(st.integers(0, 6), st.integers(0, 6))
hidden_cells = st.sampled_from([None, HIDDEN_CELL])
sent_cells = st.one_of(cells.map(lambda cell: {"x": cell[0], "y": cell[1]}), hidden_cells)


@settings(max_examples=150, deadline=None)
@given(
    views=st.lists(
        st.tuples(
            st.lists(cells, min_size=1, max_size=5),
            st.lists(st.lists(sent_cells, min_size=1, max_size=6), max_size=3),
            st.lists(cells, max_size=3),
            st.integers(0, 3),
            st.integers(0, 6),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_impossible_requests_get_a_move(views: Any) -> None:
    """Bodies overlap and jump, snakes appear and vanish, and turns repeat."""
    snake = champion(0)
    snake.set_nodes(8)
    for own, others, food, turn, radius in views:
        points = [{"x": x, "y": y} for x, y in own]
        you = {"id": "me", "health": 50, "length": len(own), "head": points[0], "body": points}
        sent = [{"id": str(n), "health": 0, "body": body} for n, body in enumerate(others)]
        board = Board.from_api(
            {
                "game": {"ruleset": {"settings": {"viewRadius": radius}}},
                "turn": turn,
                "board": {
                    "width": 7,
                    "height": 7,
                    "food": [{"x": x, "y": y} for x, y in food],
                    "snakes": [you, *sent],
                },
                "you": you,
            },
            errors=[],
        )
        assert snake(board).move in ("up", "down", "left", "right")


def positions(radius: int | None, seed: int, turns: int = 25) -> list[Board]:
    board, rng = start(seed, radius), random.Random(seed)
    seen = []
    while not board.is_over() and board.turn < turns and board.snakes[0].alive:
        seen.append(seen_by(board, "snake_0").copy())
        play_randomly(board, rng)
    return seen


def small_champion() -> search.Search:
    snake = champion(0)
    snake.set_nodes(60)
    return snake


@pytest.mark.parametrize("radius", [None, 30])
def test_if_nothing_is_hidden_the_decisions_do_not_change(radius: int | None) -> None:
    """The health of the opponents, which no request with a radius contains, is known too."""
    snake, plain = small_champion(), small_champion()
    for seen, complete in zip(positions(radius, 5), positions(None, 5), strict=True):
        assert snake(seen) == plain.search(complete)[0]


def test_interleaved_games_get_the_moves_of_each_game_alone() -> None:
    games = [positions(3, seed) for seed in range(1, 5)]
    alone = [[snake(board) for board in game] for game in games for snake in [small_champion()]]
    together = [small_champion() for _ in games]
    moves: list[list[Decision]] = [[] for _ in games]
    for turn in range(max(map(len, games))):
        for number, game in enumerate(games):
            if turn < len(game):
                moves[number].append(together[number](game[turn]))
    assert moves == alone
    assert any("samples" in one.reasons[0].note for game in moves for one in game)


class Clock:
    """A clock that the fake search advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("used", [1.0, 1.5, 20.0])
def test_the_samples_share_the_time_of_a_move(used: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search takes ``used`` times its budget."""
    clock, snake, budgets = Clock(), small_champion(), []

    def fake(board: Board, seconds: float, nodes: int) -> Any:
        budgets.append(seconds)
        clock.now += used * seconds
        return Decision("up", scores={"up": 1.0}), None

    monkeypatch.setattr(search, "_clock", clock)
    monkeypatch.setattr(snake, "search", fake)
    snake(positions(2, 1)[9], 0.4)
    assert sum(budgets) <= 0.4 + 1e-9
    assert len(budgets) == (1 if used == 20 else 4)
    assert budgets[0] == pytest.approx(0.1)


def combine(monkeypatch: pytest.MonkeyPatch, decide: Callable[[int], Decision]) -> Decision:
    """Return the decision if ``decide`` gives the decision of each of the four samples."""
    snake, calls = small_champion(), iter(range(4))
    monkeypatch.setattr(snake, "search", lambda *_: (decide(next(calls)), None))
    return snake(positions(2, 1)[9])


def test_a_move_that_loses_in_one_sample_is_worse_than_a_good_move_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decide(sample: int) -> Decision:
        return Decision("up", scores={"left": 4.0} | ({"up": 6.0} if sample else {}))

    decision = combine(monkeypatch, decide)
    assert decision.move == "left"
    assert decision.scores["left"] == pytest.approx(4.0)
    assert decision.scores["up"] < 3


def test_if_all_moves_lose_the_samples_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = {"left": -900.0, "down": -900.0}
    assert combine(monkeypatch, lambda sample: Decision("down", scores=lost)).move == "down"

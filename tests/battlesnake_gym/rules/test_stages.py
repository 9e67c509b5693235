"""Each rule on boards made for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym import rules
from battlesnake_gym.rules import Game, Point, RulesError, Settings, Snake, State
from battlesnake_gym.rules.stages import default_move

BARE = Game(map="", settings=Settings(food_spawn_chance=0, minimum_food=0))


def board(*bodies: list[Point], size: int = 11, turn: int = 5) -> State:
    """A board of snakes a, b, c, ... with full health."""
    snakes = [Snake("abcdefgh"[i], list(body)) for i, body in enumerate(bodies)]
    return State(turn, size, size, snakes)


def line(head: Point, length: int, dx: int = 0, dy: int = -1) -> list[Point]:
    """A straight body; by default it extends down from the head."""
    return [(head[0] + i * dx, head[1] + i * dy) for i in range(length)]


def play(state: State, *moves: str, game: Game = BARE) -> State:
    rules.step(
        game, state, {snake.id: move for snake, move in zip(state.snakes, moves, strict=True)}
    )
    return state


class TestMove:
    @pytest.mark.parametrize(
        ("body", "move"),
        [
            ([(5, 5), (5, 4)], "up"),
            ([(5, 5), (5, 6)], "down"),
            ([(5, 5), (6, 5)], "left"),
            ([(5, 5), (4, 5)], "right"),
            ([(5, 5), (5, 5)], "up"),
            ([(0, 5), (10, 5)], "right"),
            ([(10, 5), (0, 5)], "left"),
            ([(5, 0), (5, 10)], "up"),
            ([(5, 10), (5, 0)], "down"),
            ([(0, 0), (10, 10)], "right"),
            ([(5, 5), (7, 7)], "up"),
            ([(5, 5)], "up"),
        ],
    )
    def test_default_move(self, body: list[Point], move: str) -> None:
        assert default_move(body) == move

    @pytest.mark.parametrize("answer", ["", "UP", "nope", "left "])
    def test_invalid_moves_go_straight_ahead(self, answer: str) -> None:
        state = play(board(line((5, 5), 3, dx=-1, dy=0), line((9, 9), 3)), answer, "up")
        assert state.snakes[0].head == (6, 5)

    def test_every_living_snake_needs_a_move(self) -> None:
        state = board(line((5, 5), 3), line((9, 9), 3))
        with pytest.raises(RulesError, match="'b'"):
            rules.step(BARE, state, {"a": "up"})
        assert state == board(line((5, 5), 3), line((9, 9), 3))

    def test_without_any_move_only_the_turn_number_changes(self) -> None:
        state = board(line((5, 5), 3), line((9, 9), 3))
        rules.step(BARE, state, {})
        assert [snake.head for snake in state.snakes] == [(5, 5), (9, 9)]
        assert [snake.health for snake in state.snakes] == [99, 99]


class TestFood:
    def test_duplicate_food_grows_twice(self) -> None:
        state = board(line((5, 5), 3), line((8, 8), 3))
        state.food = [(5, 6), (5, 6)]
        play(state, "up", "up")
        assert state.snakes[0].length == 5


class TestRoyale:
    @pytest.mark.parametrize("every", [0, -1])
    def test_a_shrink_interval_below_1_is_rejected(self, every: int) -> None:
        game = Game("royale", "", Settings(shrink_every_n_turns=every))
        state = board([(5, 5)] * 3, [(7, 7)] * 3)
        with pytest.raises(RulesError, match=rf"shrink_every_n_turns.* 1 .*{every}\b"):
            play(state, "up", "up", game=game)
        assert state == board([(5, 5)] * 3, [(7, 7)] * 3)


class TestRulesets:
    def test_after_the_end_only_the_clock_runs(self) -> None:
        state = board(line((5, 5), 3))
        rules.step(BARE, state, {"a": "up"})
        assert (state.turn, state.snakes[0].head, state.snakes[0].health) == (6, (5, 5), 100)


CELLS = st.tuples(st.integers(0, 6), st.integers(0, 6))
BODIES = st.lists(CELLS, min_size=1, max_size=8)
ANSWERS = st.sampled_from([*rules.MOVES, "", "UP"])


@st.composite
def positions(draw: st.DrawFn) -> State:
    """Arbitrary boards: overlapping bodies, stacks, duplicate food, eliminated snakes."""
    snakes = [
        Snake(f"s{i}", body, draw(st.integers(1, 100)))
        for i, body in enumerate(draw(st.lists(BODIES, min_size=1, max_size=6)))
    ]
    for snake in snakes:
        if draw(st.integers(0, 4)) == 0:
            snake.eliminated_cause, snake.eliminated_on = "hazard", 3
    cells = st.lists(CELLS, max_size=8)
    return State(draw(st.integers(4, 40)), 7, 7, snakes, draw(cells), draw(cells))


@given(positions(), st.sampled_from(sorted(rules.RULESETS)), st.integers(-50, 120), st.data())
def test_invariants_of_every_turn(
    state: State, ruleset: str, damage: int, data: st.DataObject
) -> None:
    game = Game(ruleset, "", Settings(hazard_damage_per_turn=damage), solo=True)
    before = [
        (snake.eliminated_cause, snake.eliminated_on, list(snake.body)) for snake in state.snakes
    ]
    food = list(state.food)
    rules.step(game, state, {snake.id: data.draw(ANSWERS) for snake in state.snakes})
    assert all(0 <= snake.health <= 100 for snake in state.snakes)
    assert all(cell in food for cell in state.food)
    for snake, (cause, turn, body) in zip(state.snakes, before, strict=True):
        if cause:
            assert (snake.eliminated_cause, snake.eliminated_on) == (cause, turn)
            grown = "constrictor" in ruleset and snake.body == [*body, body[-1]]
            assert snake.body == body or grown
        else:
            assert snake.length >= len(body)
            assert snake.body[1 : len(body)] == body[:-1]
            if snake.eliminated_cause:
                assert snake.eliminated_on == state.turn
            elif "constrictor" not in ruleset:
                assert snake.health > 0

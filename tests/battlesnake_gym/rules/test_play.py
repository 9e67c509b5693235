"""Starts on every map, turns on small boards, and rejected input."""

import copy
import itertools

import pytest

from battlesnake_gym import rules
from battlesnake_gym.rules import (
    MAPS,
    Game,
    Point,
    RulesError,
    Settings,
    Snake,
    State,
)
from battlesnake_gym.rules.stages import default_move

IDS = tuple(f"s{i}" for i in range(17))
BARE = Game(map="", settings=Settings(food_spawn_chance=0, minimum_food=0))


def smallest_start(map_id: str, **settings: int) -> tuple[Game, State]:
    """A game on a map's first advertised size with the most snakes it takes, at most two."""
    board_map = MAPS[map_id]
    width, height = board_map.sizes[0]
    ids = IDS[: min(2, board_map.players[1])]
    game = Game(map=map_id, settings=Settings(**settings), seed=11, solo=True)
    return game, rules.start(game, width, height, ids)


class TestStart:
    @pytest.mark.parametrize("map_id", MAPS)
    def test_every_advertised_board_starts(self, map_id: str) -> None:
        board_map = MAPS[map_id]
        for (width, height), count in itertools.product(board_map.sizes, board_map.players):
            if width * height < 121 and count > 8:
                continue  # More snakes than a small board has room for.
            state = rules.start(Game(map=map_id), width, height, IDS[:count])
            heads = [snake.head for snake in state.snakes]
            assert len(set(heads)) == count
            assert not set(heads) & {*state.food}
            assert all(0 <= x < width and 0 <= y < height for x, y in heads + state.food)
            assert state.turn == 0

    @pytest.mark.parametrize(
        ("game", "width", "height", "count", "message"),
        [
            (Game(), 0, 11, 2, r"width.* 1.* 25.* 0"),
            (Game(), 11, 26, 2, r"height.* 1.* 25.* 26"),
            (Game(), 11, 11, 17, r"16.* 17"),
            (Game(), 5, 5, 9, "9 snakes"),
            (Game(), 2, 2, 4, r"2x2.* 4"),
            (Game(map="hz_expand_box"), 3, 4, 1, r"4x4 or more, got 3x4: change the board size"),
            (
                Game(map="nowhere"),
                11,
                11,
                2,
                r"'nowhere'.* `battlesnake-gym maps`",
            ),
            (Game(map=""), 11, 11, 2, "map ''"),
            (Game(seed=0), 11, 11, 2, r"seed.* 64-bit.* 0.* 0"),
            (Game(seed=2**63), 11, 11, 2, r"seed.* 64-bit"),
            (Game("royale", settings=Settings(shrink_every_n_turns=0)), 11, 11, 2, "got 0"),
            (Game(map="royale", settings=Settings(shrink_every_n_turns=-3)), 11, 11, 2, "got -3"),
            (
                Game(map="hz_hazard_pits", settings=Settings(shrink_every_n_turns=0)),
                11,
                11,
                2,
                "got 0",
            ),
            (Game(map="arcade_maze"), 19, 19, 2, r"'arcade_maze'.* 19x21.* 19x19"),
            (Game(map="arcade_maze"), 19, 21, 7, r"1.* 6 snakes.* 7"),
            (Game(map="healing_pools"), 9, 9, 2, r"7x7.* 11x11.* 19x19.* 9x9"),
            (Game(map="solo_maze"), 11, 11, 2, r"1 snake.* 2"),
            (Game(map="solo_maze"), 11, 6, 1, r"7.* 11x6"),
            (Game(map="hz_grow_box"), 11, 3, 1, r"4.* 11x3"),
            (Game(map="hz_inner_wall"), 11, 3, 1, "ring 2"),
        ],
    )
    def test_invalid_starts_are_rejected(
        self, game: Game, width: int, height: int, count: int, message: str
    ) -> None:
        with pytest.raises(RulesError, match=message):
            rules.start(game, width, height, IDS[:count])

    def test_duplicate_snake_ids_are_rejected(self) -> None:
        with pytest.raises(RulesError, match="snake_ids"):
            rules.start(Game(), 11, 11, ["me", "me"])


class TestMaps:
    def test_step_rejects_an_unknown_map(self) -> None:
        state = State(3, 11, 11, [Snake("s0", [(5, 5)] * 3)])
        with pytest.raises(RulesError, match="'nowhere'"):
            rules.step(Game(map="nowhere", solo=True), state, {"s0": "up"})

    def test_scatter_rejects_the_turn_without_a_free_cell_and_changes_nothing(self) -> None:
        game, state = smallest_start("hz_scatter")
        state.turn = 2 * 49
        rules.step(game, copy.deepcopy(state), dict.fromkeys(IDS, "up"))
        state.turn += 1
        before = copy.deepcopy(state)
        with pytest.raises(RulesError, match=r"turn 100 .*hz_scatter"):
            rules.step(game, state, dict.fromkeys(IDS, "up"))
        assert state == before

    def test_an_extreme_maze_level_is_rejected(self) -> None:
        game, state = smallest_start("solo_maze")
        state = rules.start(game, 25, 25, IDS[:1])
        state.food, state.hazards = [], [(0, 0)]
        with pytest.raises(RulesError, match="16777217"):
            rules.step(game, state, {"s0": "right"})


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


def test_the_sizes_that_maps_are_made_for_have_a_middle() -> None:
    sides = {side for one in MAPS.values() for size in one.sizes for side in size}
    assert sides <= {7, 9, 11, 13, 15, 17, 19, 21, 23, 25}

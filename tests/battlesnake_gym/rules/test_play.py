"""Starts and whole games on every map, and rejected input."""

from __future__ import annotations

import copy
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym import rules
from battlesnake_gym.rules import (
    MAPS,
    MOVES,
    RULESETS,
    Game,
    Point,
    RulesError,
    Settings,
    Snake,
    State,
)
from battlesnake_gym.rules.maps import solo_maze

IDS = tuple(f"s{i}" for i in range(17))


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

    @pytest.mark.parametrize(
        ("before", "level", "bits"),
        [
            ([(6, 0)], 2, [(5, 0)]),
            ([(x, 0) for x in range(1, 7)], 64, [(0, 0)]),
            # 128 has eight digits for seven cells: the first one is at the left border, where the
            # following turns read it as 64.
            ([(x, 0) for x in range(7)], 128, [(0, 0)]),
            ([(0, 0)], 65, [(0, 0), (6, 0)]),
            # Cells off the board are not part of the number.
            ([(-1, 0), (5, 0), (7, 0)], 3, [(5, 0), (6, 0)]),
        ],
    )
    def test_the_bottom_row_stores_the_level_of_a_maze(
        self, before: list[Point], level: int, bits: list[Point]
    ) -> None:
        game, state = smallest_start("solo_maze")
        state.food, state.hazards = [], before
        rules.step(game, state, {"s0": "up"})
        assert state.snakes[0].length == level + 3
        assert [cell for cell in state.hazards if cell[1] == 0] == bits

    def test_the_last_digits_of_a_long_level_are_off_the_board(self) -> None:
        assert solo_maze.level_cells(0b1000_0001, width=7) == [(0, 0), (7, 0)]
        assert solo_maze.level_cells(0b10_0000_0110, width=7) == [(0, 0), (7, 0), (8, 0)]

    def test_an_extreme_maze_level_is_rejected(self) -> None:
        game, state = smallest_start("solo_maze")
        state = rules.start(game, 25, 25, IDS[:1])
        state.food, state.hazards = [], [(0, 0)]
        with pytest.raises(RulesError, match="16777217"):
            rules.step(game, state, {"s0": "right"})


SIZES = st.integers(1, 25)
SETTINGS = st.builds(
    Settings,
    food_spawn_chance=st.integers(-5, 120),
    minimum_food=st.integers(-1, 12),
    hazard_damage_per_turn=st.integers(-100, 150),
    shrink_every_n_turns=st.integers(0, 12),
)


@given(
    st.builds(
        Game,
        ruleset=st.sampled_from([*RULESETS, "squad"]),
        map=st.sampled_from(sorted(MAPS)),
        settings=SETTINGS,
        seed=st.integers(1, 2**40),
        solo=st.booleans(),
    ),
    SIZES,
    SIZES,
    st.integers(0, 16),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_game_is_rejected_or_reproducible(
    game: Game, width: int, height: int, count: int, advertised: bool, rand: random.Random
) -> None:
    board_map = MAPS[game.map]
    if advertised:
        width, height = rand.choice(board_map.sizes)
        count = rand.randint(*board_map.players)
    try:
        state = rules.start(game, width, height, IDS[:count])
    except RulesError:
        return
    turns = 40
    for _ in range(turns):
        if rules.is_over(game, state):
            break
        moves = {snake_id: rand.choice([*MOVES, "?"]) for snake_id in IDS[:count]}
        twin = copy.deepcopy(state)
        rules.step(game, state, moves)
        rules.step(game, twin, moves)
        assert twin == state
        food_on_board = [0 <= x < width and 0 <= y < height for x, y in state.food]
        assert all(food_on_board)


def test_the_sizes_that_maps_are_made_for_have_a_middle() -> None:
    sides = {side for one in MAPS.values() for size in one.sizes for side in size}
    assert sides <= {7, 9, 11, 13, 15, 17, 19, 21, 23, 25}

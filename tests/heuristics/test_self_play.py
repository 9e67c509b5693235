import dataclasses
from typing import Any

import numpy as np
import pytest

from battlesnake_gym.rules import MOVES, Game, Point, Settings, State, is_over, start, step

pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_gym.boards.board import Board
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Weights, network_inputs
from battlesnake_heuristics.search.self_play import (
    ROW_RANDOM,
    ROW_SEARCHED,
    ROW_SEARCHED_RANDOM,
    SearchPlayer,
    SelfPlayBatch,
    SelfPlayGame,
    SelfPlaySettings,
    play_from_board,
    play_game,
    play_games,
)

QUICK = SearchPlayer(nodes=40)


@pytest.mark.parametrize(
    "setup",
    [
        SelfPlaySettings(num_snakes=2),
        SelfPlaySettings(7, 7, 3),
        SelfPlaySettings(19, 19, 4, max_turns=60),
        SelfPlaySettings(11, 9, 2, max_turns=80),
        SelfPlaySettings(num_snakes=4, ruleset="royale", settings=Settings(shrink_every_n_turns=5)),
        SelfPlaySettings(num_snakes=3, ruleset="wrapped"),
        SelfPlaySettings(num_snakes=2, ruleset="constrictor"),
        SelfPlaySettings(num_snakes=8, ruleset="standard", max_turns=60),
    ],
    ids=lambda setup: f"{setup.ruleset}-{setup.width}-{setup.num_snakes}",
)
def test_its_games_are_those_of_the_rules(setup: SelfPlaySettings) -> None:
    """Every turn is replayed by the rules, with the recorded food."""
    for seed in range(11, 14):
        played = play_game(seed, setup, [QUICK] * setup.num_snakes)
        seats = [str(seat) for seat in range(setup.num_snakes)]
        state = start(
            Game(setup.ruleset, "standard", setup.settings, seed), setup.width, setup.height, seats
        )
        replayed(played, state, Game(setup.ruleset, "", setup.settings, seed))


def replayed(played: SelfPlayGame, state: State, game: Game) -> None:
    ids = [snake.id for snake in state.snakes]
    for turn in range(played.turns):
        rows = played.rows[played.rows["turn"] == turn]
        assert not is_over(game, state)
        assert rows["seat"].tolist() == [i for i, s in enumerate(state.snakes) if s.alive]
        for row in rows:
            board = Board.from_state(state, game, ids[row["seat"]])
            np.testing.assert_array_equal(row["inputs"], network_inputs(board))
        step(game, state, {ids[row["seat"]]: MOVES[row["move"]] for row in rows})
        food = int(rows["food"][0])
        assert (rows["food"] == food).all()
        if food >= 0:
            place_food(state, (food % state.width, food // state.width))
        assert state.food or food < 0
    living = [i for i, snake in enumerate(state.snakes) if snake.alive]
    assert played.finished == is_over(game, state)
    last = living or played.rows["seat"][played.rows["turn"] == played.turns - 1].tolist()
    assert np.flatnonzero(played.points).tolist() == last
    assert played.points.sum() == pytest.approx(1)


MIDWAY = """
turn=38 ruleset=royale shrink_every_n_turns=20 seed=8
.~ > > > A . .
.~ ^ . . . . *
.~ ^ < < . . .
.~ . . ^ . . .
.~ . . . . . B
.~ . . . . . ^
.~ . . . . > ^
A: health=60 length=14
B: health=9 length=9
"""


def test_a_game_goes_on_from_any_position() -> None:
    """Lengths, stacked tails, health, hazards and the turn are taken from the board."""
    board = Board.from_text(MIDWAY)
    rules = dataclasses.replace(board.game, map="")
    moves = {"a": "right", "b": "up"}
    for seed in range(1, 20):
        state = Board.from_state(board, board.game)
        replayed(play_from_board(board, [QUICK] * 2, seed), state, rules)
        played = play_from_board(board, [QUICK] * 2, seed, first_moves=moves)
        state = Board.from_state(board, board.game)
        step(rules, state, moves)
        replayed(played, state, rules)
    first, *_ = play_from_board(board, [QUICK] * 2, 1, node_doublings=3).rows
    assert first == play_from_board(board, [SearchPlayer(nodes=8 * 40)] * 2, 1).rows[0]
    assert played.points.shape == (2,)


def place_food(state: State, cell: Point) -> None:
    living = [snake for snake in state.snakes if snake.alive]
    assert cell not in state.food
    assert all(cell not in snake.body for snake in living)
    assert all(abs(s.head[0] - cell[0]) + abs(s.head[1] - cell[1]) > 1 for s in living)
    state.food.append(cell)


def test_food_comes_as_often_as_the_rules_say() -> None:
    setup = SelfPlaySettings(settings=Settings(food_spawn_chance=50), max_turns=200)
    rows = [play_game(seed, setup, [QUICK] * 2).rows for seed in range(1, 12)]
    first = np.concatenate([r[np.append(True, r["turn"][1:] != r["turn"][:-1])] for r in rows])
    share = (first["food"] >= 0).mean()  # 49%, and always if there is no food
    assert 0.44 < share < 0.60


def test_the_same_seed_plays_the_same_and_another_another() -> None:
    one, again, other = (play_game(seed, SelfPlaySettings(), [QUICK] * 2) for seed in (5, 5, 6))
    assert one.rows.tobytes() == again.rows.tobytes()
    assert one.rows.tobytes() != other.rows.tobytes()


def test_a_move_that_the_search_could_not_score_has_the_value_of_its_position() -> None:
    network = load_builtin()
    for row in play_game(5, SelfPlaySettings(), [SearchPlayer(network, nodes=1)] * 2).rows:
        if row["kind"] != ROW_RANDOM:
            inputs = row["inputs"].tobytes()
            value = _search.evaluate_batch(0, network.network_bytes, inputs, int(row["living"]))
            assert value == row["value"].tobytes()


def test_openings_and_random_moves_are_marked() -> None:
    setup = SelfPlaySettings(random_opening_turns=0, random_move_fraction=0.0)
    assert set(play_game(1, setup, [QUICK] * 2).rows["kind"]) == {ROW_SEARCHED}
    setup = SelfPlaySettings(random_opening_turns=9, random_move_fraction=0.5)
    kinds = np.concatenate([play_game(s, setup, [QUICK] * 2).rows["kind"] for s in range(1, 9)])
    assert {ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM} == set(kinds)


def test_players_change_seats_and_rows_tell_who_played() -> None:
    strong, weak = SearchPlayer(nodes=600), SearchPlayer(nodes=8, weights=Weights(territory=-1000))
    games = play_games(1, SelfPlaySettings(), [strong, weak], num_moves=3000)
    points = np.zeros(2)
    for game in range(len(games.points)):
        those = games.game == game
        seat = {
            int(p): int(s)
            for p, s in zip(games.player[those], games.rows["seat"][those], strict=True)
        }
        assert set(seat) == {0, 1}
        assert seat[0] == game % 2
        points += games.points[game][[seat[0], seat[1]]]
    assert points[0] > 0.9 * points.sum()
    only = games.select_players([1])
    assert set(only.player) == {1}
    assert len(only.rows) == (games.player == 1).sum()


def test_games_of_different_sizes_are_joined() -> None:
    two = play_games(1, SelfPlaySettings(), [QUICK] * 2, num_moves=50)
    three = play_games(1, SelfPlaySettings(num_snakes=3), [QUICK] * 3, num_moves=50)
    both = SelfPlayBatch.concatenate([two, three])
    assert both.points.shape == (len(two.points) + len(three.points), 3)
    assert both.points[:, 2][: len(two.points)].sum() == 0
    assert both.game[-1] == len(both.points) - 1
    assert len(both.rows) == len(two.rows) + len(three.rows)


@pytest.mark.parametrize(
    ("change", "players", "what"),
    [
        ({}, 3, "players"),
        ({"num_snakes": 1}, 1, "players"),
        ({"settings": Settings(minimum_food=0)}, 2, "minimum_food"),
        ({"settings": Settings(view_radius=5)}, 2, "view_radius"),
        ({"max_turns": 0}, 2, "max_turns"),
        ({"random_opening_turns": -1}, 2, "random_opening_turns"),
    ],
)
def test_what_cannot_be_played_is_refused(change: dict[str, Any], players: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        play_game(1, dataclasses.replace(SelfPlaySettings(), **change), [QUICK] * players)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_player_without_a_limit_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="limit"):
        play_game(1, SelfPlaySettings(), [SearchPlayer(nodes=0, seconds=seconds)] * 2)

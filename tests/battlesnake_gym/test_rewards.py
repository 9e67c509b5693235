from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.engine.engine import Games
from battlesnake_gym.mdp.rewards import (
    EVENTS,
    METRICS,
    PRESETS,
    Rewards,
    TurnBatch,
    count_metrics,
    get,
    reversals,
)
from battlesnake_gym.rules import CAUSES, MOVES, Game, Snake, State
from tests.battlesnake_gym.played_games import MAX_TURNS, batches

DEATHS = (
    "hit_wall",
    "hit_other_snake",
    "hit_self",
    "was_eaten",
    "forbidden_move",
    "starved",
    "died_in_hazard",
)


def batch(games: Games, acted: Any, reversed_: Any) -> TurnBatch:
    return TurnBatch(
        acted, reversed_, games.over, games.alive, games.ate, games.cause, games.killer
    )


def play_turn(games: Games, actions: np.ndarray) -> TurnBatch:
    """Step the games and return the turn."""
    acted = games.alive & ~games.over[:, None]
    reversed_ = reversals(actions, games.facing)
    games.step(actions)
    return batch(games, acted, reversed_)


def events_of(
    snakes: list[Snake], moves: dict[str, str], **changes: object
) -> dict[str, dict[str, float]]:
    """Play one turn on 7x7 and return each snake's events with their counts."""
    state = State(9, 7, 7, snakes, **changes)  # type: ignore[arg-type]
    games = Games(1, width=7, height=7, num_snakes=len(snakes), game=Game(map=""))
    games.load(0, state)
    actions = np.array([[MOVES.index(moves[snake.id]) for snake in snakes]], np.uint8)
    turn = play_turn(games, actions)
    counts = {event: read(turn)[0] for event, read in EVENTS.items()}
    return {
        snake.id: {event: float(n[seat]) for event, n in counts.items() if n[seat]}
        for seat, snake in enumerate(snakes)
    }


def bystanders() -> list[Snake]:
    return [Snake("x", [(6, 5), (6, 4), (6, 3)]), Snake("y", [(0, 5), (0, 4), (0, 3)])]


UP = {"x": "up", "y": "up"}


def test_another_turn_and_food() -> None:
    happened = events_of(bystanders(), UP, food=[(6, 6)])
    assert happened == {"x": {"another_turn": 1, "ate_food": 1}, "y": {"another_turn": 1}}


def test_a_snake_eliminated_on_food_has_not_eaten() -> None:
    twins = [Snake("me", [(2, 1), (1, 1), (0, 1)]), Snake("it", [(4, 1), (5, 1), (6, 1)])]
    moves = {"me": "right", "it": "left", **UP}
    happened = events_of([*twins, *bystanders()], moves, food=[(3, 1)])
    assert happened["me"] == happened["it"] == {"died": 1, "was_eaten": 1}


def test_wall_and_outliving() -> None:
    fool = Snake("me", [(3, 6), (3, 5), (3, 4)])
    happened = events_of([fool, *bystanders()], {"me": "up", **UP})
    assert happened["me"] == {"died": 1, "hit_wall": 1}
    assert happened["x"] == happened["y"] == {"another_turn": 1, "outlived": 0.5}


def test_hit_self_and_forbidden_move_are_different_deaths() -> None:
    body = [(3, 2), (3, 3), (2, 3), (2, 2), (2, 1)]
    assert events_of([Snake("me", body), *bystanders()], {"me": "left", **UP})["me"] == {
        "died": 1,
        "hit_self": 1,
    }
    assert events_of([Snake("me", body), *bystanders()], {"me": "up", **UP})["me"] == {
        "died": 1,
        "forbidden_move": 1,
    }


def test_head_to_head() -> None:
    small, big = Snake("me", [(2, 1), (1, 1), (0, 1)]), Snake("big", [(4, 1), *[(5, 1)] * 4])
    happened = events_of([small, big, *bystanders()], {"me": "right", "big": "left", **UP})
    assert happened["me"] == {"died": 1, "was_eaten": 1}
    assert happened["big"]["ate_another_snake"] == 1
    twin = Snake("big", [(4, 1), (5, 1), (6, 1)])
    happened = events_of([small, twin, *bystanders()], {"me": "right", "big": "left", **UP})
    # Both are eliminated; an eliminated snake has not eaten.
    assert happened["me"] == happened["big"] == {"died": 1, "was_eaten": 1}


def test_body_collision() -> None:
    fool, wall = Snake("me", [(2, 2), (1, 2), (0, 2)]), Snake("wall", [(3, 3), (3, 2), (3, 1)])
    happened = events_of([fool, wall, *bystanders()], {"me": "right", "wall": "up", **UP})
    assert happened["me"] == {"died": 1, "hit_other_snake": 1}
    assert happened["wall"] == {
        "another_turn": 1,
        "other_snake_hit_body": 1,
        "outlived": pytest.approx(1 / 3),
    }


def test_hunger_and_hazard() -> None:
    hungry = Snake("me", [(3, 2), (3, 1), (3, 0)], health=1)
    happened = events_of([hungry, *bystanders()], {"me": "up", **UP})
    assert happened["me"] == {"died": 1, "starved": 1}
    happened = events_of([hungry, *bystanders()], {"me": "up", **UP}, hazards=[(3, 3)])
    assert happened["me"] == {"died": 1, "died_in_hazard": 1}


def test_winning_and_draw() -> None:
    x, y = bystanders()
    happened = events_of([x, y], {"x": "right", "y": "up"})
    assert happened == {
        "x": {"died": 1, "hit_wall": 1},
        "y": {"another_turn": 1, "won": 1, "outlived": 1},
    }
    # The last eliminated snakes share the eliminations of that turn; there is no winner.
    happened = events_of([x, y], {"x": "right", "y": "left"})
    assert happened == {seat: {"died": 1, "hit_wall": 1, "outlived": 1} for seat in "xy"}


def test_eliminated_snakes_have_no_events() -> None:
    dead = Snake("me", [(3, 6), (3, 5), (3, 4)], eliminated_cause="wall-collision")
    assert events_of([dead, *bystanders()], {"me": "up", **UP})["me"] == {}


@settings(max_examples=60)
@given(batches(), st.integers(0, 2**32), st.integers(1, MAX_TURNS))
def test_every_death_has_one_cause_and_zero_sum_is_zero(
    games: Games, seed: int, turns: int
) -> None:
    random = np.random.default_rng(seed)
    mask = np.ones((3, games.num_snakes, 4), np.bool_)
    for _ in range(turns):
        alive = games.alive & ~games.over[:, None]
        games.action_mask("wall", mask)
        actions = (random.random(mask.shape) * mask).argmax(axis=-1).astype(np.uint8)
        turn = play_turn(games, actions)
        died = alive & ~games.alive
        np.testing.assert_array_equal(
            sum(EVENTS[event](turn).astype(int) for event in DEATHS), died
        )
        np.testing.assert_array_equal(EVENTS["another_turn"](turn) | died, alive)
        np.testing.assert_allclose(get("zero-sum").compute(turn).sum(axis=1), 0, atol=1e-5)
        for read in EVENTS.values():
            assert not read(turn)[~alive].any()
        kills = EVENTS["ate_another_snake"](turn) + EVENTS["other_snake_hit_body"](turn)
        assert kills.sum() <= died.sum()
        assert count_metrics(turn)["Killed_another_snake"] == kills.sum()


def test_metrics_count_events() -> None:
    seats = np.arange(len(CAUSES))
    cause = np.array([seats], np.uint8)
    turn = TurnBatch(
        acted=np.ones_like(cause, np.bool_),
        reversed=np.array([seats == CAUSES.index("snake-self-collision")]),
        over=np.array([True]),
        alive=cause == 0,
        ate=np.zeros_like(cause, np.bool_),
        cause=cause,
        killer=np.zeros_like(cause, np.int8),
    )
    assert count_metrics(turn) == {
        "Snake_hit_wall": 1,
        "Snake_hit_body": 1,
        "Snake_was_eaten": 1,
        "Killed_another_snake": 2,
        "Starved": 1,
        "Forbidden_move": 1,
        "Died_in_hazard": 1,
    }
    assert list(count_metrics(turn)) == list(METRICS)


def test_weights_add_up() -> None:
    games = Games(2, num_snakes=2)
    games.reset(np.array([5, 6]))
    turn = play_turn(games, np.zeros((2, 2), np.uint8))
    rewards = Rewards({"another_turn": 1.5, "died": -1.0}).compute(turn)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == [[1.5, 1.5]] * 2
    assert get("survival").compute(turn).tolist() == [[1.0, 1.0]] * 2
    idle = batch(games, np.zeros((2, 2), np.bool_), turn.reversed)
    assert not get("survival").compute(idle).any()


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str) -> None:
    scheme = get(preset)
    assert scheme == get(PRESETS[preset]) == get(scheme)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("survive", r"'survive'.* survival"),
        (
            {"snake_died": 1},
            "'snake_died'",
        ),
        ({"died": "1"}, r"'died'.* '1'"),
        ({"died": True}, r"'died'.* True"),
        ({"died": float("nan")}, r"'died'.* nan"),
    ],
)
def test_invalid_weights_are_rejected(wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(wrong)  # type: ignore[arg-type]

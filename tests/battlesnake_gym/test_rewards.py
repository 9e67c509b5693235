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


BENT = [(3, 2), (3, 3), (2, 3), (2, 2), (2, 1)]
SMALL = Snake("me", [(2, 1), (1, 1), (0, 1)])
HUNGRY = Snake("me", [(3, 2), (3, 1), (3, 0)], health=1)
TOP = [(3, 6), (3, 5), (3, 4)]
SURVIVES = {"another_turn": 1}


@pytest.mark.parametrize(
    ("snakes", "moves", "changes", "expected"),
    [
        ([], "", {"food": [(6, 6)]}, {"x": {**SURVIVES, "ate_food": 1}, "y": SURVIVES}),
        ([Snake("me", TOP)], "up", {},
         {"x": {**SURVIVES, "outlived": 0.5}, "y": {**SURVIVES, "outlived": 0.5},
          "me": {"died": 1, "hit_wall": 1}}),
        ([Snake("me", BENT)], "left", {}, {"me": {"died": 1, "hit_self": 1}}),
        ([Snake("me", BENT)], "up", {}, {"me": {"died": 1, "forbidden_move": 1}}),
        ([SMALL, Snake("big", [(4, 1), *[(5, 1)] * 4])], "right left", {},
         {"me": {"died": 1, "was_eaten": 1},
          "big": {**SURVIVES, "ate_another_snake": 1, "outlived": pytest.approx(1 / 3)}}),
        # Both are eliminated on food; an eliminated snake has not eaten.
        ([SMALL, Snake("twin", [(4, 1), (5, 1), (6, 1)])], "right left", {"food": [(3, 1)]},
         {"me": {"died": 1, "was_eaten": 1}, "twin": {"died": 1, "was_eaten": 1}}),
        ([Snake("me", [(2, 2), (1, 2), (0, 2)]), Snake("wall", [(3, 3), (3, 2), (3, 1)])],
         "right up", {},
         {"me": {"died": 1, "hit_other_snake": 1},
          "wall": {**SURVIVES, "other_snake_hit_body": 1, "outlived": pytest.approx(1 / 3)}}),
        ([HUNGRY], "up", {}, {"me": {"died": 1, "starved": 1}}),
        ([HUNGRY], "up", {"hazards": [(3, 3)]}, {"me": {"died": 1, "died_in_hazard": 1}}),
        ([Snake("me", TOP, eliminated_cause="wall-collision")], "up", {}, {"me": {}}),
    ],
)  # fmt: skip
def test_events_of_a_turn(
    snakes: list[Snake], moves: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The snakes move beside two others, which move up."""
    named = dict(zip([snake.id for snake in snakes], moves.split(), strict=True))
    happened = events_of([*snakes, *bystanders()], named | {"x": "up", "y": "up"}, **changes)
    assert {name: happened[name] for name in expected} == expected


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

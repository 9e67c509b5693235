import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.engine.engine import Games
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.masks import BODY, HEAD, HEALTH, KINDS, NECK, WALL
from battlesnake_gym.rules import MOVES, Game, Snake, State, step
from tests.battlesnake_gym.played_games import MAX_TURNS, batches, play

STANDARD = Game()
Kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map("+".join)


def moves(kind: str, state: State, game: Game = STANDARD) -> list[str]:
    """The moves allowed to the first snake."""
    mask = masks.action_mask(game, state, state.snakes[0].id, kind)
    return [move for move, allowed in zip(MOVES, mask, strict=True) if allowed]


def corner() -> State:
    """The snake "me" in the lower left corner of a 5x5 board, with a longer snake to its right.

    Its body, from the head: (0, 0), (0, 1), (1, 1), (1, 0).
    """
    own = Snake("me", [(0, 0), (0, 1), (1, 1), (1, 0)])
    return State(7, 5, 5, [own, Snake("big", [(2, 0)] + [(2, y) for y in range(1, 5)])])


def test_kinds_by_hand() -> None:
    state = corner()
    assert moves("none", state) == list(MOVES)
    assert moves("wall", state) == ["up", "right"]
    assert moves("neck", state) == ["down", "left", "right"]
    # To the right is the own tail, which moves away.
    assert moves("body", state) == ["down", "left", "right"]
    assert moves("fatal", state) == ["right"]
    assert moves("head", state) == ["up", "down", "left"]


def test_stacked_tails_stay() -> None:
    state = corner()
    state.snakes[0].body.append((1, 0))
    assert moves("body", state) == ["down", "left"]


def test_a_part_that_allows_no_move_is_skipped() -> None:
    state = corner()
    assert moves("fatal+head", state) == ["right"]
    assert moves("head+fatal", state) == ["up", "down", "left"]
    state.snakes[0].body.append((1, 0))
    assert moves("fatal", state) == list(MOVES)
    assert moves("wall+body", state) == ["up", "right"]


def test_wrapped_boards_have_no_wall() -> None:
    state, game = corner(), Game("wrapped")
    state.snakes[1].body = [(4, 4), (3, 4), (2, 4), (1, 4), (1, 3), (2, 3)]
    assert moves("wall", state, game) == list(MOVES)
    # Below is (0, 4), to the left (4, 0); the head of "big" can reach both.
    assert moves("head", state, game) == ["up", "right"]
    state.snakes[1].body = [(3, 3), (4, 3), (4, 4), (0, 4), (0, 3), (1, 3)]
    assert moves("body", state, game) == ["left", "right"]


def test_equal_lengths_contest_and_shorter_do_not() -> None:
    own, other = Snake("me", [(1, 1), (1, 0), (0, 0)]), Snake("it", [(3, 1), (3, 0), (4, 0)])
    state = State(3, 5, 5, [own, other])
    assert moves("head", state) == ["up", "down", "left"]
    own.body.append((0, 1))
    assert moves("head", state) == list(MOVES)


def test_eliminated_snakes_may_choose_any_move() -> None:
    state = corner()
    state.snakes[0].eliminated_cause = "wall-collision"
    assert moves("fatal+head", state) == list(MOVES)


@settings(max_examples=200)
@given(batches(), Kinds, st.integers(0, 2**32), st.integers(0, MAX_TURNS))
def test_engine_equals_definition(games: Games, kind: str, seed: int, turns: int) -> None:
    mask = np.zeros((3, games.num_snakes, 4), np.bool_)
    for _ in play(games, seed, turns):
        games.action_mask(kind, mask)
        assert mask.any(axis=-1).all()
        for i in range(3):
            position = games.state(i)
            for seat, snake in enumerate(position.snakes):
                expected = masks.action_mask(games.game, position, snake.id, kind)
                np.testing.assert_array_equal(mask[i, seat], expected)
            assert mask[i, len(position.snakes) :].all()


BITS_OF_CAUSE = {
    "wall-collision": WALL,
    "snake-self-collision": BODY,
    "snake-collision": BODY,
    "head-collision": HEAD,
    "hazard": HEALTH,
    "out-of-health": HEALTH | WALL,
}


@settings(max_examples=60)
@given(batches(), st.integers(0, 2**32), st.integers(0, 40), st.sampled_from(MOVES))
def test_faults_are_the_moves_that_the_rules_punish(
    games: Games, seed: int, turns: int, move: str
) -> None:
    for _ in play(games, seed, turns):
        pass
    for i in range(3):
        before = games.state(i)
        players = [snake for snake in before.snakes if snake.alive]
        if games.over[i]:
            continue
        for own in players:
            after = copy.deepcopy(before)
            game = Game(games.game.ruleset, "", games.game.settings, solo=games.game.solo)
            step(game, after, {snake.id: "straight on" for snake in players} | {own.id: move})
            cause = next(snake for snake in after.snakes if snake.id == own.id).eliminated_cause
            found = masks.move_faults(game, before, own.id, move)
            # Every eliminated snake's move had a fault; every fault except body and head is fatal.
            assert not cause or found & BITS_OF_CAUSE[cause]
            assert cause or not found & (WALL | HEALTH)
            if found & NECK and own.length > 2:
                assert cause


@pytest.mark.parametrize("kind", ["walls", "", "wall+", "wall,body"])
def test_unknown_kinds_are_rejected(kind: str) -> None:
    with pytest.raises(ValueError, match="none, wall, neck"):
        masks.check_kind(kind)


def test_unknown_snakes_are_rejected() -> None:
    with pytest.raises(ValueError, match="'you'"):
        masks.action_mask(Game(), corner(), "you", "wall")

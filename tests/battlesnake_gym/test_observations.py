from __future__ import annotations

import json
from collections.abc import Iterable

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym import observations
from battlesnake_gym.engine import NO_MOVE, Games
from battlesnake_gym.observations import MAX_BORDERED, NAMES, PLANES, TURNED, Observation, get
from battlesnake_gym.rules import MOVES, OFFSETS, Game, Snake, State
from tests.battlesnake_gym.played_games import MAX_TURNS, batches, play

Observations = st.builds(Observation, st.sampled_from(NAMES), st.integers(1, 3))


def state(**changes: object) -> State:
    """Three snakes on 5 x 4: "me" heads right; "long" is longer, "short" shorter; one is dead."""
    fields: dict[str, object] = {
        "turn": 42,
        "width": 5,
        "height": 4,
        "snakes": [
            Snake("me", [(2, 1), (1, 1), (0, 1)], health=50),
            Snake("long", [(4, 3), (3, 3), (2, 3), (2, 3)]),
            Snake("short", [(4, 0), (3, 0)]),
            Snake("dead", [(0, 0), (1, 0), (2, 0)], eliminated_cause="wall-collision"),
        ],
        "food": [(0, 3)],
        "hazards": [(0, 0), (0, 0), (1, 3), (2, -3)],
    }
    return State(**(fields | changes))  # type: ignore[arg-type]


def plane(observation: np.ndarray, name: str) -> list[list[int]]:
    """One plane of "planes" as a picture: top row first."""
    return observation[PLANES.index(name)][::-1].tolist()


# -- the definition, plane by plane ----------------------------------------------------------------


def test_planes_by_hand() -> None:
    seen = get("planes").encode(state(), "me")
    z = 0
    assert plane(seen, "board") == [[255] * 5] * 4
    assert plane(seen, "food") == [[255, z, z, z, z], [z] * 5, [z] * 5, [z] * 5]
    assert plane(seen, "hazards") == [[z, 51, z, z, z], [z] * 5, [z] * 5, [102, z, z, z, z]]
    # The tails of "me" and "short" leave; the doubled one of "long" stays.
    assert plane(seen, "blocked") == [
        [z, z, 255, 255, 255],
        [z] * 5,
        [z, 255, 255, z, z],
        [z, z, z, z, 255],
    ]
    assert plane(seen, "turn") == [[10] * 5] * 4
    assert plane(seen, "own_head") == [[z] * 5, [z] * 5, [z, z, 255, z, z], [z] * 5]
    assert plane(seen, "longer_heads") == [[z, z, z, z, 255], [z] * 5, [z] * 5, [z] * 5]
    assert plane(seen, "shorter_heads") == [[z] * 5, [z] * 5, [z] * 5, [z, z, z, z, 255]]
    assert plane(seen, "own_body") == [[z] * 5, [z] * 5, [8, 16, 24, z, z], [z] * 5]
    assert plane(seen, "other_bodies") == [
        [z, z, 16, 24, 32],
        [z] * 5,
        [z] * 5,
        [z, z, z, 8, 16],
    ]
    assert plane(seen, "health") == [[127] * 5] * 4
    assert plane(seen, "length") == [[120] * 5] * 4


def test_equal_length_counts_as_longer() -> None:
    twins = [Snake("a", [(0, 0)] * 3), Snake("b", [(2, 2)] * 3)]
    seen = get("planes").encode(state(snakes=twins), "a")
    assert seen[PLANES.index("longer_heads"), 2, 2] == 255
    assert (seen[PLANES.index("length")] == 128).all()


def test_values_saturate() -> None:
    giant = [(x, y) for y in range(4) for x in (range(5) if y % 2 == 0 else range(4, -1, -1))]
    giant += [giant[-1]] * 40
    lonely = state(turn=5000, snakes=[Snake("me", giant)], hazards=[(0, 0)] * 9)
    seen = get("planes").encode(lonely, "me")
    assert seen[PLANES.index("own_body")].min() == 255
    assert seen[PLANES.index("hazards"), 0, 0] == 255
    assert seen[PLANES.index("turn")].min() == seen[PLANES.index("length")].min() == 255
    numbers = get("flat-num").encode(lonely, "me")[1]
    assert numbers[0, 0] == 5
    assert numbers[3, 0] == 5 * 20


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        ("flat-51s", [50, 50, 250, 0, 0], [0, 0, 0, 50, 250]),
        ("flat-num", [15, 10, 5, 0, 0], [0, 0, 0, 10, 5]),
    ],
)
def test_starter_pack_by_hand(name: str, own: list[int], others: list[int]) -> None:
    seen = get(name).encode(state(), "me")
    assert seen.shape == (7, 4, 5)
    assert seen[0, 3].tolist() == [250, 0, 0, 0, 0]
    assert seen[0].sum() == 250
    assert seen[1, 1].tolist() == own
    assert seen[2, 0].tolist() == others
    assert seen[3, 0].tolist() == [100, 0, 0, 0, 0]
    assert [seen[i].min() for i in (4, 5, 6)] == [seen[i].max() for i in (4, 5, 6)] == [127, 15, 10]


@pytest.mark.parametrize("values", ["51s", "num"])
def test_borders_surround_the_flat_planes(values: str) -> None:
    flat = get(f"flat-{values}").encode(state(), "me")
    bordered = get(f"bordered-{values}").encode(state(), "me")
    largest = get(f"max-bordered-{values}").encode(state(), "me")
    assert bordered.shape == (7, 6, 7)
    assert largest.shape == (7, MAX_BORDERED, MAX_BORDERED)
    assert (bordered[:, 1:-1, 1:-1] == flat).all()
    assert (largest[:, 8:12, 8:13] == flat).all()
    for wider in (bordered, largest):
        # Outside, the first four planes hold the border; the others go on as they are.
        assert wider[:4].sum() == flat[:4].sum() + 255 * 4 * (wider[0].size - flat[0].size)
        assert (wider[4:] == flat[4:, :1, :1]).all()


def test_max_bordered_refuses_larger_boards() -> None:
    with pytest.raises(ValueError, match=r"up to 19 cells a side, got 25 x 25; use 'bordered-num'"):
        get("max-bordered-num").shape(25, 25)


@pytest.mark.parametrize("name", ["centred", "facing"])
def test_own_head_is_in_the_middle(name: str) -> None:
    seen = get(name).encode(state(), "me")
    rows, columns = seen.shape[1:]
    heads = np.argwhere(seen[PLANES.index("own_head")])
    assert heads.tolist() == [[rows // 2, columns // 2]]
    assert (seen[PLANES.index("board")] > 0).sum() == 20
    assert (seen[PLANES.index("health")] == 127).all()


@pytest.mark.parametrize("move", MOVES)
def test_facing_turns_the_neck_below_the_head(move: str) -> None:
    dx, dy = OFFSETS[move]
    body = [(2, 2), (2 - dx, 2 - dy), (2 - 2 * dx, 2 - 2 * dy)]
    left_hand = (2 - dy, 2 + dx)
    board = state(width=5, height=5, snakes=[Snake("me", body)], food=[left_hand], hazards=[])
    seen = get("facing").encode(board, "me")
    assert seen[PLANES.index("own_body"), 2:5, 4].tolist() == [8, 16, 24]
    assert seen[PLANES.index("food"), 4, 3] == 255
    # The network says "left"; the game must move onto the food.
    facing = np.array(observations.facing(board, "me"))
    action = get("facing").absolute_actions(np.array(MOVES.index("left")), facing)
    dx, dy = OFFSETS[MOVES[action]]
    assert (2 + dx, 2 + dy) == left_hand


def test_relative_actions_and_masks_agree() -> None:
    egocentric, absolute = get("facing"), get("planes")
    assert egocentric.relative
    assert not absolute.relative
    facing = np.array([[0, 1], [2, 3]])
    mask = np.random.default_rng(1).random((2, 2, 4)) < 0.5
    turned = egocentric.relative_mask(mask, facing)
    assert (absolute.relative_mask(mask, facing) == mask).all()
    for relative in range(4):
        actions = np.full((2, 2), relative)
        chosen = egocentric.absolute_actions(actions, facing)
        allowed = np.take_along_axis(mask, chosen[..., None].astype(int), -1)[..., 0]
        assert (allowed == turned[..., relative]).all()
        assert (absolute.absolute_actions(actions, facing) == relative).all()
    assert (np.sort(TURNED) == np.arange(4)).all()


def test_a_dead_snake_sees_nothing() -> None:
    out = np.ones(get("planes").shape(5, 4), np.uint8)
    assert get("planes").encode(state(), "dead", out) is out
    assert not out.any()


# -- frames ----------------------------------------------------------------------------------------


def test_frames_are_newest_first_and_begin_with_turn_0() -> None:
    one, two = get("planes"), Observation("planes", frames=2)
    out = np.full(two.shape(5, 4), 7, np.uint8)
    begin, later = state(turn=0), state(turn=1, food=[])
    two.encode(begin, "me", out)
    assert (out[:12] == one.encode(begin, "me")).all()
    assert not out[12:].any()
    two.encode(later, "me", out)
    assert (out[:12] == one.encode(later, "me")).all()
    assert (out[12:] == one.encode(begin, "me")).all()


# -- the engine writes the same bytes --------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(batches(), Observations, st.integers(0, 2**32), st.integers(0, MAX_TURNS))
def test_engine_equals_definition(
    games: Games, observation: Observation, seed: int, turns: int
) -> None:
    boards = [games.state(i) for i in range(3)]
    try:
        shape = observation.shape(
            max(board.width for board in boards), max(board.height for board in boards)
        )
    except ValueError:  # a board too large for max-bordered
        return
    out = np.full((3, games.num_snakes, *shape), 99, np.uint8)
    expected = np.zeros_like(out)
    games.observe(observation, out)
    encode_games(observation, games, range(3), expected)
    np.testing.assert_array_equal(out, expected)
    random = np.random.default_rng(seed)
    position = games.state(0)
    playing = ~games.over
    for turn, _ in enumerate(play(games, seed, turns)):
        if turn:  # before the first one nothing was played
            encode_games(observation, games, np.flatnonzero(playing).tolist(), expected)
            np.testing.assert_array_equal(out, expected)
        # Some begin anew, one goes on from where it was before: their history is new.
        anew = games.over & (random.random(3) < 0.4) | (random.random(3) < 0.03)
        if anew.any():
            games.reset(random.integers(1, 2**60, 3), anew)
        if random.random() < 0.03:
            games.load(0, position)
            anew[0] = True
        expected[anew] = 0
        encode_games(observation, games, np.flatnonzero(anew).tolist(), expected)
        np.testing.assert_array_equal(out, expected)
        playing = ~games.over


def encode_games(
    observation: Observation, games: Games, which: Iterable[int], out: np.ndarray
) -> None:
    """What the definition says of these games."""
    for i in which:
        position = games.state(i)
        for seat, snake in enumerate(position.snakes):
            observation.encode(position, snake.id, out[i, seat])


@pytest.mark.parametrize("name", NAMES)
def test_engine_equals_definition_on_mixed_sizes_and_odd_positions(name: str) -> None:
    observation = get(name)
    giant = [(x, y) for y in range(4) for x in (range(6) if y % 2 == 0 else range(5, -1, -1))]
    positions = [
        state(),
        state(width=6, snakes=[Snake("me", giant + [giant[-1]] * 40)], hazards=[(0, 0)] * 9),
        state(width=8, height=7, turn=5000),
    ]
    games = Games(3, width=[5, 6, 8], height=[4, 4, 7], num_snakes=4, game=Game(map=""))
    out = np.full((3, 4, *observation.shape(8, 7)), 99, np.uint8)
    expected = np.zeros_like(out)
    for i, position in enumerate(positions):
        games.load(i, position)
        for seat, snake in enumerate(position.snakes):
            observation.encode(position, snake.id, expected[i, seat])
    games.observe(observation, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", NAMES)
def test_engine_writes_nothing_outside_its_array(name: str) -> None:
    observation = get(name)
    games = Games(3, width=[3, 5, 7], height=[3, 4, 7], num_snakes=2)
    games.reset(np.array([1, 2, 3]))
    shape = (3, 2, *observation.shape(7, 7))
    size = int(np.prod(shape))
    memory = np.full(size + 128, 77, np.uint8)
    games.observe(observation, memory[64:-64].reshape(shape))
    for _ in range(20):
        games.step(np.full((3, 2), NO_MOVE, np.uint8))
        games.reset(np.array([4, 5, 6]), games.over.copy())
    assert (memory[:64] == 77).all()
    assert (memory[-64:] == 77).all()


# -- names, spaces, errors -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_space_contains_what_is_encoded(name: str) -> None:
    observation = Observation(name, frames=2)
    space = observation.space(5, 4)
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.contains(observation.encode(state(), "me"))


@given(Observations)
def test_dictionary_round_trip(observation: Observation) -> None:
    assert get(json.loads(json.dumps(observation.to_dict()))) == observation
    assert get(observation) is observation


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("plains", "unknown observation 'plains'; choose one of planes, centred, facing, flat-51s"),
        ({"name": "planes", "frames": 0}, "frames must be an integer between 1 and 8, got 0"),
        ({"name": "planes", "frames": True}, "frames must be an integer"),
        ({"name": "planes", "size": 3}, "unknown field of an observation: 'size'"),
        ({"name": "planes", "planes": ["food"]}, "got food; it was stored by another version"),
    ],
)
def test_wrong_names_are_refused(wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(wrong)  # type: ignore[arg-type]


def test_wrong_arrays_and_snakes_are_refused() -> None:
    planes = get("planes")
    with pytest.raises(ValueError, match=r"unknown snake 'you'; on this board are 'me', 'long'"):
        planes.encode(state(), "you")
    with pytest.raises(ValueError, match=r"uint8 array of shape \(12, 4, 5\) or more, got float32"):
        planes.encode(state(), "me", np.zeros((12, 4, 5), np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="too small for a board of 5 x 4"):
        planes.encode(state(), "me", np.zeros((12, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="square of odd side"):
        get("facing").encode(state(), "me", np.zeros((12, 11, 13), np.uint8))
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        planes.shape(0, 5)

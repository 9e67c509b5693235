import json
from collections.abc import Iterable, Iterator

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.engine.engine import NO_MOVE, Games
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.observations import (
    ENCODER_NAMES,
    MAX_BORDERED_SIZE,
    PLANES,
    RELATIVE_TO_ABSOLUTE,
    Observation,
    get,
)
from battlesnake_gym.rules import MOVES, OFFSETS, Game, Snake, State
from tests.battlesnake_gym.played_games import MAX_TURNS, batches, play

Observations = st.builds(Observation, st.sampled_from(ENCODER_NAMES), st.integers(1, 3))


def state(**changes: object) -> State:
    """Three living snakes on 5x4, "me", "long" and "short", and an eliminated one."""
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
    """One plane of "planes" as a picture, top row first."""
    picture: list[list[int]] = observation[PLANES.index(name)][::-1].tolist()
    return picture


def test_planes_by_hand() -> None:
    seen = get("planes").encode(state(), "me")
    z = 0
    assert plane(seen, "board") == [[255] * 5] * 4
    assert plane(seen, "food") == [[255, z, z, z, z], [z] * 5, [z] * 5, [z] * 5]
    assert plane(seen, "hazards") == [[z, 51, z, z, z], [z] * 5, [z] * 5, [102, z, z, z, z]]
    assert plane(seen, "turn") == [[5] * 5] * 4
    assert plane(seen, "health") == [[130] * 5] * 4
    assert plane(seen, "length") == [[6] * 5] * 4
    # The tails of "me" and "short" move away (32); the stacked tail of "long" stays.
    assert plane(seen, "own_body") == [[z] * 5, [z] * 5, [32, 136, 255, z, z], [z] * 5]
    assert plane(seen, "other_bodies") == [
        [z, z, 136, 140, 255],
        [z] * 5,
        [z] * 5,
        [z, z, z, 32, 255],
    ]
    assert plane(seen, "longer_heads") == [[z, z, z, z, 136], [z] * 5, [z] * 5, [z] * 5]
    assert plane(seen, "shorter_heads") == [[z] * 5, [z] * 5, [z] * 5, [z, z, z, z, 136]]


@pytest.mark.parametrize(
    ("difference", "longer", "shorter"),
    [
        (-60, 0, 255),
        (-16, 0, 255),
        (-15, 0, 248),
        (-1, 0, 136),
        (0, 128, 0),
        (1, 136, 0),
        (15, 248, 0),
        (16, 255, 0),
        (60, 255, 0),
    ],
)
def test_heads_encode_the_length_difference(difference: int, longer: int, shorter: int) -> None:
    """A snake of equal length counts as longer: a head-to-head with it is fatal too."""
    lengths = {"a": 70, "b": 70 + difference}
    snakes = [Snake(name, [(x, 1)] * n) for x, (name, n) in enumerate(lengths.items())]
    seen = get("planes").encode(state(snakes=snakes), "a")
    assert seen[PLANES.index("longer_heads"), 1].tolist() == [0, longer, 0, 0, 0]
    assert seen[PLANES.index("shorter_heads"), 1].tolist() == [0, shorter, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("turn", {0: 0, 7: 0, 8: 1, 2039: 254, 2040: 255, 5000: 255}),
        ("length", {1: 2, 3: 6, 127: 254, 128: 255, 400: 255}),
        ("health", {0: 0, 1: 10, 4: 10, 5: 20, 96: 240, 97: 250, 100: 250, 101: 250}),
    ],
)
def test_numbers_are_rounded_and_saturate(name: str, shown: dict[int, int]) -> None:
    for number, value in shown.items():
        body = [(0, 0)] * (number if name == "length" else 3)
        me = Snake("me", body, health=number if name == "health" else 90)
        board = state(turn=number if name == "turn" else 0, snakes=[me])
        seen = get("planes").encode(board, "me")
        assert (seen[PLANES.index(name)] == value).all(), number


def test_bodies_encode_the_turns_until_they_are_free() -> None:
    """The head is 255, cells free after the next turn 32, all others in [128, 224]."""
    line = [(x, 0) for x in range(26)]
    lonely = state(width=26, height=1, snakes=[Snake("me", line)], food=[], hazards=[])
    body = get("planes").encode(lonely, "me")[PLANES.index("own_body"), 0].tolist()
    assert body == [255, 224, 224, *range(220, 132, -4), 32]


def test_a_body_on_one_cell_is_a_head() -> None:
    lonely = state(snakes=[Snake("me", [(2, 1)] * 3), Snake("dot", [(4, 3)])])
    seen = get("planes").encode(lonely, "me")
    for name, cell in (("own_body", (1, 2)), ("other_bodies", (3, 4))):
        assert seen[PLANES.index(name)][cell] == seen[PLANES.index(name)].sum() == 255


def test_starter_pack_and_hazards_saturate() -> None:
    giant = [(x, y) for y in range(4) for x in (range(5) if y % 2 == 0 else range(4, -1, -1))]
    giant += [giant[-1]] * 40
    lonely = state(turn=5000, snakes=[Snake("me", giant)], hazards=[(0, 0)] * 9)
    seen = get("planes").encode(lonely, "me")
    # The tail and all of the body before it are far from leaving.
    assert np.unique(seen[PLANES.index("own_body")]).tolist() == [224, 255]
    assert seen[PLANES.index("hazards"), 0, 0] == 255
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
    assert largest.shape == (7, MAX_BORDERED_SIZE, MAX_BORDERED_SIZE)
    assert (bordered[:, 1:-1, 1:-1] == flat).all()
    assert (largest[:, 8:12, 8:13] == flat).all()
    for wider in (bordered, largest):
        # The first four planes contain the border; the others are unchanged.
        assert wider[:4].sum() == flat[:4].sum() + 255 * 4 * (wider[0].size - flat[0].size)
        assert (wider[4:] == flat[4:, :1, :1]).all()


def test_max_bordered_rejects_larger_boards() -> None:
    with pytest.raises(ValueError, match=r"19.* 25 x 25.* 'bordered-num'"):
        get("max-bordered-num").shape(25, 25)


@pytest.mark.parametrize("name", ["centered", "facing"])
def test_own_head_is_in_the_middle(name: str) -> None:
    seen = get(name).encode(state(), "me")
    rows, columns = seen.shape[1:]
    heads = np.argwhere(seen[PLANES.index("own_body")] == 255)
    assert heads.tolist() == [[rows // 2, columns // 2]]
    off_board = seen[PLANES.index("board")] == 0
    assert (~off_board).sum() == 20
    for number, value in (("turn", 5), ("health", 130), ("length", 6)):
        assert (seen[PLANES.index(number)] == value).all()
        seen[PLANES.index(number)] = 0
    assert not seen[:, off_board].any()


@pytest.mark.parametrize("move", MOVES)
def test_facing_turns_the_neck_below_the_head(move: str) -> None:
    dx, dy = OFFSETS[move]
    body = [(2, 2), (2 - dx, 2 - dy), (2 - 2 * dx, 2 - 2 * dy)]
    left_hand = (2 - dy, 2 + dx)
    board = state(width=5, height=5, snakes=[Snake("me", body)], food=[left_hand], hazards=[])
    seen = get("facing").encode(board, "me")
    assert seen[PLANES.index("own_body"), 2:5, 4].tolist() == [32, 136, 255]
    assert seen[PLANES.index("food"), 4, 3] == 255
    # The network returns "left"; the game must move onto the food.
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
    assert (np.sort(RELATIVE_TO_ABSOLUTE) == np.arange(4)).all()


def test_an_eliminated_snake_observes_zeros() -> None:
    out = np.ones(get("planes").shape(5, 4), np.uint8)
    assert get("planes").encode(state(), "dead", out) is out
    assert not out.any()


def test_stacked_turns_are_newest_first_and_start_with_turn_0() -> None:
    one, two = get("planes"), Observation("planes", frame_stack=2)
    out = np.full(two.shape(5, 4), 7, np.uint8)
    begin, later = state(turn=0), state(turn=1, food=[])
    two.encode(begin, "me", out)
    planes = len(PLANES)
    assert (out[:planes] == one.encode(begin, "me")).all()
    assert not out[planes:].any()
    two.encode(later, "me", out)
    assert (out[:planes] == one.encode(later, "me")).all()
    assert (out[planes:] == one.encode(begin, "me")).all()


@pytest.fixture(scope="module", params=["plain", "avx2", "avx512"])
def vectors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each instruction set of the observation kernel."""
    _engine = pytest.importorskip("battlesnake_gym.engine._engine")
    try:
        _engine.set_observation_isa(request.param)
    except ValueError:
        pytest.skip(f"this processor has no {request.param}")
    assert _engine.get_observation_isa() == request.param
    yield
    _engine.set_observation_isa("best")


def test_an_unknown_instruction_set_is_rejected() -> None:
    _engine = pytest.importorskip("battlesnake_gym.engine._engine")
    with pytest.raises(ValueError, match=r"avx2.* avx512"):
        _engine.set_observation_isa("sse9")
    with pytest.raises(TypeError):
        _engine.set_observation_isa(9)


@pytest.mark.usefixtures("vectors")
@settings(max_examples=200)
@given(batches(), Observations, st.integers(0, 2**32), st.integers(0, MAX_TURNS))
def test_engine_equals_definition(
    games: Games, observation: Observation, seed: int, turns: int
) -> None:
    boards = [games.state(i) for i in range(3)]
    try:
        shape = observation.shape(
            max(board.width for board in boards), max(board.height for board in boards)
        )
    except ValueError:  # The board is too large for max-bordered.
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
        if turn:  # No turn was played before the first one.
            encode_games(observation, games, np.flatnonzero(playing).tolist(), expected)
            np.testing.assert_array_equal(out, expected)
        # Some games restart and one is loaded from an earlier position: their history is new.
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
    """The observations of these games by the Python definition."""
    for i in which:
        position = games.state(i)
        for seat, snake in enumerate(position.snakes):
            observation.encode(position, snake.id, out[i, seat])


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("name", ENCODER_NAMES)
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


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("name", ENCODER_NAMES)
def test_engine_equals_definition_of_long_lives(name: str) -> None:
    """Maximum health, up to 130 segments, length differences of 16 and more."""
    observation = get(name)
    # All snakes follow one path around the board without collisions; two eat first, all starve.
    way = [(x, y if x % 2 == 0 else 14 - y) for x in range(16) for y in range(1, 14)]
    way += [(x, 0) for x in range(15, -1, -1)]
    snakes, food, behind = [], [], 0
    for length, meals in ((126, 4), (7, 0), (22, 4), (40, 0)):
        ahead = behind + length
        snakes.append(Snake(f"{length}", way[behind:ahead][::-1]))
        food += way[ahead : ahead + meals]
        behind = ahead + 6
    begin = State(turn=1960, width=16, height=14, snakes=snakes, food=food)
    games = Games(1, width=16, height=14, num_snakes=4, game=Game(map=""))
    games.load(0, begin)
    out = np.zeros((1, 4, *observation.shape(16, 14)), np.uint8)
    games.observe(observation, out)
    following = dict(zip(way, way[1:] + way[:1], strict=True))
    health, lengths = set(), set()
    while not games.over[0]:
        expected = np.zeros_like(out)
        encode_games(observation, games, [0], expected)
        np.testing.assert_array_equal(out, expected)
        health |= set(games.health[games.alive].tolist())
        lengths |= set(games.length[games.alive].tolist())
        actions = np.full((1, 4), NO_MOVE, np.uint8)
        for seat in np.flatnonzero(games.alive[0]):
            x, y = games.heads[0, seat].tolist()
            to_x, to_y = following[x, y]
            actions[0, seat] = list(OFFSETS.values()).index((to_x - x, to_y - y))
        games.step(actions)
    assert health == set(range(1, 101))
    assert lengths == {*range(126, 131), 7, *range(22, 27), 40}
    assert not out.any()


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("name", ENCODER_NAMES)
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


def test_territory_shows_who_is_first_overall_and_after_each_move() -> None:
    others = Snake("you", [(6, 0), (7, 0), (7, 0)])
    me = Snake("me", [(2, 0), (1, 0), (0, 0)])
    board = State(turn=5, width=8, height=2, snakes=[me, others])
    encoded = get("territory").encode(board, "me")
    seen = {
        name: plane.tolist() for name, plane in zip(get("territory").planes, encoded, strict=True)
    }
    # 255 for the next turn, 8 less for each later one; ties belong to no snake.
    assert seen["own_territory"] == [
        [231, 239, 231, 255, 0, 0, 0, 0],
        [239, 247, 255, 247, 0, 0, 0, 0],
    ]
    assert seen["other_territory"] == [
        [0, 0, 0, 0, 0, 255, 231, 239],
        [0, 0, 0, 0, 0, 247, 255, 247],
    ]
    assert seen["right_territory"] == [
        [215, 223, 231, 255, 0, 0, 0, 0],
        [223, 231, 239, 247, 0, 0, 0, 0],
    ]
    assert seen["up_territory"][1][2] == 255
    nothing = [[0] * 8] * 2
    assert seen["down_territory"] == seen["left_territory"] == nothing


@pytest.mark.parametrize("name", ENCODER_NAMES)
def test_space_contains_what_is_encoded(name: str) -> None:
    observation = Observation(name, frame_stack=2)
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
        ("plains", r"'plains'.* planes"),
        (
            {"name": "planes", "frame_stack": 0},
            r"frame_stack.* 1.* 8.* 0",
        ),
        ({"name": "planes", "frame_stack": True}, "frame_stack"),
        ({"name": "planes", "size": 3}, "'size'"),
        ({"name": "planes", "planes": ["food"]}, "food"),
    ],
)
def test_unknown_names_are_rejected(wrong: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(wrong)  # type: ignore[arg-type]


def test_wrong_arrays_and_snakes_are_rejected() -> None:
    planes = get("planes")
    with pytest.raises(ValueError, match=r"'you'.* 'me'.* 'long'"):
        planes.encode(state(), "you")
    with pytest.raises(ValueError, match=r"uint8.* \(10, 4, 5\).* float32"):
        planes.encode(state(), "me", np.zeros((10, 4, 5), np.float32))
    with pytest.raises(ValueError, match="5 x 4"):
        planes.encode(state(), "me", np.zeros((10, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="odd"):
        get("facing").encode(state(), "me", np.zeros((10, 11, 13), np.uint8))
    with pytest.raises(ValueError, match=r"width.* 1.* 0"):
        planes.shape(0, 5)

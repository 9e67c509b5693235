"""The engine's arrays, its two food streams, rejected input, and the engine in Python."""

import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from battlesnake_gym import rules
from battlesnake_gym.engine import engine
from battlesnake_gym.engine.engine import NO_MOVE, EngineGames
from battlesnake_gym.engine.python_engine import PythonGames
from battlesnake_gym.mdp import observations
from battlesnake_gym.rules import Game, Settings, Snake, State
from battlesnake_gym.rules.food import free_cells

needs_compiled = pytest.mark.skipif(not engine.COMPILED, reason="the compiled part was not built")
ARRAYS = (
    *("turn", "over", "seed", "alive", "health", "length"),
    *("heads", "cause", "killer", "ate", "facing"),
)
Actions = NDArray[np.uint8]


@pytest.fixture(
    params=[pytest.param(EngineGames, marks=needs_compiled, id="fast"),
            pytest.param(PythonGames, id="slow")]
)  # fmt: skip
def games_type(request: pytest.FixtureRequest) -> Any:
    """Both classes of games."""
    return request.param


def random_actions(games: Any, rand: np.random.Generator) -> Actions:
    """Random choices among the moves that do not lose at once."""
    mask = np.zeros((games.num_games, games.num_snakes, 4), np.bool_)
    games.action_mask("fatal", mask)
    chosen: Actions = np.where(mask, rand.random(mask.shape), -1).argmax(-1).astype(np.uint8)
    return chosen


def arrays(games: Any) -> dict[str, NDArray[Any]]:
    return {name: getattr(games, name).copy() for name in ARRAYS}


def assert_same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def lone_state(width: int = 11, height: int = 11, **changes: Any) -> State:
    """A state with one new snake at the lower left."""
    snake = Snake("me", [(1, 1), (1, 0), (0, 0)])
    for name, value in changes.pop("snake", {}).items():
        setattr(snake, name, value)
    return State(0, width, height, [snake], **changes)


def test_before_the_first_reset_everything_is_over(games_type: Any) -> None:
    games = games_type(3, num_snakes=2)
    assert games.over.all()
    assert not games.alive.any()
    games.step(np.zeros((3, 2), np.uint8))
    assert not games.turn.any()


def test_arrays_have_their_types_and_cannot_be_written(games_type: Any) -> None:
    games = games_type(5, num_snakes=3)
    seats = (5, 3)
    expected = {
        "turn": ((5,), np.int32),
        "over": ((5,), np.bool_),
        "seed": ((5,), np.int64),
        "alive": (seats, np.bool_),
        "health": (seats, np.int16),
        "length": (seats, np.int32),
        "heads": ((5, 3, 2), np.int16),
        "cause": (seats, np.uint8),
        "killer": (seats, np.int8),
        "ate": (seats, np.bool_),
        "facing": (seats, np.uint8),
    }
    assert set(expected) == set(ARRAYS)
    for name, (shape, dtype) in expected.items():
        array = getattr(games, name)
        assert (array.shape, array.dtype) == (shape, dtype), name
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 1


@needs_compiled
@pytest.mark.parametrize("map_id", ["standard", "hz_islands_bridges"])
def test_the_python_engine_has_the_same_arrays(map_id: str) -> None:
    game = Game(map=map_id)
    fast = EngineGames(3, game=game, food_rng="official")
    slow = PythonGames(3, game=game, food_rng="official")
    seeds = np.array([5, -6, 7], np.int64)
    rand = np.random.default_rng(1)
    observation = observations.get("planes")
    shape = (3, 4, *observation.shape(11, 11))
    seen = {games: np.zeros(shape, np.uint8) for games in (fast, slow)}
    masks = {games: np.zeros((3, 4, 4), np.bool_) for games in (fast, slow)}
    for games in (fast, slow):
        games.observe(observation, seen[games])
        games.reset(seeds)
    for turn in range(40):
        which = None if turn % 3 else np.array([True, False, True])
        actions = random_actions(fast, rand)
        actions[0, turn % 4] = NO_MOVE
        for games in (fast, slow):
            games.step(actions, which)
            games.action_mask("body", masks[games])
        assert_same(arrays(fast), arrays(slow))
        np.testing.assert_array_equal(seen[fast], seen[slow])
        np.testing.assert_array_equal(masks[fast], masks[slow])
    assert [fast.state(i) for i in range(3)] == [slow.state(i) for i in range(3)]


def test_games_of_one_batch_are_independent() -> None:
    """Games of mixed sizes and numbers of snakes play as each would alone."""
    kinds = [(11, 11, 4), (7, 9, 1), (19, 21, 16), (3, 3, 1), (25, 25, 2), (4, 11, 3)]
    widths, heights, counts = (list(column) for column in zip(*kinds, strict=True))
    game = Game(ruleset="solo")
    batch = engine.Games(6, width=widths, height=heights, num_snakes=counts, game=game)
    alone = [
        engine.Games(1, width=width, height=height, num_snakes=count, game=game)
        for width, height, count in kinds
    ]
    seeds = np.arange(1, 7) * 777
    batch.reset(seeds)
    for i, games in enumerate(alone):
        games.reset(seeds[i : i + 1])
    assert batch.alive.shape == (6, 16)
    rand = np.random.default_rng(5)
    for _ in range(40):
        actions = random_actions(batch, rand)
        batch.step(actions)
        for i, games in enumerate(alone):
            games.step(np.ascontiguousarray(actions[i : i + 1, : counts[i]]))
            assert batch.state(i) == games.state(0)
            assert not batch.alive[i, counts[i] :].any()


def test_threads_may_play_different_games_at_once() -> None:
    def play(seed: int) -> list[State]:
        games = engine.Games(64)
        games.reset(np.arange(1, 65) * seed)
        rand = np.random.default_rng(seed)
        for _ in range(60):
            games.step(random_actions(games, rand))
        return [games.state(i) for i in range(64)]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(play, range(1, 9)))
    assert together == [play(seed) for seed in range(1, 9)]


def test_a_game_may_be_longer_than_the_clock() -> None:
    """Two snakes circle on healing cells: the occupancy marks must stay correct forever."""
    game = Game(map="", settings=Settings(hazard_damage_per_turn=-3))
    cells = [(x, y) for x in range(9) for y in range(4)]
    first = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 0)]
    second = [(5, 0), (6, 0), (7, 0), (8, 0), (8, 1), (8, 2), (8, 3)]
    state = State(0, 9, 4, [Snake("a", first), Snake("b", second)], hazards=cells)
    games = engine.Games(1, width=9, height=4, num_snakes=2, game=game)
    games.load(0, state, game)
    for turn in range(9000):
        moves = {
            snake.id: around(snake.head, 4 if snake.id == "a" else 9) for snake in state.snakes
        }
        rules.step(game, state, moves)
        games.step(np.array([[rules.MOVES.index(move) for move in moves.values()]], np.uint8))
        if turn % 37 == 0:
            assert games.state(0) == state
    assert not games.over[0]


def around(head: tuple[int, int], end: int) -> str:
    """The next move clockwise along the border of the rows and columns before ``end``."""
    x, y = head[0] - (end - 4), head[1]
    if x == 0 and y < 3:
        return "up"
    if y == 3 and x < 3:
        return "right"
    return "down" if x == 3 and y > 0 else "left"


@needs_compiled
@pytest.mark.parametrize("food_rng", ["fast", "official"])
def test_food_appears_with_the_right_probability(food_rng: str) -> None:
    """Food appears in 14 of 100 turns with chance 15; 40,000 rolls, 5 standard deviations."""
    game = Game(ruleset="solo", settings=Settings(food_spawn_chance=15, minimum_food=0))
    games = engine.Games(4000, num_snakes=1, game=game, food_rng=food_rng)
    games.reset(np.random.default_rng(0).integers(1, 2**62, 4000))
    up_and_down = (0, 3, 1, 3, 0, 3, 1, 3, 0, 3)
    spawned = rolls = 0
    before = [len(games.state(i).food) for i in range(4000)]
    for move in up_and_down:
        playing = ~games.over
        games.step(np.full((4000, 1), move, np.uint8))
        after = [len(games.state(i).food) for i in range(4000)]
        rolls += int(playing.sum())
        spawned += sum(np.subtract(after, before)[playing]) + int(games.ate[playing].sum())
        # A snake that ate and was eliminated on the same turn is rare here: it could only hit a
        # wall.
        before = after
    expected, deviation = 0.14 * rolls, (0.14 * 0.86 * rolls) ** 0.5
    assert rolls > 30000
    assert abs(spawned - expected) < 5 * deviation


@needs_compiled
@pytest.mark.parametrize("crowded", [False, True])
def test_fast_food_is_uniform_on_free_cells(crowded: bool) -> None:
    """Chi-square test over many seeds, on a nearly empty and on a crowded board."""
    game = Game(ruleset="solo", settings=Settings(food_spawn_chance=0, minimum_food=1))
    state = lone_state(5, 5)
    if crowded:
        path = [(x, y if x % 2 else 4 - y) for x in range(5) for y in range(5)]
        state.snakes[0].body = path[3:]
        state.snakes[0].body.reverse()
        state.snakes[0].body = state.snakes[0].body[1:]
    games = engine.Games(1, width=5, height=5, num_snakes=1, game=game)
    counts: Counter[Any] = Counter()
    draws = 6000
    for seed in range(1, draws + 1):
        games.load(0, state, Game("solo", settings=game.settings, seed=seed))
        games.step(np.array([[0 if not crowded else 1]], np.uint8))
        found = games.state(0)
        assert len(found.food) == 1
        counts[found.food[0]] += 1
    before_food = games.state(0)
    before_food.food = []
    free = free_cells(before_food)
    assert set(counts) == set(free)
    expected = draws / len(free)
    chi_square = sum((counts[cell] - expected) ** 2 / expected for cell in free)
    freedom = len(free) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_no_food_appears_below_a_negative_minimum(games_type: Any) -> None:
    games = games_type(1, num_snakes=2, game=Game(settings=Settings(0, -(2**31))))
    games.reset(np.array([1]))
    food = games.state(0).food
    games.step(np.zeros((1, 2), np.uint8))
    assert games.state(0).food == food


@needs_compiled
def test_fast_food_appears_on_cells_of_eliminated_snakes() -> None:
    dying = Snake("b", [(4, 4), (4, 3), (4, 2)])
    state = State(3, 5, 5, [Snake("a", [(0, 0), (1, 0), (2, 0)]), dying])
    game = Game(settings=Settings(food_spawn_chance=0, minimum_food=1), solo=True)
    games, found = engine.Games(1, width=5, height=5, num_snakes=2, game=game), set[Any]()
    for seed in range(1, 201):
        games.load(0, state, replace(game, seed=seed))
        games.step(np.array([[0, 0]], np.uint8))
        found.update(games.state(0).food)
    assert set(dying.body) <= found


def test_a_loaded_state_is_returned_unchanged(games_type: Any) -> None:
    state = State(
        turn=41,
        width=9,
        height=7,
        snakes=[
            Snake("b", [(3, 3), (3, 4), (4, 4), (4, 4)], 55),
            Snake("a", [(9, 1), (8, 1), (7, 1)], 80, "wall-collision", "", 40),
            Snake("c", [(0, 0), (0, 0)], 1),
            Snake("d", [(3, 4), (2, 4)], 100, "head-collision", "b", 12),
        ],
        food=[(8, 6), (0, 6), (1, 1)],
        hazards=[(2, 2), (2, 2), (1, 0), (2, 2), (5, 9)],
    )
    games = games_type(2, width=11, height=11, num_snakes=4)
    games.reset(np.array([1, 2]))
    games.load(1, state)
    assert games.state(1) == state
    assert games.alive[1].tolist() == [True, False, True, False]
    assert games.length[1].tolist() == [4, 0, 2, 0]
    assert games.killer[1].tolist() == [-1, -1, -1, 0]
    assert games.state(0).turn == 0


REFUSED = [
    ({"food": [(11, 0)]}, "food"),
    ({"food": [(5, 5)] * 300}, "food"),
    ({"hazards": [(200, 0)]}, "far off"),
    ({"hazards": [(i % 11, i % 2) for i in range(5000)]}, "hazards"),
    ({"hazards": [(5, 5)] * 70000}, "hazards"),
    ({"snake": {"body": [(1, 1), (1, 0), (1, 1), (1, 2)]}}, "cell"),
    ({"snake": {"body": [(1, 1), (1, 0), (1, -1)]}}, "board"),
    ({"snake": {"body": []}}, "no body"),
    ({"snake": {"body": [(1, 1)]}}, "single segment"),
    ({"snake": {"health": 0}}, "health"),
    ({"snake": {"health": 101}}, "health"),
    ({"snake": {"health": 2**40}}, "32 bits"),
    ({"snake": {"body": [(x, 0) for x in range(500)], "eliminated_cause": "hazard"}}, "segment"),
]


@needs_compiled
@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_unsupported_states_are_rejected_and_change_nothing(
    changes: dict[str, Any], reason: str
) -> None:
    games = engine.Games(1, num_snakes=2)
    games.reset(np.array([1]))
    before = games.state(0)
    with pytest.raises(ValueError, match=reason):
        games.load(0, lone_state(**changes))
    overlapping = lone_state()
    overlapping.snakes.append(Snake("other", [(5, 5), (4, 5), (1, 1)]))
    with pytest.raises(ValueError, match=r"\(1, 1\)"):
        games.load(0, overlapping)
    assert games.state(0) == before


WRONG_WORDS = [
    (0, [-1], "turn is -1"),
    (0, [2**31 - 1], "turn is"),
    *((side, [size], "board") for side in (1, 2) for size in (0, 12)),
    (3, [-1], "-1 snakes"),
    (3, [3], "3 snakes"),
    *((4, [cause], "words") for cause in (-1, 9)),
    *((5, [killer], "words") for killer in (-2, 1)),
    *((8, [length], "words") for length in (-1, 99)),
    (15, [-1], "words"),
    (15, [122, *[1, 1] * 122], "122 food"),
    (18, [-1], "words"),
    (19, [-129], "far off"),
    (20, [128], "far off"),
    *((21, [count], "hazards") for count in (0, 2**16)),
    (22, [-1], "words"),
    (22, [999, *[0, 0] * 999], "999 castle candidates"),
    (22, [1, 11, 0], "castle candidate"),
    *((23, [drawn], "pool_outputs") for drawn in (-1, 1_000_001)),
    (23, [], "words"),
    (24, [0], "words"),
]


@needs_compiled
@pytest.mark.parametrize(("place", "words", "reason"), WRONG_WORDS)
def test_invalid_state_words_are_rejected(place: int, words: list[int], reason: str) -> None:
    """One word is wrong: of the turn, a side, a snake, food, a hazard or a map's memory."""
    games = engine.Games(1, num_snakes=2)
    games.load(0, lone_state(food=[(2, 2)], hazards=[(3, 3)]))
    right = np.frombuffer(games.export_words(0), np.int32).tolist()
    right[place : place + 1] = words
    with pytest.raises(ValueError, match=reason):
        games.import_words(0, 1, np.array(right, np.int32).tobytes())


@needs_compiled
def test_hazards_of_one_cell_in_two_rows_are_added() -> None:
    games = engine.Games(1, num_snakes=1)
    games.load(0, lone_state(hazards=[(3, 3)] * 2))
    words = np.frombuffer(games.export_words(0), np.int32).tolist()
    assert words[16:20] == [1, 3, 3, 2]
    words[16:17] = [2, 3, 3, 1]
    games.import_words(0, 1, np.array(words, np.int32).tobytes())
    assert games.state(0).hazards == [(3, 3)] * 3


def test_states_and_rules_that_do_not_fit_the_games_are_rejected(games_type: Any) -> None:
    games = games_type(1, num_snakes=2)
    with pytest.raises(ValueError, match="width 12"):
        games.load(0, lone_state(12, 11))
    many = lone_state()
    many.snakes *= 3
    with pytest.raises(ValueError, match="num_snakes 3"):
        games.load(0, many)
    with pytest.raises(ValueError, match="turn"):
        games.load(0, State(-1, 11, 11, []))
    with pytest.raises(ValueError, match="rules"):
        games.load(0, lone_state(), Game(map="royale"))
    castle = games_type(1, num_snakes=2, game=Game(map="hz_castle_wall"))
    with pytest.raises(ValueError, match="11x11"):
        castle.load(0, lone_state(7, 7))
    for call in (games.state, lambda game: games.load(game, lone_state())):
        with pytest.raises(IndexError, match=r"0.* 0"):
            call(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_games": 0}, r"num_games.* 1.* 0"),
        ({"num_games": 2.5}, r"num_games.* 1.* 2\.5"),
        ({"width": 0}, r"width.* 1.* 25"),
        ({"height": 26}, r"height.* 1.* 25"),
        ({"num_snakes": 17}, r"num_snakes.* 1.* 16"),
        ({"num_snakes": [1, 2, 3]}, "2 integers"),
        ({"width": 7.5}, "width"),
        ({"food_rng": "slow"}, r"food_rng.* 'slow'"),
        ({"game": Game(map="nowhere")}, "'nowhere'"),
        ({"game": Game("royale", settings=Settings(shrink_every_n_turns=0))}, "shrink_every"),
        ({"game": Game("royale", "", Settings(shrink_every_n_turns=0))}, "shrink_every"),
        ({"game": Game(settings=Settings(minimum_food=2**31))}, "minimum_food"),
        ({"game": Game(map="hz_castle_wall"), "width": 19}, "11x11"),
        ({"width": 3, "height": 2, "num_snakes": 9}, "start cells"),
    ],
)
def test_invalid_games_are_rejected(games_type: Any, wrong: dict[str, Any], message: str) -> None:
    arguments = {"num_games": 2, **wrong}
    with pytest.raises(ValueError, match=message):
        games_type(arguments.pop("num_games"), **arguments)


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((2, 3), np.uint8),
        np.zeros((2, 2), np.int64),
        np.zeros(4, np.uint8),
        [[0, 0], [0, 0]],
        None,
    ],
)
def test_actions_of_another_dtype_or_shape_are_rejected(games_type: Any, actions: Any) -> None:
    games = games_type(2, num_snakes=2)
    games.reset(np.array([1, 2]))
    with pytest.raises(ValueError, match=r"actions.*\(2, 2\)"):
        games.step(actions)
    assert not games.turn.any()


@needs_compiled
def test_noncontiguous_arrays_are_rejected() -> None:
    games = engine.Games(2, num_snakes=2)
    with pytest.raises(ValueError, match="C-contiguous"):
        games.step(np.zeros((2, 4), np.uint8)[:, ::2])
    out = np.zeros((2, 2, 4), np.bool_)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        games.action_mask("wall", out)


def test_an_action_out_of_range_is_named_and_nothing_is_played(games_type: Any) -> None:
    games = games_type(2, num_snakes=2)
    games.reset(np.array([1, 2]))
    actions = np.array([[0, 0], [1, 5]], np.uint8)
    with pytest.raises(ValueError, match=r"actions\[1, 1\].* 5.* 0.* 3"):
        games.step(actions)
    assert not games.turn.any()
    # The wrong action belongs to a game that does not step.
    games.step(actions, np.array([True, False]))
    assert games.turn.tolist() == [1, 0]


def test_invalid_resets_and_observations_are_rejected(games_type: Any) -> None:
    games = games_type(2, num_snakes=2)
    with pytest.raises(ValueError, match=r"seeds\[1\].* 0"):
        games.reset(np.array([1, 0]))
    with pytest.raises(ValueError, match="seeds"):
        games.reset(np.array([1, 2], np.int32))
    with pytest.raises(ValueError, match="which"):
        games.reset(np.array([1, 2]), np.ones(3, np.bool_))
    assert games.over.all()
    with pytest.raises(ValueError, match="map ''"):
        games_type(1, game=Game(map="")).reset(np.array([1]))
    with pytest.raises(ValueError, match=r"\bout\b"):
        games.observe(observations.get("planes"), np.zeros((2, 2, 3, 11, 11), np.uint8))
    with pytest.raises(ValueError, match=r"\bout\b"):
        games.action_mask("wall", np.zeros((2, 2, 3), np.bool_))
    with pytest.raises(ValueError, match="action mask"):
        games.action_mask("walls", np.zeros((2, 2, 4), np.bool_))


def test_observations_are_kept_in_the_last_registered_array(games_type: Any) -> None:
    games = games_type(2, num_snakes=2)
    games.reset(np.array([1, 2]))
    planes = observations.get("planes")
    first, second = (np.zeros((2, 2, *planes.shape(11, 11)), np.uint8) for _ in range(2))
    games.observe(planes, first)
    left = first.copy()
    games.observe(planes, second)
    with pytest.raises(ValueError, match=r"\bout\b"):
        games.observe(planes, np.zeros((2, 2), np.uint8))
    up = np.zeros((2, 2), np.uint8)
    games.step(up, np.array([True, False]))
    np.testing.assert_array_equal(first, left)
    np.testing.assert_array_equal(second[1], left[1])
    assert (second[0] != left[0]).any()
    second[:] = 0  # Not allowed: only the engine may write.
    games.observe(planes, second)
    np.testing.assert_array_equal(second[1], left[1])


def test_another_output_does_not_clear_the_stacked_turns(games_type: Any) -> None:
    games = games_type(1, num_snakes=2)
    games.reset(np.array([1]))
    stack, planes = observations.get({"frame_stack": 2}), observations.get("planes")
    seen, other = (np.zeros((1, 2, *one.shape(11, 11)), np.uint8) for one in (stack, planes))
    games.observe(stack, seen)
    games.step(np.zeros((1, 2), np.uint8))
    before = seen.copy()
    games.observe(planes, other, 1)
    np.testing.assert_array_equal(seen, before)


def test_a_map_that_cannot_continue_raises(games_type: Any) -> None:
    game = Game(ruleset="solo", map="hz_scatter")
    games = games_type(1, width=7, height=7, num_snakes=1, game=game)
    games.load(0, State(98, 7, 7, [Snake("me", [(3, 3), (3, 2), (3, 1)])]), game)
    games.step(np.array([[0]], np.uint8))
    with pytest.raises(rules.RulesError, match="hz_scatter"):
        games.step(np.array([[2]], np.uint8))
    assert games.turn[0] == 99


def test_a_game_with_too_many_hazards_stays_at_its_turn() -> None:
    game = Game(map="hz_grow_box")
    games = EngineGames(1, num_snakes=2, game=game)
    games.reset(np.array([3]))
    games.load(0, replace(games.state(0), hazards=[(0, 0), (1, 0)] * 521))
    for action in (0, 3):
        with pytest.raises(rules.RulesError, match="after turn 1: its hazard list"):
            games.step(np.full((1, 2), action, np.uint8))
    assert games.turn[0] == 1
    games.reset(np.array([3]))
    games.step(np.zeros((1, 2), np.uint8))


def test_a_snake_that_the_map_moves_has_eaten(games_type: Any) -> None:
    game = Game(ruleset="solo", map="solo_maze")
    games = games_type(1, width=11, height=15, num_snakes=1, game=game)
    games.load(0, lone_state(11, 15, food=[(1, 2)]), game)
    games.step(np.array([[0]], np.uint8))
    assert games.ate.all()
    assert games.heads[0, 0].tolist() != [1, 2]


def test_games_are_freed_with_their_last_reference_and_arrays_stay_valid(games_type: Any) -> None:
    games = games_type(2)
    games.reset(np.array([1, 2]))
    games.step(np.zeros((2, games.num_snakes), np.uint8))
    turn, gone = games.turn, weakref.ref(games)
    del games
    assert gone() is None
    assert turn.tolist() == [1, 1]

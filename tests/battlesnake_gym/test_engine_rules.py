"""The engine and the Python rules play the same games."""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym import rules
from battlesnake_gym.engine import engine
from battlesnake_gym.engine.engine import Games
from battlesnake_gym.rules import (
    CAUSES,
    MAPS,
    MOVES,
    OFFSETS,
    RULESETS,
    Game,
    Point,
    RulesError,
    Settings,
    Snake,
    State,
)

LIMITS = ("longer than the compiled engine holds",)
"""Errors of the engine in the middle of a game that the Python rules can continue."""

pytestmark = pytest.mark.skipif(
    not engine.COMPILED, reason="without the compiled part both sides are the same code"
)


def refused(call: Callable[[], None]) -> str | None:
    """The message of the ``ValueError`` that a call raises, or None."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def ids(count: int) -> list[str]:
    return [f"snake_{seat}" for seat in range(count)]


def agree(games: Games, index: int, game: Game, state: State) -> None:
    """Assert that one game of the engine has this position, in all its arrays too."""
    held = games.state(index)
    assert held == state
    assert bool(games.over[index]) == rules.is_over(game, state)
    assert games.turn[index] == state.turn
    for seat, snake in enumerate(state.snakes):
        assert games.alive[index, seat] == snake.alive
        assert games.health[index, seat] == snake.health
        assert games.length[index, seat] == (snake.length if snake.alive else 0)
        assert tuple(games.heads[index, seat]) == snake.head
        assert CAUSES[games.cause[index, seat]] == snake.eliminated_cause
        names = {-1: "", **dict(enumerate(ids(len(state.snakes))))}
        assert names[int(games.killer[index, seat])] == snake.eliminated_by
        if snake.alive:
            assert MOVES[games.facing[index, seat]] == rules.default_move(snake.body)
    assert not games.alive[index, len(state.snakes) :].any()


def answers(rand: random.Random, game: Game, state: State, care: float) -> dict[str, str]:
    """A move for every living snake: mostly to a free cell, sometimes any, sometimes invalid."""
    taken = {cell for snake in state.snakes if snake.alive for cell in snake.body[:-1]}
    moves = {}
    for snake in state.snakes:
        if not snake.alive:
            continue
        x, y = snake.head
        ahead = {move: (x + dx, y + dy) for move, (dx, dy) in OFFSETS.items()}
        if game.ruleset.startswith("wrapped"):
            ahead = {m: (a % state.width, b % state.height) for m, (a, b) in ahead.items()}
        free = [
            move
            for move, (a, b) in ahead.items()
            if 0 <= a < state.width and 0 <= b < state.height and (a, b) not in taken
        ]
        wild = rand.random() >= care or not free
        moves[snake.id] = rand.choice([*MOVES, "", "UP"]) if wild else rand.choice(free)
    return moves


def actions(moves: dict[str, str], seats: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The moves as an action array; eliminated snakes get arbitrary actions."""
    numbers = [MOVES.index(moves[i]) if moves.get(i) in MOVES else 4 for i in ids(seats)]
    return np.array(numbers, np.uint8)


def play_on(
    games: Games, index: int, game: Game, state: State, rand: random.Random, turns: int, care: float
) -> None:
    """Play both engines for some turns and compare after each; both must raise errors together."""
    which = np.arange(games.num_games) == index
    batch = np.zeros((games.num_games, games.num_snakes), np.uint8)
    for _ in range(turns):
        if rules.is_over(game, state):
            return
        moves = answers(rand, game, state, care)
        batch[index] = actions(moves, games.num_snakes)
        before = copy.deepcopy(state)
        try:
            rules.step(game, state, moves)
        except RulesError:
            with pytest.raises(ValueError, match=r"game .* turn"):
                games.step(batch, which)
            return
        if (refusal := refused(lambda: games.step(batch, which))) is not None:
            assert any(limit in refusal for limit in LIMITS), refusal
            return
        agree(games, index, game, state)
        if game.map != "solo_maze":  # The map moves the snake that has eaten.
            ate = [snake.alive and snake.head in before.food for snake in state.snakes]
            assert games.ate[index, : len(ate)].tolist() == ate


SETTINGS = st.builds(
    Settings,
    food_spawn_chance=st.sampled_from((-5, 0, 1, 15, 50, 100, 120)),
    minimum_food=st.sampled_from((-1, 0, 1, 2, 12, 400)),
    hazard_damage_per_turn=st.sampled_from((-120, -30, -1, 0, 1, 14, 15, 50, 100, 1000)),
    shrink_every_n_turns=st.sampled_from((0, 1, 2, 3, 10, 25)),
)
GAMES = st.builds(
    Game,
    ruleset=st.sampled_from([*RULESETS, "squad"]),
    map=st.sampled_from(sorted(MAPS)),
    settings=SETTINGS,
    seed=st.integers(1, 2**62) | st.integers(-(2**63), -1),
    solo=st.booleans(),
)
SEEDS = st.integers(0, 2**32)
CARE = st.sampled_from((0.0, 0.7, 0.95, 1.0))


@dataclass(frozen=True)
class Board:
    """A size and a number of snakes."""

    width: int
    height: int
    count: int


@st.composite
def boards(draw: st.DrawFn, map_id: str) -> Board:
    """Mostly boards that the map supports, sometimes any board."""
    board_map = MAPS[map_id]
    if draw(st.integers(0, 2)):
        width, height = draw(st.sampled_from(board_map.sizes))
        return Board(
            width, height, draw(st.integers(max(1, board_map.players[0]), board_map.players[1]))
        )
    sizes = st.integers(1, 25)
    return Board(draw(sizes), draw(sizes), draw(st.integers(1, 16)))


def check_seeded_game(game: Game, board: Board, seed: int, turns: int, care: float) -> None:
    """Play one game from its seed with both engines, or expect errors from both."""
    names = ids(board.count)
    try:
        state = rules.start(game, board.width, board.height, names)
    except RulesError:
        with pytest.raises(ValueError, match=r"."):
            make(game, board).reset(np.array([game.seed], np.int64))
        return
    games = make(game, board)
    games.reset(np.array([game.seed], np.int64))
    agree(games, 0, game, state)
    play_on(games, 0, game, state, random.Random(seed), turns, care)


def make(game: Game, board: Board, num_games: int = 1) -> Games:
    return Games(
        num_games,
        width=board.width,
        height=board.height,
        num_snakes=board.count,
        game=game,
        food_rng="official",
    )


@given(st.data(), GAMES, SEEDS, CARE)
def test_games_from_a_seed(data: st.DataObject, game: Game, seed: int, care: float) -> None:
    check_seeded_game(game, data.draw(boards(game.map)), seed, 60, care)


def random_board(rand: random.Random) -> State:
    """A random position that the engine supports: snakes apart, some eliminated, stacks."""
    width, height = rand.randint(1, 25), rand.randint(1, 25)
    cells = [(x, y) for x in range(width) for y in range(height)]
    taken: set[Point] = set()
    snakes = []
    for name in ids(rand.randint(1, 16)):
        free = [cell for cell in cells if cell not in taken]
        if not free:
            break
        snakes.append(random_snake(rand, name, width, height, taken, rand.choice(free)))
    kill_some(rand, snakes)
    food = rand.sample(cells, rand.randint(0, min(len(cells), 30)))
    hazards = [rand.choice(cells) for _ in range(rand.randint(0, 40))]
    if rand.random() < 0.2:
        hazards += [(rand.randint(-3, 27), rand.randint(-3, 49)) for _ in range(5)]
    return State(rand.randint(0, 5000), width, height, snakes, food, hazards)


def random_snake(
    rand: random.Random, name: str, width: int, height: int, taken: set[Point], head: Point
) -> Snake:
    """A snake on a random path of free cells, possibly stacked on its last one."""
    body = [head]
    taken.add(head)
    for _ in range(rand.randint(0, 20)):
        x, y = body[-1]
        steps = [((x + dx) % width, (y + dy) % height) for dx, dy in OFFSETS.values()]
        free = [cell for cell in steps if cell not in taken]
        if not free:
            break
        body.append(rand.choice(free))
        taken.add(body[-1])
    body += [body[-1]] * rand.choice((0, 0, 1, 2, 5) if len(body) > 1 else (1, 2, 5))
    return Snake(name, body, rand.choice((1, 2, 15, 16, 50, 99, 100)))


def kill_some(rand: random.Random, snakes: Sequence[Snake]) -> None:
    """Eliminate some snakes; their bodies may be anywhere, heads off the board."""
    for snake in snakes:
        if rand.random() < 0.2:
            snake.eliminated_cause = rand.choice(CAUSES[1:])
            if snake.eliminated_cause.endswith("collision"):
                snake.eliminated_by = rand.choice(snakes).id
            snake.eliminated_on = rand.randint(1, 9)
            snake.health = rand.randint(0, 100)


@pytest.mark.parametrize("map_id", sorted(MAPS))
def test_a_map_starts_or_is_rejected_on_any_board(map_id: str) -> None:
    sides = ((1, 1), (2, 2), (2, 9), (9, 4), (19, 21))
    for width, height in (*sides, *((side, side) for side in (3, 5, 7, 11, 19, 25))):
        for count in (1, 2, 4, 5, 8, 9, 12, 13, 16):
            settings = Settings(minimum_food=3, shrink_every_n_turns=count % 3)
            game = Game(map=map_id, settings=settings, seed=width + count)
            check_seeded_game(game, Board(width, height, count), count, 2, 1.0)
    for width, height in (*MAPS[map_id].sizes[:2], (9, 4)):  # A single snake, while hazards grow.
        settings = Settings(3, 0, hazard_damage_per_turn=0, shrink_every_n_turns=1)
        game = Game("wrapped", map_id, settings, 3, solo=True)
        check_seeded_game(game, Board(width, height, max(1, MAPS[map_id].players[0])), 1, 90, 1.0)


@pytest.mark.parametrize("map_id", sorted(MAPS))
def test_a_game_does_not_depend_on_the_previous_one(map_id: str) -> None:
    (width, height), count = MAPS[map_id].sizes[0], max(1, MAPS[map_id].players[0])
    game = Game("royale", map_id, Settings(50, 5, 1, 2), solo=True)
    games = make(game, Board(width, height, count))
    for seed in (1, 2):
        one = replace(game, seed=seed)
        state = rules.start(one, width, height, ids(count))
        games.reset(np.array([seed], np.int64))
        agree(games, 0, one, state)
        play_on(games, 0, one, state, random.Random(seed), 20, 1.0)


def test_hazards_off_the_board_fade_like_those_on_it() -> None:
    game = Game(map="snail_mode", seed=3)
    state = rules.start(game, 7, 7, ids(2))
    state.hazards = [(-1, 2), (8, 1), (-1, 2), (2, 2), (-1, 2), (3, 9), (8, 1), (2, 2)]
    games = make(game, Board(7, 7, 2))
    games.load(0, state, game)
    play_on(games, 0, game, state, random.Random(1), 4, 1.0)
    assert state.turn == 4


@given(GAMES, SEEDS, CARE)
def test_games_from_any_board(game: Game, seed: int, care: float) -> None:
    rand = random.Random(seed)
    state = random_board(rand)
    bare = Game(game.ruleset, "", game.settings, game.seed, game.solo)
    if bare.ruleset == "royale" and bare.settings.shrink_every_n_turns < 1:
        return
    games = make(bare, Board(state.width, state.height, len(state.snakes)))
    games.load(0, state, bare)
    agree(games, 0, bare, state)
    play_on(games, 0, bare, state, rand, 40, care)


@given(st.data(), GAMES, SEEDS, st.integers(0, 40))
def test_a_position_can_be_loaded_in_the_middle_of_a_game(
    data: st.DataObject, game: Game, seed: int, turns: int
) -> None:
    board = data.draw(boards(game.map))
    try:
        state = rules.start(game, board.width, board.height, ids(board.count))
    except RulesError:
        return
    rand = random.Random(seed)
    for _ in range(turns):
        if rules.is_over(game, state):
            break
        try:
            rules.step(game, state, answers(rand, game, state, 0.95))
        except RulesError:
            return
    games = make(game, board, num_games=2)
    if (refusal := refused(lambda: games.load(1, state, game))) is not None:
        assert any(limit in refusal for limit in LIMITS), refusal
        return
    agree(games, 1, game, state)
    play_on(games, 1, game, state, rand, 20, 0.95)


@given(st.integers(7, 14), st.integers(7, 14), st.booleans(), SEEDS, st.data())
def test_mazes_of_any_level(
    width: int, height: int, full: bool, seed: int, data: st.DataObject
) -> None:
    """A level may need more digits than the bottom row has cells; hazards may be off the board."""
    harmless = Settings(hazard_damage_per_turn=0)
    game = Game(map="solo_maze", settings=harmless, seed=seed + 1, solo=True)
    state = rules.start(game, width, height, ids(1))
    row = [(x, 0) for x in range(width)]
    strays = st.sampled_from([(-1, 0), (width, 0), (width + 1, 0), (0, -1), (width, height)])
    bits = row if full else data.draw(st.lists(st.sampled_from(row)))
    state.hazards, state.food = bits + data.draw(st.lists(strays)), []
    games = make(game, Board(width, height, 1))
    games.load(0, state, game)
    for _ in range(3):
        care = data.draw(st.sampled_from((0.0, 1.0)))
        play_on(games, 0, game, state, random.Random(seed), 2, care)
        state.food = []
        games.load(0, state, game)

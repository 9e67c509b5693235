"""The memory of a snake with limited view."""

import random
import sys
from dataclasses import replace

from battlesnake_gym import Board, Game, Settings
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.rules import Snake

RADIUS = 2


def views(seed: int, turns: int = 25) -> list[Board]:
    """What one snake of a game sees on each turn."""
    settings = Settings(view_radius=RADIUS, food_spawn_chance=40)
    board = Board.new(11, 11, 4, game=Game(seed=seed, settings=settings))
    rng = random.Random(seed)
    seen = []
    while not board.is_over() and board.turn < turns and board.snakes[0].alive:
        board.you_id = "snake_0"
        seen.append(board.limited())
        board.step({s.id: rng.choice(board.safe_moves(s.id) or ["up"]) for s in board.living})
    return seen


def known(sightings: Sightings, turn: int) -> object:
    heads = [sightings.head(turn, f"snake_{seat}") for seat in range(4)]
    bodies = [sightings.bodies(turn, f"snake_{seat}") for seat in range(4)]
    return sightings.food(turn), sightings.bodies(turn), heads, bodies


def remembering(boards: list[Board]) -> Sightings:
    sightings = Sightings()
    for board in boards:
        sightings.update(board)
    return sightings


def test_late_and_repeated_requests_change_nothing() -> None:
    for seed in range(1, 6):
        seen = views(seed)
        last = seen[-1].turn
        shuffled = [*seen, *seen[::3]]
        random.Random(seed).shuffle(shuffled)
        expected = known(remembering(seen), last)
        assert known(remembering(shuffled), last) == expected
        assert any(turn < last for turn in remembering(seen).food(last).values())


def board_with(turn: int, head: tuple[int, int], **changes: object) -> Board:
    board = Board.new(11, 11, ["me", "it"], game=Game(settings=Settings(view_radius=RADIUS)))
    board.snakes[0].body = [head, head, head]
    board.snakes[1].body = [(9, 9), (9, 8), (9, 7)]
    board.turn, board.food, board.you_id = turn, [], "me"
    for name, value in changes.items():
        setattr(board, name, value)
    return board


def test_food_is_remembered_until_its_cell_is_seen_empty() -> None:
    sightings = remembering([board_with(0, (1, 1), food=[(2, 2), (8, 8)])])
    assert sightings.food(0) == {(2, 2): 0, (8, 8): 0}
    sightings.update(board_with(4, (5, 5)))
    assert sightings.food(4) == {(2, 2): 0, (8, 8): 0}
    sightings.update(board_with(6, (7, 7), food=[(7, 8)]))
    assert sightings.food(6) == {(2, 2): 0, (7, 8): 6}
    assert sightings.food(5) == {(2, 2): 0}, "a later sighting says nothing about an earlier turn"


def test_bodies_and_heads_are_remembered_with_their_turn() -> None:
    sightings = remembering([board_with(3, (9, 6)), board_with(5, (2, 2))])
    assert sightings.bodies(5) == {(9, 7): 3, (9, 8): 3}
    assert sightings.bodies(5, "it") == sightings.bodies(5)
    assert sightings.bodies(5, "nobody") == {}
    assert sightings.head(5, "it") is None, "the head was not visible"
    sightings.update(board_with(6, (8, 8)))
    assert sightings.head(6, "it") == ((9, 9), 6)
    assert sightings.head(5, "it") is None
    sightings.update(board_with(4, (9, 10), snakes=board_with(0, (9, 10)).snakes))
    assert sightings.head(6, "it") == ((9, 9), 6)


def test_another_game_starts_a_new_memory() -> None:
    sightings = remembering([board_with(3, (1, 1), food=[(2, 2)])])
    second = board_with(5, (8, 2))
    second.game = replace(second.game, id="second")
    sightings.update(second)
    assert sightings.food(5) == {}


def test_the_memory_is_bounded() -> None:
    sightings = Sightings()
    base = board_with(1, (5, 5))
    for number in range(300):
        board = base.copy()
        board.turn = number
        board.snakes.append(Snake(f"{number}" * 1000, [(6, 5), (6, 6)], 100))
        sightings.update(board)
    assert len(sightings._snakes) <= 64
    assert len(sightings._heads) <= 64
    arrays = sys.getsizeof(sightings._turns) + sys.getsizeof(sightings._contents)
    assert arrays < 16_000
    huge = Sightings()
    huge.update(board_with(1, (5, 5), width=60, height=60, food=[(5, 6)]))
    assert huge.food(1) == {}
    sightings.update(board_with(900, (1, 1), width=7, food=[(1, 2)]))
    assert (1, 2) not in sightings.food(900), "a board of another size is another game"


def test_a_game_without_limit_is_seen_completely() -> None:
    board = board_with(1, (1, 1), food=[(9, 1)], game=replace(Game(), settings=Settings()))
    assert remembering([board]).bodies(1, "it").keys() == {(9, 9), (9, 8), (9, 7)}

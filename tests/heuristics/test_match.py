"""Games of two sides in this process."""

import time
from functools import partial

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.rating.match import (
    MatchSettings,
    derive_seed,
    play_game,
    play_pair,
    use_cpu_clock,
)
from battlesnake_heuristics.search.search import Search
from tests.heuristics.conftest import start_of

pytest.importorskip("battlesnake_heuristics.search._search")


def named(name: str) -> snakes.StrategyFactory:
    return partial(snakes.make, name)


def test_a_pair_is_the_same_start_with_seats_exchanged() -> None:
    """Two equal snakes share the points of every pair."""
    for index in range(3):
        outcome, seconds = play_pair(MatchSettings(), named("tree"), named("tree"), 1, index)
        assert outcome == 2
        assert seconds > 0


def test_the_better_side_wins_duels_and_games_of_four() -> None:
    for count in (2, 4):
        settings = MatchSettings(GameSpec(count, 7, 7))
        outcomes = [
            play_pair(settings, named("tree"), named("random"), 3, index)[0] for index in range(3)
        ]
        assert outcomes == [4, 4, 4]


def test_a_game_of_sides_ends_with_the_last_snake_of_one() -> None:
    players = [named("tree"), named("random"), named("tree"), named("random")]
    played = play_game(MatchSettings(GameSpec(4)), players, derive_seed(1, 1), sides=(0, 1, 0, 1))
    assert [snake.alive for snake in played.last.snakes] == [True, False, True, False]
    assert not played.last.is_over()
    assert [len(cpu) for cpu in played.cpu_ms] == [
        played.last.turn if snake.alive else snake.eliminated_on for snake in played.last.snakes
    ]


def test_positions_bound_whoever_searches_unless_its_name_does() -> None:
    asked = []

    class Spy(Search):
        def __call__(self, board: Board, seconds: float | None = None) -> Decision:
            asked.append((self.nodes, seconds))
            return super().__call__(board, seconds)

    def bounded_by_name(seed: int) -> snakes.Strategy:
        return snakes.FixedNodesSearch(Spy(), 7)

    settings = MatchSettings(GameSpec(3, 7, 7, max_turns=3), nodes=20)
    play_game(settings, [lambda seed: Spy(), bounded_by_name, named("hungry")], 5)
    assert set(asked) == {(20, None), (7, None)}


def test_milliseconds_are_cpu_time_however_long_they_take_on_the_wall() -> None:
    board = start_of(11, 11, 2)
    with use_cpu_clock(True):
        began = time.process_time()
        Search()(board, seconds=0.05)
        spent = time.process_time() - began
    assert spent < 0.2  # wall-clock time may be longer
    with use_cpu_clock(False), use_cpu_clock(True):
        pass


def test_a_budget_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        MatchSettings(nodes=1, move_time_ms=1)
    with pytest.raises(ValueError, match=r"nodes.* 0"):
        MatchSettings(nodes=0)


def test_a_search_is_named_with_its_positions() -> None:
    board = start_of(11, 11, 2)
    there = snakes.make("minimax@50")(board, 0.5)
    assert there == Search(nodes=50)(board)

"""The built-in snakes in the C engine choose among the same moves as their Python versions."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import limit_state
from battlesnake_gym.engine.engine import COMPILED, EngineGames, Games
from battlesnake_gym.rules import MOVES, Game, Settings
from battlesnake_heuristics.rule_based.pipeline import Pipeline, Verdict, apply_steps
from battlesnake_heuristics.rule_based.view import View
from tests.battlesnake_gym.played_games import batches, play

pytestmark = pytest.mark.skipif(not COMPILED, reason="needs the compiled engine")


def liked(name: str, board: Board) -> set[str]:
    """Return the moves between which the seed of the Python version decides."""
    strategy = snakes.make(name)
    assert isinstance(strategy, Pipeline)
    verdict = Verdict()
    apply_steps(strategy.steps, View(board), verdict)
    top = max(verdict.scores[move] for move in verdict.remaining)
    return {move for move in verdict.remaining if verdict.scores[move] == top}


def compare(games: EngineGames, names: Sequence[str] = snakes.ENGINE_SNAKES) -> int:
    """Compare all living snakes as all kinds; return the number of compared decisions.

    With limited view, the engine's snakes ignore hidden segments.
    """
    compared = 0
    choices = np.zeros((games.num_games, games.num_snakes), np.uint8)
    for name in names:
        choices[:] = 99
        games.builtin_choices(np.full_like(choices, snakes.engine_code(name)), choices)
        for i in np.flatnonzero(~games.over).tolist():
            board = Board.from_state(games.state(i), games.game)
            for seat, snake in enumerate(board.snakes):
                if not snake.alive:
                    assert choices[i, seat] == 99
                    continue
                state = limit_state(board, snake.id, games.game.settings.view_radius)
                seen = Board.from_state(state, games.game, snake.id)
                chosen = {move for k, move in enumerate(MOVES) if choices[i, seat] >> k & 1}
                assert chosen == liked(name, seen), (name, str(seen))
                compared += 1
    return compared


@given(batches(), st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_they_choose_among_the_same_moves_under_all_rules(
    games: Games, seed: int, turns: int
) -> None:
    assert isinstance(games, EngineGames)
    for _ in play(games, seed, turns):
        pass
    compare(games)


def test_they_choose_among_the_same_moves_in_their_own_games() -> None:
    """In their own games, snakes become long, hungry and close to each other."""
    compared = 0
    for game, side in ((Game(), 11), (Game(ruleset="wrapped"), 7), (Game(map="hz_spiral"), 11)):
        game = Game(game.ruleset, game.map, Settings(hazard_damage_per_turn=14))
        games = Games(24, width=side, height=side, num_snakes=4, game=game)
        assert isinstance(games, EngineGames)
        games.reset(np.arange(1, 25))
        kinds = np.random.default_rng(1).integers(2, 7, (24, 4)).astype(np.uint8)
        actions = np.zeros((24, 4), np.uint8)
        for turn in range(120):
            games.builtin_moves(kinds, actions)
            games.step(actions)
            # Snakes that have not eaten become hungry around turn 70.
            if turn in (19, 39, 68, 69, 70, 99, 119):
                compared += compare(games)
    assert compared > 3000


def test_with_limited_view_they_ignore_hidden_segments() -> None:
    game = Game(settings=Settings(view_radius=5))
    games = Games(24, width=15, height=15, num_snakes=4, game=game)
    assert isinstance(games, EngineGames)
    games.reset(np.arange(1, 25))
    kinds = np.full((24, 4), snakes.engine_code("territory"), np.uint8)
    actions = np.zeros((24, 4), np.uint8)
    for turn in range(60):
        games.builtin_moves(kinds, actions)
        games.step(actions)
        if turn % 20 == 19:
            assert compare(games, ["hungry", "cautious", "territory"])


def test_a_draw_is_one_of_the_choices_and_each_comes_up() -> None:
    games = Games(512, num_snakes=2)
    assert isinstance(games, EngineGames)
    games.reset(np.arange(1, 513))
    kinds = np.full((512, 2), snakes.engine_code("safe-random"), np.uint8)
    choices, moves = np.zeros_like(kinds), np.zeros_like(kinds)
    games.builtin_choices(kinds, choices)
    games.builtin_moves(kinds, moves)
    assert (choices >> moves & 1).all()
    assert (np.bincount(moves[choices == 15].ravel(), minlength=4) > 100).all()
    again = np.zeros_like(kinds)
    games.builtin_moves(kinds, again)
    np.testing.assert_array_equal(again, moves)


def test_seats_of_nobody_are_left_alone_and_unknown_kinds_are_refused() -> None:
    games = Games(2, num_snakes=2)
    assert isinstance(games, EngineGames)
    games.reset(np.array([1, 2]))
    out = np.full((2, 2), 7, np.uint8)
    games.builtin_moves(np.array([[0, 1], [0, 0]], np.uint8), out)
    assert out[0, 0] == out[1, 0] == out[1, 1] == 7
    assert out[0, 1] < 4
    with pytest.raises(ValueError, match=r"kinds.* 7"):
        games.builtin_moves(np.full((2, 2), 7, np.uint8), out)
    with pytest.raises(ValueError, match=r"out.* writable.*\(2, 2\)"):
        games.builtin_moves(np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8))


def test_somebodys_own_snake_of_the_name_is_not_the_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [snakes.engine_code(name) for name in snakes.ENGINE_SNAKES] == [1, 2, 3, 4, 5, 6]
    assert snakes.engine_code("tree") == 0
    monkeypatch.setitem(snakes._factories, "hungry", snakes._factories["hungry"])
    monkeypatch.setattr(snakes, "_engine_names", set(snakes._engine_names))
    snakes.register("hungry", lambda seed: Pipeline(seed=seed))
    assert snakes.engine_code("hungry") == 0

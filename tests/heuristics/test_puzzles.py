"""The built-in puzzles: a deep search confirms the only good move."""

import random

import pytest

from battlesnake_heuristics.analysis.puzzles import (
    NODES_BY_GRADE,
    Puzzle,
    PuzzleGame,
    _only_surviving_move,
    load_builtin_puzzles,
)

DEEP_NODES = 200_000
GAMES = load_builtin_puzzles()


def test_there_are_200_puzzles_of_all_grades_from_different_games() -> None:
    puzzles = [(game.seed, *puzzle) for game in GAMES for puzzle in game.puzzles]
    assert len(set(puzzles)) == len(puzzles) >= 200
    assert {grade for *_, grade in puzzles} == {1, 2, 3}
    assert len({game.seed for game in GAMES}) == len(GAMES) >= 50
    assert {game.num_snakes for game in GAMES} == {2, 4}


def check(game: PuzzleGame) -> None:
    """Check each puzzle of a game by a deep search and by the search of its grade."""
    for puzzle in game.load_puzzles():
        assert len(puzzle.board.safe_moves()) > 1
        assert _only_surviving_move(puzzle.board, DEEP_NODES) == puzzle.move
        assert _only_surviving_move(puzzle.board, NODES_BY_GRADE[puzzle.grade - 1]) == puzzle.move


@pytest.mark.parametrize("game", random.Random(4).sample(GAMES, 3), ids=lambda game: game.name)
def test_a_deep_search_confirms_a_sample(game: PuzzleGame) -> None:
    check(game)


def test_the_puzzles_of_a_game_with_limited_view_show_all_cells() -> None:
    replay = min(GAMES, key=lambda game: len(game.moves)).replay()
    expected = next(Puzzle.find_all(replay))
    assert replay.set_default_view_radius(5) == 5
    found = next(Puzzle.find_all(replay))
    assert found == expected
    assert found.board.game.settings.view_radius is None


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_a_deep_search_confirms_every_puzzle(game: PuzzleGame) -> None:
    check(game)

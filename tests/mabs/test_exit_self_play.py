"""The games that EXIT learns from: what a network is for, who plays, and who wins a pair."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlaySettings, play_game
from battlesnake_rl.mabs.exit.evaluation_fit import EvaluationModel
from battlesnake_rl.mabs.exit.exit_self_play import (
    ExitProgress,
    SelfPlay,
    _draw_weights,
    _play_pair,
    game_mix_metadata,
)


def untrained() -> Evaluation:
    return EvaluationModel().to_evaluation({"trained_for": game_mix_metadata()})


def test_a_network_that_no_file_holds_yet_plays_what_it_was_trained_for(tmp_path: Path) -> None:
    made = untrained()
    made.save(tmp_path / "made.evaluation")
    read = Evaluation.load(tmp_path / "made.evaluation")
    for setup in (
        SelfPlaySettings(),
        SelfPlaySettings(7, 7),
        SelfPlaySettings(19, 19, 4),
        SelfPlaySettings(ruleset="wrapped", num_snakes=4),
    ):
        game = Game(ruleset=setup.ruleset)
        board = Board.new(setup.width, setup.height, setup.num_snakes, game=game)
        assert made.unsupported_reason(board) == read.unsupported_reason(board) == ""
    assert "11x20" in made.unsupported_reason(Board.new(11, 20))


@pytest.mark.parametrize(
    ("game", "snakes"),
    [(Game(), 8), (Game(map="royale"), 4), (Game("royale"), 2), (Game("constrictor"), 2)],
    ids=["eight snakes", "map royale", "royale", "constrictor"],
)
def test_what_is_learned_plays_the_family_it_learned_from(game: Game, snakes: int) -> None:
    evaluation = untrained()
    assert evaluation.unsupported_reason(Board.new(11, 11, snakes, game=game)) == ""
    assert "not 21x21" in evaluation.unsupported_reason(Board.new(21, 21, snakes, game=game))


def test_the_stronger_of_two_wins_the_match() -> None:
    strong, weak = SearchPlayer(nodes=400), SearchPlayer(nodes=8)
    outcomes = [_play_pair(strong, weak, 2, 900_000_000 + pair) for pair in range(6)]
    assert np.mean(outcomes) / 4 > 0.8
    # the same games with seats exchanged
    assert [_play_pair(strong, strong, 4, 900_000_000 + pair) for pair in (0, 1)] == [2, 2]


def test_pairs_that_end_after_the_decision_count_in_the_cpu_time() -> None:
    play: Any = SelfPlay.__new__(SelfPlay)
    remote = SimpleNamespace(remote=lambda *arguments: (2, 1.0))
    play.runners, play._pairs = [SimpleNamespace(call=remote)] * 3, []
    play._settings, play.progress = SimpleNamespace(match_pairs=8), ExitProgress()
    play._get_first = lambda pairs: (pairs[0], pairs[0])
    next(play.play_game_pairs(SearchPlayer(), SearchPlayer()))
    assert list(play.play_game_pairs(SearchPlayer(), SearchPlayer())) == [2] * 8
    assert play.progress.cpu_seconds == 3 + 8


def test_the_search_takes_the_weights_of_every_style() -> None:
    class Widest(np.random.Generator):
        def normal(self, *arguments: Any, **options: Any) -> float:  # type: ignore[override]
            return 9.0

    style = _draw_weights(Widest(np.random.PCG64(1)))
    game = play_game(1, SelfPlaySettings(max_turns=3), [SearchPlayer(weights=style, nodes=10)] * 2)
    assert game.turns <= 3

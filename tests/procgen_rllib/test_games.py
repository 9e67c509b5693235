"""Table of games, and held-out levels."""

import pytest

from battlesnake_rl.procgen.procgen_env_config import held_out_config
from battlesnake_rl.procgen.procgen_games import GAMES, normalized_score


def test_all_games() -> None:
    assert len(GAMES) == 16
    for game in GAMES.values():
        for blind, best in (game.easy, game.hard):
            assert blind < best


def test_normalized_scores() -> None:
    assert normalized_score(2.5, "starpilot") == 0
    assert normalized_score(35, "starpilot", "hard") == 1
    with pytest.raises(ValueError, match="'memory'"):
        normalized_score(1.0, "maze", "memory")


def test_held_out_levels() -> None:
    later = held_out_config({"env_name": "maze", "num_levels": 200, "start_level": 10})
    assert (later["start_level"], later["num_levels"]) == (210, 200)
    with pytest.raises(ValueError, match=r"num_levels.* 0"):
        held_out_config({"env_name": "maze"})

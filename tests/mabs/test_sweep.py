"""Ray Tune trains our algorithm with values drawn from distributions."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra rllib")

from ray import tune

from mabs import sweep

pytestmark = [pytest.mark.rllib, pytest.mark.slow, pytest.mark.filterwarnings("default")]


def test_a_sweep_trains_each_draw_and_keeps_its_checkpoint(
    small_config: Any, run_folder: Path
) -> None:
    config = small_config("DQN").training(lr=tune.grid_search([1e-4, 1e-3]))
    # A second is over after the first iteration that learns.
    results = sweep.search(config, samples=1, minutes=1 / 60, folder=run_folder)
    assert [result.error for result in results] == [None, None]
    assert sorted(result.config["lr"] for result in results) == [1e-4, 1e-3]
    best = results.get_best_result()
    assert best.metrics["env_runners"]["episode_len_mean"] == max(
        result.metrics["env_runners"]["episode_len_mean"] for result in results
    )
    assert (Path(best.checkpoint.path) / "algorithm_state.pkl").is_file()


def test_what_is_tried_are_settings_of_the_algorithm(small_config: Any) -> None:
    config = small_config("DQN").training(**sweep.SEARCH_SPACE)
    assert all(hasattr(config, name) for name in sweep.SEARCH_SPACE)

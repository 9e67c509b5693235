"""Ray Tune trains our algorithm with values drawn from distributions."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra rllib")

from ray import tune

from mabs import sweep

pytestmark = [pytest.mark.rllib, pytest.mark.slow, pytest.mark.filterwarnings("default")]

MEASURED = {"elo_games": 1.0}
"""When games on the ladder have been played."""


def test_a_sweep_trains_each_draw_and_keeps_its_checkpoint(
    small_config: Any, run_folder: Path
) -> None:
    config = small_config("DQN").training(lr=tune.grid_search([1e-4, 1e-3]))
    # Half of the time may go into games, so that there are some after a few seconds.
    config.ladder_share = 0.5
    results = sweep.search(config, samples=1, minutes=1, folder=run_folder, stop=MEASURED)
    assert [result.error for result in results] == [None, None]
    assert sorted(result.config["lr"] for result in results) == [1e-4, 1e-3]
    best = results.get_best_result()
    assert best.metrics["elo"] == max(result.metrics["elo"] for result in results)
    assert (Path(best.checkpoint.path) / "best.npz").is_file()
    assert (Path(best.checkpoint.path) / "algorithm_state.pkl").is_file()


def test_a_population_goes_on_from_its_strongest(small_config: Any, run_folder: Path) -> None:
    config = small_config("DQN").training(lr=tune.loguniform(1e-4, 1e-3))
    config.ladder_share = 0.5
    results = sweep.search(
        config, samples=2, minutes=0.2, folder=run_folder, scheduler="pbt", stop=MEASURED
    )
    assert [result.error for result in results] == [None, None]
    assert results.get_best_result().metrics["elo"] > 0


@pytest.mark.parametrize("name", ["none", "asha", "pbt"])
def test_schedulers_look_at_elo(name: str) -> None:
    scheduler = sweep.scheduler_of(name, minutes=10)
    assert (scheduler is None) == (name == "none")
    if scheduler is not None:
        # The metric is the sweep's; one of their own would win over it.
        assert scheduler.set_search_properties("elo", "max")


def test_what_is_tried_are_settings_of_the_algorithm(small_config: Any) -> None:
    config = small_config("DQN").training(**sweep.SEARCH_SPACE)
    assert all(hasattr(config, name) for name in sweep.SEARCH_SPACE)

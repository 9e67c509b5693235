"""The named experiments: every file is one, and says something to the game."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


def configured(*arguments: str) -> Any:
    """What the command would train, without training it."""
    from mabs.launcher import BattlesnakeLauncher

    launcher = BattlesnakeLauncher()
    known, rest = launcher._parser(None).parse_known_args(["--num-iters", "1", *arguments])
    return launcher._plan(known, rest)


def test_every_file_is_an_experiment(tmp_path: Path) -> None:
    from mabs import experiments

    names = experiments.names()
    assert len(names) >= 8
    described = set()
    for name in names:
        run = configured("--experiment", name, "--runs", str(tmp_path))
        assert run.job.name == name
        described.add((str(run.config.env_config), str(run.facts["hyperparameters"])))
    assert len(described) == len(names)


def test_an_experiment_sets_rewards_masks_and_rllib(tmp_path: Path) -> None:
    run = configured("--experiment", "hill-reward-kill", "--runs", str(tmp_path))
    assert run.config.env_config["rewards"]["ate_another_snake"] == 2
    assert run.config.env_config["num_snakes"] == 5
    assert run.config.reward_scale == 0.1
    run = configured("--experiment", "hill-mask-wall", "--runs", str(tmp_path))
    assert run.config.env_config["action_mask"] == "wall"


def test_flags_win_over_the_experiment(tmp_path: Path) -> None:
    run = configured(
        *("--experiment", "hill-vanilla", "--num-agents", "3", "--runs", str(tmp_path)),
        *("--rewards", '{"won": 1}', "--rl.training.config.reward_scale", "0.5"),
    )
    assert run.config.env_config["num_snakes"] == 3
    assert run.config.env_config["rewards"] == {"won": 1}
    assert run.config.reward_scale == 0.5
    assert run.config.env_config["action_mask"] == "none"


def test_an_unknown_experiment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from mabs.launcher import main

    assert main(["--experiment", "hill-vanila", "--num-iters", "1"]) == 2
    assert "unknown experiment 'hill-vanila'; choose one of hill-" in capsys.readouterr().err


def test_an_unknown_reward_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from mabs.launcher import main

    assert main(["--rewards", '{"eaten": 1}', "--num-iters", "1"]) == 2
    assert "unknown reward event 'eaten'" in capsys.readouterr().err

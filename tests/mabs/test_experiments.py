"""The named experiments: every file is one, and says something to the game."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


def configured(*arguments: str) -> tuple[str, Any]:
    """The run's name and what the command would train, without training it."""
    from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher
    from sagemaker_rl.job import hyperparameters

    launcher = BattlesnakeLauncher()
    parser = argparse.ArgumentParser(allow_abbrev=False)
    hyperparameters.add_options(parser, launcher.hyperparameters_class)
    given = hyperparameters.collect_values(*parser.parse_known_args(arguments), {})
    values = {**launcher.experiment_defaults(given, {})[0], **given}
    plain, overrides = hyperparameters.split_rllib_overrides(values, launcher.hyperparameters_class)
    config = launcher.get_experiment_config(plain)
    hyperparameters.apply_overrides(config, overrides)
    return launcher.default_run_name(plain), config


def test_every_file_is_an_experiment() -> None:
    from battlesnake_rl.mabs import experiments
    from battlesnake_rl.mabs.envs.env_factory import make_vector_env

    names = experiments.experiment_names()
    assert len(names) >= 9
    described = set()
    for name in names:
        named, config = configured("--experiment", name)
        assert named == name
        make_vector_env(1, config.env_config)
        described.add(str([config.env_config, config.algo_class]))
    assert len(described) == len(names)


def test_an_experiment_sets_rewards_masks_and_rllib() -> None:
    _, config = configured("--experiment", "hill-reward-kill")
    assert config.env_config["rewards"]["ate_another_snake"] == 2
    assert config.env_config["num_snakes"] == 5
    assert config.reward_scale == 0.1
    _, config = configured("--experiment", "hill-mask-wall")
    assert config.env_config["action_mask"] == "wall"
    _, config = configured("--experiment", "hill-curriculum")
    assert config.env_config["curriculum"][0] == [0, 7]


def test_flags_win_over_the_experiment() -> None:
    _, config = configured(
        *("--experiment", "hill-vanilla", "--num-snakes", "3"),
        *("--rewards", '{"won": 1}', "--rl.training.config.reward_scale", "0.5"),
    )
    assert config.env_config["num_snakes"] == 3
    assert config.env_config["rewards"] == {"won": 1}
    assert config.reward_scale == 0.5
    assert config.env_config["action_mask"] == "none"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("hill-vanila", r"'hill-vanila'.* hill-vanilla"),
    ],
)
def test_an_unknown_experiment_is_refused(
    name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_rl.commands.train_command import main

    assert main(["--experiment", name, "--num-iters", "1"]) == 2
    assert re.search(line, capsys.readouterr().err)


def test_ppo_and_dqn_duels_differ_only_in_opponents() -> None:
    (_, dqn), (_, ppo) = (configured("--experiment", name) for name in ("duel-dqn", "duel-ppo"))
    assert dqn.env_config | {"opponents": {}} == ppo.env_config


def settings(config: Any) -> dict[str, str]:
    """All that a configuration says, but for modules, which are made anew each time."""
    return {key: str(value) for key, value in config.to_dict().items() if "rl_module" not in key}


def test_with_nothing_named_it_trains_by_the_default_experiment() -> None:
    from battlesnake_rl.mabs.battlesnake_launcher import DEFAULT_EXPERIMENT, BattlesnakeLauncher

    (name, plain), (_, named) = configured(), configured("--experiment", DEFAULT_EXPERIMENT)
    assert settings(plain) == settings(named)
    assert name == "DISTIL-11x11-2"
    assert DEFAULT_EXPERIMENT in str(BattlesnakeLauncher.__doc__)
    name, four = configured("--num-snakes", "4", "--board-size", "7", "--ruleset", "wrapped")
    assert name == "DISTIL-7x7-4"
    changed = {"num_snakes": 4, "width": 7, "height": 7, "ruleset": "wrapped"}
    assert four.env_config == named.env_config | changed


@pytest.mark.parametrize(
    ("given", "before", "algorithm", "line"),
    [
        ({}, {}, "DISTIL", "duel-distil"),
        ({"rl.training.config.lr": 1e-4, "num_snakes": 4}, {}, "DISTIL", "duel-distil"),
        ({"rl.training.config.gamma": 0.9}, {}, "PPO", r"DISTIL.* rl.*gamma$"),
        ({"rewards": "survival"}, {}, "PPO", r"duel-ppo.* DISTIL.* rewards$"),
        ({"algorithm": "APEX"}, {}, None, "^$"),
        ({"rl.training.config.n_step": 5}, {}, "DQN", r"DQN.* APEX.*config\.n_step$"),
        ({"rl.training.config.replay_buffer_config.capacity": 9}, {}, "DQN", "have .*capacity$"),
        ({"rl.training.config.symmetry_augmentation": False}, {}, "DISTIL", "duel-distil"),
        ({}, {"num_snakes": 4}, "DQN", "DQN"),
        ({}, {"algorithm": "DQN"}, "DQN", "DQN"),
        ({}, {"algorithm": "PPO"}, "PPO", r"duel-ppo.* PPO$"),
        ({}, {"algorithm": "DISTIL"}, "DISTIL", "duel-distil"),
    ],
)
def test_what_is_given_decides_what_is_trained(
    given: dict[str, Any], before: dict[str, Any], algorithm: str | None, line: str
) -> None:
    from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher

    presets, said = BattlesnakeLauncher().experiment_defaults(given, before)
    assert presets.get("algorithm") == algorithm
    assert re.search(line, said)


def test_numbers_with_exponent_are_numbers(tmp_path: Path) -> None:
    from battlesnake_rl.mabs import experiments

    path = tmp_path / "a.yaml"
    path.write_text("rl.training.config.lr: 1e-4\nminutes: 1e0\n")
    assert experiments.load_experiment(str(path)) == {"rl.training.config.lr": 1e-4, "minutes": 1.0}
    path.write_text("minutes: [\n")
    with pytest.raises(ValueError, match=r"a\.yaml.* YAML"):
        experiments.load_experiment(str(path))

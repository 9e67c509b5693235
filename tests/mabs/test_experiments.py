"""The named experiments: every file is one, and says something to the game."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import experiments
from battlesnake_rl.mabs.battlesnake_launcher import (
    DEFAULT_EXPERIMENT,
    BattlesnakeHyperparameters,
    BattlesnakeLauncher,
)
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.settings.algorithm_settings import PPOSettings
from sagemaker_rl.job import hyperparameters
from tests.processes import run

pytestmark = pytest.mark.filterwarnings("default")


def configured(*arguments: str) -> tuple[str, Any]:
    """The run's name and what the command would train, without training it."""
    given: dict[str, Any] = {**hyperparameters.read_options(arguments)}
    chosen = BattlesnakeHyperparameters.complete(given)
    plain, overrides = chosen.hyperparameters_class.fill(given, chosen.presets)
    config: Any = BattlesnakeLauncher().get_experiment_config(plain)
    hyperparameters.apply_overrides(config, overrides)
    return plain.run_name, config


def test_every_file_is_an_experiment() -> None:
    names = sorted(path.stem for path in experiments.EXPERIMENT_DIR.glob("*.yaml"))
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


def test_ppo_and_dqn_duels_differ_only_in_opponents() -> None:
    (_, dqn), (_, ppo) = (configured("--experiment", name) for name in ("duel-dqn", "duel-ppo"))
    assert dqn.env_config | {"opponents": {}} == ppo.env_config


def settings(config: Any) -> dict[str, str]:
    """All that a configuration says, but for modules, which are made anew each time."""
    return {key: str(value) for key, value in config.to_dict().items() if "rl_module" not in key}


def test_with_nothing_named_it_trains_by_the_default_experiment() -> None:
    (name, plain), (_, named) = configured(), configured("--experiment", DEFAULT_EXPERIMENT)
    assert settings(plain) == settings(named)
    assert name == "DISTIL-11x11-2"
    assert DEFAULT_EXPERIMENT in str(BattlesnakeLauncher.__doc__)
    name, four = configured("--num-snakes", "4", "--board-size", "7", "--ruleset", "wrapped")
    assert name == "DISTIL-7x7-4"
    changed = {"num_snakes": 4, "width": 7, "height": 7, "ruleset": "wrapped"}
    assert four.env_config == named.env_config | changed


LIGHT = """
import os, sys, time
from battlesnake_gym.cli.main import main
for words in sys.argv[1:]:
    if not (child := os.fork()):
        try:
            status = main(["train", *words.split()])
        except SystemExit as end:
            status = end.code or 0
        heavy = sorted({"torch", "ray"} & sys.modules.keys())
        print("\\nended", status, time.process_time() < 1.0, heavy, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_help_and_mistakes_import_neither_torch_nor_ray() -> None:
    """The limit is 0.5 CPU seconds; twice that is allowed on a busy machine."""
    helps = ("--help", "--algorithm PPO --help")
    mistakes = (
        "--gamma 0.9", "--lr quick", "--board-size 40", "--rewards surviving",
        "--rl.training.config.gama 0.9", "--algorithm DQM",
    )  # fmt: skip
    lines = [*helps, *(f"--num-iters 1 {words}" for words in mistakes)]
    done = run(sys.executable, "-c", LIGHT, *lines)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert ended == ["ended 0 True []"] * 2 + ["ended 2 True []"] * 6, done.stdout + done.stderr


def test_help_shows_the_algorithms_settings_with_their_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--algorithm", "PPO", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(PPOSettings):
        assert f"--{field.name.rstrip('_').replace('_', '-')} " in told
    assert "discount factor per turn (default: 0.998)" in told
    assert "--expert-nodes" not in told
    with pytest.raises(SystemExit):
        main(["--help-all"])
    told = " ".join(capsys.readouterr().out.split())
    assert "training algorithm: DISTIL" in told
    assert "(default: DISTIL)" in told
    assert re.search(r"--num-snakes VALUE [^-]*\(default: 2\)", told)


def test_the_published_form_trains_what_its_scripts_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DQN on one instance, APEX on several: the listings of the post name no algorithm."""
    published = {"num_iters": 5, "num_agents": 5, "rl.training.config.num_gpus": 0}
    monkeypatch.setenv("SM_HPS", json.dumps(published))
    assert main(["--dry-run"]) == 0
    assert "trains DQN, as the published scripts" in capsys.readouterr().out
    monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    assert main(["--dry-run"]) == 0
    assert "trains APEX, as the published scripts" in capsys.readouterr().out


def test_numbers_with_exponent_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("rl.training.config.lr: 1e-4\nminutes: 1e0\n")
    assert experiments.load_experiment(str(path)) == {"rl.training.config.lr": 1e-4, "minutes": 1.0}
    path.write_text("minutes: [\n")
    with pytest.raises(ValueError, match=r"a\.yaml.* YAML"):
        experiments.load_experiment(str(path))

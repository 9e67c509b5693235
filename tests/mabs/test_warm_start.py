"""Training that begins with the weights of an earlier policy, named or in a job's channel."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from battlesnake_gym import policy_file
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs import battlesnake_launcher as launcher
from battlesnake_rl.mabs.dqn.dqn import DQNEnvRunner
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.policy import warm_start
from battlesnake_rl.mabs.policy.actor_critic import _PolicyNetwork
from battlesnake_rl.mabs.policy.q_network import DuelingQNetwork, make_network, network_settings
from battlesnake_rl.onnx_export import write_onnx
from battlesnake_server.commands.pack_command import main as pack
from tests.algorithms import built

GAMES = {"num_snakes": 2, "width": 5, "height": 5}
TINY = shlex.split("--algorithm DQN --num-snakes 2 --board-size 5 --num-iters 1 --dry-run")


@pytest.fixture
def exported(ray_with_games: None, tmp_path: Path) -> Callable[..., Path]:
    """Writes policy.onnx of a network that nobody has trained, as training would."""

    def make(algorithm: str = "DQN", **games: Any) -> Path:
        config = algorithms.configure(algorithm, GAMES | games)
        environment = make_vector_env(1, config.env_config)
        kind = DuelingQNetwork if algorithm == "DQN" else _PolicyNetwork
        shape = environment.single_observation_space.shape
        torch.manual_seed(1)
        network = make_network(kind, shape, 4, network_settings(config.model_config))
        folder = tmp_path / "model"

        def write(part: Path) -> dict[str, Any]:
            write_onnx(network, shape, part)
            facts = {"env_config": config.env_config}
            return {"observation": environment.observation.to_dict(), "training": facts}

        policy_file.save(folder / "policy.onnx", write)
        torch.save(network.state_dict(), tmp_path / "weights")
        return folder

    return make


@pytest.mark.parametrize("name", ["DQN", "PPO", "DISTIL", "RLLIB_PPO"])
def test_everybody_begins_with_its_weights(
    exported: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    config = algorithms.configure(name, GAMES).env_runners(num_env_runners=0)
    warm_start.apply_start_from(config, str(exported(name)))
    with built(config) as algorithm:
        wanted = torch.load(tmp_path / "weights")
        (module,) = algorithm.learner_group._learner.module.values()
        (played,) = algorithm.env_runner.module.values() if name == "RLLIB_PPO" else (
            algorithm.env_runner.module["default_policy"],
        )  # fmt: skip
        networks = [module.unwrapped().network, played.network]
        if name == "DQN":
            networks += [module.unwrapped().target_network]
        for network in networks:
            for key, tensor in network.state_dict().items():
                torch.testing.assert_close(tensor, wanted[key])
        for key, array in algorithm._get_export_weights().items():
            np.testing.assert_array_equal(array, wanted[key].numpy())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "DQN"], ""),
        (["--algorithm", "PPO"], r"model_config: \S+ is \(.*\), and here \([0-9, ]*\)\n$"),
        (["--board-size", "11"], "model_config"),
        (["--frame-stack", "2"], "has frame_stack 1, but the games have 2; set frame_stack to"),
        (
            ["--observation", "territory"],
            "has observation 'planes', but the games have 'territory'",
        ),
        (["--start-from", "nowhere"], r"nowhere.* checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    exported: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    status = main([*TINY, "--start-from", str(exported() / "policy.onnx"), *words])
    assert status == (2 if message else 0)
    assert re.search(message, capsys.readouterr().err)


def test_a_given_network_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "find_policy", Path)
    found = {"network": {"network": "other.py:Net"}}
    checkpoint = SimpleNamespace(identity=found)
    monkeypatch.setattr(warm_start, "PolicyCheckpoint", lambda path: checkpoint)
    for given in ({}, {"network": "mine.py:Net"}):
        config: Any = algorithms.configure("PPO", GAMES)
        config.rl_module(model_config=config.model_config | given)
        warm_start.apply_start_from(config, "runs/other")
        assert config.model_config["network"] == (given or found["network"])["network"]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes this process a job with such channels; returns where its ``FailureReason`` will be."""

    def make(**folders: Path | None) -> Path:
        monkeypatch.setenv("SM_CHANNELS", json.dumps(sorted(folders)))
        monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path / "opt" / "model"))
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "opt"))
        for name, folder in folders.items():
            if folder is not None:
                monkeypatch.setenv(f"SM_CHANNEL_{name.upper()}", str(folder))
        return tmp_path / "opt" / "output" / "failure"

    return make


def test_a_job_goes_on_from_the_policy_in_its_channel(
    exported: Callable[..., Path], job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(warm_start, "apply_start_from", lambda config, path: begun.append(path))
    monkeypatch.setattr(launcher.BattlesnakeLauncher, "checkpoint_identity", lambda *_: {})
    folder = exported()
    failure = job(policy=folder)
    assert main(TINY) == 0
    assert begun == [str(folder)]
    assert main([*TINY, "--start-from", "x"]) == 2
    assert re.search(r"--start-from.* 'x'.* 'policy'", failure.read_text())


@pytest.mark.parametrize(
    ("channel", "words", "message"),
    [
        ("policy", ["--algorithm", "PPO", "--kickstart-coeff", "0.7"], ""),
        ("policy", ["--algorithm", "EXIT"], "start_from needs PPO"),
        ("opponents", ["--opponents", '{"a.zip": 0.7, "b.zip": 0.2}'], ""),
        ("opponents", ["--opponents", '{"a.zip": 0.7, "b.zip": 0.8}'], r"less than 1.* 'b\.zip'"),
        ("opponents", ["--opponents", '{"a.zip": "x"}'], r"'a\.zip' must be more than 0"),
        ("opponents", ["--algorithm", "MXNET", "--opponents", '{"a.zip": 0.7}'], "got MXNET"),
    ],
)
def test_a_preflight_knows_only_the_names_of_channels(
    job: Callable[..., Path], channel: str, words: list[str], message: str
) -> None:
    failure = job(**{channel: None})
    if "--algorithm" not in words:
        words = [*words, "--algorithm", "DQN"]
    assert main(["--num-iters", "1", "--dry-run", *words]) == (2 if message else 0)
    if message:
        assert re.search(message, failure.read_text())


def test_data_that_nobody_reads_end_a_job_with_the_reason(
    ray_with_games: None, job: Callable[..., Path], tmp_path: Path
) -> None:
    failure = job(training=tmp_path)
    assert main(TINY) == 2
    assert re.search("'training'.* policy, opponents", failure.read_text())
    assert "\n" not in failure.read_text()


def test_opponents_come_from_a_channel(
    exported: Callable[..., Path], job: Callable[..., Path], tmp_path: Path
) -> None:
    folder = exported().rename(tmp_path / "brought")
    (folder / "policy.onnx").rename(folder / "strong.onnx")
    (folder / "policy.json").rename(folder / "strong.json")
    assert pack(["--snake", "hungry", "-o", str(folder / "mine.zip")]) == 0
    failure = job(opponents=folder)
    seats = '{"policy:strong": 0.2, "mine.zip": 0.2, "cautious": 0.1}'
    assert main([*TINY, "--opponents", seats]) == 0
    assert not failure.exists()
    assert main([*TINY, "--opponents", '{"cautious": 0.1}']) == 2
    assert "'opponents' (mine.zip, strong.json, strong.onnx)" in failure.read_text()


def test_bundles_take_seats(small_config: Any, tmp_path: Path) -> None:
    bundle = tmp_path / "mine.zip"
    assert pack(["--snake", "hungry", "-o", str(bundle)]) == 0
    config = small_config("DQN", num_snakes=3, opponents={str(bundle): 0.5})
    runner = DQNEnvRunner(config=config, worker_index=0, num_env_runners=0)
    (fragment,) = runner.sample()
    assert fragment.num_agent_steps > 0
    assert runner._opponents.occupied.any()
    bundle.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"mine\.zip"):
        DQNEnvRunner(config=config, worker_index=0, num_env_runners=0)

"""The baseline as the launcher sees it: refusals, training, checkpoints."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.algorithms import built
from tests.mxnet_baseline.conftest import QUICK, SMALL
from tests.sagemaker_rl.doctored import doctor, mark_whole

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


def test_only_its_own_observation() -> None:
    from battlesnake_rl.mxnet_baseline.mxnet_algorithm import MXNetConfig
    from battlesnake_rl.mxnet_baseline.mxnet_settings import OBSERVATION

    config = MXNetConfig().environment("battlesnake", env_config=SMALL)
    assert config.env_config["observation"] == OBSERVATION
    with pytest.raises(ValueError, match=r"observation is 'centred'.*leave the option out"):
        config.environment("battlesnake", env_config=SMALL | {"observation": "centred"})


def test_impossible_settings_are_refused(quick_config: Any) -> None:
    quick_config.num_env_runners = 1
    with pytest.raises(ValueError, match=r"num_workers=1; leave it out or give 0"):
        quick_config.validate()
    quick_config.num_env_runners = 0
    quick_config.validate()
    with pytest.raises(ValueError, match=r"batch_size must be positive, got 0"):
        quick_config.update_from_dict({"batch_size": 0}).validate()


def test_without_mxnet_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from battlesnake_rl.mxnet_baseline import mxnet_algorithm as algorithm

    monkeypatch.setenv("MXNET_PYTHON", str(tmp_path / "python"))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/python is not there")):
        algorithm.MXNetConfig().validate()


def test_a_setting_that_it_does_not_have_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from battlesnake_rl.mabs.train import main

    command = ["--algorithm", "MXNET", "--num-iters", "1", "--runs", str(tmp_path)]
    assert main([*command, "--rl.training.config.n_step", "3"]) == 2
    assert "unknown hyperparameter rl.training.config.n_step" in capsys.readouterr().err


def test_training_counts_and_explores_less_and_less(quick_config: Any) -> None:
    with built(quick_config) as algorithm:
        first, second = algorithm.train(), algorithm.train()
    assert (first["training_iteration"], second["training_iteration"]) == (1, 2)
    assert second["env_runners"]["num_env_steps_sampled_lifetime"] == 120
    games = first["env_runners"]["num_episodes"] + second["env_runners"]["num_episodes"]
    assert second["epsilon"] == pytest.approx(0.995**games)
    # Every snake learns at each fourth of its moves, once it has nine memories.
    moves = second["env_runners"]["num_agent_steps_sampled_lifetime"]["default_agent"]
    trained = second["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    updates = trained / QUICK["batch_size"]
    assert moves / 4 - 6 <= updates <= moves / 4 - 4
    # Survival: a snake is paid for each turn but that of its death.
    results = first["env_runners"]
    assert 0 < results["episode_return_mean"] < results["episode_len_mean"]


def test_it_plays_the_ladder_and_exports_its_best(
    run_in_mxnet: Callable[[str], str], tmp_path: Path
) -> None:
    script = f"""
import functools, json, pathlib
import numpy as np
from battlesnake_rl.mabs.measure import strength
from battlesnake_rl.mxnet_baseline import mxnet_dqn as dqn, mxnet_export as export, mxnet_network as network
from battlesnake_rl.mxnet_baseline.mxnet_settings import OBSERVATION, Settings
strength.LEAST_SECONDS = strength.GROWTH = 0.0
strength.place = functools.partial(strength.place, games=2)
from battlesnake_rl.mabs.play.environment import DEFAULTS
game = {{**DEFAULTS, "num_snakes": 2, "width": 5, "height": 5, "observation": OBSERVATION}}
make = lambda: dqn.Baseline(game, Settings(turns_per_iteration=10), seed=1)
baseline, folder = make(), pathlib.Path({str(tmp_path)!r})
results = baseline.train()
played = network.weights_of(baseline.network)
baseline.network.values.weight.set_data(baseline.network.values.weight.data() * 0)
baseline.save(folder)
again = make()
again.restore(folder)
assert again.strength.record == baseline.strength.record
for last in (False, True):
    export.export_network(folder, (14, 5, 5), folder / f"{{last}}.onnx", last)
np.savez(folder / "played.npz", **played)
print(json.dumps(results))
"""
    results = json.loads(run_in_mxnet(script).splitlines()[-1])
    assert results["elo_low"] < results["elo"] < results["elo_high"]
    assert results["elo_games"] == 2
    assert 0 < results["ladder_share"] < 1
    from onnxruntime import InferenceSession

    boards = np.random.default_rng(1).integers(256, size=(3, 14, 5, 5), dtype=np.uint8)
    spread = {}
    for last in (False, True):
        session = InferenceSession(tmp_path / f"{last}.onnx")
        spread[last] = float(np.ptp(session.run(None, {"observations": boards})[0]))
    # The last one has no weights in its last layer.
    assert spread[False] > 0
    assert spread[True] == 0


@pytest.mark.slow
def test_the_same_seed_learns_the_same(quick_config: Any) -> None:
    results = []
    for _ in range(2):
        algorithm = quick_config.build_algo()
        results.append(algorithm.train())
        algorithm.stop()
        del results[-1]["cpu_minutes"]  # measured
    # Of what was not measured there is no number, and such ones are unequal.
    assert repr(results[0]) == repr(results[1])


@pytest.mark.slow
def test_a_checkpoint_goes_on(quick_config: Any, tmp_path: Path) -> None:
    from battlesnake_rl.mxnet_baseline.mxnet_algorithm import write_onnx

    algorithm = quick_config.build_algo()
    algorithm.train()
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    algorithm.save_to_path(str(tmp_path / "first"))
    before = algorithm.train()
    algorithm.stop()

    again = quick_config.build_algo()
    again.restore_from_path(str(tmp_path / "first"))
    again.save_to_path(str(tmp_path / "second"))
    results = again.train()
    again.stop()
    assert results["training_iteration"] == before["training_iteration"] == 2
    assert results["env_runners"]["num_env_steps_sampled_lifetime"] == 120
    assert results["epsilon"] < 1
    shape = [14, 7, 7]
    for name in ("first", "second"):
        write_onnx(tmp_path / name, shape, tmp_path / f"{name}.onnx")
    first, second = ((tmp_path / f"{name}.onnx").read_bytes() for name in ("first", "second"))
    assert first == second


def test_a_process_that_dies_is_told_of(quick_config: Any) -> None:
    algorithm = quick_config.build_algo()
    algorithm.train()
    algorithm._process.kill()
    with pytest.raises(RuntimeError, match="ended with status -9 at 'train'"):
        algorithm.train()
    algorithm.stop()


def test_from_the_command_to_a_served_policy(mxnet_python: Path, tmp_path: Path) -> None:
    from battlesnake_gym.boards.board import Board
    from battlesnake_rl.launcher.runs import run_folder
    from battlesnake_rl.mabs.train import main
    from battlesnake_server.onnx_policy import Policy
    from battlesnake_server.strategies import PolicySnake

    command = ["--algorithm", "MXNET", "--runs", str(tmp_path), "--name", "b", "--map-size", "7"]
    settings = ["--rl.training.config.turns_per_iteration", "50", "--num-agents", "2"]
    assert main([*command, *settings, "--num-iters", "1"]) == 0
    assert main([*command, *settings, "--num-iters", "2"]) == 0
    rows = run_folder.read_progress(tmp_path / "b" / "progress.csv")
    assert [row["env_steps"] for row in rows] == [50, 100]
    assert rows[1]["agent_steps"] > rows[0]["agent_steps"] > 50
    policy = Policy.load(tmp_path / "b" / "model" / "policy.onnx")
    assert policy.metadata["versions"]["mxnet"] == "1.9.1"
    board = Board.new(7, 7, 2)
    board.you_id = board.snakes[0].id
    snake = PolicySnake(policy)
    assert snake(board).move in board.safe_moves()

    # MXNet pickles the optimizer: one with a program in it ends the run before it is read.
    checkpoint, ran = max((tmp_path / "b" / "checkpoints").iterdir()), tmp_path / "ran"
    doctor(checkpoint / "trainer.states", ran)
    mark_whole(checkpoint)
    with pytest.raises(RuntimeError, match="ended with status 1 at 'restore'"):
        main([*command, *settings, "--num-iters", "3"])
    assert not ran.exists()

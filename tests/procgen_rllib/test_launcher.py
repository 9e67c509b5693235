"""Complete commands: train and resume, with users' models, algorithms and callbacks; rollouts."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModule
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from battlesnake_rl.commands import procgen_train_command
from battlesnake_rl.commands.procgen_rollout_command import MODULE_PATH, _load_policy, main
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_launcher import ProcgenLauncher
from sagemaker_rl.runs.checkpoints import CheckpointError
from tests import processes, run_summary
from tests.procgen_rllib.test_experiments import KIT
from tests.procgen_rllib.test_plugins import KIT_MODEL
from tests.progress_csv import rows
from tests.sagemaker_rl import tensorboard_cards
from tests.sagemaker_rl.malicious_checkpoints import doctor

pytestmark = pytest.mark.filterwarnings("default")

SMALL = [
    *("-f", "starter-example", "--num-env-runners", "0", "--seed", "3"),
    *("--rl.training.config.train_batch_size_per_learner", "256"),
    *("--rl.training.config.minibatch_size", "64", "--rl.training.config.num_epochs", "1"),
    *("--rl.training.config.num_envs_per_env_runner", "8"),
    *("--rl.training.config.evaluation_interval", "2"),
    *("--rl.training.config.evaluation_duration", "3"),
]  # fmt: skip


def train(runs: Path, *arguments: str) -> int:
    return ProcgenLauncher.train_main([*arguments, "--runs-dir", str(runs)])


@pytest.fixture(scope="module")
def trained(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run in two parts on three levels of a game with short episodes."""
    runs = tmp_path_factory.mktemp("runs")
    game = json.dumps({"env_name": "bossfight", "num_levels": 3})
    arguments = [*SMALL, "--hyperparameter", f"env_config={game}"]
    assert train(runs, *arguments, "--env-steps", "250") == 0
    assert train(runs, *arguments, "--env-steps", "700") == 0
    return runs / "starter-example-bossfight"


def test_a_run_leaves_a_curve_and_goes_on_from_its_checkpoint(trained: Path) -> None:
    table = rows(trained)
    steps = [float(row["env_steps"]) for row in table]
    assert [row["training_iteration"] for row in table] == ["1", "2", "3"]
    assert steps == sorted(steps)
    assert 250 <= steps[0] < 700 <= steps[-1]
    assert float(table[-1]["episode_len_mean"]) > 0
    # The test ran after the second of three iterations.
    assert [row["test_reward_mean"] != "" for row in table] == [False, True, False]


def test_it_ends_with_five_lines(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = json.dumps({"env_name": "bossfight", "num_levels": 3})
    again = [*SMALL, "--hyperparameter", f"env_config={game}", "--env-steps", "700"]
    assert train(trained.parent, *again) == 0
    told = run_summary.told(capsys.readouterr().out, trained)
    assert told["result"].startswith("done: starter-example-bossfight, 3 iterations")
    checkpoint = f"{trained}/checkpoints/checkpoint_000003"
    assert told["model"].startswith(checkpoint)
    assert told["next"] == f"battlesnake-gym procgen rollout {checkpoint}"
    assert tensorboard_cards.check(trained / "tensorboard") == ["length", "reward", "env_steps"]


def test_the_network_learns(trained: Path) -> None:
    first, last = (
        sorted((trained / "checkpoints").glob("checkpoint_*"))[i] / MODULE_PATH for i in (0, -1)
    )
    before, after = (RLModule.from_checkpoint(str(path)).get_state() for path in (first, last))
    assert type(RLModule.from_checkpoint(str(last))).__name__ == "MyVisionNetwork"
    for name, weights in before.items():
        assert (weights != after[name]).any(), name


def test_another_game_is_another_run(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SMALL, "--name", trained.name, "--env-steps", "900"]
    assert train(trained.parent, *arguments, "--env-name", "maze") == 2
    assert f"{trained}/checkpoints/" in capsys.readouterr().err


def test_a_rollout_builds_the_network_itself_and_reads_but_weights(
    trained: Path, tmp_path: Path
) -> None:

    last = sorted((trained / "checkpoints").glob("checkpoint_*"))[-1]
    copy, ran = tmp_path / "copy", tmp_path / "ran"
    shutil.copytree(last, copy)
    for path in copy.rglob("class_and_ctor_args.pkl"):
        doctor(path, ran)
    boards = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    expected = _load_policy(last, greedy=True)(boards)
    np.testing.assert_array_equal(_load_policy(copy, greedy=True)(boards), expected)
    doctor(copy / MODULE_PATH / "module_state.pkl", ran)
    with pytest.raises(CheckpointError, match="numbers"):
        _load_policy(copy)
    assert not ran.exists()


def test_callbacks_of_users(trained: Path) -> None:
    events = EventAccumulator(str(trained / "tensorboard"))
    events.Reload()
    assert "rllib/env_runners/levels_completed" in events.Tags()["scalars"]


def test_rollouts(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rollouts.npz"
    arguments = [str(trained), "--run", "PPO", "--env", "procgen_env_wrapper"]
    arguments += ["--episodes", "5", "--num-envs", "2", "--output", str(out)]
    assert main([*arguments, "--video-dir", str(tmp_path), "--video-format", "gif"]) == 0
    printed = re.search("bossfight.* reward .* ± ([0-9.]+) over 5 ", capsys.readouterr().out)
    saved = np.load(out)
    totals = [sum(part) for part in np.split(saved["rewards"], saved["lengths"].cumsum()[:-1])]
    assert printed
    assert float(printed[1]) == pytest.approx(np.std(totals, ddof=1) / 5**0.5, abs=0.005)
    lengths = saved["lengths"]
    assert len(lengths) == len(saved["terminated"]) == 5
    assert len(saved["actions"]) == len(saved["rewards"]) == lengths.sum()
    assert saved["observations"].shape == (lengths.sum() + 5, 64, 64, 3)
    assert set(saved["level_seeds"]) <= {0, 1, 2}
    check_replay(saved)
    assert len(list(tmp_path.glob("bossfight-*.gif"))) == 5


def check_replay(saved: Any) -> None:
    """The first rollout is reproduced on its level."""
    level, length = int(saved["level_seeds"][0]), int(saved["lengths"][0])
    games = VectorProcgen(1, {"env_name": "bossfight", "num_levels": 1, "start_level": level})
    observation, _ = games.reset(seed=99)
    for turn in range(length):
        np.testing.assert_array_equal(observation[0], saved["observations"][turn])
        observation, rewards, terminations, _, _ = games.step(saved["actions"][turn : turn + 1])
        assert rewards[0] == saved["rewards"][turn]
    np.testing.assert_array_equal(observation[0], saved["observations"][length])
    assert terminations[0] == saved["terminated"][0]


def test_generalization_gap(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--levels", "training", "held-out", "all", "--episodes", "1"]
    assert main([str(trained), *arguments]) == 0
    output = capsys.readouterr().out
    for words in (
        "bossfight on held-out levels: reward",
        " over 1 episode, length",
        "gap from training to held-out levels:",
        "gap from training to all levels:",
    ):
        assert words in output
    assert "±" not in output, "one episode has no standard error"
    assert "in time" not in output
    assert main([str(trained), "--steps", "2000", "--num-envs", "4"]) == 0
    assert re.search(r" over \d+ episodes? that ended in time, length", capsys.readouterr().out)


def test_levels_and_game_of_the_config(trained: Path) -> None:
    config = json.dumps({"env_name": "leaper", "start_level": 7, "num_levels": 1})
    command = (sys.executable, "-m", "battlesnake_gym", "procgen", "rollout", str(trained))
    done = processes.run(*command, "--json", "--episodes", "1", "--config", config)
    assert done.stderr == "", "RLlib's warnings are hidden"
    found = json.loads(done.stdout)
    assert (found["game"], [*found["levels"]]) == ("leaper", ["configured"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "IMPALA"], r"--run.* IMPALA"),
        (["--config", '{"num_levels": 1}', "--levels", "all"], "--levels.* with num_levels"),
        (["--steps", "1"], "1 env steps"),
        (["--steps", "9", "--episodes", "1"], "--steps.* with --episodes"),
        (["--num-envs", "2", "--episodes", "1"], "--num-envs 2.* --episodes 1"),
        (["--video-format", "gif"], "--video-format.* without --video-dir"),
        (["--output", "x.pkl"], r"--output.* \.npz"),
        (["--levels", "training", "all", "--output", "x.npz"], "--levels"),
        (["--config", '{"env_name": "tetris"}'], "env_name"),
        (["--config", '{"frame_stack": 4}'], "frame_stack"),
        (["--config", "[3]"], r"--config must be a JSON object, got \[3\]"),
    ],
)
def test_rollouts_that_are_refused(
    trained: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(trained), *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_file_and_a_network_of_the_kit(
    ray_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They train, show progress within an iteration, and play."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.py").write_text(KIT_MODEL)
    experiment = tmp_path / "mine.yaml"
    model = "{custom_model: small, custom_options: {width: 4}}"
    experiment.write_text(KIT.replace("MODEL", model))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(procgen_train_command, "_PROGRESS_INTERVAL_S", 0.01)
    words = ["-f", "mine.yaml", "--num-iters", "1", "--num-env-runners", "0"]
    threads = torch.get_num_threads()
    try:
        assert procgen_train_command.main(words) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert re.search(r"mine-bigfish 0%, iteration 1, \d+ s: played \d+ steps of each of 12", out)
    assert main(["runs/mine-bigfish", "--episodes", "1"]) == 0


def test_an_algorithm_of_users(
    ray_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-f", "random-agent", "--env-name", "bossfight", "--num-iters", "2"]
    arguments += ["--rl.training.config.train_batch_size_per_learner", "600"]
    assert train(tmp_path, *arguments, "--num-env-runners", "0") == 0
    run = tmp_path / "random-agent-bossfight"
    assert [float(row["episode_len_mean"]) > 0 for row in rows(run)] == [True, True]
    assert main([str(run), "--run", "RandomAgent", "--episodes", "3"]) == 0
    assert "3 episodes" in capsys.readouterr().out

"""Runs of version 0.1, with the old names of options, columns and fields, resume and export."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from battlesnake_gym.common import old_runs, run_dir
from battlesnake_gym.common.run_dir import RunStatus
from battlesnake_rl.commands import runs_export_command
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import experiments
from battlesnake_rl.mabs.policy.policy_loader import load_score_fn
from battlesnake_rl.mabs.strength.ladder_evaluator import StrengthHistory
from battlesnake_rl.onnx_export import export
from tests.progress_csv import rows

RUNS = Path(__file__).parents[1] / "data" / "formats"

SHARED = shlex.split("""
    --board-size 7 --num-snakes 2 --num-env-runners 0 --seed 3 --rollout-fragment-length 8
    --rl.training.config.model_config.channels [4] --rl.training.config.model_config.strides [2]
    --rl.training.config.model_config.hidden_size 16 --rl.training.config.model_config.head_crop 3
    --rl.training.config.min_sample_timesteps_per_iteration 128
""")

DQN = shlex.split("""
    --algorithm DQN --num-envs-per-env-runner 4 --batch-size 32 --replay-capacity 300
    --num-steps-sampled-before-learning-starts 64
    --rl.training.config.store_buffer_in_checkpoints true
""")

DISTIL = shlex.split("""
    --num-envs-per-env-runner 8 --expert-nodes 100 --label-buffer-size 2000 --batch-size 64
    --ladder-cpu-fraction 0
""")


@pytest.mark.parametrize("algorithm", ["dqn", "distil"])
def test_the_status_has_the_current_names(algorithm: str) -> None:
    status = RunStatus.load(RUNS / f"run_{algorithm}_1")
    assert status is not None
    assert (status.state, status.stop_conditions["env_steps"]) == ("done", None)
    assert status.started_at < status.ended_at  # type: ignore[operator]
    assert status.settings["num_snakes"] == 2
    assert status.settings["board_size"] == status.identity["board_size"][0] == 7
    assert status.settings["policy_sharing"] == "shared"
    assert status.settings["action_mask"] == {"dqn": "fatal", "distil": "none"}[algorithm]
    assert status.settings["rl.training.config.model_config.hidden_size"] == 16
    assert status.identity["network"]["head_crop"] == 3
    assert status.identity["observation"]["frame_stack"] == 1


def test_columns_of_scores_have_the_current_names() -> None:
    rows = run_dir.read_progress(RUNS / "run_distil_1" / run_dir.CSV_FILE)
    assert 0 < rows[-1]["ladder_score"] < 1
    assert rows[-1]["score_hungry_low"] < rows[-1]["score_hungry"]
    assert not [name for name in rows[0] if "win_rate" in name]


def test_measurements_have_the_current_names() -> None:
    history = StrengthHistory.load(RUNS / "run_distil_1" / "checkpoints" / "checkpoint_000002")
    assert history.measurements[0].ci_low == 1191.5


def test_options_are_converted_by_algorithm() -> None:
    distil = {"algorithm": "DISTIL", "rl.training.config.in_memory": 5, "observation": "reach"}
    assert old_runs.convert_hyperparameters(distil) == {
        "algorithm": "DISTIL", "rl.training.config.label_buffer_size": 5,
        "observation": "territory",
    }  # fmt: skip
    exit_ = {"algorithm": "EXIT", "rl.training.config.in_memory": 5, "policies": "each"}
    assert old_runs.convert_hyperparameters(exit_) == {
        "algorithm": "EXIT", "rl.training.config.buffer_iterations": 5,
        "policy_sharing": "per_seat",
    }  # fmt: skip
    assert old_runs.convert_identity({"policies": ["snake_0", "snake_1"]}) == {
        "policy_sharing": "per_seat"
    }
    game = {"rl.training.config.env_config.food": "seeded", "num_agents": 2, "lr": 1}
    assert old_runs.convert_hyperparameters(game) == {
        "rl.training.config.env_config.food_rng": "official", "num_snakes": 2, "lr": 1,
    }  # fmt: skip


def test_experiment_files_with_old_names_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "num_agents: 4\nmap_size: 7\nframes: 2\naction_mask: forbidden+head\nfood_at: [[3, 3]]\n"
    )
    assert experiments.load_experiment(str(path)) == {
        "num_snakes": 4, "board_size": 7, "frame_stack": 2, "action_mask": "fatal+head",
        "food_positions": [[3, 3]],
    }  # fmt: skip


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("algorithm", "options"), [("dqn", DQN), ("distil", DISTIL)])
def test_a_run_resumes_and_exports(
    algorithm: str, options: list[str], ray_with_games: None, tmp_path: Path
) -> None:
    old = RUNS / f"run_{algorithm}_1"
    shape = json.loads((old / "run.json").read_text())["identity"]["observation shape"]
    shutil.copytree(old, tmp_path / "run")
    policy = tmp_path / "policy.onnx"
    assert runs_export_command.main([str(tmp_path / "run"), "-o", str(policy)]) == 0
    exported, before = (load_score_fn(path)[0] for path in (policy, old / "model" / "policy.onnx"))
    boards = np.random.default_rng(0).integers(256, size=(9, *shape), dtype=np.uint8)
    np.testing.assert_allclose(exported(boards), before(boards), rtol=1e-5)
    metadata = json.loads(policy.with_suffix(".json").read_text())
    assert metadata["training"]["env_config"]["food_rng"] == "fast"

    where = ["--runs-dir", str(tmp_path), "--name", "run", "--num-iters", "3"]
    assert main([*SHARED, *options, *where]) == 0
    curve = rows(tmp_path / "run")
    then = run_dir.read_progress(old / run_dir.CSV_FILE)
    assert [row["training_iteration"] for row in curve] == ["1", "2", "3"]
    assert float(curve[1]["env_steps"]) == then[1]["env_steps"] < float(curve[2]["env_steps"])
    newest = tmp_path / "run" / "checkpoints" / "checkpoint_000003"
    assert json.loads((newest / "metadata.json").read_text())["identity"]["board_size"] == [7, 7]


@pytest.mark.filterwarnings("default")
def test_the_module_of_an_old_checkpoint_is_unpickled(tmp_path: Path) -> None:
    checkpoint = RUNS / "run_dqn_1" / "checkpoints" / "checkpoint_000002"
    policy = export(str(checkpoint), "planes", (7, 7), tmp_path / "policy.onnx")
    assert policy.is_file()

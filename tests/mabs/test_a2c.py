"""The example of a new algorithm: it trains, exports, resumes and is placed on the ladder."""

import json
import shlex
from pathlib import Path

import pytest

from battlesnake_gym import policy_file
from battlesnake_rl.commands.train_command import main
from tests import progress_csv

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.filterwarnings("default")

SMALL = shlex.split("""
    --experiment docs/algorithms/a2c.yaml --board-size 7 --seed 3 --num-env-runners 0
    --rl.training.config.model_config.channels [4] --rl.training.config.model_config.strides [2]
    --rl.training.config.model_config.hidden_size 16 --num-envs-per-env-runner 8
    --ladder-cpu-fraction 0.5 --rl.training.config.min_time_s_per_iteration 0.5
""")


def test_a_new_algorithm_is_one_file_and_one_experiment(
    ray_with_games: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("battlesnake_rl.mabs.strength.ladder_evaluator.MIN_MEASUREMENT_S", 0.0)
    monkeypatch.chdir(ROOT)
    run = tmp_path / "a2c"
    for iterations in ("1", "3"):
        assert main([*SMALL, "--num-iters", iterations, "--runs-dir", str(tmp_path)]) == 0
    rows = progress_csv.rows(run)
    assert len(rows) > 2
    steps = [float(row["env_steps"]) for row in rows]
    assert steps == sorted(set(steps))
    assert float(rows[-1]["entropy"]) > 0
    metadata = json.loads((run / "model" / "policy.json").read_text())
    assert metadata["training"]["algorithm"] == "A2C"
    assert metadata["strength"]["games"] > 0
    assert policy_file.read(run / "model" / "policy.onnx")

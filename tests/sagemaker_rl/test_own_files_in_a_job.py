"""A job with a user's own map, observation, network and other extensions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.common import extensions
from tests.mabs.test_extensions_in_training import FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_job_trains_with_what_it_brings(training: Callable[..., Any], tmp_path: Path) -> None:
    from sagemaker_rl.job.source_files import download_artifacts

    mine = tmp_path / "my_files"
    mine.mkdir()
    (mine / "mine.py").write_text(FILE)
    estimator = training(
        mine,
        base_job_name="own",
        environment={extensions.EXTENSIONS_VARIABLE: "my_files/mine.py"},
        hyperparameters={
            "network": "my_files/mine.py:Net",
            "algorithm": "my_files/mine.py:OwnDQN",
            "map": "corners",
            "observation": "heads-and-food",
            "frame_stack": 2,
            "rewards": {"climbed": 1.0, "died": -1.0},
            "action_mask": "fatal+low",
            "num_snakes": 2,
            "board_size": 5,
            "allow_python_engine": True,
            "num_iters": 2,
        },
    )
    estimator.fit()
    model = download_artifacts(estimator, tmp_path / "run") / "model"
    facts = json.loads((model / "policy.json").read_text())
    assert facts["observation"]["name"] == "heads-and-food"
    assert facts["training"]["algorithm"] == "OwnDQN"
    assert (model / "policy.onnx").stat().st_size > 0

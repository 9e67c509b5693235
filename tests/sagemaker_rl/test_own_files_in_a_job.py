"""Files of somebody's own, brought along by a job: a map, an observation, a network and more."""

import json
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import own_files
from tests.mabs.test_own_files import FILE

pytestmark = [pytest.mark.rllib, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_job_trains_with_what_it_brings(session: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    import sagemaker
    from sagemaker.rl import RLEstimator

    from sagemaker_rl.results import fetch
    from sagemaker_rl.sources import cleaned

    root = Path(__file__).parents[2]
    mine = tmp_path / "my_files"
    mine.mkdir()
    (mine / "mine.py").write_text(FILE)
    folders = [root / name for name in ("rllib_common/sagemaker_rl", "battlesnake_gym")]
    account = f"{session.account_id()}.dkr.ecr.{session.boto_region_name}.amazonaws.com"
    estimator = RLEstimator(
        entry_point="train-mabs.py",
        **cleaned(
            source_dir=root / "rllib_src", dependencies=[*folders, root / "heuristics", mine]
        ),
        environment={own_files.VARIABLE: "my_files/mine.py"},
        image_uri=f"{account}/battlesnake-training:latest",
        role=sagemaker.get_execution_role(session),
        sagemaker_session=session,
        base_job_name="own",
        instance_type="ml.m5.xlarge",
        instance_count=1,
        hyperparameters={
            "network": "my_files/mine.py:Net",
            "algorithm": "my_files/mine.py:OwnDQN",
            "map": "door-map",
            "observation": "door-planes",
            "frames": 2,
            "rewards": {"door-climbed": 1.0, "died": -1.0},
            "action_mask": "forbidden+door-low",
            "num_agents": 2,
            "map_size": 5,
            "allow_slow_rules": True,
            "num_iters": 2,
        },
    )
    estimator.fit()
    model = fetch(estimator, tmp_path / "run") / "model"
    facts = json.loads((model / "policy.json").read_text())
    assert facts["observation"]["name"] == "door-planes"
    assert facts["training"]["algorithm"] == "OwnDQN"
    assert (model / "policy.onnx").stat().st_size > 0

"""The SageMaker SDK and `sagemaker-training`, with an account and instances played here."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore", reason="needs the extra sagemaker")

from botocore.exceptions import ClientError, ParamValidationError

from sagemaker_rl.metric_lines import METRIC_DEFINITIONS
from sagemaker_rl.rehearsed_jobs import _instances
from sagemaker_rl.results import fetch

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import helping

base = Path(os.environ["SAGEMAKER_BASE_DIR"])
given = json.loads(os.environ["SM_HPS"])
(Path(os.environ["SM_MODEL_DIR"]) / "policy.onnx").write_text(json.dumps(given))
(Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "progress.csv").write_text("env_steps\\n7\\n")
kept = base / "checkpoints" / "some" / "steps"
if given.get("fail"):
    (base / "output" / "failure").write_text("this is the reason")
    sys.exit(3)
if given.get("wait") and not kept.exists():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept.parent.mkdir(parents=True)
    kept.write_text("12")
    print("waiting", flush=True)
    signal.pause()
before = kept.read_text() if kept.exists() else "nothing"
print(f"{helping.WORD} from {before}: training_iteration=1 episode_reward_mean=-2.5")
print("training_iteration=2 episode_reward_mean=3e2")
"""


@pytest.fixture
def job(estimator: Any, session: Any, tmp_path: Path) -> Any:
    kept = {"checkpoint_s3_uri": f"s3://{session.default_bucket()}/{tmp_path.name}/checkpoints"}
    metrics = {"metric_definitions": METRIC_DEFINITIONS}
    return partial(estimator, SCRIPT, 'WORD = "going on"\n', **kept, **metrics)


def test_a_job_runs_and_delivers(
    job: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telemetry: list[Any] = []
    monkeypatch.setattr(
        "sagemaker.telemetry.telemetry_logging._requests_helper",
        lambda *request: telemetry.append(request),
    )
    values = {"lr": 5e-5, "name": "a b", "sizes": [1, 2], "on": True}
    estimator = job(hyperparameters=dict(values))  # the SDK adds to it
    estimator.fit()
    assert "algo-1 | going on from nothing: training_iteration=1" in capsys.readouterr().out
    run = fetch(estimator, tmp_path / "run")
    assert json.loads((run / "model" / "policy.onnx").read_text()) == values
    assert (run / "progress.csv").read_text() == "env_steps\n7\n"
    found = estimator.training_job_analytics.dataframe()
    rewards = found[found["metric_name"] == "episode_reward_mean"]["value"]
    assert len(rewards) > 0  # means over a minute
    assert rewards.between(-2.5, 300).all()
    last = {
        one["MetricName"]: one["Value"]
        for one in estimator.latest_training_job.describe()["FinalMetricDataList"]
    }
    assert last == {"training_iteration": 2, "episode_reward_mean": 300}
    assert not telemetry
    assert not {"AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"} & set(os.environ)


def test_a_failure_has_its_reason(job: Any) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    estimator = job(hyperparameters={"fail": True})
    with pytest.raises(UnexpectedStatusException, match=r"this is the reason .*algo-1"):
        estimator.fit()
    assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Failed"


def test_an_interrupted_job_goes_on_from_its_checkpoint(
    job: Any, session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator = job(hyperparameters={"wait": True})
    estimator.fit(wait=False)
    session.interrupt(estimator.latest_training_job.name, after="waiting")
    estimator.logs()
    said = capsys.readouterr().out
    assert "the instances were taken away; the job goes on with new ones" in said
    assert "going on from 12" in said
    # A new job finds what the old one left in S3.
    again = job(hyperparameters={"wait": True})
    again.fit()
    assert "going on from 12" in capsys.readouterr().out


def test_a_job_can_be_stopped(job: Any, session: Any) -> None:
    estimator = job(hyperparameters={"wait": True})
    estimator.fit(wait=False)
    name = estimator.latest_training_job.name
    for line in session.sagemaker_client.job(name).log(wait=True):
        if "waiting" in line:
            estimator.latest_training_job.stop()
    assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Stopped"


def test_impossible_requests_are_refused(job: Any, session: Any) -> None:
    with pytest.raises(ClientError, match="InstanceCount must be at least 1, got 0"):
        job(instance_count=0).fit()
    with pytest.raises(ParamValidationError, match="MaxRuntimeInSeconds, value: 0"):
        job(max_run=0).fit()
    with pytest.raises(ValueError, match="InputDataConfig cannot be rehearsed"):
        job().fit({"training": f"s3://{session.default_bucket()}/data"})
    with pytest.raises(ClientError, match="there is no training job nobody"):
        session.describe_training_job("nobody")


def request(count: int, **hyperparameters: Any) -> dict[str, Any]:
    return {
        "ResourceConfig": {"InstanceCount": count},
        "OutputDataConfig": {"S3OutputPath": "s3://mine/"},
        "HyperParameters": {name: json.dumps(value) for name, value in hyperparameters.items()},
    }


def test_equal_instances_meet_in_the_bucket() -> None:
    one, two = _instances(request(2, sagemaker_region="us-east-1", lr=1.0), Path("jobs/run"))
    assert one.hyperparameters == two.hyperparameters
    assert one.hyperparameters["s3_bucket"] == "mine"
    assert one.hyperparameters["s3_prefix"] == "run"
    assert one.hyperparameters["lr"] == 1.0
    (alone,) = _instances(request(1), Path("jobs/run"))
    assert not alone.hyperparameters
    assert alone.cpus == os.sched_getaffinity(0)


def test_two_jobs_share_the_processors() -> None:
    values = {"s3_bucket": "other", "rl_num_instances_secondary": 1}
    (first,) = _instances(request(1, rl_cluster_type="primary", **values), Path("p"))
    (second,) = _instances(request(1, rl_cluster_type="secondary", **values), Path("s"))
    assert first.cpus | second.cpus == os.sched_getaffinity(0)
    assert first.cpus.isdisjoint(second.cpus) or len(os.sched_getaffinity(0)) == 1
    assert first.hyperparameters["s3_bucket"] == "other"


@pytest.mark.rllib
@pytest.mark.timeout(1800)
def test_the_published_job_trains_and_gives_a_table(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the post on the starter pack has it: the SDK's patterns, and the names of its settings."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    import sagemaker
    from sagemaker.rl import RLEstimator, RLToolkit

    from sagemaker_rl.sources import cleaned

    root = Path(__file__).parents[2]
    account = f"{session.account_id()}.dkr.ecr.{session.boto_region_name}.amazonaws.com"
    estimator = RLEstimator(
        entry_point="train-mabs.py",
        **cleaned(
            source_dir=str(root / "rllib_src"),
            dependencies=[
                str(root / name)
                for name in ("rllib_common/sagemaker_rl", "battlesnake_gym", "heuristics")
            ],
        ),
        image_uri=f"{account}/battlesnake-training:latest",
        role=sagemaker.get_execution_role(session),
        sagemaker_session=session,
        base_job_name="published",
        instance_type="ml.m5.xlarge",
        instance_count=1,
        hyperparameters={
            "rl.training.run": "DQN",
            "rl.training.stop.training_iteration": 3,
            "rl.training.config.num_cpus": 1,
            "map_size": 7,
            "num_agents": 2,
        },
        metric_definitions=RLEstimator.default_metric_definitions(RLToolkit.RAY),
    )
    estimator.fit()
    table = estimator.training_job_analytics.dataframe()
    rewards = table[table["metric_name"] == "episode_reward_mean"]["value"]
    assert len(rewards) > 0
    assert rewards.between(-1e6, 1e6).all()

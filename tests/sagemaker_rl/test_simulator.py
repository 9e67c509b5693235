"""The SageMaker SDK and `sagemaker-training` with a simulated account and instances."""

import itertools
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("botocore", reason="needs the extra sagemaker")

from botocore.exceptions import ClientError, ParamValidationError

from sagemaker_rl.job.job_environment import LOGGED_METRICS, METRIC_DEFINITIONS
from sagemaker_rl.job.source_files import download_artifacts
from sagemaker_rl.simulator import training_jobs
from sagemaker_rl.simulator.training_jobs import _make_instances
from tests import run_summary

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import helping

assert "BATTLESNAKE_GYM_EXTENSIONS" not in os.environ  # the variable of this machine
base = Path(os.environ["SAGEMAKER_BASE_DIR"])
for name in json.loads(os.environ["SM_CHANNELS"]):
    folder = Path(os.environ[f"SM_CHANNEL_{name.upper()}"])
    told = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}
    print(f"channel {name}: {dict(sorted(told.items()))}")
given = json.loads(os.environ["SM_HPS"])
(Path(os.environ["SM_MODEL_DIR"]) / "policy.onnx").write_text(json.dumps(given))
(Path(os.environ["SM_OUTPUT_DATA_DIR"]) / "progress.csv").write_text("env_steps\\n7\\n")
kept = base / "checkpoints" / "some" / "steps"
if given.get("fail"):
    (base / "output" / "failure").write_text("this is the reason")
    sys.exit(3)
if given.get("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    while True:
        signal.pause()
if given.get("wait") and not kept.exists():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept.parent.mkdir(parents=True)
    kept.write_text("12")
    print("waiting", flush=True)
    signal.pause()
before = kept.read_text() if kept.exists() else "nothing"
print(f"{helping.WORD} from {before}: training_iteration=1 episode_reward_mean=-2.5")
print("training_iteration=2 episode_reward_mean=3e2")
if "gamma" in given and not given.get("silent"):
    print(f"elo={given['lr'] * 1000:.8g}")
"""


@pytest.fixture
def job(estimator: Any, session: Any, tmp_path: Path) -> Any:
    kept = {"checkpoint_s3_uri": f"s3://{session.default_bucket()}/{tmp_path.name}/checkpoints"}
    metrics = {"metric_definitions": METRIC_DEFINITIONS}
    return partial(estimator, SCRIPT, 'WORD = "going on"\n', **kept, **metrics)


def test_hardware_that_torch_does_not_support_is_a_warning(
    job: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator = job(instance_type="ml.p3.2xlarge")
    estimator.fit()
    assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert re.search(r"ml\.p3\.2xlarge.* 7\.0.* use ml\.g4dn", warnings[0])


def test_a_folder_that_cannot_be_made_is_the_failure_reason(
    job: Any, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(session.sagemaker_client, "folder", tmp_path / "file")
    with pytest.raises(ValueError, match=r"InternalServerError: NotADirectoryError: .*file/"):
        job().fit()


def test_a_job_runs_and_delivers(
    job: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("BATTLESNAKE_GYM_EXTENSIONS", "a file of this machine")
    telemetry: list[Any] = []
    monkeypatch.setattr(
        "sagemaker.telemetry.telemetry_logging._requests_helper",
        lambda *request: telemetry.append(request),
    )
    values = {"lr": 5e-5, "name": "a b", "sizes": [1, 2], "on": True}
    estimator = job(hyperparameters=dict(values))  # the SDK adds entries
    estimator.fit()
    assert "algo-1 | going on from nothing: training_iteration=1" in capsys.readouterr().out
    run = download_artifacts(estimator, tmp_path / "run")
    assert json.loads((run / "model" / "policy.onnx").read_text()) == values
    assert (run / "progress.csv").read_text() == "env_steps\n7\n"
    found = estimator.training_job_analytics.dataframe()
    rewards = found[found["metric_name"] == "episode_reward_mean"]["value"]
    assert len(rewards) > 0  # means per minute
    assert "No metrics called" not in caplog.text  # for metrics that the job lacks
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
    with pytest.raises(UnexpectedStatusException, match=r".*algo-1"):
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
    assert "interrupted" in said
    assert "going on from 12" in said
    # A new job finds the checkpoint of the old one in S3.
    again = job(hyperparameters={"wait": True})
    again.fit()
    assert "going on from 12" in capsys.readouterr().out


@pytest.mark.parametrize(("value", "word"), [("wait", "waiting"), ("deaf", "deaf")])
def test_a_job_can_be_stopped(
    job: Any, session: Any, value: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One script stops by itself, and the other one is killed."""
    if value == "deaf":
        monkeypatch.setattr(training_jobs, "_STOP_GRACE_S", 1.0)
    estimator = job(hyperparameters={value: True})
    estimator.fit(wait=False)
    training = estimator.latest_training_job
    for line in session.sagemaker_client.jobs[training.name].iter_log(wait=True):
        if word in line:
            training.stop()
    stopped = training.describe()
    assert stopped["TrainingJobStatus"] == stopped["SecondaryStatus"] == "Stopped"


def test_a_job_whose_time_is_over_is_stopped(
    job: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a second, the script may not handle signals yet; it is then killed like one that never
    # does.
    monkeypatch.setattr(training_jobs, "_STOP_GRACE_S", 5.0)
    estimator = job(hyperparameters={"wait": True}, max_run=1)
    estimator.fit()
    assert "max_run" in capsys.readouterr().out
    described = estimator.latest_training_job.describe()
    assert described["TrainingJobStatus"] == "Stopped"
    assert described["SecondaryStatus"] == "MaxRuntimeExceeded"


def test_impossible_requests_are_refused(job: Any, session: Any) -> None:
    with pytest.raises(ClientError, match=r"InstanceCount.* 1.* 0"):
        job(instance_count=0).fit()
    with pytest.raises(ParamValidationError, match=r"MaxRuntimeInSeconds.* 0"):
        job(max_run=0).fit()
    from sagemaker.inputs import TrainingInput

    address = f"s3://{session.default_bucket()}/data"
    with pytest.raises(ValueError, match=r"'training'.* input_mode Pipe"):
        job().fit({"training": TrainingInput(address, input_mode="Pipe")})
    with pytest.raises(ValueError, match="checkpoint_local_path /opt/ml/x "):
        job(checkpoint_local_path="/opt/ml/x").fit()
    with pytest.raises(ClientError, match="nobody"):
        session.describe_training_job("nobody")


def test_channels_are_folders(
    job: Any, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    s3, bucket, place = session.boto_session.client("s3"), session.default_bucket(), tmp_path.name
    outside = ("bad/../../../escaped.txt", f"worse//{tmp_path}/escaped.txt")
    many = ("many/", "many/a.txt", "many/deep/", "many/deep/b.txt", "many-others.txt")
    for key in ("one.txt", *many, *outside):
        s3.put_object(Bucket=bucket, Key=f"{place}/{key}", Body=key.encode())
    address = f"s3://{bucket}/{place}"
    job().fit({"policy": f"{address}/one.txt", "opponents": f"{address}/many"})
    said = capsys.readouterr().out
    assert "channel policy: {'one.txt': 'one.txt'}" in said
    assert "channel opponents: {'a.txt': 'many/a.txt', 'deep/b.txt': 'many/deep/b.txt'}" in said
    s3.create_bucket(Bucket="whole.bucket")
    s3.put_object(Bucket="whole.bucket", Key="c.txt", Body=b"c")
    job(checkpoint_s3_uri="s3://whole.bucket").fit({"policy": "s3://whole.bucket/"})
    assert "channel policy: {'c.txt': 'c'}" in capsys.readouterr().out
    with pytest.raises(UnexpectedStatusException, match=r"S3.*/nowhere"):
        job().fit({"policy": f"{address}/nowhere"})
    for channel in ("bad", "worse"):
        with pytest.raises(UnexpectedStatusException, match=r"escaped\.txt' leaves its folder"):
            job().fit({"policy": f"{address}/{channel}"})
    assert not list(tmp_path.rglob("escaped.txt"))


def test_checkpoints_keep_two_slashes_of_their_uri(session: Any, tmp_path: Path) -> None:
    s3, uri = session.boto_session.client("s3"), f"s3://{session.default_bucket()}/{tmp_path.name}"
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.json").write_text("{}")
    training_jobs._upload_folder(s3, f"{uri}//kept", tmp_path)
    training_jobs._download(s3, f"{uri}//kept", tmp_path / "copy")
    assert (tmp_path / "copy" / "checkpoint" / "state.json").read_text() == "{}"


@pytest.fixture
def tuner(estimator: Any, tmp_path: Path) -> Any:
    from sagemaker.tuner import (
        CategoricalParameter,
        ContinuousParameter,
        HyperparameterTuner,
        IntegerParameter,
    )

    number = itertools.count(1)

    def make(objective: str = "elo", hyperparameters: Any = None, **changes: Any) -> Any:
        one = estimator(SCRIPT, 'WORD = "going on"\n', hyperparameters=hyperparameters or {})
        ranges = {
            "lr": ContinuousParameter(1e-4, 1e-1, scaling_type="Logarithmic"),
            "gamma": ContinuousParameter(0.9, 0.999, scaling_type="ReverseLogarithmic"),
            "buffer": IntegerParameter(1000, 6000),
            "sizes": CategoricalParameter([[8], [8, 8]]),
        }
        name = f"{tmp_path.name[-12:-1].strip('_')}-{next(number)}"
        settings = {"max_jobs": 3, "random_seed": 5, "base_tuning_job_name": name} | changes
        return HyperparameterTuner(
            one, objective, ranges, metric_definitions=METRIC_DEFINITIONS, **settings
        )

    return make


def test_a_tuner_finds_the_best_job(
    tuner: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tuner(hyperparameters={"name": "same"})
    one.fit()
    said = capsys.readouterr().out
    assert said.count(": Completed, elo ") == 3
    table = one.analytics().dataframe()
    assert list(table["TrainingJobStatus"]) == ["Completed"] * 3
    assert table["lr"].between(1e-4, 1e-1).all()
    assert table["lr"].nunique() == 3
    assert table["gamma"].between(0.9, 0.999).all()
    assert set(table["buffer"]) <= set(range(1000, 6001))
    best = table.loc[table["lr"].idxmax()]
    assert best["FinalObjectiveValue"] == pytest.approx(best["lr"] * 1000, rel=1e-6)
    assert one.best_training_job() == best["TrainingJobName"]
    model = download_artifacts(one.best_estimator(), tmp_path / "best") / "model" / "policy.onnx"
    given = json.loads(model.read_text())
    assert given["lr"] == pytest.approx(best["lr"])
    assert given["name"] == "same"
    assert given["sizes"] in ("[8]", "[8, 8]")  # the SDK's text, which the launcher reads as JSON
    assert set(given) == {"lr", "gamma", "buffer", "sizes", "name"}


def test_the_least_can_be_the_best(tuner: Any) -> None:
    one = tuner(objective_type="Minimize", max_jobs=2)
    one.fit()
    table = one.analytics().dataframe()
    assert one.best_training_job() == table.loc[table["lr"].idxmin()]["TrainingJobName"]


def test_a_tuner_without_a_score_fails_and_says_so(tuner: Any) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    one = tuner(hyperparameters={"silent": True}, max_jobs=1)
    with pytest.raises(UnexpectedStatusException, match="'elo'"):
        one.fit()
    assert one.describe()["ObjectiveStatusCounters"] == {"Succeeded": 0, "Pending": 0, "Failed": 1}


def started(session: Any, tuner: Any) -> Any:
    """Start a tuner whose first job waits, and return the tuning job when the job waits."""
    tuner.fit(wait=False)
    tuning = session.sagemaker_client.tuning_jobs[tuner.latest_tuning_job.name]
    name = next(tuning.iter_log(wait=True)).partition(":")[0]
    job = session.sagemaker_client.jobs[name]
    next(line for line in job.iter_log(wait=True) if "waiting" in line)
    return tuning


def test_a_tuner_can_be_stopped(tuner: Any, session: Any) -> None:
    one = tuner(hyperparameters={"wait": True}, max_jobs=3)
    started(session, one)
    one.stop_tuning_job()
    one.wait()
    assert one.describe()["HyperParameterTuningJobStatus"] == "Stopped"
    assert len(one.analytics().dataframe()) == 1


def test_a_tuner_starts_no_jobs_after_the_end_of_its_session(tuner: Any, session: Any) -> None:
    tuning = started(session, tuner(hyperparameters={"wait": True}, max_jobs=3))
    session.sagemaker_client.kill_all()
    tuning.join(30)
    count = len(tuning.training_job_summaries())
    tuning.stop()
    assert count == 1


def test_impossible_tuners_are_refused(tuner: Any, session: Any) -> None:
    with pytest.raises(ClientError, match="'rewards'"):
        tuner("rewards").fit()
    with pytest.raises(ValueError, match=r"Hyperband.* Random"):
        tuner(strategy="Hyperband").fit()
    with pytest.raises(ValueError, match="leave out max_runtime_in_seconds"):
        tuner(max_runtime_in_seconds=3600).fit()
    one = tuner()
    one.estimator.checkpoint_s3_uri = f"s3://{session.default_bucket()}/x"
    with pytest.raises(ValueError, match="checkpoints"):
        one.fit()


def request(count: int, **hyperparameters: Any) -> dict[str, Any]:
    return {
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": count},
        "OutputDataConfig": {"S3OutputPath": "s3://mine/"},
        "HyperParameters": {name: json.dumps(value) for name, value in hyperparameters.items()},
    }


def test_equal_instances_meet_in_the_bucket() -> None:
    one, two = _make_instances(request(2, sagemaker_region="us-east-1", lr=1.0), Path("jobs/run"))
    assert one.hyperparameters == two.hyperparameters
    assert one.hyperparameters["s3_bucket"] == "mine"
    assert one.hyperparameters["s3_prefix"] == "run"
    assert one.hyperparameters["lr"] == 1.0
    (alone,) = _make_instances(request(1), Path("jobs/run"))
    assert not alone.hyperparameters
    assert alone.cpus == os.sched_getaffinity(0)


def test_two_jobs_share_the_processors() -> None:
    values = {"s3_bucket": "other", "rl_num_instances_secondary": 1}
    (first,) = _make_instances(request(1, rl_cluster_type="primary", **values), Path("p"))
    # `set_hyperparameters` encodes the value twice.
    (second,) = _make_instances(request(1, rl_cluster_type='"secondary"', **values), Path("s"))
    assert first.cpus | second.cpus == os.sched_getaffinity(0)
    assert first.cpus.isdisjoint(second.cpus) or len(os.sched_getaffinity(0)) == 1
    assert first.hyperparameters["s3_bucket"] == "other"
    # The script itself reports the missing hyperparameter.
    assert _make_instances(request(1, rl_cluster_type="primary"), Path("p"))


GROUPS = """
import json, os
told = json.loads(os.environ["SM_RESOURCE_CONFIG"])
mine = [one["instance_type"] for one in told["instance_groups"]
        if one["instance_group_name"] == os.environ["SM_CURRENT_INSTANCE_GROUP"]]
print(os.environ["SM_CURRENT_HOST"], "is", mine[0], "of", os.environ["SM_HOSTS"])
if mine == ["ml.g5.xlarge"]:  # As the learner's instance does.
    open(os.environ["SM_MODEL_DIR"] + "/policy.onnx", "w").close()
"""


def test_a_job_of_instance_groups(
    estimator: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sagemaker.instance_group import InstanceGroup

    groups = [
        InstanceGroup("plays", "ml.c5.4xlarge", 2),
        InstanceGroup("learns", "ml.g5.xlarge", 1),
    ]
    made = estimator(GROUPS, "", instance_type=None, instance_count=None, instance_groups=groups)
    made.fit()
    assert (download_artifacts(made, tmp_path / "run") / "model" / "policy.onnx").exists()
    said = capsys.readouterr().out
    hosts = '["algo-1","algo-2","algo-3"]'
    for host, kind in (("1", "c5.4xlarge"), ("2", "c5.4xlarge"), ("3", "g5.xlarge")):
        assert f"algo-{host} is ml.{kind} of {hosts}" in said


OF_THE_LADDER = {"elo", "elo_low", "elo_high", "elo_best", "ladder_score"}
"""Metrics that exist only after some seconds of CPU time."""


def check_published(
    estimator: Any, session: Any, folder: Path, said: str, missing: set[str]
) -> None:
    """What a job's metrics, its bucket, the end of its log and its artifacts tell."""
    table = estimator.training_job_analytics.dataframe()
    for name in ("episode_reward_mean", "episode_reward_max"):
        rewards = table[table["metric_name"] == name]["value"]
        assert len(rewards) > 0
        assert rewards.between(-1e6, 1e6).all()
    seen = set(table["metric_name"])
    assert {name for name in LOGGED_METRICS if f"ours_{name}" not in seen} <= missing
    # Uploaded while the job ran.
    bucket, name = session.default_bucket(), estimator.latest_training_job.name
    found = session.boto_session.client("s3").list_objects_v2(
        Bucket=bucket, Prefix=f"{name}/output/intermediate/tensorboard/events."
    )
    assert found["KeyCount"] == 1
    # The log ends like that of a run on this machine, and the artifacts contain the report.
    log = [line.partition("algo-1 | ") for line in said.splitlines()]
    lines = [line.partition(": ") for start, mark, line in log if mark and not start]
    begins = next(n for n, (word, _, _) in enumerate(lines) if word == "result")
    told = {word: what for word, _, what in lines[begins : begins + len(run_summary.WORDS)]}
    assert tuple(told) == run_summary.WORDS
    assert told["report"].partition(",")[0].endswith("/report.html")
    assert told["next"].startswith("sagemaker_rl.job.source_files.download_artifacts(estimator, ")
    run = download_artifacts(estimator, folder / "run")
    assert "</html>" in (run / "report.html").read_text()


OUR_METRICS = [one | {"Name": f"ours_{one['Name']}"} for one in METRIC_DEFINITIONS]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_published_job_trains_and_gives_a_table(
    session: Any, training: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job of the post about the starter pack: the SDK's patterns and its names of settings."""
    from sagemaker.rl import RLEstimator, RLToolkit

    estimator = training(
        base_job_name="published",
        hyperparameters={
            "rl.training.run": "DQN",
            "rl.training.stop.training_iteration": 20,
            "rl.training.config.num_cpus": 1,
            "board_size": 7,
            "num_snakes": 2,
            "rl.training.config.ladder_cpu_fraction": 0.5,
        },
        metric_definitions=RLEstimator.default_metric_definitions(RLToolkit.RAY),
    )
    estimator.metric_definitions += OUR_METRICS
    estimator.fit()
    check_published(estimator, session, tmp_path, capsys.readouterr().out, set())

"""The article's experiment as one command: trainings, graphs, table, and what is resumed."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import matplotlib as mpl
import pytest
from botocore.exceptions import NoCredentialsError

from battlesnake_rl.commands import aws_experiment_command as command
from battlesnake_rl.commands import train_command
from battlesnake_rl.commands.aws_experiment_command import (
    ACCOUNT_X,
    ARMS,
    LENGTH,
    REWARD,
    SIMULATED_X,
    _Arm,
    _draw,
    _table_rows,
    _trained_minutes,
    main,
)
from sagemaker_rl.simulator.simulated_session import SimulatedSession
from tests.sagemaker_rl.instances import set_job_environment

pytestmark = pytest.mark.filterwarnings("default")

TITLES = {arm.name: arm.title for arm in ARMS}


@pytest.fixture
def simulator() -> None:
    for package in ("sagemaker", "sagemaker_training", "moto.server"):
        pytest.importorskip(package, reason="needs the extras sagemaker and sagemaker-simulator")


def experiment(*arguments: str) -> int:
    return main([*arguments])


def write_curve(run: Path, reward: float, length: float, minutes: float = 2.0) -> None:
    """Write a curve whose last tenth has these means; all rows before have other values."""
    folder = run / "algo-1" / "output" / "data"
    folder.mkdir(parents=True)
    with (folder / "progress.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["training_iteration", SIMULATED_X, REWARD, LENGTH])
        for row in range(1, 101):
            ends = row > 90
            rows.writerow(
                [row, minutes * row / 100, reward if ends else -99, length if ends else 1]
            )


def test_the_graphs_have_the_claims_next_to_our_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "some"
    for name, reward, length in (("mxnet-1-core", 10, 20), ("dqn-1-core", 80, 50)):
        write_curve(folder / f"some-{name}", reward, length)
    assert experiment("--dir", str(folder), "--draw-only") == 0
    said = capsys.readouterr().out
    assert re.search(r"^MXNet DQN, 1 core +2\.0 +10\.0 +20\.0 +1\.0 +1\.0 ", said, re.M), said
    assert re.search(r"^DQN, 1 core +2\.0 +80\.0 +50\.0 +8\.0 +2\.5 +at least 7\.5 x", said, re.M)
    assert re.search(r"^APEX, 12 cores +0 +- ", said, re.M)
    assert (folder / "graphs.png").stat().st_size > 5_000


def test_dashed_lines_mark_the_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # Text stays text.
    runs = {name: tmp_path / name for name in ("mxnet-1-core", "apex-gpu")}
    for run in runs.values():
        write_curve(run, 10, 20)
    _draw(runs, TITLES, tmp_path / "one.svg", SIMULATED_X)
    picture = (tmp_path / "one.svg").read_text()
    for text in ("7.5 x baseline", "10 x baseline", "2 x baseline", "3 x baseline"):
        assert f"article: {text}" in picture
    assert "APEX, GPU and 12 cores" in picture


def test_trainings_that_all_fail_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_Experiment", MagicMock())
    assert experiment("--dir", str(tmp_path / "none")) == 2
    assert re.search("none has no curves; see the lines above", capsys.readouterr().err)


def test_without_a_baseline_nothing_is_compared(tmp_path: Path) -> None:
    write_curve(tmp_path / "dqn", 80, 50)
    rows = _table_rows({"dqn-1-core": tmp_path / "dqn"}, TITLES, SIMULATED_X)
    assert ["80.0", "50.0", "-", "-"] in [row[2:6] for row in rows]


@pytest.mark.slow
def test_a_training_trains_and_resumes(
    simulator: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "small" / "small-dqn-1-core"
    words = ("--dir", "small", "--arms", "dqn-1-core", "--minutes")
    assert experiment(*words, "0.02") == 0
    first = _trained_minutes(run, SIMULATED_X)
    assert first >= 0.02
    assert experiment(*words, "0.01") == 0
    assert "DQN, 1 core: complete" in capfd.readouterr().out
    assert experiment(*words, str(first + 0.01)) == 0
    assert _trained_minutes(run, SIMULATED_X) >= first + 0.01
    assert "resuming from " in (run / "algo-1" / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn-4-cores", "apex-12-cores", "apex-gpu"])
def test_an_arm_has_the_cores_of_its_instances(
    name: str, simulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert experiment("--dir", "small", "--arms", name, "--minutes", "0.02") == 0
    run = tmp_path / "small" / f"small-{name}"
    assert _trained_minutes(run, SIMULATED_X) >= 0.02
    if name != "dqn-4-cores":
        assert "2 of 2 workers are ready" in (run / "algo-1" / "log").read_text()


@pytest.mark.slow
def test_the_same_command_starts_jobs_in_an_account(
    simulator: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = SimulatedSession(tmp_path / "jobs")
    monkeypatch.setattr("sagemaker.Session", lambda: account)
    monkeypatch.setattr("battlesnake_rl.commands.aws_experiment_command._POLL_INTERVAL_S",
                        {ACCOUNT_X: 1.0})  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ("--dir", "small", "--arms", "dqn-1-core", "--minutes", "0.05", "--account")
    assert experiment(*words) == 0
    run = tmp_path / "small" / "small-dqn-1-core"
    assert _trained_minutes(run, ACCOUNT_X) >= 0.05
    assert (run / "model" / "policy.onnx").exists()
    account.close()


def test_errors_of_aws_have_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise NoCredentialsError

    monkeypatch.setattr(command, "_Experiment", fail)
    assert experiment("--dir", str(tmp_path / "new"), "--account") == 2
    assert re.search("AWS rejects .* credentials\n$", capsys.readouterr().err)


@pytest.mark.parametrize("simulated", [True, False])
def test_trainings_of_more_than_a_day_are_not_cut(
    simulator: None, simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = MagicMock()
    monkeypatch.setattr("sagemaker.rl.RLEstimator", estimator)
    monkeypatch.setattr("sagemaker_rl.job.preflight.check", lambda _: None)
    experiment = command._Experiment.__new__(command._Experiment)
    experiment._simulated, experiment._minutes = simulated, 2000.0
    experiment._sources = {"source_dir": "", "dependencies": []}
    experiment._session = SimpleNamespace(default_bucket=lambda: "bucket")
    experiment._image_uri = experiment._role = ""
    experiment._create_estimators(ARMS[1], "one")
    assert estimator.call_args.kwargs["max_run"] > 60 * 2000


@pytest.mark.parametrize(("minutes", "starts"), [(1.0, 0), (2.0, 2)])
@pytest.mark.parametrize("status", ["Failed", "Stopped"])
def test_a_failed_or_stopped_job_does_not_end_the_experiment(
    status: str,
    minutes: float,
    starts: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An interrupted experiment has started the jobs, which train for one minute."""
    downloaded: list[Path] = []
    started: list[str] = []
    experiment = command._Experiment.__new__(command._Experiment)
    experiment._x_column, experiment._simulated, experiment._minutes = ACCOUNT_X, False, minutes

    def create_estimators(arm: _Arm, name: str) -> list[SimpleNamespace]:
        assert not started, "all jobs are checked before the first job starts"
        return [SimpleNamespace(fit=lambda wait, job_name: started.append(job_name))]

    monkeypatch.setattr(experiment, "_create_estimators", create_estimators)
    statuses = {ARMS[1].name: status, ARMS[2].name: "Completed"}
    experiment._session = SimpleNamespace(
        sagemaker_client=SimpleNamespace(
            describe_training_job=lambda TrainingJobName: {  # noqa: N803  (the name of AWS)
                "TrainingJobStatus": statuses[TrainingJobName],
                "HyperParameters": {"minutes": "1.0"},
                "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/model.tar.gz"},
            }
        )
    )
    monkeypatch.setattr(command, "download_artifacts", lambda _, run: downloaded.append(run))
    runs = {arm.name: tmp_path / arm.name for arm in ARMS}
    assert experiment.run([*ARMS[1:3]], runs, TITLES)
    assert f"{TITLES[ARMS[1].name]} has {status.lower()}: " in capsys.readouterr().out
    assert started == [arm.name for arm in ARMS[1 : 1 + starts]]
    with_artifacts = ARMS[1:3] if status == "Stopped" else ARMS[2:3]
    assert downloaded == [tmp_path / arm.name for arm in with_artifacts]


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_an_account_accepts_the_jobs_of_an_arm(
    arm: _Arm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := arm.missing_reason:
        pytest.skip(reason)
    for index, (kind, count) in enumerate(arm.instances):
        own = arm.hyperparameters(index, "bucket", "prefix")
        set_job_environment(monkeypatch, kind, count, own)
        assert train_command.main(["--dry-run"]) == 0, capsys.readouterr().err

"""Directories, data channels, log and failure of a job."""

import io
import math
import os
import re
import tarfile
from pathlib import Path
from unittest import mock

import pytest

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import (
    LOGGED_METRICS,
    METRIC_DEFINITIONS,
    JobPaths,
    channel_folder,
    metric_line,
    report_failure,
)


def test_a_laptop_has_everything_in_one_folder() -> None:
    job = JobPaths.from_environment("fast", Path("runs"))
    assert job == JobPaths(
        name="fast",
        output_dir=Path("runs/fast"),
        checkpoint_dir=Path("runs/fast/checkpoints"),
        model_dir=Path("runs/fast/model"),
        in_sagemaker=False,
    )


def test_sagemaker_says_where() -> None:
    environ = {
        "SM_MODEL_DIR": "/opt/ml/model",
        "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
        "SM_OUTPUT_INTERMEDIATE_DIR": "/opt/ml/output/intermediate",
        "TRAINING_JOB_NAME": "job-7",
    }
    with mock.patch.dict(os.environ, environ):
        job = JobPaths.from_environment("fast", Path("runs"))
    assert job.name == "job-7"
    assert job.output_dir == Path("/opt/ml/output/data")
    assert job.checkpoint_dir == Path("/opt/ml/checkpoints")
    assert job.model_dir == Path("/opt/ml/model")
    assert job.in_sagemaker
    assert job.intermediate_dir == Path("/opt/ml/output/intermediate")
    with mock.patch.dict(os.environ, environ | {"SAGEMAKER_BASE_DIR": "/tmp/ml"}):
        elsewhere = JobPaths.from_environment("fast", Path("runs"))
    assert elsewhere.checkpoint_dir == Path("/tmp/ml/checkpoints")


def unpacked(path: Path) -> Path | None:
    """Unpack the data of a channel in ``path``."""
    with mock.patch.dict(os.environ, SM_CHANNELS='["policy"]', SM_CHANNEL_POLICY=str(path)):
        return channel_folder("policy")


def test_what_is_packed_is_unpacked_beside_itself(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, SM_CHANNELS='["policy"]'):
        assert channel_folder("policy") is None  # a preflight
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("./checkpoint/metadata.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    for _ in range(2):  # the first attempt may have been interrupted
        folder = unpacked(tmp_path)
        assert folder is not None
        assert (folder / "model" / "checkpoint" / "metadata.json").read_text() == "{}"


def test_what_is_empty_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyperparameterError, match=r"'policy'.* S3"):
        unpacked(tmp_path)
    (tmp_path / "model.tar.gz").write_bytes(b"nothing packed")
    with pytest.raises(HyperparameterError, match=r"model\.tar\.gz"):
        unpacked(tmp_path)


def test_nothing_is_unpacked_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data" / "model.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../outside"))
    with pytest.raises(HyperparameterError, match="outside"):
        unpacked(tmp_path / "data")
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("number", [0.0, -1.25, 17.0, 1234567.0, 3e-7, -2.5e12])
def test_every_number_comes_back(number: float) -> None:
    text = "algo-1 | " + metric_line(dict.fromkeys(LOGGED_METRICS, number)) + " more"
    for definition in METRIC_DEFINITIONS:
        (found,) = re.findall(definition["Regex"], text)
        assert math.isclose(float(found), number, rel_tol=1e-6), definition["Name"]


def test_what_is_not_there_yet_is_left_out() -> None:
    text = metric_line({"training_iteration": 1, "episode_reward_mean": math.nan, "env_steps": 64})
    assert text == "training_iteration=1 env_steps=64"


def test_the_first_reason_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"SM_MODEL_DIR": str(tmp_path / "model"), "SAGEMAKER_BASE_DIR": str(tmp_path)}
    with mock.patch.dict(os.environ, environ):
        report_failure("algo-2 was lost")
        report_failure("and so training failed")
    assert (tmp_path / "output" / "failure").read_text() == "algo-2 was lost"
    assert capsys.readouterr().err == "algo-2 was lost\nand so training failed\n"


def test_a_laptop_gets_it_on_stderr_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.dict(os.environ, SAGEMAKER_BASE_DIR=str(tmp_path)):
        report_failure("no")
    assert capsys.readouterr().err == "no\n"
    assert not list(tmp_path.iterdir())

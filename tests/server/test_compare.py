"""Experiments in one table, from folders and from S3 alike."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from battlesnake_server.commands import compare

HEAD = "training_iteration,time_total_s,env_steps,episode_reward_mean,episode_len_mean,elo\n"


def curve(reward: float, elo: str) -> str:
    return HEAD + "".join(
        f"{i},{60 * i},{1000 * i},{reward if i > 18 else 0},{10 + i},{elo if i == 20 else ''}\n"
        for i in range(1, 21)
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, reward, elo in (("first", 5.0, "900"), ("second", 7.0, "1100"), ("third", 6.0, "")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "progress.csv").write_text(curve(reward, elo))
    return tmp_path / "runs"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    boto3 = pytest.importorskip("boto3", reason="needs the extra sagemaker-local")
    moto = pytest.importorskip("moto", reason="needs the extra sagemaker-local")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with moto.mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="jobs")
        yield client


def put_job(s3: Any, key: str, text: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("progress.csv")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text.encode()))
    s3.put_object(Bucket="jobs", Key=key, Body=packed.getvalue())


def test_the_best_stands_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(runs)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", *compare.NUMBERS]
    assert [line.split()[0] for line in lines] == ["second", "first", "third"]
    assert lines[0].split() == ["second", "20", "20,000", "20.0", "7.0", "29.5", "1,100"]
    assert lines[2].endswith(" -")


def test_folders_and_prefixes_alike(
    runs: Path, s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    put_job(s3, "mine/job-1/output/output.tar.gz", curve(9.0, "1300"))
    put_job(s3, "mine-too/job-2/output/output.tar.gz", curve(1.0, ""))
    s3.put_object(Bucket="jobs", Key="mine/kept/progress.csv", Body=curve(8.0, "1200").encode())
    s3.put_object(Bucket="jobs", Key="mine/job-1/output/model.tar.gz", Body=b"")
    assert compare.main([str(runs / "first"), "s3://jobs/mine/", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in told] == ["first", "job-1", "kept"]
    assert told[1]["elo"] == 1300
    assert {one["length"] for one in told} == {29.5}
    assert compare.main(["s3://jobs/mine"]) == 0
    assert "job-2" in capsys.readouterr().out, "a prefix of jobs' names"


def test_two_of_a_name_keep_their_places(
    runs: Path, s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    put_job(s3, "first/output/output.tar.gz", curve(9.0, "1300"))
    assert compare.main([str(runs / "first"), "s3://jobs"]) == 0
    assert "first (s3://jobs)" in capsys.readouterr().out


def test_where_no_run_is_that_is_said(
    tmp_path: Path, s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (str(tmp_path), "s3://jobs/nobody", "s3://"):
        assert compare.main([place]) == 2
        assert place in capsys.readouterr().err

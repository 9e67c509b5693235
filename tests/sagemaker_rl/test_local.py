"""Simulated jobs: packed sources and configuration files, and the real programs (slow)."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.simulator import local_job
from sagemaker_rl.simulator.local_job import Instance, LocalJob, parse_hyperparameters
from tests import processes
from tests.sagemaker_rl.test_clusters import SMALL

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("src/train.py", "common/rl/job.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def job(sources: Path, **changes: Any) -> LocalJob:
    arguments: dict[str, Any] = {
        "entry_point": "train.py",
        "source_dir": sources / "src",
        "dependencies": [sources / "common" / "rl"],
        "hyperparameters": {"num_snakes": 4, "rl.training.config.lr": 5e-5, "name": "a b"},
        "folder": sources / "job",
    }
    return LocalJob(**(arguments | changes))


def test_every_instance_gets_its_configuration(sources: Path) -> None:
    instances = job(sources, instance_count=1, secondary_instance_count=2)._make_instances()
    assert [one.name for one in instances] == [
        "primary/algo-1",
        "secondary/algo-1",
        "secondary/algo-2",
    ]
    assert set.union(*(one.cpus for one in instances)) == os.sched_getaffinity(0)
    assert all(one.cpus for one in instances)
    last = instances[-1]
    (last.folder / "checkpoints").mkdir(parents=True)
    (last.folder / "checkpoints" / "old").touch()
    (last.folder / "output").mkdir()
    (last.folder / "output" / "failure").write_text("old")
    last.prepare()
    assert (last.folder / "checkpoints" / "old").exists()
    assert not last.failure_reason
    config = last.folder / "input" / "config"
    resources = json.loads((config / "resourceconfig.json").read_text())
    assert resources["current_host"] == "algo-2"
    assert resources["hosts"] == ["algo-1", "algo-2"]
    encoded = json.loads((config / "hyperparameters.json").read_text())
    assert all(isinstance(value, str) for value in encoded.values())
    values = {name: json.loads(value) for name, value in encoded.items()}
    assert values["rl.training.config.lr"] == 5e-5
    assert values["rl_cluster_type"] == "secondary"
    assert values["rl_num_instances_secondary"] == 2
    assert values["s3_bucket"]


def test_a_single_instance_needs_no_cluster(sources: Path) -> None:
    (one,) = job(sources)._make_instances()
    assert not any(name.startswith(("rl_", "s3_")) for name in one.hyperparameters)
    assert one.cpus == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entry_point": "tran.py"}, r"tran\.py"),
        ({"dependencies": [Path("nowhere")]}, "nowhere"),
        ({"instance_count": 0}, r"instance_count.* 1.* 0"),
        ({"secondary_instance_count": -1}, r"secondary_instance_count.* 0.* -1"),
    ],
)
def test_impossible_jobs_are_rejected(sources: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        job(sources, **changes).fit()
    assert not (sources / "job").exists()


def test_nothing_is_left_of_a_job_that_cannot_start(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")
    started: list[subprocess.Popen[str]] = []

    def start(instance: Instance, *_: Any) -> None:
        if started:
            raise OSError("no more processes")
        instance.process = subprocess.Popen(["sleep", "1000"], start_new_session=True, text=True)
        started.append(instance.process)

    monkeypatch.setattr(Instance, "start", start)
    with pytest.raises(OSError, match="no more processes"):
        job(sources, instance_count=2).fit()
    assert started[0].wait(60) == -signal.SIGKILL


PARENT = """
import sys
from pathlib import Path
from sagemaker_rl.simulator.local_job import Instance
one = Instance("algo-1", Path(sys.argv[1]), ["algo-1"], {}, {0}, program=("sh", "-c", sys.argv[2]))
one.prepare()
one.start("job", {})
print("started", flush=True)
one.print_log()
"""


def test_a_killed_parent_ends_its_instances(tmp_path: Path) -> None:
    # The shell ignores SIGTERM, as `sagemaker-training` does, and its child is another process.
    script = "trap '' TERM; sleep 1000 & wait"
    with processes.running(sys.executable, "-c", PARENT, tmp_path / "algo-1", script) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        processes.until(lambda: "sleep 1000 " in processes.below(parent.pid).values())
        left = processes.below(parent.pid)
        parent.kill()
        processes.until_gone(left)


def test_an_instance_that_ends_keeps_its_status(tmp_path: Path) -> None:
    script = ("sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 7")
    one = Instance("algo-1", tmp_path / "algo-1", ["algo-1"], {}, {0}, program=script)
    one.prepare()
    one.start("job", {})
    one.print_log()
    assert one.process is not None
    assert one.process.wait(60) == 7
    assert one._guard is not None
    assert one._guard.poll() is not None


def test_hyperparameters_in_three_forms(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text('{"seed": 1, "map": "royale"}')
    words = [str(file), "seed=2", '{"rl.training.config.lr": 5e-5}', "name=a=b"]
    assert parse_hyperparameters(words) == {
        "seed": 2,
        "map": "royale",
        "rl.training.config.lr": 5e-5,
        "name": "a=b",
    }
    for wrong in ("seed", "{seed}"):
        with pytest.raises(HyperparameterError):
            parse_hyperparameters([wrong])


def command(folder: Path, *words: str, **hyperparameters: Any) -> list[str]:
    pytest.importorskip("sagemaker_training", reason="needs the extra sagemaker-simulator")
    pytest.importorskip("ray", reason="needs the extra rllib")
    return [
        *(sys.executable, "-m", "battlesnake_gym", "aws", "simulate", "train-mabs.py"),
        *("--job-dir", str(folder), *words),
        *("--hyperparameters", json.dumps(SMALL | hyperparameters)),
    ]


def run(*arguments: Any, **hyperparameters: Any) -> "subprocess.CompletedProcess[str]":
    return processes.run(*command(*arguments, **hyperparameters), cwd=ROOT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_instances_by_the_real_programs(tmp_path: Path) -> None:
    done = run(tmp_path / "job", "--instance-count", "3", num_iters=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "algo-1 | training_iteration=2 " in done.stdout
    assert "algo-3 | algo-3 ends" in done.stdout
    assert not re.findall("core_worker|WARN|Warning|ERROR|pid=", done.stdout + done.stderr)
    with tarfile.open(tmp_path / "job" / "model.tar.gz") as archive:
        names = archive.getnames()
    assert {"./policy.onnx", "./policy.json", "./params.json"} <= set(names)
    assert not list((tmp_path / "job").glob("*/output/failure"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_instances_and_a_second_kills_them(
    default_signals: None, number: int
) -> None:
    sent: list[int] = []
    instances: Any = [SimpleNamespace(send_signal=sent.append)] * 2
    with local_job._forward_signals(instances):
        for _ in range(2):
            os.kill(os.getpid(), number)
    assert sent == [signal.SIGTERM] * 2 + [signal.SIGKILL] * 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_interrupted_job_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with subprocess.Popen(
        command(folder, num_iters=1_000_000), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        started_at = time.monotonic()
        while "training_iteration=2 " not in process.stdout.readline():
            assert time.monotonic() - started_at < 600
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode != 0
    assert "stopped; " in rest
    done = run(folder, num_iters=3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming from" in done.stdout or "training_iteration=" not in done.stdout

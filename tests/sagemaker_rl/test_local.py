"""Simulated jobs: packed sources and configuration files, and the real programs (slow)."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sagemaker_rl.commands import aws_simulate_command as command_module
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.stop_signals import handled_signals
from sagemaker_rl.simulator.local_job import Instance, parse_hyperparameters
from sagemaker_rl.simulator.training_jobs import TrainingJob
from tests import processes
from tests.sagemaker_rl.test_clusters import SMALL

ROOT = Path(__file__).parents[2]


@pytest.fixture
def instances(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[list[Instance]]]:
    """Return a function that returns the instances of each job of a command, without a start."""
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda _: None)
    monkeypatch.setattr(TrainingJob, "start", lambda job: None)
    (tmp_path / "train.py").touch()

    def make(job: str, *words: str, **hyperparameters: Any) -> list[list[Instance]]:
        parsed = command_module.parser().parse_args(["train.py", "--job-dir", job, *words])
        options = {"source_dir": str(tmp_path), "hyperparameters": hyperparameters}
        jobs = command_module._start_jobs(session, parsed, options, {"policy": tmp_path})
        return [one._instances for one in jobs]

    return make


def test_a_directory_without_a_name_names_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command_module.job_dir(".") == tmp_path.resolve()
    assert command_module.job_dir("..") == tmp_path.parent.resolve()
    assert command_module.job_dir("jobs/one") == Path("jobs/one")


def test_every_instance_gets_its_configuration(
    instances: Callable[..., list[list[Instance]]], session: Any
) -> None:
    given = {"num_snakes": 4, "rl.training.config.lr": 5e-5, "name": "a b"}
    (first,), others = instances("two", "--secondary-instance-count", "2", **given)
    assert set.union(*(one.cpus for one in (first, *others))) == os.sched_getaffinity(0)
    assert all(one.cpus for one in (first, *others))
    last = others[-1]
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
    assert json.loads((config / "inputdataconfig.json").read_text()).keys() == {"policy"}
    encoded = json.loads((config / "hyperparameters.json").read_text())
    assert all(isinstance(value, str) for value in encoded.values())
    values = {name: json.loads(value) for name, value in encoded.items()}
    assert values["rl.training.config.lr"] == 5e-5
    assert values["name"] == "a b"
    assert values["rl_cluster_type"] == "secondary"
    assert first.hyperparameters["rl_cluster_type"] == "primary"
    assert values["rl_num_instances_secondary"] == 2
    assert values["s3_bucket"] == first.hyperparameters["s3_bucket"] == session.default_bucket()
    assert values["s3_prefix"] == first.hyperparameters["s3_prefix"] == "two"
    ((one,),) = instances("one")
    assert not any(name.startswith(("rl_", "s3_")) for name in one.hyperparameters)
    assert one.cpus == os.sched_getaffinity(0)


def test_nothing_is_left_of_a_job_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("moto.server", "sagemaker"):
        pytest.importorskip(package, reason="needs the extras sagemaker and sagemaker-simulator")
    started: list[subprocess.Popen[str]] = []

    def start(instance: Instance, *_: Any) -> None:
        if started:
            raise OSError("no more processes")
        instance.process = subprocess.Popen(["sleep", "1000"], start_new_session=True, text=True)
        started.append(instance.process)

    monkeypatch.setattr(Instance, "start", start)
    words = ["train-mabs.py", "--instance-count", "2", "--job-dir", str(tmp_path / "job")]
    assert command_module.main(words) == 1
    assert "no more processes" in capsys.readouterr().out
    assert started[0].wait(60) == -signal.SIGKILL


PARENT = """
import sys
from pathlib import Path
from sagemaker_rl.simulator.local_job import Instance
one = Instance("algo-1", Path(sys.argv[1]), ["algo-1"], {}, {0}, program=("sh", "-c", sys.argv[2]))
one.prepare()
one.start("job", {})
print("started", flush=True)
for line in one.iter_log():
    pass
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
    assert not list(one.iter_log())
    assert one.process is not None
    assert one.process.wait(60) == 7
    assert one._guard is not None
    assert one._guard.poll() is not None


def test_hyperparameters_in_three_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("some.json")
    file.write_text('{"seed": 1, "map": "royale"}')
    words = ["seed=2", str(file), '{"rl.training.config.lr": 5e-5}', "name=a=b"]
    assert parse_hyperparameters(words) == {
        "seed": 2,
        "map": "royale",
        "rl.training.config.lr": 5e-5,
        "name": "a=b",
    }
    for text in ("[1]" * 99, '{"seed": 1,' + " " * 999):
        file.write_text(text)
        for wrong in ("seed", "{seed}", str(file)):
            with pytest.raises(HyperparameterError, match=re.escape(wrong)) as error:
                parse_hyperparameters([wrong])
            assert len(str(error.value)) < 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_jobs_and_later_ones_kill_them(
    default_signals: None, number: int
) -> None:
    done: list[str] = []
    job = SimpleNamespace(stop=lambda: done.append("stop"), kill=lambda: done.append("kill"))
    with handled_signals(command_module._stopper([job, job])):
        for _ in range(3):
            os.kill(os.getpid(), number)
    assert done == ["stop"] * 2 + ["kill"] * 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_interrupted_job_of_three_instances_resumes(tmp_path: Path) -> None:
    for package in ("sagemaker_training", "sagemaker"):
        pytest.importorskip(package, reason="needs the extras sagemaker and sagemaker-simulator")
    pytest.importorskip("ray", reason="needs the extra rllib")
    folder = tmp_path / "job"

    def command(num_iters: int) -> list[str]:
        return [
            *(*processes.COMMAND, "aws", "simulate", "train-mabs.py", "--job-dir", str(folder)),
            *("--instance-count", "3"),
            *("--hyperparameters", json.dumps(SMALL | {"num_iters": num_iters})),
        ]

    with subprocess.Popen(
        command(1_000_000), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        started_at = time.monotonic()
        while "training_iteration=2 " not in process.stdout.readline():
            assert time.monotonic() - started_at < 600
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode != 0
    assert "stopped; " in rest
    done = processes.run(*command(3), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resuming from" in done.stdout or "training_iteration=" not in done.stdout
    assert "algo-3 | algo-3 ends" in done.stdout
    assert not re.findall("core_worker|WARN|Warning|ERROR|pid=", done.stdout + done.stderr)
    with tarfile.open(folder / "model.tar.gz") as archive:
        names = archive.getnames()
    assert {"./policy.onnx", "./policy.json", "./params.json"} <= set(names)
    assert not list(folder.glob("*/output/failure"))

"""The training image, run as SageMaker runs it; ``make image-check`` builds it and sets its root.

runc's containers start as root with their own ``/opt/ml``, two CPUs and 4 GB of memory. The image
is read-only, and only the other instances can be reached.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import until

ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("IMAGE_ROOT", "")
TRAINER, HOME = 10001, "/home/trainer"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not IMAGE, reason="needs IMAGE_ROOT; make image-check builds it"),
]

SMALL = {
    "num_snakes": 2,
    "board_size": 5,
    "num_iters": 1,
    "rl.training.config.ladder_cpu_fraction": 0,
    "rl.training.config.min_time_s_per_iteration": 1,
}
MAY = [f"CAP_{word}" for word in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")]


@dataclass
class Container:
    """One instance of a job."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def ends(self) -> int:
        """Wait and return the exit status."""
        return self.process.wait(900)


@pytest.fixture
def network() -> Iterator[Any]:
    from tests.sagemaker_rl.instances import Network

    one = Network().open()
    yield one
    one.close()


def start(network: Any, folder: Path, hosts: list[str], **given: Any) -> list[Container]:
    """Start a job's instances."""
    from sagemaker_rl.job.source_files import PROJECT_DEPENDENCIES, merge_source_dir
    from sagemaker_rl.simulator.local_job import Instance

    sources = merge_source_dir(
        source_dir=ROOT / "rllib_src", dependencies=[ROOT / one for one in PROJECT_DEPENDENCIES]
    )
    values = SMALL | given | {
        "sagemaker_program": "train-mabs.py",
        "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz",
        "sagemaker_region": "us-east-1",
    }  # fmt: skip
    containers = []
    for one in network.job(folder, ROOT / "x", hosts, {}, {}):
        host = one.folder.name
        home = folder / f"{host}-container"
        instance = Instance(host, home / host, hosts, values, set(), ["code"])
        instance.prepare()
        shutil.make_archive(str(instance.channel_folder("code") / "sourcedir"), "gztar", sources)
        name = f"{network.tag}-{host}"
        settings = config(name, host, instance.folder, one.namespace)
        (home / "config.json").write_text(json.dumps(settings))
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                ["runc", "run", "--bundle", home, name], stdout=log, stderr=subprocess.STDOUT
            )
        containers.append(Container(name, home, process))
    return containers


def config(name: str, host: str, ml: Path, namespace: str) -> dict[str, Any]:
    """Return runc's configuration of a container."""
    # In a real container, the user can write to all its directories; runc keeps their mode.
    owned = f"uid={TRAINER},gid={TRAINER}"
    temporary = [
        {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options}
        for place, options in (
            ("/dev/shm", ["mode=1777"]), ("/tmp", ["mode=1777"]), ("/run", []), (HOME, [owned])
        )
    ]  # fmt: skip
    return {
        "ociVersion": "1.0.2",
        "hostname": host,
        "root": {"path": IMAGE, "readonly": True},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": ["/entrypoint.sh", "train"],
            "env": ["PATH=/training/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1",
                    "RAY_USAGE_STATS_ENABLED=0", f"TRAINING_JOB_NAME={name}"],
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), MAY),
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            *temporary,
            {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
            {"destination": "/opt/ml", "type": "bind", "source": str(ml), "options": ["rbind"]},
            {"destination": "/etc/hosts", "type": "bind",
             "source": f"/etc/netns/{namespace}/hosts", "options": ["bind", "ro"]},
        ],
        "linux": {
            "cgroupsPath": f"/{name}",
            "namespaces": [*({"type": kind} for kind in ("pid", "mount", "ipc", "uts")),
                           {"type": "network", "path": f"/run/netns/{namespace}"}],
            "resources": {"cpu": {"quota": 200_000, "period": 100_000},
                          "memory": {"limit": 4 << 30}},
        },
    }  # fmt: skip


def test_one_instance_trains_and_delivers(network: Any, tmp_path: Path) -> None:
    (one,) = start(network, tmp_path, ["algo-1"], algorithm="DQN")
    assert one.ends() == 0, one.log[-3000:]
    policy = one.folder / "algo-1" / "model" / "policy.onnx"
    assert policy.stat().st_uid == TRAINER


def test_a_stopped_one_delivers_too(network: Any, tmp_path: Path) -> None:
    (one,) = start(network, tmp_path, ["algo-1"], algorithm="DQN", num_iters=10_000)
    until(lambda: "training_iteration=1 " in one.log, seconds=600)
    subprocess.run(["runc", "kill", one.name, "TERM"], check=True)
    assert one.ends() != 0
    assert "ExitCode 143" in one.log, one.log[-3000:]
    assert (one.folder / "algo-1" / "model" / "policy.onnx").exists()


def test_three_instances_are_one_cluster(network: Any, tmp_path: Path) -> None:
    hosts = ["algo-1", "algo-2", "algo-3"]
    three = start(network, tmp_path, hosts, algorithm="APEX", num_env_runners=3)
    assert [one.ends() for one in three] == [0, 0, 0], [one.log[-1500:] for one in three]
    assert (three[0].folder / "algo-1" / "model" / "policy.onnx").exists()

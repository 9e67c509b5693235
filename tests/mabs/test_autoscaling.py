"""``--autoscale-timeout``: the autoscaler starts machines for env runners and stops idle ones."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from battlesnake_rl.commands.train_command import main
from sagemaker_rl.cluster import ray_node
from tests.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HEAD = "ray.head.default"
MACHINE = {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 3}
CLUSTER = {
    "cluster_name": "growing",
    "max_workers": 3,
    "idle_timeout_minutes": 0.1,
    # Ray's own provider for tests: a machine is a raylet of this one.
    "provider": {"type": "fake_multinode", "disable_node_updaters": True,
                 "disable_launch_config_check": True, "use_node_id_as_ip": True},
    "available_node_types": {HEAD: MACHINE | {"max_workers": 0}, "worker": MACHINE},
    "head_node_type": HEAD,
    "upscaling_speed": 1.0,
    "auth": {},
    "docker": {},
    "file_mounts": {},
    **dict.fromkeys(("initialization_commands", "setup_commands", "head_setup_commands",
                     "worker_setup_commands", "head_start_ray_commands",
                     "worker_start_ray_commands", "cluster_synced_files"), ()),
}  # fmt: skip


@pytest.fixture
def address(
    disconnected_from_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray_node._read_token_again()
    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    head = subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-cpus=1",
         "--node-ip-address=127.0.0.1", "--include-dashboard=false",
         f"--autoscaling-config={tmp_path / 'cluster.json'}"],
        env=os.environ | {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"},
        start_new_session=True,
    )  # fmt: skip
    yield "127.0.0.1:6379"  # where its machines look for it
    os.killpg(head.pid, signal.SIGTERM)
    head.wait()


def test_machines_come_for_the_runners_and_go_again(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listens() -> bool:
        host, port = address.split(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    until(listens)
    words = shlex.split("--algorithm APEX --num-snakes 2 --board-size 5 --num-iters 1 --name grown")
    words += ["--runs-dir", str(tmp_path), "--rl.training.config.min_time_s_per_iteration", "1"]
    words += ["--ladder-cpu-fraction", "0", "--autoscale-timeout", "3"]
    assert main([*words, "--num-env-runners", "2"]) == 2
    assert re.search(
        r"--autoscale-timeout.* --ray-address.* --num-env-runners", capsys.readouterr().err
    )
    assert main([*words, "--num-env-runners", "2", "--ray-address", address]) == 0
    words += ["--num-env-runners", "7", "--ray-address", address, "--autoscale-timeout", "1"]
    assert main([*words, "--name", "more"]) == 1
    assert re.search(r"4 of 8 .*CPUs.* 1 ", capsys.readouterr().err)
    ray.init(address=address)
    until(lambda: ray.cluster_resources()["CPU"] == 1, seconds=120)
    ray.shutdown()

"""Expected utilization of a job's instances, and rejection of idle ones."""

import math
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.rllib.algorithms.ppo import PPOConfig

from battlesnake_rl.commands import procgen_train_command, train_command
from sagemaker_rl.cluster.membership import find_own_address
from sagemaker_rl.cluster.ray_node import RayNode, find_free_port, private_auth_token
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import InstanceGroup, check_instance_gpus
from sagemaker_rl.job.utilization import ResourcePlan
from sagemaker_rl.ray_launcher import SageMakerRayLauncher
from sagemaker_rl.runs.launch import Launch
from tests.sagemaker_rl.instances import set_job_environment


@pytest.fixture
def check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return a function that runs ``--dry-run`` in a job: its status and its output."""

    def run(script: str, instance: str, count: int, **values: Any) -> tuple[int, str]:
        set_job_environment(monkeypatch, instance, count, values)
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
        status = (train_command if script == "mabs" else procgen_train_command).main(["--dry-run"])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


@pytest.mark.parametrize(
    ("instance", "count", "values", "line"),
    [
        ("ml.p4d.24xlarge", 1, {"algorithm": "EXIT"}, r"0 of 8 GPUs \(0%\)"),
        ("ml.p4d.24xlarge", 1, {"algorithm": "DQN"}, r"1\.0 of 96 vCPUs.* \(1%\).* 1 of 8"),
        ("ml.g5.12xlarge", 1, {"algorithm": "PPO"}, r"1 of 4 GPUs \(25%\)"),
        ("ml.g5.12xlarge", 1, {}, r"1 of 4 GPUs \(25%\)"),
        (
            "ml.g5.2xlarge",
            1,
            {"algorithm": "DQN", "rl.training.config.num_gpus_per_learner": 0},
            r"0 of 1 GPUs \(0%\)",
        ),
        ("ml.c5.2xlarge", 3, {"algorithm": "APEX"}, r"\(5%\).* 1 of 3"),
        ("ml.c5.2xlarge", 3, {"algorithm": "EXIT"}, "1 of 3"),
    ],
)
def test_what_would_idle_is_refused_unless_it_is_allowed(
    check: Any, instance: str, count: int, values: dict[str, Any], line: str
) -> None:
    status, said = check("mabs", instance, count, **values)
    assert status == 2, said
    assert "allow_idle_instances" in said
    assert re.search(line, said)
    status, said = check("mabs", instance, count, allow_idle_instances=True, **values)
    assert status == 0, said
    assert re.search(line, said)


@pytest.mark.parametrize(
    ("instance", "count", "values", "line"),
    [
        ("ml.c5.2xlarge", 1, {"algorithm": "DQN"}, r"1\.0 of 8 vCPUs.* \(12%\)"),
        ("ml.g5.2xlarge", 1, {"algorithm": "APEX"}, r"8\.0 of 8 vCPUs.* \(100%\).* 1 of 1"),
        ("ml.c5.2xlarge", 3, {"algorithm": "RLLIB_PPO"}, r"24\.0 of 24 vCPUs.* \(100%\)"),
        ("ml.c5.2xlarge", 3, {"experiment": "champion"}, r"24\.0 of 24 vCPUs.* \(100%\)"),
        # The job sets its number of env runners, as the kits' listings do.
        ("ml.c5.2xlarge", 3, {"algorithm": "APEX", "num_env_runners": 11}, "1 of 3"),
        # Opponents may need the env runners' time.
        ("ml.c5.2xlarge", 3, {"algorithm": "APEX", "opponents": {"tree": 0.5}}, r"24\.0 of 24"),
        # The learner is in another job.
        (
            "ml.c5.4xlarge",
            4,
            {"algorithm": "APEX", "s3_bucket": "runs", "s3_prefix": "one"}
            | {"rl_cluster_type": "secondary"},
            "",
        ),
        # Most env runners are in another job.
        (
            "ml.c5.xlarge",
            1,
            {"algorithm": "APEX", "s3_bucket": "runs", "s3_prefix": "one", "num_env_runners": 11}
            | {"rl_cluster_type": "primary", "rl_num_instances_secondary": 2},
            "",
        ),
        ("local", 3, {"algorithm": "APEX", "num_env_runners": 2}, ""),
    ],
)
def test_what_would_work_is_said(
    check: Any, instance: str, count: int, values: dict[str, Any], line: str
) -> None:
    status, said = check("mabs", instance, count, **values)
    assert status == 0, said
    assert re.search(line, said)


@pytest.mark.parametrize("instance", ["ml.p2.8xlarge", "ml.p3dn.24xlarge", "ml.g3s.xlarge"])
def test_gpus_without_kernels_are_rejected(check: Any, instance: str) -> None:
    status, said = check("mabs", instance, 1, algorithm="APEX", allow_idle_instances=True)
    assert status == 2, said
    assert re.search(rf"{instance} \(.* 7\.5 .*; use ml\.g4dn, ", said)


@pytest.mark.parametrize(
    "instance", ["ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6e.xlarge", "ml.p4de.24xlarge",
                 "ml.p5en.48xlarge", "ml.p6-b200.48xlarge", "ml.m5.xlarge", "local"],
)  # fmt: skip
def test_other_hardware_is_accepted(instance: str) -> None:
    check_instance_gpus(instance)


def test_procgen_is_known_too(check: Any) -> None:
    pytest.importorskip("envpool", reason="needs the extra procgen")
    status, said = check("procgen", "ml.g5.12xlarge", 1)
    assert status == 2
    assert "1 of 4 GPUs (25%)" in said
    status, said = check("procgen", "ml.c5.xlarge", 1)
    assert status == 0
    assert re.search(r"4\.0 of 4 vCPUs.* \(100%\)", said)
    # The CPUs and GPUs of the instances count, not those of this machine.
    status, said = check("procgen", "ml.c5.4xlarge", 2)
    assert status == 0, said
    status, said = check("procgen", "ml.g5.4xlarge", 2)
    assert status == 2
    assert "num_env_runners is 0" in said


def test_work_goes_to_gpus_first_and_each_group_is_judged() -> None:
    groups = [
        InstanceGroup("ml.g5.2xlarge", ["algo-1"]),
        InstanceGroup("ml.c5.4xlarge", ["algo-2", "algo-3"]),
    ]
    with_gpu, without = ResourcePlan(1, math.inf, 1).utilization_report(groups, allow_idle=False)
    assert re.match(r"ml\.g5\.2xlarge: 8\.0 of 8 vCPUs .*100%.* 1 of 1 GPUs \(100%\)", with_gpu)
    assert re.match(r"ml\.c5\.4xlarge: 32\.0 of 32 vCPUs .*100%.* 2 of 2 instances", without)
    ResourcePlan(1, 16, 1).utilization_report(groups, allow_idle=False)
    with pytest.raises(HyperparameterError, match="0 of 2"):
        ResourcePlan(1, 8, 1).utilization_report(groups, allow_idle=False)


@pytest.mark.parametrize(
    ("gpus", "given", "learners"),
    [(1, {}, 1), (0, {}, 0), (1, {"num_learners": 0}, 0), (1, {"num_gpus_per_learner": 0}, 0)],
)
def test_a_gpu_of_another_machine_learns(gpus: int, given: dict[str, Any], learners: int) -> None:
    config = PPOConfig().learners(num_gpus_per_learner=0)
    launch: Any = SimpleNamespace(launcher=SageMakerRayLauncher(), overrides=given)
    Launch._use_remote_gpu(launch, config, cpus=4, gpus=gpus)
    assert (config.num_learners, config.num_gpus_per_learner) == (learners, learners)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a learner here would have a GPU")
def test_the_learner_goes_to_the_machine_with_the_gpu(tmp_path: Path) -> None:
    """Ray has a GPU on this machine, on which torch then finds none."""
    host, port = find_own_address(socket.gethostname()), find_free_port()
    head = RayNode.create_head(host, port, 4)
    head._arguments.append("--num-gpus=1")
    words = ["--algorithm", "APEX", "--num-snakes", "2", "--board-size", "5", "--num-iters", "1"]
    words += ["--rl.training.config.min_time_s_per_iteration", "1", "--num-env-runners", "1"]
    words += ["--rl.training.config.ladder_cpu_fraction", "0", "--runs-dir", str(tmp_path)]
    with private_auth_token():
        try:
            head.start()
            words += ["--ray-address", f"{host}:{port}"]
            done = subprocess.run(
                [sys.executable, "-m", "battlesnake_gym", "train", *words],
                capture_output=True,
                text=True,
            )
        finally:
            head.stop()
    assert re.search("GPU.* machine", done.stdout)
    assert re.search("^RuntimeError: .*NCCL", done.stderr, re.M)

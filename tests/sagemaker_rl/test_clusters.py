"""Complete clusters of processes in network namespaces that train, fail and resume."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sagemaker_rl import instances
from tests.sagemaker_rl.instances import BUCKET, COUNT, TRAIN, Instance, Network, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(instances.missing()), reason=instances.missing()),
]

SMALL: dict[str, Any] = {
    "algorithm": "APEX",
    "num_snakes": 2,
    "board_size": 5,
    "seed": 3,
    "checkpoint_minutes": 0.001,
    "rl_join_timeout_minutes": 9,
    "rl.training.config.num_envs_per_env_runner": 4,
    "rl.training.config.rollout_fragment_length": 8,
    "rl.training.config.train_batch_size_per_learner": 32,
    "rl.training.config.num_steps_sampled_before_learning_starts": 64,
    "rl.training.config.min_sample_timesteps_per_iteration": 128,
    "rl.training.config.min_time_s_per_iteration": 0,
    "rl.training.config.replay_buffer_config.capacity": 2000,
    "rl.training.config.model_config.channels": [8],
    "rl.training.config.model_config.strides": [2],
}
"""Short iterations with one env runner per CPU, minus one CPU."""

ENDLESS = 1_000_000
STARTED = 600
"""Seconds until a cluster's first iteration, on a busy machine."""
JOINED = 60
"""Seconds until an instance that joins late, or again, is ready."""
NOTICED = 25
"""Seconds until all other instances end after the loss of one."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    pytest.importorskip("ray", reason="needs the extra rllib")
    one = Network()
    try:
        yield one.open()
    finally:
        one.close()


@pytest.fixture(scope="module")
def s3(network: Network) -> dict[str, str]:
    pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")
    return network.start_s3()


class Cluster:
    """Creates the jobs of one kind of cluster, with the same instances each time."""

    def __init__(self, network: Network, folder: Path, s3: dict[str, str] | None) -> None:
        self.network, self.folder, self.s3 = network, folder, s3
        self.instances: list[Instance] = []

    @property
    def names(self) -> list[str]:
        if self.s3 is None:
            return ["algo-1", "algo-2", "algo-3"]
        return ["primary/algo-1", "secondary/algo-1", "secondary/algo-2"]

    def start(self, script: Path, num_iters: int) -> list[Instance]:
        if not self.instances:
            self.instances = self._make(script)
        for one in self.instances:
            hyperparameters = json.loads(one.environment["SM_HPS"]) | {"num_iters": num_iters}
            one.environment["SM_HPS"] = json.dumps(hyperparameters)
            one.start()
        return self.instances

    def _make(self, script: Path) -> list[Instance]:
        if self.s3 is None:
            return self.network.job(self.folder, script, self.names, SMALL, {})
        both = SMALL | {
            "s3_bucket": BUCKET,
            "s3_prefix": self.folder.name,
            "aws_region": "us-east-1",
            "rl_num_instances_secondary": 2,
        }
        jobs = {"primary": ["algo-1"], "secondary": ["algo-1", "algo-2"]}
        return [
            instance
            for kind, hosts in jobs.items()
            for instance in self.network.job(
                self.folder / kind, script, hosts, both | {"rl_cluster_type": kind}, self.s3
            )
        ]


@pytest.fixture(params=["3 equal instances", "1 primary and 2 secondary"])
def cluster(request: pytest.FixtureRequest, network: Network, tmp_path: Path) -> Iterator[Cluster]:
    s3 = request.getfixturevalue("s3") if "primary" in request.param else None
    one = Cluster(network, tmp_path, s3)
    yield one
    for instance in one.instances:
        instance.kill_all()


def comes(late: Instance, name: str, head: Instance) -> None:
    """Start an instance of a running cluster, and wait until it has joined."""
    seen, began = len(head.log), time.monotonic()
    late.start()
    until(lambda: f"{name} is ready: 2 of 2" in head.log[seen:], STARTED, head)
    assert time.monotonic() - began < JOINED


@pytest.mark.parametrize("moment", ["joined", "counting"])
def test_the_loss_of_the_head_ends_all(cluster: Cluster, moment: str) -> None:
    instances = cluster.start(COUNT, ENDLESS)
    if moment == "joined":
        until(lambda: all("has joined" in one.log for one in instances[1:]), STARTED, instances[0])
    else:
        until(lambda: instances[0].iterations >= 2, STARTED, instances[0])
    instances[0].kill_all()
    killed = time.monotonic()
    for one in instances[1:]:
        assert one.wait(NOTICED) == 1, one.log
        assert f"{cluster.names[0]} was lost" in one.failure
    assert time.monotonic() - killed < NOTICED
    if moment == "joined":
        # With two jobs, the announcement of a killed head is still in S3; no worker may join it.
        cluster.start(COUNT, 2)
        for one in instances:
            assert one.wait(STARTED) == 0, one.log
        assert "training_iteration=2 nodes=3 cpus=3" in instances[0].log


def test_a_lost_worker_is_done_without_and_comes_again(cluster: Cluster) -> None:
    instances = cluster.start(COUNT, ENDLESS)
    head = instances[0]
    until(lambda: "nodes=3 cpus=3" in head.log, STARTED, head)
    instances[2].kill_all()
    until(lambda: f"{cluster.names[2]} was lost" in head.log, STARTED, head)
    until(lambda: "nodes=2 cpus=2" in head.log, STARTED, head)
    before = head.iterations
    comes(instances[2], cluster.names[2], head)
    until(lambda: "nodes=3 cpus=3" in head.log.partition("is ready: 2 of 2")[2], STARTED, head)
    assert head.iterations > before
    stop(instances)


def test_a_worker_starts_its_ray_node_again(cluster: Cluster) -> None:
    instances = cluster.start(COUNT, ENDLESS)
    head, worker = instances[0], instances[1]
    until(lambda: "nodes=3 cpus=3" in head.log, STARTED, head)
    worker.kill_one("raylet/raylet")
    until(lambda: "has ended; restarting the node" in worker.log, STARTED, worker)
    until(lambda: "is ready: 2 of 2" in head.log, STARTED, head)
    until(lambda: "nodes=3 cpus=3" in head.log.partition("is ready: 2 of 2")[2], STARTED, head)
    stop(instances)


def stop(instances: list[Instance]) -> None:
    """Stop the job as SageMaker does."""
    for one in instances:
        one.process.send_signal(signal.SIGTERM)
    for one in instances:
        assert one.wait(60) == 143, one.log
        assert not one.failure


def test_a_worker_that_is_killed_after_the_end_harms_nobody(cluster: Cluster) -> None:
    instances = cluster.start(COUNT, 2)
    until(lambda: " ends: " in instances[1].log, STARTED)
    instances[1].kill_all()
    for one in (instances[0], instances[2]):
        assert one.wait(60) == 0, one.log
        assert not one.failure


def test_sigterm_to_the_head_stops_all_in_order(cluster: Cluster) -> None:
    instances = cluster.start(COUNT, ENDLESS)
    until(lambda: instances[0].iterations >= 2, STARTED, instances[0])
    instances[0].process.send_signal(signal.SIGTERM)
    for one in instances:
        # SageMaker would show a secondary job with status 143 as failed.
        assert one.wait(60) == (143 if one is instances[0] else 0), one.log
        assert not one.failure


def test_a_worker_that_is_taken_away_leaves_alone(cluster: Cluster) -> None:
    instances = cluster.start(COUNT, ENDLESS)
    head = instances[0]
    until(lambda: "nodes=3 cpus=3" in head.log, STARTED, head)
    instances[1].process.send_signal(signal.SIGTERM)
    until(lambda: f"{cluster.names[1]} stops: " in head.log, STARTED, head)
    assert instances[1].wait(STARTED) == 143, instances[1].log
    until(lambda: "nodes=2 cpus=2" in head.log, STARTED, head)
    stop([head, instances[2]])


def delivered(cluster: Cluster) -> None:
    """Check that all instances ended with status 0, and that only the head exported a model."""
    for one in cluster.instances:
        assert one.wait(STARTED) == 0, one.log
        assert not one.failure
    model = cluster.instances[0].folder / "model"
    for name in ("policy.onnx", "policy.json", "params.json", "checkpoint/metadata.json"):
        assert (model / name).is_file(), name
    params = (model / "params.json").read_text()
    assert '"algorithm": "APEX"' in params
    assert BUCKET not in params
    assert sum((one.folder / "model" / "policy.onnx").exists() for one in cluster.instances) == 1


def test_a_head_killed_at_the_end_delivers_when_started_again(cluster: Cluster) -> None:
    instances = cluster.start(TRAIN, 3)
    until(lambda: " ends: " in instances[1].log, STARTED)
    head = instances[0]
    head.kill_all()
    assert "2 of 2" in head.log
    assert head.iterations == 3
    assert not (head.folder / "model" / "policy.onnx").exists()
    for one in instances[1:]:
        assert one.wait(60) == 0, one.log
    cluster.start(TRAIN, 3)
    delivered(cluster)
    assert head.iterations == 0


def test_training_resumes_after_a_kill(cluster: Cluster) -> None:
    instances = cluster.start(TRAIN, ENDLESS)
    until(lambda: instances[0].iterations >= 4, STARTED, instances[0])
    instances[0].kill_all()
    for one in instances[1:]:
        assert one.wait(NOTICED) == 1, one.log
        assert f"{cluster.names[0]} was lost" in one.failure
    folder = instances[0].folder / "checkpoints"
    done = max(int(path.name[-6:]) for path in folder.glob("checkpoint_??????"))
    cluster.start(TRAIN, done + 2)
    delivered(cluster)
    assert re.search(f"resum.*{re.escape(str(folder))}/checkpoint_", instances[0].log)
    assert 2 <= instances[0].iterations <= 3

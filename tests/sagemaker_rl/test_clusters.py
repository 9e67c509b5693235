"""Whole clusters, as separate processes in network namespaces: they train, and die, and resume."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sagemaker_rl import instances
from tests.sagemaker_rl.instances import BUCKET, Instance, Network, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rllib,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not instances.possible(), reason="needs root and iproute2"),
]

SMALL = {
    "algorithm": "APEX",
    "num_agents": 2,
    "map_size": 5,
    "seed": 3,
    "checkpoint_minutes": 0.001,
    "rl_join_minutes": 4,
    "rl.training.config.num_envs_per_env_runner": 4,
    "rl.training.config.rollout_fragment_length": 8,
    "rl.training.config.train_batch_size_per_learner": 32,
    "rl.training.config.num_steps_sampled_before_learning_starts": 64,
    "rl.training.config.min_sample_timesteps_per_iteration": 128,
    "rl.training.config.replay_buffer_config.capacity": 2000,
    "rl.training.config.model_config.channels": [8],
    "rl.training.config.model_config.strides": [2],
}
"""Iterations of a moment, on one runner for each CPU but one."""

ENDLESS = 1_000_000
STARTED = 200
"""Seconds in which a cluster has trained for the first time, on a busy machine."""
NOTICED = 25
"""Seconds in which all others have ended after one was lost."""


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
    pytest.importorskip("moto", reason="needs the extra sagemaker-local")
    return network.start_s3()


class Cluster:
    """Makes the jobs of one kind of cluster, the same instances each time."""

    def __init__(self, network: Network, folder: Path, s3: dict[str, str] | None) -> None:
        self.network, self.folder, self.s3 = network, folder, s3
        self.instances: list[Instance] = []

    def start(self, num_iters: int, without: int | None = None, **more: Any) -> list[Instance]:
        if not self.instances:
            self.instances = self._make()
        for number, one in enumerate(self.instances):
            hyperparameters = json.loads(one.environment["SM_HPS"])
            hyperparameters |= {"num_iters": num_iters, **more}
            one.environment["SM_HPS"] = json.dumps(hyperparameters)
            if number != without:
                one.start()
        return self.instances

    def _make(self) -> list[Instance]:
        if self.s3 is None:
            return self.network.job(self.folder, ["algo-1", "algo-2", "algo-3"], SMALL, {})
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
                self.folder / kind, hosts, both | {"rl_cluster_type": kind}, self.s3
            )
        ]


@pytest.fixture(params=["3 equal instances", "1 primary and 2 secondary"])
def cluster(request: pytest.FixtureRequest, network: Network, tmp_path: Path) -> Iterator[Cluster]:
    s3 = request.getfixturevalue("s3") if "primary" in request.param else None
    one = Cluster(network, tmp_path, s3)
    yield one
    for instance in one.instances:
        instance.kill_all()


def names(cluster: Cluster) -> list[str]:
    if cluster.s3 is None:
        return ["algo-1", "algo-2", "algo-3"]
    return ["primary/algo-1", "secondary/algo-1", "secondary/algo-2"]


def test_a_cluster_trains_to_the_end(cluster: Cluster) -> None:
    everybody = cluster.start(3)
    for one in everybody:
        assert one.wait(STARTED) == 0, one.log
        assert not one.failure
    master = everybody[0]
    assert "2 of 2 other instances are ready" in master.log
    assert master.iterations == 3
    for name in ("policy.onnx", "policy.json", "params.json", "checkpoint/facts.json"):
        assert (master.folder / "model" / name).is_file(), name
    delivered = (master.folder / "model" / "params.json").read_text()
    assert '"algorithm": "APEX"' in delivered
    assert BUCKET not in delivered
    assert sum((one.folder / "model" / "policy.onnx").exists() for one in everybody) == 1


def test_one_that_never_comes_is_named(cluster: Cluster) -> None:
    everybody = cluster.start(3, without=2, rl_join_minutes=0.75)
    missing = names(cluster)[2]
    for one in everybody[:2]:
        assert one.wait(STARTED) == 1, one.log
        assert f"{missing} did not come" in one.failure
    assert names(cluster)[1] not in everybody[0].failure


@pytest.mark.parametrize("victim", [0, 2], ids=["master", "worker"])
def test_a_kill_in_the_middle_ends_all_and_training_resumes(cluster: Cluster, victim: int) -> None:
    everybody = cluster.start(ENDLESS)
    until(lambda: everybody[0].iterations >= 4, STARTED, everybody[0].log)
    everybody[victim].kill_all()
    killed = time.monotonic()
    lost = f"{names(cluster)[victim]} was lost"
    for number, one in enumerate(everybody):
        if number != victim:
            assert one.wait(NOTICED) == 1, one.log
            assert lost in one.failure
    assert time.monotonic() - killed < NOTICED
    folder = everybody[0].folder / "checkpoints"
    done = max(int(path.name[-6:]) for path in folder.glob("checkpoint_??????"))
    # With two jobs, the note of the killed master is still there: nobody must follow it.
    cluster.start(done + 2)
    for one in everybody:
        assert one.wait(STARTED) == 0, one.log
    assert f"resuming from {folder}/checkpoint_" in everybody[0].log
    assert 2 <= everybody[0].iterations <= 3


def test_a_kill_at_the_end_loses_nothing(cluster: Cluster) -> None:
    everybody = cluster.start(3)
    until(lambda: everybody[0].iterations == 3, STARTED, everybody[0].log)
    everybody[1].kill_all()
    for one in (everybody[0], everybody[2]):
        one.wait(60)
    cluster.start(3)
    for one in everybody:
        assert one.wait(STARTED) == 0, one.log
    assert everybody[0].iterations <= 1
    assert (everybody[0].folder / "model" / "policy.onnx").is_file()


@pytest.mark.parametrize("told", [0, 1], ids=["master", "worker"])
def test_sigterm_stops_all_in_order(cluster: Cluster, told: int) -> None:
    everybody = cluster.start(ENDLESS)
    until(lambda: everybody[0].iterations >= 2, STARTED, everybody[0].log)
    everybody[told].process.send_signal(signal.SIGTERM)
    for one in everybody:
        assert one.wait(60) == 143, one.log
        assert not one.failure
    assert "the same command resumes from" in everybody[0].log


@pytest.mark.parametrize("moment", ["start", "middle", "end"])
def test_one_instance_killed_and_started_again(
    network: Network, tmp_path: Path, moment: str
) -> None:
    (one,) = network.job(tmp_path, ["algo-1"], SMALL | {"num_iters": 6}, {})
    one.start()
    if moment == "start":
        time.sleep(1.0)
    else:
        wanted = {"middle": 3, "end": 6}[moment]
        until(lambda: one.iterations >= wanted, STARTED, one.log)
    one.kill_all()
    done = one.iterations
    one.start()
    assert one.wait(STARTED) == 0, one.log
    assert ("resuming from" in one.log) == (moment == "middle") or moment == "end"
    # At most the iteration whose checkpoint was not complete is trained again.
    assert 6 - done <= one.iterations <= 6 - done + 1
    assert (one.folder / "model" / "policy.onnx").is_file()

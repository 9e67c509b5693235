"""``--ray-address``: APEX and EXIT on three Ray nodes while some processes are killed."""

import csv
import json
import os
import re
import secrets
import signal
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sagemaker_rl.runs import checkpoints
from tests.mabs.single_node import PORT
from tests.sagemaker_rl import instances
from tests.sagemaker_rl.instances import Instance, Network, until
from tests.sagemaker_rl.test_clusters import ENDLESS, SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(instances.missing()), reason=instances.missing()),
]

HERE = Path(__file__).parent
CPUS = (2, 1, 1)
"""Of head and members: three runners still find room when one member is gone."""

RUNNERS, IN_FLIGHT = 3, 2
OF_RLLIB = "rl.training.config."
# Outside a job, a setting of jobs is rejected.
APEX_SETTINGS = {key: SMALL[key] for key in SMALL if key != "rl_join_timeout_minutes"}
# By these bounds the first network becomes the champion, unless it loses every game.
EXPERT_ITERATION = {key: SMALL[key] for key in ("seed", "checkpoint_minutes")} | {
    "algorithm": "EXIT",
    f"{OF_RLLIB}moves_per_iteration": 1000,
    f"{OF_RLLIB}moves_per_fragment": 500,
    f"{OF_RLLIB}bootstrap_epochs": 2,
    f"{OF_RLLIB}match_pairs": 2,
    f"{OF_RLLIB}match_nodes": 10,
    f"{OF_RLLIB}elo0": -2000,
    f"{OF_RLLIB}elo1": -1000,
    f"{OF_RLLIB}ladder_cpu_fraction": 0.0,
}
BATCH = SMALL["rl.training.config.train_batch_size_per_learner"]
PATIENCE = 500
"""Seconds in which anything is done, on a very busy machine."""


class Cluster:
    """Three nodes, a training process on the first, and what all of them really did."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.counts = folder / "counts"
        self.counts.mkdir()
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        self.ray = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            # Ray's workers would stand back behind whatever else runs.
            "RAY_worker_niceness": "0",
        }
        names = ["head", "one", "two"]
        self.nodes = network.job(folder, HERE / "single_node.py", names, {}, {})
        self.addresses = [network.address_of(node.namespace) for node in self.nodes]
        for node, address, cpus in zip(self.nodes, self.addresses, CPUS, strict=True):
            node.environment = self.ray | {
                "NODE_ADDRESS": address,
                "HEAD_ADDRESS": self.addresses[0],
                "NODE_CPUS": str(cpus),
            }
        self.trainer = Instance(
            0, self.nodes[0].namespace, folder / "trainer", HERE / "counted_training.py", {}
        )

    def start(self) -> None:
        # One after the other: on a busy machine, several that start at once time out.
        for node in self.nodes:
            node.start()

            def has_started(node: Instance = node) -> bool:
                return "the node has started" in node.log

            until(has_started, PATIENCE, lives=node)

    def train(self, settings: Mapping[str, Any], **hyperparameters: Any) -> None:
        self.trainer.environment = self.ray | {
            "CLUSTER": f"{self.addresses[0]}:{PORT}",
            "COUNTS": str(self.counts),
            "SM_HPS": json.dumps({**settings, **hyperparameters}),
        }
        self.trainer.start()

    def done(self, kind: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """What was done, by the address and the number of the process that did it."""
        done = {}
        for path in self.counts.glob(f"{kind}-*"):
            _, address, pid = path.name.split("-")
            lines = path.read_text().splitlines()
            # The last line of a process that was killed may be half a line.
            whole = [json.loads(line) for line in lines if line.endswith("}")]
            done[address, int(pid)] = whole
        return done

    def total(self, kind: str, what: str) -> int:
        return sum(entry[what] for entries in self.done(kind).values() for entry in entries)

    def players(self) -> set[tuple[str, int]]:
        """Runner processes that have played and are alive."""
        return {one for one in self.done("played") if lives(one[1])}

    def curve(self) -> list[dict[str, float]]:
        path = self.trainer.folder / "output" / "data" / "progress.csv"
        with path.open(newline="") as file:
            return [
                {name: float(text or "nan") for name, text in row.items()}
                for row in csv.DictReader(file)
            ]


def lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="needs the extra rllib")
    network = Network()
    one = Cluster(network.open(), tmp_path)
    try:
        one.start()
        yield one
    finally:
        for process in (one.trainer, *one.nodes):
            process.kill_all()
        network.close()


def test_training_survives_a_runner_and_a_node(cluster: Cluster) -> None:
    trainer = cluster.trainer
    cluster.train(APEX_SETTINGS, num_env_runners=RUNNERS, num_iters=ENDLESS)
    until(
        lambda: trainer.iterations >= 3 and len(cluster.players()) == RUNNERS,
        PATIENCE,
        lives=trainer,
    )

    def survives(lost: set[tuple[str, int]]) -> None:
        """Three others play in the end, and learning goes on."""
        until(lambda: len(cluster.players() - lost) == RUNNERS, PATIENCE, lives=trainer)
        learned = cluster.total("learned", "transitions")
        wanted = learned + 20 * BATCH
        until(lambda: cluster.total("learned", "transitions") > wanted, PATIENCE, lives=trainer)

    far = next(one for one in cluster.players() if one[0] != cluster.addresses[0])
    os.kill(far[1], signal.SIGKILL)
    survives({far})

    lost = next(one for one in cluster.players() if one[0] != cluster.addresses[0])
    before = trainer.iterations
    cluster.nodes[cluster.addresses.index(lost[0])].kill_all()
    survives({lost})
    assert trainer.iterations > before
    assert all(address != lost[0] for address, _ in cluster.players())

    trainer.process.send_signal(signal.SIGTERM)
    assert trainer.wait(PATIENCE) == 128 + signal.SIGTERM, trainer.log
    check_counts(cluster, cluster.curve()[-1], deaths=2)
    check_curve(cluster.curve())
    check_resumes(cluster)


def test_expert_iteration_survives_a_node(cluster: Cluster) -> None:
    trainer = cluster.trainer
    # Half a CPU each: four have room on the first node.
    cluster.train(EXPERT_ITERATION, num_env_runners=6, num_iters=ENDLESS)

    def far() -> list[Instance]:
        return [node for node in cluster.nodes[1:] if node.works("_SelfPlayRunner")]

    until(lambda: far() and trainer.iterations >= 2, PATIENCE, lives=trainer)
    lost = far()[0]
    before = trainer.iterations
    lost.kill_all()
    until(lambda: trainer.iterations >= before + 3, PATIENCE, lives=trainer)
    trainer.process.send_signal(signal.SIGTERM)
    assert trainer.wait(PATIENCE) == 128 + signal.SIGTERM, trainer.log
    moves = [row["env_steps"] for row in cluster.curve()]
    assert all(low < high for low, high in pairwise(moves))
    last = checkpoints.CheckpointFolder(trainer.folder / "checkpoints").newest()
    assert last is not None
    assert checkpoints.read_metadata(last)["training_iteration"] == len(moves)


def check_counts(cluster: Cluster, last: Mapping[str, float], deaths: int) -> None:
    """The counters tell what was really done: nothing twice, and only what is on its way not."""
    played = [entry for entries in cluster.done("played").values() for entry in entries]
    stored = [entry["digest"] for entries in cluster.done("stored").values() for entry in entries]
    assert len(set(stored)) == len(stored)
    assert set(stored) <= {entry["digest"] for entry in played}
    # What a process that dies had played, and what is asked for when training ends, is not counted.
    unseen = IN_FLIGHT * (RUNNERS + deaths)
    for column, what in (("env_steps", "env_steps"), ("agent_steps", "agent_steps")):
        really = cluster.total("played", what)
        assert really - unseen * max(entry[what] for entry in played) <= last[column] <= really
        assert last[column] >= cluster.total("stored", what) > 0.9 * last[column]
    assert last["transitions_trained"] == cluster.total("learned", "transitions")


def check_curve(rows: list[dict[str, float]]) -> None:
    """Every iteration has games, as long as games are, and everything goes up that has to."""
    assert [row["training_iteration"] for row in rows] == list(range(1, len(rows) + 1))
    for column in ("env_steps", "agent_steps", "time_total_s"):
        values = [row[column] for row in rows]
        assert all(low < high for low, high in pairwise(values))
    for row in rows[1:]:
        assert 0 < row["episode_len_mean"] <= 500
        assert 3 <= row["Longest_snake"] <= 25
        assert row["env_steps"] <= row["agent_steps"] <= 2 * row["env_steps"]


def check_resumes(cluster: Cluster) -> None:
    """The last checkpoint is whole; training goes on from it on what is left of the cluster."""
    from battlesnake_rl.mabs.policy.policy_loader import PolicyCheckpoint

    before = cluster.curve()
    folder = cluster.trainer.folder / "checkpoints"
    last = folder / f"checkpoint_{len(before):06d}"
    assert checkpoints.CheckpointFolder(folder).newest() == last
    assert checkpoints.read_metadata(last)["env_steps"] == before[-1]["env_steps"]
    PolicyCheckpoint(last).load_network()
    # With a node less there is room for a runner less.
    cluster.train(APEX_SETTINGS, num_iters=len(before) + 2, num_env_runners=RUNNERS - 1)
    assert cluster.trainer.wait(PATIENCE) == 0, cluster.trainer.log
    assert re.search(f"resum.*{re.escape(str(last))}", cluster.trainer.log)
    check_curve(cluster.curve())
    assert len(cluster.curve()) == len(before) + 2
    assert (cluster.trainer.folder / "model" / "policy.onnx").is_file()

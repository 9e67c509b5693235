"""Many instances, one Ray: the master leads, the others lend their processors."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import ray

from sagemaker_rl.cluster.membership import (
    ClusterHyperparameters,
    Discovery,
    HostNameDiscovery,
    Membership,
    S3Discovery,
    own_address,
)
from sagemaker_rl.cluster.ray_node import RayNode, connect, free_port, set_auth_token
from sagemaker_rl.cluster.rendezvous import (
    ClusterError,
    ClusterHead,
    ConnectionLostError,
    JsonConnection,
    join_cluster,
)
from sagemaker_rl.job.job_environment import base_folder, log_line

STOPPED_EXIT_STATUS = 128 + signal.SIGTERM
"""Exit status of a job that was asked to stop and did so in order."""

_LEAVE_TIMEOUT_S = 90.0
"""How long an instance that was asked to stop still helps; SageMaker ends it after 120."""

_NODE_POLL_INTERVAL_S = 1.0
"""How often an instance looks after its Ray node."""


def local_cpus() -> int:
    """CPUs of this instance."""
    return len(os.sched_getaffinity(0))


class HeadContext:
    """The master's cluster, up and running."""

    def __init__(self, master: ClusterHead, cpus: int, gpus: int, all_here: bool) -> None:
        self._master = master
        self.cpus = cpus
        """CPUs of all instances together that are there at the beginning."""
        self.gpus = gpus
        """GPUs of all instances together."""
        self.all_here = all_here
        """Whether all instances were there at the beginning."""

    def stopped(self) -> None:
        """Report to the others that the job was asked to stop."""
        self._master.end(STOPPED_EXIT_STATUS, "it was asked to stop")


@contextmanager
def run_head(
    membership: Membership, settings: ClusterHyperparameters, caught: Sequence[int] = ()
) -> Iterator[HeadContext]:
    """Ray on all instances, with this process connected to it.

    Where this breaks off after a signal was ``caught``, the others hear that the job was stopped.

    Raises:
        ClusterError: no instance came in time, or one can never join.
        DiscoveryError: the master's address cannot be passed on to the others.
        RayNodeError: Ray does not start here.
    """
    address = own_address(membership.host)
    ray_address = f"{address}:{free_port()}"
    master = ClusterHead(membership.workers, _discovery(membership, settings), address, ray_address)
    set_auth_token(master.run.token, _token_path())
    cpus = local_cpus()
    node = RayNode.head(address, int(ray_address.rpartition(":")[2]), cpus)
    try:
        log_line(
            f"run {master.run.run_id}: {membership.name} waits for {', '.join(membership.workers)}"
        )
        node.start()
        master.open()
        cpus += master.wait(60 * settings.rl_join_timeout_minutes, log_line)
        connect(ray_address)
        gpus = int(ray.cluster_resources().get("GPU", 0))
        yield HeadContext(master, cpus, gpus, master.all_workers_ready)
    except BaseException as error:
        if caught:
            master.end(STOPPED_EXIT_STATUS, "it was asked to stop")
        else:
            master.end(1, str(error) or type(error).__name__)
        raise
    else:
        master.end(0, "training is done")
    finally:
        ray.shutdown()
        node.stop()


def run_worker(membership: Membership, settings: ClusterHyperparameters) -> int:
    """Join the master's cluster and serve it to its end; returns the exit status.

    Raises:
        ClusterError: the master did not come in time, was lost, or has failed.
        BucketError: the note about the master cannot be read.
        RayNodeError: Ray does not start here.
    """
    log_line(f"{membership.name} looks for {membership.head}")
    joined = join_cluster(
        membership,
        _discovery(membership, settings),
        local_cpus(),
        60 * settings.rl_join_timeout_minutes,
    )
    log_line(f"run {joined.run_id}: {membership.name} has joined {membership.head}")
    set_auth_token(joined.token, _token_path())
    node = RayNode.worker(joined.link.own_address, joined.ray_address, local_cpus())
    try:
        return _serve(membership, joined.link, node)
    finally:
        node.stop()
        joined.link.close()


def _serve(membership: Membership, link: JsonConnection, node: RayNode) -> int:
    """Keep a Ray node until the master's last word, or until it is time to leave."""
    last_word = _ShutdownMessage(link)
    last_word.start()
    with _graceful_leave(link, last_word):
        while not last_word.has_come():
            node.start(give_up=last_word.has_come)
            if not last_word.has_come():
                with suppress(ConnectionLostError):  # then that is the last word
                    link.send({"ready": True})
            while node.running and not last_word.has_come():
                last_word.wait(_NODE_POLL_INTERVAL_S)
            if not last_word.has_come():
                log_line(f"the Ray node of {membership.name} has ended; starting it again")
                node.stop()
    try:
        end = last_word.word()
    except ConnectionLostError as error:
        raise ClusterError(f"the master {membership.head} was lost: {error}") from None
    status = int(end.get("end", 1))
    if status not in (0, STOPPED_EXIT_STATUS):
        raise ClusterError(f"the master {membership.head} has failed: {end.get('reason')}")
    log_line(f"{membership.name} ends: {end.get('reason')}")
    return status


class _ShutdownMessage(threading.Thread):
    """Waits for the master's last word, also while Ray is started."""

    def __init__(self, link: JsonConnection) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._come = threading.Event()
        self._word: dict[str, Any] | ConnectionLostError = {}

    def run(self) -> None:
        try:
            self.say(self._link.receive())
        except ConnectionLostError as error:
            self.say(error)

    def say(self, word: dict[str, Any] | ConnectionLostError) -> None:
        """This is it, unless there was one."""
        if not self._come.is_set():
            self._word = word
        self._come.set()

    def has_come(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._come.is_set()

    def wait(self, seconds: float) -> None:
        """Wait for it, at most this many seconds."""
        self._come.wait(seconds)

    def word(self) -> dict[str, Any]:
        """The message, or LinkError if the master was lost."""
        if isinstance(self._word, ConnectionLostError):
            raise self._word
        return self._word


@contextmanager
def _graceful_leave(link: JsonConnection, last_word: _ShutdownMessage) -> Iterator[None]:
    """Within, after a SIGTERM this instance stays for `_LEAVE_TIMEOUT_S` at most, then leaves alone.

    If all are asked to stop, the master ends them before, with a checkpoint that needs their help;
    if the machine is taken away, training goes on without it. A second one ends this process.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # In a thread of its own: this one may be sending.
        threading.Thread(target=_announce_leave, args=(link, last_word), daemon=True).start()

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _announce_leave(link: JsonConnection, last_word: _ShutdownMessage) -> None:
    with suppress(ConnectionLostError):
        link.send(
            {"leaving": f"it was asked to stop, and stays for {_LEAVE_TIMEOUT_S:g} s at most"}
        )
    last_word.wait(_LEAVE_TIMEOUT_S)
    last_word.say({"end": STOPPED_EXIT_STATUS, "reason": "it was asked to stop"})


def _discovery(membership: Membership, settings: ClusterHyperparameters) -> Discovery:
    if settings.s3_bucket is None:
        return HostNameDiscovery(membership.head_host)
    return S3Discovery(settings.s3_bucket, settings.s3_prefix or "", settings.aws_region)


def _token_path() -> Path:
    return base_folder() / "ray_auth_token"

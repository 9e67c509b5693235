"""Many instances, one Ray: the master leads, the others lend their processors."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import ray

from sagemaker_rl.cluster.discovery import Bucket, Discovery, HostNames, own_address
from sagemaker_rl.cluster.link import Link, LinkError
from sagemaker_rl.cluster.membership import ClusterHyperparameters, Membership
from sagemaker_rl.cluster.ray_node import RayNode, RayNodeError, free_port, use_token
from sagemaker_rl.cluster.rendezvous import ClusterError, Master, join
from sagemaker_rl.launch.console import say
from sagemaker_rl.launch.failure import base_folder, report_failure

STOPPED = 128 + signal.SIGTERM
"""Exit status of a job that was told to stop and did so in order."""


def own_cpus() -> int:
    """CPUs of this instance."""
    return len(os.sched_getaffinity(0))


class Leader:
    """The master's cluster, up and running."""

    def __init__(self, master: Master, node: RayNode, cpus: int, gpus: int) -> None:
        self._master = master
        self._node = node
        self.cpus = cpus
        """CPUs of all instances together."""
        self.gpus = gpus
        """GPUs of all instances together."""

    def stopped(self) -> None:
        """Tell the others that the job was told to stop."""
        self._master.end(STOPPED, "it was told to stop")

    def on_trouble(self, reason: str, asks: bool) -> None:
        """End this process: in order if an instance asks for it, at once if one was lost."""
        if asks:
            say(f"{reason}; stopping all")
            os.kill(os.getpid(), signal.SIGTERM)
            return
        # Training may wait for the lost instance for ever, so it is not asked.
        report_failure(f"the cluster has broken: {reason}")
        self._master.end(1, reason)
        self._node.stop()
        os._exit(1)


@contextmanager
def leading(membership: Membership, settings: ClusterHyperparameters) -> Iterator[Leader]:
    """Ray on all instances, with this process connected to it.

    Raises:
        ClusterError: somebody did not come in time, or was lost on the way.
        DiscoveryError: the others cannot be told where the master is.
        RayNodeError: Ray does not start here.
    """
    address = own_address(membership.host)
    ray_address = f"{address}:{free_port()}"
    master = Master(membership.others, _discovery(membership, settings), address, ray_address)
    use_token(master.run.token, _token_path())
    cpus = own_cpus()
    node = RayNode.head(address, int(ray_address.rpartition(":")[2]), cpus)
    try:
        say(f"run {master.run.run_id}: {membership.me} waits for {', '.join(membership.others)}")
        node.start()
        master.open()
        cpus += master.wait(60 * settings.rl_join_minutes, say)
        ray.init(address=ray_address, logging_level=logging.ERROR)
        leader = Leader(master, node, cpus, int(ray.cluster_resources().get("GPU", 0)))
        master.watch(leader.on_trouble)
        yield leader
    except BaseException as error:
        master.end(1, str(error) or type(error).__name__)
        raise
    else:
        master.end(0, "training is done")
    finally:
        ray.shutdown()
        node.stop()


def lend(membership: Membership, settings: ClusterHyperparameters) -> int:
    """Join the master's cluster and serve it to its end; returns the exit status.

    Raises:
        ClusterError: the master did not come in time, was lost, or has failed.
        BucketError: the note about the master cannot be read.
        RayNodeError: Ray does not start here.
    """
    say(f"{membership.me} looks for {membership.master}")
    joined = join(
        membership,
        _discovery(membership, settings),
        own_cpus(),
        60 * settings.rl_join_minutes,
    )
    say(f"run {joined.run_id}: {membership.me} has joined {membership.master}")
    use_token(joined.token, _token_path())
    node = RayNode.member(joined.link.own_address, joined.ray_address, own_cpus())
    try:
        return _serve(membership, joined.link, node)
    except RayNodeError as error:
        with suppress(LinkError):
            joined.link.send({"failed": str(error)})
        raise
    finally:
        node.stop()
        joined.link.close()


def _serve(membership: Membership, link: Link, node: RayNode) -> int:
    with _asking_to_stop(link):
        last_word = _LastWord(link)
        last_word.start()
        try:
            node.start(give_up=last_word.has_come)
            if not last_word.has_come():
                link.send({"ready": True})
                threading.Thread(target=_watch, args=(node, link), daemon=True).start()
            end = last_word.wait()
        except LinkError as error:
            raise ClusterError(f"the master {membership.master} was lost: {error}") from None
    status = int(end.get("end", 1))
    if status not in (0, STOPPED):
        raise ClusterError(f"the master {membership.master} has failed: {end.get('reason')}")
    say(f"the master {membership.master} ends the cluster: {end.get('reason')}")
    return status


class _LastWord(threading.Thread):
    """Waits for the master's last word, also while Ray is started."""

    def __init__(self, link: Link) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._come = threading.Event()
        self._word: dict[str, Any] | LinkError = {}

    def run(self) -> None:
        try:
            self._word = self._link.receive()
        except LinkError as error:
            self._word = error
        self._come.set()

    def has_come(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._come.is_set()

    def wait(self) -> dict[str, Any]:
        """The message, or LinkError if the master was lost."""
        self._come.wait()
        if isinstance(self._word, LinkError):
            raise self._word
        return self._word


def _watch(node: RayNode, link: Link) -> None:
    while node.running:
        time.sleep(1.0)
    with suppress(LinkError):
        link.send({"failed": "its Ray node has ended"})


@contextmanager
def _asking_to_stop(link: Link) -> Iterator[None]:
    """Within, SIGTERM asks the master to stop all in order; a second one ends this process."""

    def ask(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # In a thread of its own: this one may be sending.
        threading.Thread(target=_say_stopping, args=(link,), daemon=True).start()

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_stopping(link: Link) -> None:
    with suppress(LinkError):
        link.send({"stopping": True})


def _discovery(membership: Membership, settings: ClusterHyperparameters) -> Discovery:
    if settings.s3_bucket is None:
        return HostNames(membership.master_host)
    return Bucket(settings.s3_bucket, settings.s3_prefix or "", settings.aws_region)


def _token_path() -> Path:
    return base_folder() / "ray_auth_token"

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
    Bucket,
    ClusterHyperparameters,
    Discovery,
    HostNames,
    Membership,
    own_address,
)
from sagemaker_rl.cluster.ray_node import RayNode, connect, free_port, use_token
from sagemaker_rl.cluster.rendezvous import ClusterError, Link, LinkError, Master, join
from sagemaker_rl.job.job_environment import base_folder, say

STOPPED = 128 + signal.SIGTERM
"""Exit status of a job that was asked to stop and did so in order."""

LEAVE_SECONDS = 90.0
"""How long an instance that was asked to stop still helps; SageMaker ends it after 120."""

NODE_SECONDS = 1.0
"""How often an instance looks after its Ray node."""


def own_cpus() -> int:
    """CPUs of this instance."""
    return len(os.sched_getaffinity(0))


class Leader:
    """The master's cluster, up and running."""

    def __init__(self, master: Master, cpus: int, gpus: int, all_here: bool) -> None:
        self._master = master
        self.cpus = cpus
        """CPUs of all instances together that are there at the beginning."""
        self.gpus = gpus
        """GPUs of all instances together."""
        self.all_here = all_here
        """Whether all instances were there at the beginning."""

    def stopped(self) -> None:
        """Report to the others that the job was asked to stop."""
        self._master.end(STOPPED, "it was asked to stop")


@contextmanager
def leading(
    membership: Membership, settings: ClusterHyperparameters, caught: Sequence[int] = ()
) -> Iterator[Leader]:
    """Ray on all instances, with this process connected to it.

    Where this breaks off after a signal was ``caught``, the others hear that the job was stopped.

    Raises:
        ClusterError: no instance came in time, or one can never join.
        DiscoveryError: the master's address cannot be passed on to the others.
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
        connect(ray_address)
        gpus = int(ray.cluster_resources().get("GPU", 0))
        yield Leader(master, cpus, gpus, master.all_here)
    except BaseException as error:
        if caught:
            master.end(STOPPED, "it was asked to stop")
        else:
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
    finally:
        node.stop()
        joined.link.close()


def _serve(membership: Membership, link: Link, node: RayNode) -> int:
    """Keep a Ray node until the master's last word, or until it is time to leave."""
    last_word = _LastWord(link)
    last_word.start()
    with _leaving(link, last_word):
        while not last_word.has_come():
            node.start(give_up=last_word.has_come)
            if not last_word.has_come():
                with suppress(LinkError):  # then that is the last word
                    link.send({"ready": True})
            while node.running and not last_word.has_come():
                last_word.wait(NODE_SECONDS)
            if not last_word.has_come():
                say(f"the Ray node of {membership.me} has ended; starting it again")
                node.stop()
    try:
        end = last_word.word()
    except LinkError as error:
        raise ClusterError(f"the master {membership.master} was lost: {error}") from None
    status = int(end.get("end", 1))
    if status not in (0, STOPPED):
        raise ClusterError(f"the master {membership.master} has failed: {end.get('reason')}")
    say(f"{membership.me} ends: {end.get('reason')}")
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
            self.say(self._link.receive())
        except LinkError as error:
            self.say(error)

    def say(self, word: dict[str, Any] | LinkError) -> None:
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
        if isinstance(self._word, LinkError):
            raise self._word
        return self._word


@contextmanager
def _leaving(link: Link, last_word: _LastWord) -> Iterator[None]:
    """Within, after a SIGTERM this instance stays for `LEAVE_SECONDS` at most, then leaves alone.

    If all are asked to stop, the master ends them before, with a checkpoint that needs their help;
    if the machine is taken away, training goes on without it. A second one ends this process.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # In a thread of its own: this one may be sending.
        threading.Thread(target=_say_leaving, args=(link, last_word), daemon=True).start()

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_leaving(link: Link, last_word: _LastWord) -> None:
    with suppress(LinkError):
        link.send({"leaving": f"it was asked to stop, and stays for {LEAVE_SECONDS:g} s at most"})
    last_word.wait(LEAVE_SECONDS)
    last_word.say({"end": STOPPED, "reason": "it was asked to stop"})


def _discovery(membership: Membership, settings: ClusterHyperparameters) -> Discovery:
    if settings.s3_bucket is None:
        return HostNames(membership.master_host)
    return Bucket(settings.s3_bucket, settings.s3_prefix or "", settings.aws_region)


def _token_path() -> Path:
    return base_folder() / "ray_auth_token"

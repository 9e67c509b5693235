"""Control flow of the head node and the worker nodes of a cluster.

The head node trains, and the worker nodes run Ray nodes for the training.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import closing, contextmanager, suppress
from typing import Any

import ray

from sagemaker_rl.cluster.membership import (
    ClusterError,
    ClusterHyperparameters,
    Discovery,
    HostNameDiscovery,
    Membership,
    S3Discovery,
    find_own_address,
)
from sagemaker_rl.cluster.ray_node import (
    RayNode,
    connect_to_ray,
    find_free_port,
    private_auth_token,
)
from sagemaker_rl.cluster.rendezvous import (
    STOP_REASON,
    STOPPED_EXIT_STATUS,
    ClusterHead,
    JsonConnection,
    join_cluster,
)
from sagemaker_rl.job.job_environment import log_line
from sagemaker_rl.job.stop_signals import handled_signals

_STOP_TIMEOUT_S = 90.0
"""Maximum duration between SIGTERM and the end of this instance, in seconds.

SageMaker kills the instance 120 s after SIGTERM.
"""

SIMULATED_CPUS_VARIABLE = "BATTLESNAKE_GYM_SIMULATED_CPUS"
"""Environment variable with the number of CPUs of a simulated instance."""

_NODE_POLL_INTERVAL_S = 1.0
"""Interval between two checks of an instance's Ray node, in seconds."""


def num_local_cpus() -> int:
    """Return the number of CPUs that this process may use, or of the simulated instance."""
    return int(os.environ.get(SIMULATED_CPUS_VARIABLE) or len(os.sched_getaffinity(0)))


@contextmanager
def run_head(
    membership: Membership, settings: ClusterHyperparameters, stop_signals: Sequence[int] = ()
) -> Iterator[ClusterHead]:
    """Start Ray on all instances and connect this process to the cluster.

    Args:
        membership: Membership of this instance, which is the head node.
        settings: Hyperparameters of the discovery of instances.
        stop_signals: Stop signals received so far. If the block raises after a signal, the
            worker nodes receive the status of a stopped job.

    Yields:
        The control server.

    Raises:
        ClusterError: If no worker node joined in time, a worker node was rejected permanently, the
            head node's address cannot be published, or Ray does not start on this instance.
    """
    address, port = find_own_address(membership.host), find_free_port()
    discovery = _make_discovery(membership, settings)
    server = ClusterHead(membership.workers, discovery, address, f"{address}:{port}")
    node = RayNode.create_head(address, port, num_local_cpus())
    with private_auth_token(server.run.token):
        try:
            remedy = "; start the secondary job now" if settings.rl_cluster_type else ""
            log_line(
                f"run {server.run.run_id}: {membership.name} waits for "
                f"{', '.join(membership.workers)}{remedy}"
            )
            node.start()
            server.accept_workers()
            server.wait_for_workers(60 * settings.rl_join_timeout_minutes, log_line)
            connect_to_ray(server.ray_address)
            yield server
        except BaseException as error:
            if stop_signals:
                server.end_run()
            else:
                server.end_run(1, str(error) or type(error).__name__)
            raise
        else:
            server.end_run(0, "training is done")
        finally:
            ray.shutdown()
            node.stop()


def run_worker(membership: Membership, settings: ClusterHyperparameters) -> int:
    """Join the cluster, run a Ray node until the run ends, and return the exit status.

    Raises:
        ClusterError: If the head node did not respond in time, was lost, or has failed, its address
            cannot be read from S3, or Ray does not start on this instance.
    """
    log_line(f"{membership.name} searches for {membership.head}")
    discovery = _make_discovery(membership, settings)
    joined = join_cluster(membership, discovery, 60 * settings.rl_join_timeout_minutes)
    log_line(f"run {joined.run_id}: {membership.name} has joined {membership.head}")
    node = RayNode.create_worker(joined.link.own_address, joined.ray_address, num_local_cpus())
    with private_auth_token(joined.token), closing(joined.link):
        try:
            return _run_node_until_shutdown(membership, joined.link, node)
        finally:
            node.stop()


def _run_node_until_shutdown(membership: Membership, link: JsonConnection, node: RayNode) -> int:
    """Run a Ray node until a shutdown message or a stop signal arrives.

    Returns:
        Exit status of this instance, which is 0 if only the head node was stopped.

    Raises:
        ClusterError: If the head node was lost or has failed, or Ray does not start on this
            instance.
    """
    end: Future[dict[str, Any]] = Future()
    with _graceful_stop(link, end) as stop_signals:
        threading.Thread(target=_receive_end, args=(link, end), daemon=True).start()
        while not end.done():
            node.start(give_up=end.done)
            if not end.done():
                with suppress(ConnectionError):  # The other thread reports the loss.
                    link.send({"ready": True})
            while node.is_running and not end.done():
                wait([end], _NODE_POLL_INTERVAL_S)
            if not end.done():
                log_line(f"the Ray node of {membership.name} has ended; restarting the node")
                node.stop()
    try:
        message = end.result()
    except ConnectionError as error:
        raise ClusterError(f"the head node {membership.head} was lost: {error}") from None
    status = int(message.get("shutdown", 1))
    if status not in (0, STOPPED_EXIT_STATUS):
        raise ClusterError(f"the head node {membership.head} has failed: {message.get('reason')}")
    log_line(f"{membership.name} ends: {message.get('reason')}")
    # If only the head node was stopped, this instance has not failed. SageMaker reports a job with
    # another status than 0 as failed, for example a secondary job.
    return status if stop_signals else 0


def _receive_end(link: JsonConnection, end: Future[dict[str, Any]]) -> None:
    """Set ``end`` to the head node's shutdown message, or to the loss of the connection."""
    with suppress(InvalidStateError):  # This instance stops already.
        try:
            end.set_result(link.receive())
        except ConnectionError as error:
            end.set_exception(error)


@contextmanager
def _graceful_stop(link: JsonConnection, end: Future[dict[str, Any]]) -> Iterator[list[int]]:
    """Stop this instance at most `_STOP_TIMEOUT_S` after SIGTERM or SIGHUP.

    If SageMaker stops all instances, the head node first writes a checkpoint, which needs the env
    runners of the worker nodes. The head node then ends the worker nodes. If SageMaker stops only
    this instance, training continues without the instance. A second signal ends this process.

    Yields:
        The stop signals received so far.
    """
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        signal.signal(number, signal.SIG_DFL)
        # A separate thread sends the message, because the interrupted thread may hold the sending
        # lock.
        threading.Thread(target=_leave_cluster, args=(link, end), daemon=True).start()

    with handled_signals(on_signal, (signal.SIGTERM, signal.SIGHUP)):
        yield received


def _leave_cluster(link: JsonConnection, end: Future[dict[str, Any]]) -> None:
    """Announce the stop of this instance to the head node, and wait for the shutdown."""
    with suppress(ConnectionError):
        link.send({"leaving": f"a stop was requested; at most {_STOP_TIMEOUT_S:g} s remain"})
    wait([end], _STOP_TIMEOUT_S)
    with suppress(InvalidStateError):  # The head node has ended the run.
        end.set_result({"shutdown": STOPPED_EXIT_STATUS, "reason": STOP_REASON})


def _make_discovery(membership: Membership, settings: ClusterHyperparameters) -> Discovery:
    """Return the discovery by S3 if a bucket is set, or the discovery by host names."""
    if settings.s3_bucket is None:
        return HostNameDiscovery(membership.head_host)
    return S3Discovery(settings.s3_bucket, settings.s3_prefix or "", settings.aws_region)

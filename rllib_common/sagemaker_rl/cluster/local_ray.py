"""Ray on this machine for one process, and clusters that grow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.cluster.ray_node import (
    LOOPBACK,
    RayNode,
    cluster_resources,
    connect_to_ray,
    find_free_port,
    private_auth_token,
)
from sagemaker_rl.cluster.roles import num_local_cpus
from sagemaker_rl.job.resources import max_env_runners


@contextmanager
def local_ray(num_cpus: int | None = None) -> Iterator[None]:
    """Start Ray on this machine for this process only.

    If Ray is already initialized, the existing Ray is used. Ray listens only on the loopback
    interface, so that other machines cannot reach Ray. The node is a `RayNode`, which survives a
    signal to the process group of this process. Containers and batch systems send such signals.

    Args:
        num_cpus: Number of CPUs that Ray may use; None for all CPUs that this process may use.

    Raises:
        ClusterError: If Ray does not start.
    """
    if ray.is_initialized():
        yield
        return
    port = find_free_port()
    node = RayNode.create_head(LOOPBACK, port, num_local_cpus() if num_cpus is None else num_cpus)
    with private_auth_token():
        try:
            node.start()
            connect_to_ray(f"{LOOPBACK}:{port}", loopback=True)
            yield
        finally:
            ray.shutdown()
            node.stop()


@contextmanager
def autoscaled_machines(config: AlgorithmConfig, timeout_minutes: int | None) -> Iterator[None]:
    """Wait for a cluster's autoscaler to add machines.

    When the block ends, the autoscaler may remove machines.

    Args:
        config: RLlib's configuration with the required number of env runners.
        timeout_minutes: Maximum duration of the wait, in minutes; None to use the current machines.

    Raises:
        ClusterError: If the cluster has too few CPUs after ``timeout_minutes`` minutes.
    """
    if timeout_minutes is None:
        yield
        return
    from ray.autoscaler.sdk import request_resources

    enough = (n for n in itertools.count(1) if max_env_runners(config, n) >= config.num_env_runners)
    wanted = next(enough)
    until = time.monotonic() + 60 * timeout_minutes
    try:
        request_resources(num_cpus=wanted)
        while (cpus := cluster_resources()[0]) < wanted:
            if time.monotonic() > until:
                raise ClusterError(
                    f"the cluster has {cpus} of {wanted} needed CPUs after {timeout_minutes} "
                    "minutes; raise the cluster's maximum number of machines or "
                    "--autoscale-timeout, or lower num_env_runners"
                )
            time.sleep(1)
        yield
    finally:
        request_resources(num_cpus=0)

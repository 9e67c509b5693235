"""Who belongs to the cluster of a job, and which of them this instance is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sagemaker_rl.launch.hyperparameters import HyperparameterError, option
from sagemaker_rl.launch.job import has_gpu, instance_groups

PRIMARY = "primary"
SECONDARY = "secondary"
BUCKET_NAME = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class ClusterHyperparameters:
    """How the instances of one job, or of two, find each other."""

    rl_cluster_type: str | None = option(
        None, "primary (learns) or secondary (plays for it), where two jobs make one cluster"
    )
    rl_num_instances_secondary: int | None = option(None, "instances of the secondary job")
    s3_bucket: str | None = option(None, "bucket through which the instances find each other")
    s3_prefix: str | None = option(None, "folder in it, one of its own for every run")
    aws_region: str | None = option(None, "the bucket's region")
    rl_join_minutes: float = option(15.0, "how long instances wait for each other")


@dataclass(frozen=True, slots=True)
class Membership:
    """One instance of a cluster.

    Instances are named as SageMaker names them (``algo-2``); where two jobs make one cluster, the
    job comes first (``secondary/algo-2``). The master runs the training script, and the others
    lend it their processors.
    """

    me: str
    host: str
    """This instance's host name within its job."""
    master: str
    master_host: str
    others: tuple[str, ...]
    """Everybody but the master; a secondary job's instances know of themselves alone."""

    @property
    def is_master(self) -> bool:
        """Whether this instance runs the training script."""
        return self.me == self.master

    @property
    def alone(self) -> bool:
        """Whether there is nobody else."""
        return self.is_master and not self.others

    @classmethod
    def from_environment(
        cls, settings: ClusterHyperparameters, environ: Mapping[str, str] = os.environ
    ) -> Membership:
        """From SageMaker's environment and the hyperparameters; alone without them.

        ``SM_HOSTS`` names the instances of all instance groups of a job, ``SM_RESOURCE_CONFIG``
        the groups. The master is of the first group with GPUs, so that these learn.

        Raises:
            HyperparameterError: they contradict each other, or one is missing.
        """
        hosts = _master_first(environ)
        host = environ.get("SM_CURRENT_HOST") or hosts[0]
        if host not in hosts:
            raise HyperparameterError(
                f"SM_CURRENT_HOST is {host!r}, which is not one of SM_HOSTS {hosts}; "
                "SageMaker sets both, do not set them yourself"
            )
        _check(settings, len(hosts))
        kind = settings.rl_cluster_type
        if kind is None:
            return cls(host, host, hosts[0], hosts[0], tuple(hosts[1:]))
        mine = [f"{kind}/{name}" for name in hosts]
        me = f"{kind}/{host}"
        if kind == SECONDARY:
            # SageMaker numbers the instances of every job from 1.
            return cls(me, host, f"{PRIMARY}/algo-1", "algo-1", tuple(mine))
        assert settings.rl_num_instances_secondary is not None
        secondary = [
            f"{SECONDARY}/algo-{i + 1}" for i in range(settings.rl_num_instances_secondary)
        ]
        return cls(me, host, mine[0], hosts[0], (*mine[1:], *secondary))


def _master_first(environ: Mapping[str, str]) -> list[str]:
    hosts = sorted(json.loads(environ.get("SM_HOSTS") or '["localhost"]'))
    learning = [group for group in instance_groups(environ) if has_gpu(group["instance_type"])]
    if not learning:
        return hosts
    master = min(learning[0]["hosts"])
    return [master, *(host for host in hosts if host != master)]


def _check(settings: ClusterHyperparameters, instances: int) -> None:
    kind, secondary = settings.rl_cluster_type, settings.rl_num_instances_secondary
    if settings.rl_join_minutes <= 0:
        raise HyperparameterError(
            f"rl_join_minutes must be more than 0, got {settings.rl_join_minutes}"
        )
    if settings.s3_bucket is not None and not BUCKET_NAME.fullmatch(settings.s3_bucket):
        raise HyperparameterError(
            f"s3_bucket must be the name of a bucket, got {settings.s3_bucket!r}; leave out s3:// "
            "and give the folder as s3_prefix"
        )
    if settings.s3_bucket is not None and not settings.s3_prefix:
        raise HyperparameterError(
            "s3_bucket needs s3_prefix too: a folder in the bucket, one of its own for every run"
        )
    if kind is None:
        if secondary is not None:
            raise HyperparameterError(
                f"rl_num_instances_secondary is {secondary}, but rl_cluster_type is not set; set "
                "it to primary in the one job and to secondary in the other"
            )
        return
    if kind not in (PRIMARY, SECONDARY):
        raise HyperparameterError(f"rl_cluster_type must be {PRIMARY} or {SECONDARY}, got {kind!r}")
    for name in ("s3_bucket", "s3_prefix", "rl_num_instances_secondary"):
        if getattr(settings, name) is None and not (kind == SECONDARY and name.startswith("rl")):
            raise HyperparameterError(
                f"rl_cluster_type {kind} needs {name} too; give both jobs the same s3_bucket, "
                "s3_prefix, aws_region and rl_num_instances_secondary"
            )
    if secondary is not None and secondary < 1:
        raise HyperparameterError(
            f"rl_num_instances_secondary must be at least 1, got {secondary}; for a primary job "
            "alone leave out rl_cluster_type"
        )
    if kind == SECONDARY and secondary not in (None, instances):
        raise HyperparameterError(
            f"rl_num_instances_secondary is {secondary}, but this secondary job has {instances} "
            "instances; make them equal in both jobs"
        )

"""Membership of an instance in its cluster, and discovery of the head node."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sagemaker_rl.job.hyperparameters import HyperparameterError, hyperparameter
from sagemaker_rl.job.job_environment import gpus, instance_groups

PRIMARY = "primary"
SECONDARY = "secondary"
_BUCKET_NAME = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

_CONTROL_PORT = 6378
"""Port on which the head node listens if only its host name is known.

Ray's own port is 6379.
"""

_ANNOUNCEMENT_KEY = "cluster.json"


@dataclass(frozen=True)
class ClusterHyperparameters:
    """Settings for the discovery of the instances of one job or of two jobs."""

    rl_cluster_type: str | None = hyperparameter(
        None,
        "role of this job when two SageMaker jobs form one cluster: primary (learner) or secondary "
        "(env runners only)",
    )
    rl_num_instances_secondary: int | None = hyperparameter(
        None, "number of instances in the secondary job"
    )
    s3_bucket: str | None = hyperparameter(
        None, "S3 bucket in which the head node publishes its address"
    )
    s3_prefix: str | None = hyperparameter(
        None, "S3 key prefix for that address; must be unique per run"
    )
    aws_region: str | None = hyperparameter(None, "AWS region of the bucket")
    rl_join_timeout_minutes: float = hyperparameter(15.0, "minutes to wait for the other instances")


@dataclass(frozen=True, slots=True)
class Membership:
    """One instance of a cluster.

    Instances have SageMaker's names (``algo-2``). If two jobs form one cluster, the name starts
    with the role of the job (``secondary/algo-2``). The head node runs the training script. The
    worker nodes provide CPUs and GPUs.
    """

    name: str
    host: str
    """Host name of this instance within its job."""
    head: str
    head_host: str
    workers: tuple[str, ...]
    """All instances except the head node.

    An instance of a secondary job lists only the instances of its own job.
    """

    @property
    def is_head(self) -> bool:
        """Whether this instance is the head node, which runs the training script."""
        return self.name == self.head

    @property
    def is_single_instance(self) -> bool:
        """Whether the cluster has no other instance."""
        return self.is_head and not self.workers

    @classmethod
    def from_environment(
        cls, settings: ClusterHyperparameters, environ: Mapping[str, str] = os.environ
    ) -> Membership:
        """Return the membership from environment variables and hyperparameters.

        ``SM_HOSTS`` contains the instances of all instance groups of a job. ``SM_RESOURCE_CONFIG``
        contains the groups. The head node is in the first group with GPUs, because the learner runs
        on the head node.

        Raises:
            HyperparameterError: If the settings contradict each other, or a setting is missing.
        """
        hosts = _head_first(environ)
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
            # SageMaker numbers the instances of each job from 1.
            return cls(me, host, f"{PRIMARY}/algo-1", "algo-1", tuple(mine))
        assert settings.rl_num_instances_secondary is not None
        secondary = [
            f"{SECONDARY}/algo-{i + 1}" for i in range(settings.rl_num_instances_secondary)
        ]
        return cls(me, host, mine[0], hosts[0], (*mine[1:], *secondary))


def _head_first(environ: Mapping[str, str]) -> list[str]:
    hosts = sorted(json.loads(environ.get("SM_HOSTS") or '["localhost"]'))
    learning = [group for group in instance_groups(environ) if gpus(group["instance_type"])]
    if not learning:
        return hosts
    head = min(learning[0]["hosts"])
    return [head, *(host for host in hosts if host != head)]


def _check(settings: ClusterHyperparameters, instances: int) -> None:
    kind, secondary = settings.rl_cluster_type, settings.rl_num_instances_secondary
    if settings.rl_join_timeout_minutes <= 0:
        raise HyperparameterError(
            f"rl_join_timeout_minutes must be more than 0, got {settings.rl_join_timeout_minutes}"
        )
    if settings.s3_bucket is not None and not _BUCKET_NAME.fullmatch(settings.s3_bucket):
        raise HyperparameterError(
            f"s3_bucket must be the name of a bucket, got {settings.s3_bucket!r}; leave out s3:// "
            "and pass the key prefix as s3_prefix"
        )
    if settings.s3_bucket is not None and not settings.s3_prefix:
        raise HyperparameterError(
            "s3_bucket needs s3_prefix, too: a key prefix that is unique for every run"
        )
    if kind is None:
        if secondary is not None:
            raise HyperparameterError(
                f"rl_num_instances_secondary is {secondary}, but rl_cluster_type is not set; set "
                "it to primary in one job and to secondary in the other"
            )
        return
    if kind not in (PRIMARY, SECONDARY):
        raise HyperparameterError(f"rl_cluster_type must be {PRIMARY} or {SECONDARY}, got {kind!r}")
    for name in ("s3_bucket", "s3_prefix", "rl_num_instances_secondary"):
        if getattr(settings, name) is None and not (kind == SECONDARY and name.startswith("rl")):
            raise HyperparameterError(
                f"rl_cluster_type {kind} needs {name}, too; give both jobs the same s3_bucket, "
                "s3_prefix, aws_region and rl_num_instances_secondary"
            )
    if secondary is not None and secondary < 1:
        raise HyperparameterError(
            f"rl_num_instances_secondary must be at least 1, got {secondary}; for a single "
            "job, leave out rl_cluster_type"
        )
    if kind == SECONDARY and secondary not in (None, instances):
        raise HyperparameterError(
            f"rl_num_instances_secondary is {secondary}, but this secondary job has {instances} "
            "instances; make them equal in both jobs"
        )


class DiscoveryError(RuntimeError):
    """Error raised if the head node cannot be found or cannot publish its address.

    The message names the remedy.
    """


class BucketError(DiscoveryError):
    """Error raised if the S3 bucket cannot be used; a retry would not help."""


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """Address of a cluster's head node, and the secret that worker nodes must present."""

    run_id: str
    token: str
    """Secret of the run, which is also Ray's authentication token."""
    address: str
    port: int

    @classmethod
    def new(cls, address: str, port: int) -> ClusterRun:
        """Return a new run with a random id and a random secret."""
        return cls(secrets.token_hex(8), secrets.token_hex(32), address, port)


class Discovery(Protocol):
    """Method of finding the head node."""

    @property
    def port(self) -> int:
        """Port on which the head node must listen; 0 for any free port."""

    def announce(self, run: ClusterRun) -> None:
        """Publish the address of the head node, which is listening."""

    def withdraw(self, run: ClusterRun) -> None:
        """Remove the published address of the head node at the end of the run."""

    def find(self) -> ClusterRun:
        """Return the published run of the head node, even if its process has ended.

        Raises:
            DiscoveryError: If no head node has published its address.
        """

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Return the reason to reject a worker node, or "" to accept the worker node.

        Args:
            run: The run of the head node.
            hello: First message of the worker node.
            address: Address of the worker node.
        """


@dataclass(frozen=True, slots=True)
class HostNameDiscovery:
    """Discovery by host names, within one job.

    A worker node is accepted if it connects from the address to which its host name resolves.
    Traffic from outside a job does not reach the instances of the job.
    """

    head_host: str
    port: int = _CONTROL_PORT

    def announce(self, run: ClusterRun) -> None:
        """Do nothing, because the host name of the head node suffices."""

    def withdraw(self, run: ClusterRun) -> None:
        """Do nothing, because `announce` published no address."""

    def find(self) -> ClusterRun:
        """Return the address of the head node, without run id and secret.

        The head node's response contains the run id and the secret.
        """
        return ClusterRun("", "", _resolve(self.head_host), self.port)

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Return a rejection reason unless the address belongs to the worker's host name."""
        try:
            expected = _resolve(str(hello.get("host")))
        except DiscoveryError as error:
            return str(error)
        return "" if address == expected else f"it comes from {address} instead of {expected}"


class S3Discovery:
    """Discovery through an object in S3, which contains the address of the head node.

    This class is for two jobs that form one cluster, and for jobs whose host names do not resolve.

    The object also contains the id and the secret of the run, so read access to the object
    authorizes a worker node. An object of an earlier run has no effect, because no process with
    that run id listens at the published address.
    """

    port: int = 0

    def __init__(self, bucket: str, prefix: str, region: str | None) -> None:
        import boto3
        from botocore.config import Config

        self._bucket = bucket
        self._key = f"{prefix.strip('/')}/{_ANNOUNCEMENT_KEY}"
        self._region = region
        self._s3 = boto3.client(
            "s3",
            region_name=region,
            config=Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 3}),
        )

    @property
    def place(self) -> str:
        """S3 URI of the object with the head node's address."""
        return f"s3://{self._bucket}/{self._key}"

    def announce(self, run: ClusterRun) -> None:
        """Write the head node's address to S3, over the address of an earlier run."""
        self._call("put_object", Body=json.dumps(asdict(run)).encode())

    def withdraw(self, run: ClusterRun) -> None:
        """Delete the object in S3 if the object still belongs to this run."""
        if self.find() == run:
            self._call("delete_object")

    def find(self) -> ClusterRun:
        """Return the run in the S3 object."""
        body = self._call("get_object")["Body"].read()
        try:
            return ClusterRun(**json.loads(body))
        except (TypeError, ValueError):
            raise DiscoveryError(
                f"{self.place} is not a head node's address; use a unique s3_prefix for every run"
            ) from None

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Return a rejection reason unless run id and secret match."""
        if hello.get("run_id") != run.run_id:
            return f"it belongs to run {hello.get('run_id')}"
        known = secrets.compare_digest(str(hello.get("token")), run.token)
        return "" if known else "it does not have the secret of the run"

    def _call(self, operation: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        call = getattr(self._s3, operation)
        try:
            return call(Bucket=self._bucket, Key=self._key, **arguments)
        except ClientError as error:
            raise self._explain(operation, error.response) from None
        except BotoCoreError as error:
            raise DiscoveryError(
                f"{operation} of {self.place} failed: {error}; the instances need credentials "
                "(the job's role) and access to S3 (in a VPC: an S3 endpoint), and aws_region "
                f"(now {self._region}) must be the bucket's region"
            ) from None

    def _explain(self, operation: str, response: Any) -> DiscoveryError:
        code, message = (str(response["Error"].get(name, "")) for name in ("Code", "Message"))
        if code == "NoSuchKey":
            return DiscoveryError(f"there is no {self.place} yet")
        region = f"aws_region (now {self._region}) must be the region of {self._bucket}"
        remedy = {
            "NoSuchBucket": f"there is no bucket {self._bucket}; check s3_bucket",
            "AccessDenied": "the job's role needs s3:GetObject, s3:PutObject, s3:DeleteObject and "
            f"s3:ListBucket on {self._bucket}",
            "PermanentRedirect": region,
            "AuthorizationHeaderMalformed": region,
            "IllegalLocationConstraintException": region,
        }.get(code)
        failed = f"{operation} of {self.place} failed with {code}"
        if remedy is None:
            return DiscoveryError(f"{failed}: {message}")
        return BucketError(f"{failed}: {remedy}")


def own_address(host: str) -> str:
    """Return the address at which other instances can reach this instance.

    ``host`` is the host name of this instance.
    """
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = "127.0.0.1"
    if not ipaddress.ip_address(address).is_loopback:
        return address
    # If the host name does not resolve, as on a laptop, the address of the default route is used.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a connected UDP socket sends nothing
        except OSError:
            return address
        return str(probe.getsockname()[0])


def _resolve(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise DiscoveryError(f"the host name {host} does not resolve ({error})") from None

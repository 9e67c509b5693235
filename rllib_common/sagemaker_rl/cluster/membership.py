"""Role of an instance in a Ray cluster, and discovery of the head node."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sagemaker_rl.job.hyperparameters import CheckedFields, HyperparameterError, hyperparameter
from sagemaker_rl.job.job_environment import PRIMARY_JOB, SECONDARY_JOB, instance_groups

_BUCKET_NAME_PATTERN = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Pattern of valid names of S3 buckets."""

_CONTROL_PORT = 6378
"""Default TCP port of the head node's control server.

Worker nodes use this port if only the host name of the head node is known. Ray's own port is 6379.
"""

_ADDRESS_FILE = "cluster.json"
"""Name of the S3 object with the head node's address, below the key prefix."""


@dataclass(frozen=True)
class ClusterHyperparameters(CheckedFields):
    """Hyperparameters of the discovery of instances in one job or in two jobs."""

    rl_cluster_type: str | None = hyperparameter(
        None,
        "role of this job when two SageMaker jobs form one cluster: primary (learner) or secondary "
        "(env runners only)",
    )
    rl_num_instances_secondary: int | None = hyperparameter(
        None, "number of instances in the secondary job", minimum=1
    )
    s3_bucket: str | None = hyperparameter(
        None, "S3 bucket in which the head node publishes its address"
    )
    s3_prefix: str | None = hyperparameter(
        None, "S3 key prefix for the head node's address; must be unique per run"
    )
    aws_region: str | None = hyperparameter(None, "AWS region of the bucket")
    rl_join_timeout_minutes: float = hyperparameter(
        15.0, "minutes to wait for the other instances", above=0
    )


@dataclass(frozen=True, slots=True)
class Membership:
    """Role of one instance in a Ray cluster.

    SageMaker names the instances of a job ``algo-1``, ``algo-2`` and so on. If two jobs form one
    cluster, the name starts with the role of the job (``secondary/algo-2``). The head node runs the
    training script. The worker nodes provide CPUs and GPUs.
    """

    name: str
    host: str
    """Host name of this instance within its job."""
    head: str
    head_host: str
    workers: tuple[str, ...]
    """Names of all instances except the head node.

    An instance of a secondary job lists only the instances of its own job.
    """

    @property
    def is_head(self) -> bool:
        """Whether this instance is the head node, which runs the training script."""
        return self.name == self.head

    @property
    def is_single_instance(self) -> bool:
        """Whether this instance is the only instance of the cluster."""
        return self.is_head and not self.workers

    @classmethod
    def from_environment(cls, settings: ClusterHyperparameters) -> Membership:
        """Create the membership from environment variables and hyperparameters.

        ``SM_HOSTS`` contains the host names of all instances of a job. ``SM_RESOURCE_CONFIG``
        contains the instance groups of the job. The head node is in the first group with GPUs,
        because the learner runs on the head node.

        Raises:
            HyperparameterError: If the settings contradict each other, or a setting is missing.
        """
        hosts = _sort_hosts_head_first()
        host = os.environ.get("SM_CURRENT_HOST") or hosts[0]
        if host not in hosts:
            raise HyperparameterError(
                f"SM_CURRENT_HOST is {host!r}, which is not one of SM_HOSTS {hosts}; "
                "SageMaker sets both variables; do not change them"
            )
        _check_settings(settings, len(hosts))
        kind = settings.rl_cluster_type
        if kind is None:
            return cls(host, host, hosts[0], hosts[0], tuple(hosts[1:]))
        mine = [f"{kind}/{name}" for name in hosts]
        me = f"{kind}/{host}"
        if kind == SECONDARY_JOB:
            # SageMaker numbers the instances of each job from 1, so the head node is ``algo-1``.
            return cls(me, host, f"{PRIMARY_JOB}/algo-1", "algo-1", tuple(mine))
        assert settings.rl_num_instances_secondary is not None
        secondary = [
            f"{SECONDARY_JOB}/algo-{i + 1}" for i in range(settings.rl_num_instances_secondary)
        ]
        return cls(me, host, mine[0], hosts[0], (*mine[1:], *secondary))


def _sort_hosts_head_first() -> list[str]:
    """Return the host names of this job, head node first."""
    hosts = sorted(json.loads(os.environ.get("SM_HOSTS") or '["localhost"]'))
    learning = [group for group in instance_groups() if group.gpus]
    if not learning:
        return hosts
    head = min(learning[0].hosts, key=lambda host: (len(host), host))  # algo-9 before algo-10
    return [head, *(host for host in hosts if host != head)]


def _check_settings(settings: ClusterHyperparameters, instances: int) -> None:
    """Reject contradictory or missing settings of a job with ``instances`` instances."""
    kind, secondary = settings.rl_cluster_type, settings.rl_num_instances_secondary
    if settings.s3_bucket is not None and not _BUCKET_NAME_PATTERN.fullmatch(settings.s3_bucket):
        raise HyperparameterError(
            f"s3_bucket must be the name of a bucket, got {settings.s3_bucket!r}; leave out s3:// "
            "and pass the key prefix as s3_prefix"
        )
    if settings.s3_bucket is not None and not settings.s3_prefix:
        raise HyperparameterError(
            "s3_bucket needs s3_prefix; set s3_prefix to a key prefix that is unique for every run"
        )
    if kind is None:
        if settings.s3_prefix is not None and settings.s3_bucket is None:
            raise HyperparameterError("s3_prefix has no effect without s3_bucket; omit s3_prefix")
        if secondary is not None:
            raise HyperparameterError(
                f"rl_num_instances_secondary is {secondary}, but rl_cluster_type is not set; set "
                "it to primary in one job and to secondary in the other"
            )
        return
    if kind not in (PRIMARY_JOB, SECONDARY_JOB):
        raise HyperparameterError(
            f"rl_cluster_type must be {PRIMARY_JOB} or {SECONDARY_JOB}, got {kind!r}"
        )
    for name in ("s3_bucket", "s3_prefix", "rl_num_instances_secondary"):
        if getattr(settings, name) is None and not (
            kind == SECONDARY_JOB and name.startswith("rl")
        ):
            raise HyperparameterError(
                f"rl_cluster_type {kind} needs {name}; give both jobs the same s3_bucket, "
                "s3_prefix, aws_region and rl_num_instances_secondary"
            )
    if kind == SECONDARY_JOB and secondary not in (None, instances):
        raise HyperparameterError(
            f"rl_num_instances_secondary is {secondary}, but this secondary job has {instances} "
            "instances; set it to the number of instances in both jobs"
        )


class ClusterError(RuntimeError):
    """Error raised if a cluster fails; the message names the instance, the reason or the remedy."""


class DiscoveryError(ClusterError):
    """Error raised if the head node cannot be found yet; a retry may succeed."""


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """Identity of one cluster run: run id, secret, and address of the head node."""

    run_id: str
    token: str
    """Secret of the run; Ray uses the same secret as authentication token."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class HostNameDiscovery:
    """Discovery by host names, for the instances of one job.

    The head node accepts a worker node only at the address to which the worker's host name
    resolves. Traffic from outside a job does not reach the instances of the job.
    """

    head_host: str
    port: int = _CONTROL_PORT
    """TCP port on which the head node must listen."""

    def publish_address(self, run: ClusterRun) -> None:
        """Do nothing, because worker nodes resolve the head node's host name."""

    def withdraw_address(self, run: ClusterRun) -> None:
        """Do nothing, because `publish_address` published no address."""

    def find_head(self) -> ClusterRun:
        """Return a run that contains only the head node's address.

        The head node sends the run id and the secret in its response.
        """
        return ClusterRun("", "", _resolve_host(self.head_host), self.port)

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Return the reason to reject a worker node, or "" to accept the worker node.

        The head node resolves the worker's host name.

        Args:
            run: The run of the head node.
            hello: First message of the worker node.
            address: IP address of the worker node.
        """
        try:
            expected = _resolve_host(str(hello.get("host")))
        except DiscoveryError as error:
            return str(error)
        return "" if address == expected else f"its address is {address} instead of {expected}"


class S3Discovery:
    """Discovery through an S3 object that contains the head node's address.

    Two jobs that form one cluster use this class. Jobs whose host names do not resolve also use
    this class.

    The object also contains the run id and the secret, so read access to the object authorizes a
    worker node. An object of an earlier run has no effect, because no process with that run id
    listens at the published address.
    """

    port: int = 0
    """Number that makes the head node listen on any free port."""

    def __init__(self, bucket: str, prefix: str, region: str | None) -> None:
        import boto3
        from botocore.config import Config

        self._bucket = bucket
        self._key = f"{prefix.strip('/')}/{_ADDRESS_FILE}"
        self._region = region
        self._s3 = boto3.client(
            "s3",
            region_name=region,
            config=Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 3}),
        )

    @property
    def uri(self) -> str:
        """S3 URI of the object that contains the head node's address."""
        return f"s3://{self._bucket}/{self._key}"

    def publish_address(self, run: ClusterRun) -> None:
        """Write the head node's address to S3, and replace the address of an earlier run."""
        self._call_s3("put_object", Body=json.dumps(asdict(run)).encode())

    def withdraw_address(self, run: ClusterRun) -> None:
        """Delete the S3 object if the object still belongs to this run."""
        if self.find_head() == run:
            self._call_s3("delete_object")

    def find_head(self) -> ClusterRun:
        """Return the run that the S3 object describes, even if the head node has ended.

        Raises:
            DiscoveryError: If no head node has published its address.
        """
        body = self._call_s3("get_object")["Body"].read()
        try:
            return ClusterRun(**json.loads(body))
        except (TypeError, ValueError):
            raise DiscoveryError(
                f"{self.uri} is not a head node's address; use a unique s3_prefix for every run"
            ) from None

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Return a reason unless the run id and the secret match, or ""."""
        if hello.get("run_id") != run.run_id:
            return f"the worker belongs to run {hello.get('run_id')}"
        known = secrets.compare_digest(str(hello.get("token")), run.token)
        return "" if known else "the worker does not have the secret of the run"

    def _call_s3(self, operation: str, **arguments: Any) -> Any:
        """Call an S3 operation on the object, and convert AWS errors to `ClusterError`."""
        from botocore.exceptions import BotoCoreError, ClientError

        call = getattr(self._s3, operation)
        try:
            return call(Bucket=self._bucket, Key=self._key, **arguments)
        except ClientError as error:
            raise self._make_error(operation, error.response) from None
        except BotoCoreError as error:
            raise DiscoveryError(
                f"{operation} of {self.uri} failed: {error}; the instances need credentials "
                "(the job's role) and access to S3 (in a VPC: an S3 endpoint), and aws_region "
                f"(now {self._region}) must be the bucket's region"
            ) from None

    def _make_error(self, operation: str, response: Any) -> ClusterError:
        """Return the error for a failed S3 operation; the message names the remedy."""
        code, message = (str(response["Error"].get(name, "")) for name in ("Code", "Message"))
        if code == "NoSuchKey":
            return DiscoveryError(f"the S3 object {self.uri} does not exist yet")
        region = f"aws_region (now {self._region}) must be the region of {self._bucket}"
        remedy = {
            "NoSuchBucket": f"there is no bucket {self._bucket}; check s3_bucket",
            "AccessDenied": "the job's role needs s3:GetObject, s3:PutObject, s3:DeleteObject and "
            f"s3:ListBucket on {self._bucket}",
            "PermanentRedirect": region,
            "AuthorizationHeaderMalformed": region,
            "IllegalLocationConstraintException": region,
        }.get(code)
        failed = f"{operation} of {self.uri} failed with {code}"
        if remedy is None:
            return DiscoveryError(f"{failed}: {message}")
        return ClusterError(f"{failed}: {remedy}")


Discovery = HostNameDiscovery | S3Discovery
"""Method by which worker nodes find the head node."""


def find_own_address(host: str) -> str:
    """Return the IP address at which other instances can reach this instance.

    ``host`` is the host name of this instance.
    """
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = "127.0.0.1"
    if not ipaddress.ip_address(address).is_loopback:
        return address
    # If the host name does not resolve, as on a laptop, the function returns the address of the
    # default route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Connecting a UDP socket does not send a packet.
        except OSError:
            return address
        return str(probe.getsockname()[0])


def _resolve_host(host: str) -> str:
    """Return the IP address of a host name, or raise `DiscoveryError`."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise DiscoveryError(f"the host name {host} does not resolve ({error})") from None

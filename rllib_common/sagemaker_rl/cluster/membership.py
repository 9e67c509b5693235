"""Who belongs to the cluster of a job, which of them this instance is, and where the master is."""

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
"""Where the master listens if its host name is all that is known (Ray's own port is 6379)."""

_ANNOUNCEMENT_KEY = "cluster.json"


# The instances of a cluster


@dataclass(frozen=True)
class ClusterHyperparameters:
    """How the instances of one job, or of two, find each other."""

    rl_cluster_type: str | None = hyperparameter(
        None, "primary (learns) or secondary (plays for it), where two jobs make one cluster"
    )
    rl_num_instances_secondary: int | None = hyperparameter(None, "instances of the secondary job")
    s3_bucket: str | None = hyperparameter(
        None, "bucket through which the instances find each other"
    )
    s3_prefix: str | None = hyperparameter(None, "folder in it, one of its own for every run")
    aws_region: str | None = hyperparameter(None, "the bucket's region")
    rl_join_timeout_minutes: float = hyperparameter(15.0, "how long instances wait for each other")


@dataclass(frozen=True, slots=True)
class Membership:
    """One instance of a cluster.

    Instances are named as SageMaker names them (``algo-2``); where two jobs make one cluster, the
    job comes first (``secondary/algo-2``). The master runs the training script, and the others
    lend it their processors.
    """

    name: str
    host: str
    """This instance's host name within its job."""
    head: str
    head_host: str
    workers: tuple[str, ...]
    """Everybody but the master; a secondary job's instances know of themselves alone."""

    @property
    def is_head(self) -> bool:
        """Whether this instance runs the training script."""
        return self.name == self.head

    @property
    def is_single_instance(self) -> bool:
        """Whether this is the only instance."""
        return self.is_head and not self.workers

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
    learning = [group for group in instance_groups(environ) if gpus(group["instance_type"])]
    if not learning:
        return hosts
    master = min(learning[0]["hosts"])
    return [master, *(host for host in hosts if host != master)]


def _check(settings: ClusterHyperparameters, instances: int) -> None:
    kind, secondary = settings.rl_cluster_type, settings.rl_num_instances_secondary
    if settings.rl_join_timeout_minutes <= 0:
        raise HyperparameterError(
            f"rl_join_timeout_minutes must be more than 0, got {settings.rl_join_timeout_minutes}"
        )
    if settings.s3_bucket is not None and not _BUCKET_NAME.fullmatch(settings.s3_bucket):
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


# The master is found by its host name, or by a note that it leaves in S3


class DiscoveryError(RuntimeError):
    """The master cannot be found, or cannot be announced; the message says what to do."""


class BucketError(DiscoveryError):
    """The bucket cannot be used, and waiting will not change that."""


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """One run of a cluster: where its master listens, and what proves that a peer belongs to it."""

    run_id: str
    token: str
    """Secret of the run, also Ray's authentication token."""
    address: str
    port: int

    @classmethod
    def new(cls, address: str, port: int) -> ClusterRun:
        """A run like no other."""
        return cls(secrets.token_hex(8), secrets.token_hex(32), address, port)


class Discovery(Protocol):
    """A way to find the master."""

    @property
    def port(self) -> int:
        """Where the master must listen; 0 for anywhere."""

    def announce(self, run: ClusterRun) -> None:
        """Called by the master, which listens now."""

    def withdraw(self, run: ClusterRun) -> None:
        """Called by the master at the end."""

    def find(self) -> ClusterRun:
        """The master that is announced, alive or not; or DiscoveryError with the reason."""

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Why a peer at ``address`` that says ``hello`` is not of the run; "" if it is."""


@dataclass(frozen=True, slots=True)
class HostNameDiscovery:
    """One job: every instance knows the others' host names.

    Peers prove that they belong here by coming from the address that their name resolves to;
    no other packets reach the instances of a job.
    """

    master_host: str
    port: int = _CONTROL_PORT

    def announce(self, run: ClusterRun) -> None:
        """Nothing to do: the name says it all."""

    def withdraw(self, run: ClusterRun) -> None:
        """Nothing to do."""

    def find(self) -> ClusterRun:
        """The master's address; run id and token come with its answer."""
        return ClusterRun("", "", _resolve(self.master_host), self.port)

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Compare addresses."""
        try:
            expected = _resolve(str(hello.get("host")))
        except DiscoveryError as error:
            return str(error)
        return "" if address == expected else f"it comes from {address} instead of {expected}"


class S3Discovery:
    """Two jobs, or one whose host names say nothing: the master leaves a note in S3.

    The note holds the run's id and secret, so anyone who may read it belongs to the run. A note of
    an earlier run leads nowhere: no one answers at its address, or a process with another id.
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
        """Address of the note."""
        return f"s3://{self._bucket}/{self._key}"

    def announce(self, run: ClusterRun) -> None:
        """Write the note, over that of an earlier run."""
        self._call("put_object", Body=json.dumps(asdict(run)).encode())

    def withdraw(self, run: ClusterRun) -> None:
        """Delete the note, if it is still ours."""
        if self.find() == run:
            self._call("delete_object")

    def find(self) -> ClusterRun:
        """Read the note."""
        body = self._call("get_object")["Body"].read()
        try:
            return ClusterRun(**json.loads(body))
        except (TypeError, ValueError):
            raise DiscoveryError(
                f"{self.place} is not a note of ours; use an s3_prefix of its own for every run"
            ) from None

    def rejection_reason(self, run: ClusterRun, hello: Mapping[str, Any], address: str) -> str:
        """Compare run id and secret."""
        if hello.get("run_id") != run.run_id:
            return f"it looks for run {hello.get('run_id')}"
        known = secrets.compare_digest(str(hello.get("token")), run.token)
        return "" if known else "it does not know the secret of the run"

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
                "(the job's role) and a way to S3 (in a VPC: an S3 endpoint), and aws_region "
                f"(now {self._region}) must be the bucket's"
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
    """The address under which other instances reach this one, whose host name is ``host``."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = "127.0.0.1"
    if not ipaddress.ip_address(address).is_loopback:
        return address
    # No such name, as on a laptop: the address that leads to the world.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return address
        return str(probe.getsockname()[0])


def _resolve(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise DiscoveryError(f"the host name {host} does not resolve ({error})") from None

"""How the instances find the master: by its host name, or by a note that it leaves in S3."""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

CONTROL_PORT = 6378
"""Where the master listens if its host name is all that is known (Ray's own port is 6379)."""

NOTE = "cluster.json"


class DiscoveryError(RuntimeError):
    """The master cannot be found, or cannot be announced; the message says what to do."""


class BucketError(DiscoveryError):
    """The bucket cannot be used, and waiting will not change that."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a cluster: where its master listens, and what proves that a peer belongs to it."""

    run_id: str
    token: str
    """Secret of the run, also Ray's authentication token."""
    address: str
    port: int

    @classmethod
    def new(cls, address: str, port: int) -> Run:
        """A run like no other."""
        return cls(secrets.token_hex(8), secrets.token_hex(32), address, port)


class Discovery(Protocol):
    """A way to find the master."""

    @property
    def port(self) -> int:
        """Where the master must listen; 0 for anywhere."""

    def announce(self, run: Run) -> None:
        """Called by the master, which listens now."""

    def withdraw(self, run: Run) -> None:
        """Called by the master at the end."""

    def find(self) -> Run:
        """The master that is announced, alive or not; or DiscoveryError with the reason."""

    def why_not(self, run: Run, hello: Mapping[str, Any], address: str) -> str:
        """Why a peer at ``address`` that says ``hello`` is not of the run; "" if it is."""


@dataclass(frozen=True, slots=True)
class HostNames:
    """One job: every instance knows the others' host names.

    Peers prove that they belong here by coming from the address that their name resolves to;
    nobody else's packets reach the instances of a job.
    """

    master_host: str
    port: int = CONTROL_PORT

    def announce(self, run: Run) -> None:
        """Nothing to do: the name says it all."""

    def withdraw(self, run: Run) -> None:
        """Nothing to do."""

    def find(self) -> Run:
        """The master's address; run id and token come with its answer."""
        return Run("", "", _resolve(self.master_host), self.port)

    def why_not(self, run: Run, hello: Mapping[str, Any], address: str) -> str:
        """Compare addresses."""
        try:
            expected = _resolve(str(hello.get("host")))
        except DiscoveryError as error:
            return str(error)
        return "" if address == expected else f"it comes from {address} instead of {expected}"


class Bucket:
    """Two jobs, or one whose host names say nothing: the master leaves a note in S3.

    The note holds the run's id and secret, so whoever may read it belongs to the run. A note of an
    earlier run leads nowhere: nobody answers at its address, or somebody who knows another id.
    """

    port: int = 0

    def __init__(self, bucket: str, prefix: str, region: str | None) -> None:
        import boto3
        from botocore.config import Config

        self._bucket = bucket
        self._key = f"{prefix.strip('/')}/{NOTE}"
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

    def announce(self, run: Run) -> None:
        """Write the note, over that of an earlier run."""
        self._call("put_object", Body=json.dumps(asdict(run)).encode())

    def withdraw(self, run: Run) -> None:
        """Delete the note, if it is still ours."""
        if self.find() == run:
            self._call("delete_object")

    def find(self) -> Run:
        """Read the note."""
        body = self._call("get_object")["Body"].read()
        try:
            return Run(**json.loads(body))
        except (TypeError, ValueError):
            raise DiscoveryError(
                f"{self.place} is not a note of ours; use an s3_prefix of its own for every run"
            ) from None

    def why_not(self, run: Run, hello: Mapping[str, Any], address: str) -> str:
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

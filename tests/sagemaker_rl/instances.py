"""Instances of SageMaker jobs as processes, each in its own network namespace.

Needs root and iproute2. Names are unique to a `Network`, and `Network.close` removes everything.
"""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run, wait_for

TRAIN = Path(__file__).parents[2] / "rllib_src" / "train-mabs.py"
COUNT = Path(__file__).with_name("counting_script.py")
BUCKET = "runs"


def missing() -> str:
    """Return the requirement of the tests that this machine lacks, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs the package iproute2"
    name = f"bs-probe-{secrets.token_hex(3)}"
    made = run("ip", "netns", "add", name).returncode == 0
    if made:
        _ip("netns", "delete", name)
    return "" if made else "needs leave to make network namespaces"


CLEANER = """
cat >/dev/null  # to the end of the pipe: the tests are over, or were killed
for namespace in $(ip netns list | cut -d' ' -f1 | grep "^$0-"); do
    ip netns pids "$namespace" | xargs -r kill -9
    ip netns delete "$namespace"
    rm -rf "/etc/netns/$namespace"
done
ip link delete "$0"
"""


class Network:
    """A bridge that connects instances and a `moto_server`."""

    def __init__(self) -> None:
        self.tag = f"bs{secrets.token_hex(3)}"
        self._subnet = f"10.{random.randint(60, 250)}.{random.randint(0, 255)}"
        self._namespaces: list[str] = []
        self._s3: subprocess.Popen[bytes] | None = None
        self.address = f"{self._subnet}.1"

    def open(self) -> Network:
        """Create the bridge; a cleaner process removes it even if this process is killed."""
        self._cleaner = subprocess.Popen(
            ["sh", "-c", CLEANER, self.tag],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _ip("link", "add", self.tag, "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", self.tag)
        _ip("link", "set", self.tag, "up")
        return self

    def close(self) -> None:
        self._cleaner.communicate(timeout=60)
        if self._s3 is not None:
            self._s3.wait(10)

    def start_s3(self) -> dict[str, str]:
        """Start S3 with an empty bucket, and return the environment variables of its users."""
        import boto3

        address = self._add_namespaces(["s3"])[0][1]
        server = Path(sys.executable).with_name("moto_server")
        self._s3 = subprocess.Popen(
            ["ip", "netns", "exec", self._namespaces[-1], server, "-H", address, "-p", "5000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(f"http://{address}:5000", self._s3, "/moto-api/")
        environment = {
            "AWS_ENDPOINT_URL": f"http://{address}:5000",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        boto3.client(
            "s3",
            "us-east-1",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        ).create_bucket(Bucket=BUCKET)
        return environment

    def job(
        self,
        folder: Path,
        script: Path,
        hosts: Sequence[str],
        hyperparameters: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> list[Instance]:
        """Return the instances of a job, not started; host names resolve only within the job."""
        return [
            Instance(
                number,
                namespace,
                folder / host,
                script,
                {
                    **environment,
                    "SM_HOSTS": json.dumps(list(hosts)),
                    "SM_CURRENT_HOST": host,
                    "SM_HPS": json.dumps(dict(hyperparameters)),
                },
            )
            for number, (host, (namespace, _)) in enumerate(
                zip(hosts, self._add_namespaces(hosts), strict=True)
            )
        ]

    def address_of(self, namespace: str) -> str:
        """Return the address of an instance's namespace."""
        return f"{self._subnet}.{self._namespaces.index(namespace) + 2}"

    def _add_namespaces(self, hosts: Sequence[str]) -> list[tuple[str, str]]:
        """Create a namespace and an address for each host, with each other's names."""
        first = len(self._namespaces)
        made = [
            (f"{self.tag}-{first + i}", f"{self._subnet}.{first + i + 2}")
            for i in range(len(hosts))
        ]
        table = "127.0.0.1 localhost\n" + "".join(
            f"{address} {host}\n" for host, (_, address) in zip(hosts, made, strict=True)
        )
        for namespace, address in made:
            self._add_namespace(namespace, address, table)
        return made

    def _add_namespace(self, name: str, address: str, hosts: str) -> None:
        number = len(self._namespaces)
        self._namespaces.append(name)
        table = Path("/etc/netns") / name / "hosts"
        table.parent.mkdir(parents=True)
        table.write_text(hosts)
        _ip("netns", "add", name)
        outer, inner = f"{self.tag}v{number}", f"{self.tag}e{number}"
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", name)
        _ip("link", "set", outer, "master", self.tag, "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", inner)
        _ip("-n", name, "link", "set", inner, "up")
        _ip("-n", name, "link", "set", "lo", "up")


@dataclass
class Instance:
    """One instance: its configuration and its process."""

    number: int
    namespace: str
    folder: Path
    script: Path
    environment: dict[str, str]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "output" / "failure").unlink(missing_ok=True)
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, sys.executable, str(self.script)],
                env=os.environ
                | self.environment
                | {
                    "SAGEMAKER_BASE_DIR": str(self.folder),
                    "SM_MODEL_DIR": str(self.folder / "model"),
                    "SM_OUTPUT_DATA_DIR": str(self.folder / "output" / "data"),
                },
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A new process group, as in a container: a signal may be sent to all of it.
                start_new_session=True,
            )
        # One CPU per instance: their work is small, and this machine may be, too.
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(self._process.pid, {cpus[self.number % len(cpus)]})

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def failure(self) -> str:
        path = self.folder / "output" / "failure"
        return path.read_text() if path.exists() else ""

    @property
    def iterations(self) -> int:
        """Number of training iterations in the log."""
        return self.log.count("training_iteration=")

    def wait(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.folder} still runs; its log:\n{self.log[-3000:]}"
            ) from None

    def pids(self) -> list[int]:
        """Return all processes in the namespace."""
        listed = run("ip", "netns", "pids", self.namespace)
        return [int(pid) for pid in listed.stdout.split()]

    def works(self, actor: str = "") -> bool:
        """Whether an actor (of a class, or any) or a task runs there, besides Ray's agents."""
        lines = [_command_line(pid) for pid in self.pids()]
        return any(
            line.startswith(f"ray::{actor}") and not re.match(r"ray::(IDLE|\w+Agent)", line)
            for line in lines
        )

    def kill_one(self, program: str) -> None:
        """Kill the one process whose program's path has this suffix."""
        (pid,) = [
            pid for pid in self.pids() if _command_line(pid).partition("\0")[0].endswith(program)
        ]
        os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill everything in the namespace at the same time, as a power failure does."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)


def set_job_environment(
    patch: pytest.MonkeyPatch, kind: str, count: int, hyperparameters: Mapping[str, Any]
) -> None:
    """Set the environment variables of the first of a job's ``count`` instances of one type."""
    hosts = [f"algo-{number + 1}" for number in range(count)]
    group = {"instance_group_name": "all", "instance_type": kind, "hosts": hosts}
    patch.setenv("SM_HOSTS", json.dumps(hosts))
    patch.setenv("SM_RESOURCE_CONFIG", json.dumps({"instance_groups": [group]}))
    patch.setenv("SM_HPS", json.dumps({"minutes": 1, **hyperparameters}))
    patch.setenv("SM_CURRENT_HOST", hosts[0])


def until(condition: Callable[[], Any], seconds: float, lives: Instance | None = None) -> None:
    """Wait for ``condition`` while the instance ``lives``."""
    deadline = time.monotonic() + seconds
    while not condition():
        over = time.monotonic() > deadline or (lives and lives.process.poll() is not None)
        # It may have become true in the meantime.
        assert not over or condition(), lives.log if lives else "it took too long"
        time.sleep(0.1)


def _command_line(pid: int) -> str:
    """Return the command line of a process, or "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _ip(*words: str) -> None:
    done = run("ip", *words)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"

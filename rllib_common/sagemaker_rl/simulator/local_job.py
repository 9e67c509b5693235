"""Simulation of a SageMaker training job on this machine.

Each instance is a process of the real ``sagemaker-training`` program with its own ``/opt/ml``. S3
is simulated by moto. As with ``RLEstimator``, the sources are packed, with dependencies next to the
script, uploaded and unpacked.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.untrusted_text import read_text
from sagemaker_rl.cluster.membership import PRIMARY, SECONDARY
from sagemaker_rl.job.hyperparameters import HyperparameterError, parse
from sagemaker_rl.job.job_environment import FAILURE_FILE
from sagemaker_rl.job.source_files import is_wanted, with_compiled_modules

_BUCKET = "sagemaker-local"
REGION = "us-east-1"
_CHANNEL = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}
"""Content of ``inputdataconfig.json`` for each channel."""

_ROOT = "/opt/ml"
"""Directory of a job on a real instance."""

_DRIVERS = "sm_drivers"
"""Channel with which the SDK 3 passes the programs that start a script."""


@dataclass(slots=True)
class Instance:
    """One instance of a job: its ``/opt/ml`` and its process."""

    name: str
    folder: Path
    hosts: Sequence[str]
    hyperparameters: Mapping[str, Any]
    cpus: set[int]
    channels: Sequence[str] = ()
    """Names of data channels, whose folders in ``input/data`` the caller fills."""
    groups: Sequence[Mapping[str, Any]] = ()
    """Instance groups of the job, as in ``resourceconfig.json``."""
    program: Sequence[str] = ()
    """Command that replaces ``sagemaker-training`` with the SDK 3.

    The paths in the command, and in the files of the channel `_DRIVERS`, are paths of a container
    with `_ROOT`.
    """
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def failure(self) -> str:
        """Reason of the instance's failure, or "" if the instance has not failed."""
        path = self.folder / FAILURE_FILE
        return path.read_text() if path.exists() else ""

    def prepare(self) -> None:
        """Create ``input``, and delete the files of an earlier attempt except checkpoints."""
        for old in ("code", "input", "output", "model"):
            shutil.rmtree(self.folder / old, ignore_errors=True)
        config = self.folder / "input" / "config"
        config.mkdir(parents=True)
        for channel in self.channels:
            self.channel(channel).mkdir(parents=True)
        for folder in ("model", "output/data", "checkpoints"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        # SageMaker passes only strings, so the SDK encodes every value as JSON.
        encoded = {name: json.dumps(value) for name, value in self.hyperparameters.items()}
        resources: dict[str, Any] = {
            "current_host": self.folder.name,
            "hosts": list(self.hosts),
            "current_instance_type": "local",
            "network_interface_name": "lo",
        }
        for group in self.groups:
            if self.folder.name in group["hosts"]:
                resources["current_instance_type"] = group["instance_type"]
                resources["current_group_name"] = group["instance_group_name"]
                resources["instance_groups"] = list(self.groups)
        for name, content in (
            ("hyperparameters", encoded),
            ("resourceconfig", resources),
            ("inputdataconfig", dict.fromkeys(self.channels, _CHANNEL)),
        ):
            (config / f"{name}.json").write_text(json.dumps(content, indent=2))

    def channel(self, name: str) -> Path:
        """Return the folder of a channel's data."""
        return self.folder / "input" / "data" / name

    def _command(self) -> list[str]:
        """Return the container's command with the paths of this machine."""
        if not self.program:
            # As in the training image, sagemaker-training ignores SIGTERM. Otherwise,
            # sagemaker-training would exit immediately and the script would continue to run.
            program = "trap '' TERM; exec \"$0\" -m sagemaker_training.cli.train"
            return ["sh", "-c", program, sys.executable]
        here = str(self.folder.absolute())
        for path in self.channel(_DRIVERS).rglob("*"):
            if path.suffix in (".py", ".sh"):
                path.write_text(path.read_text().replace(_ROOT, here))
        return [word.replace(_ROOT, here) for word in self.program]

    def start(self, job: str, environment: Mapping[str, str]) -> None:
        """Start the job's program."""
        python = str(Path(sys.executable).parent)
        self.process = subprocess.Popen(
            self._command(),
            env=os.environ
            | dict(environment)
            | {
                "SAGEMAKER_BASE_DIR": str(self.folder.absolute()),
                "TRAINING_JOB_NAME": job,
                # The PATH starts with this machine's Python, which replaces the image's Python.
                "PATH": os.pathsep.join((python, os.environ.get("PATH", os.defpath))),
                # Simulated host names do not resolve. With this variable, sagemaker-training does
                # not wait for DNS.
                "SM_STUDIO_LOCAL_MODE": "true",
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": with_compiled_modules(os.environ.get("PYTHONPATH", "")),
                # Without this variable, pip lists all installed requirements.
                "PIP_QUIET": "1",
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # The new process group isolates the instance from signals to this process.
            start_new_session=True,
        )
        os.sched_setaffinity(self.process.pid, self.cpus)

    def log(self) -> Iterator[str]:
        """Yield the instance's output lines until the instance ends, and write a log file."""
        assert self.process is not None
        assert self.process.stdout is not None
        with (self.folder / "log").open("w") as log, self.process.stdout as lines:
            for line in lines:
                log.write(line)
                yield line

    def show_log(self) -> None:
        """Print the instance's output lines until the instance ends.

        Each line starts with the instance's name.
        """
        for line in self.log():
            sys.stdout.write(f"{self.name} | {line}")

    def send(self, number: int) -> None:
        """Send a signal to all processes of the instance."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass(frozen=True, slots=True)
class LocalJob:
    """Training job, or a primary and a secondary job, with an estimator's arguments."""

    entry_point: str
    source_dir: Path
    dependencies: Sequence[Path]
    hyperparameters: Mapping[str, Any]
    folder: Path
    """Directory of the instances' ``/opt/ml`` directories.

    The job resumes from existing checkpoints.
    """
    instance_count: int = 1
    secondary_instance_count: int = 0
    """Number of instances of a secondary job."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    """Path by data channel: a file or folder, which is copied to each instance."""

    def fit(self) -> int:
        """Run the job and return the exit status of the first failed instance, or 0.

        Ctrl-C stops all instances; a second Ctrl-C kills all instances.

        Raises:
            ValueError: If a setting of the job is invalid.
        """
        self._check()
        with aws() as environment:
            self._upload(environment)
            instances = self._instances()
            try:
                with _forward_signals(instances):
                    statuses = self._run(instances, environment)
            finally:
                # After an error, no other code would end the instances.
                for instance in instances:
                    instance.send(signal.SIGKILL)
        for instance in instances:
            if instance.failure:
                sys.stdout.write(f"{instance.name} failed: {instance.failure}\n")
        status = next((status for status in statuses if status), 0)
        if status == 0:
            self._pack_model(instances[0].folder / "model")
        return status

    def _run(self, instances: Sequence[Instance], environment: Mapping[str, str]) -> list[int]:
        """Run all instances to their end and return their exit statuses."""
        for instance in instances:
            instance.prepare()
            for name, data in self.channels.items():
                if data.is_dir():
                    shutil.copytree(data, instance.channel(name), dirs_exist_ok=True)
                else:
                    shutil.copy(data, instance.channel(name))
            instance.start(self.folder.name, environment)
        threads = [threading.Thread(target=instance.show_log) for instance in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [instance.process.wait() for instance in instances if instance.process]

    def _check(self) -> None:
        script = self.source_dir / self.entry_point
        if not script.is_file():
            raise HyperparameterError(
                f"there is no {script}; the entry point must be a file in --source-dir"
            )
        for folder in self.dependencies:
            if not folder.is_dir():
                raise HyperparameterError(
                    f"there is no folder {folder}; start in the repository, or set --dependencies"
                )
        for name, data in self.channels.items():
            if not data.exists():
                raise HyperparameterError(f"--channels {name}: there is no {data}; check its path")
        for name, count, least in (
            ("instance_count", self.instance_count, 1),
            ("secondary_instance_count", self.secondary_instance_count, 0),
        ):
            if count < least:
                raise HyperparameterError(f"{name} must be at least {least}, got {count}")

    def _instances(self) -> list[Instance]:
        count = self.instance_count + self.secondary_instance_count
        rendezvous = {"s3_bucket": _BUCKET, "s3_prefix": self.folder.name, "aws_region": REGION}
        common = {
            **(rendezvous if count > 1 else {}),
            **self.hyperparameters,
            "sagemaker_program": self.entry_point,
            "sagemaker_submit_directory": f"s3://{_BUCKET}/{self._source_key}",
            "sagemaker_region": REGION,
        }
        if self.secondary_instance_count == 0:
            jobs = [("", self.instance_count, common)]
        else:
            common["rl_num_instances_secondary"] = self.secondary_instance_count
            jobs = [
                (f"{kind}/", number, common | {"rl_cluster_type": kind})
                for kind, number in (
                    (PRIMARY, self.instance_count),
                    (SECONDARY, self.secondary_instance_count),
                )
            ]
        made: list[Instance] = []
        for prefix, number, values in jobs:
            hosts = [f"algo-{i + 1}" for i in range(number)]
            for host in hosts:
                cpus = cpus_of_instance(len(made), count)
                folder = self.folder / prefix / host
                names = tuple(self.channels)
                made.append(Instance(f"{prefix}{host}", folder, hosts, values, cpus, names))
        return made

    @property
    def _source_key(self) -> str:
        return f"{self.folder.name}/source/sourcedir.tar.gz"

    def _upload(self, environment: Mapping[str, str]) -> None:
        packed = pack_sources(self.source_dir, self.dependencies)
        client = _client(environment)
        client.create_bucket(Bucket=_BUCKET)
        client.put_object(Bucket=_BUCKET, Key=self._source_key, Body=packed)

    def _pack_model(self, model_dir: Path) -> None:
        target = self.folder / "model.tar.gz"
        pack_folder(model_dir, target)
        sys.stdout.write(f"wrote {target}\n")


def pack_folder(folder: Path, target: Path) -> None:
    """Write the content of ``folder`` to ``target``, a ``.tar.gz`` file."""

    def write(draft: Path) -> None:
        with tarfile.open(draft, "w:gz") as archive:
            archive.add(folder, arcname=".")

    write_atomically(target, write)


def cpus_of_instance(position: int, instances: int) -> set[int]:
    """Return the CPUs of instance ``position`` of ``instances``.

    The instances share the CPUs of this machine.
    """
    cpus = sorted(os.sched_getaffinity(0))
    return set(cpus[position::instances]) or {cpus[position % len(cpus)]}


def pack_sources(source_dir: Path, dependencies: Sequence[Path]) -> bytes:
    """Pack ``sourcedir.tar.gz`` as the SageMaker SDK does.

    The dependencies are next to the script. As with `copy_sources`, compiled files are omitted.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(source_dir.iterdir()):
            archive.add(path, arcname=path.name, filter=_wanted)
        for folder in dependencies:
            archive.add(folder, arcname=folder.name, filter=_wanted)
    return buffer.getvalue()


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return member if is_wanted(member.name) else None


@contextmanager
def aws() -> Iterator[dict[str, str]]:
    """Simulate AWS on this machine, and yield the environment variables of clients."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        yield {
            # boto3 reads the first variable. sagemaker-training reads the second variable.
            "AWS_ENDPOINT_URL": url,
            "S3_ENDPOINT_URL": url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }
    finally:
        server.stop()


def _client(environment: Mapping[str, str]) -> Any:
    import boto3

    return boto3.client(
        "s3",
        region_name=REGION,
        endpoint_url=environment["S3_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


@contextmanager
def _forward_signals(instances: Sequence[Instance]) -> Iterator[None]:
    """Forward SIGINT and SIGTERM to all instances.

    The first signal is sent as SIGTERM, the second as SIGKILL.
    """
    numbers = [signal.SIGTERM, signal.SIGKILL]

    def forward(*_: Any) -> None:
        number = numbers.pop(0) if len(numbers) > 1 else numbers[0]
        for instance in instances:
            instance.send(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, forward) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def read_hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """Read hyperparameters from ``NAME=VALUE`` words, JSON objects and JSON files.

    Later words override earlier words.

    >>> read_hyperparameters(["num_iters=3", '{"rl.training.config.lr": 5e-5}'])
    {'num_iters': 3, 'rl.training.config.lr': 5e-05}

    Raises:
        HyperparameterError: If a word is malformed.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.endswith(".json") and Path(word).is_file():
            word = read_text(word)
        if word.lstrip().startswith("{"):
            try:
                values |= json.loads(word)
            except ValueError as error:
                raise HyperparameterError(f"{word} is not JSON: {error}") from None
        elif equals:
            values[name] = parse(text)
        else:
            raise HyperparameterError(
                f"hyperparameters are NAME=VALUE, a JSON object or a .json file, got {word!r}"
            )
    return values


def read_channels(words: Sequence[str]) -> dict[str, Path]:
    """Read data channels from ``NAME=PATH`` words.

    Raises:
        HyperparameterError: If a word is malformed.
    """
    pairs = [word.partition("=") for word in words]
    for word, (name, _, path) in zip(words, pairs, strict=True):
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not path:
            raise HyperparameterError(f"--channels takes NAME=PATH, got {word!r}")
    return {name: Path(path) for name, _, path in pairs}

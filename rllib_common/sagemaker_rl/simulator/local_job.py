"""Simulation of a SageMaker training job on this machine.

Each instance is a process of the real ``sagemaker-training`` program with its own ``/opt/ml``. moto
simulates S3. As with ``RLEstimator``, the simulator packs, uploads and unpacks the source files.
The dependencies are next to the script.
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
from sagemaker_rl.job.hyperparameters import HyperparameterError, parse_value
from sagemaker_rl.job.job_environment import FAILURE_FILE, PRIMARY_JOB, SECONDARY_JOB
from sagemaker_rl.job.source_files import add_compiled_modules, is_source_path
from sagemaker_rl.job.stop_signals import handled_signals

_BUCKET_NAME = "sagemaker-local"
"""Name of the simulated S3 bucket."""
REGION = "us-east-1"
"""AWS region of the simulated services."""
_CHANNEL_CONFIG = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}
"""Entry of each channel in ``inputdataconfig.json``."""

_CONTAINER_DIR = "/opt/ml"
"""Directory of a job in the container of a real instance."""

_DRIVER_CHANNEL = "sm_drivers"
"""Channel through which SDK 3 passes the programs that start a script."""


@dataclass(slots=True)
class Instance:
    """Simulated instance of a job: its directory ``/opt/ml`` and its process."""

    name: str
    folder: Path
    hosts: Sequence[str]
    hyperparameters: Mapping[str, Any]
    cpus: set[int]
    channels: Sequence[str] = ()
    """Names of the data channels.

    The caller fills their directories in ``input/data``.
    """
    groups: Sequence[Mapping[str, Any]] = ()
    """Instance groups of the job, in the format of ``resourceconfig.json``."""
    program: Sequence[str] = ()
    """Command of SDK 3, which replaces ``sagemaker-training``; empty for SDK 2.

    The command and the files of the channel `_DRIVER_CHANNEL` contain container paths, which start
    with `_CONTAINER_DIR`.
    """
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    _guard: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def failure_reason(self) -> str:
        """Reason of the instance's failure, or "" if the instance has not failed."""
        path = self.folder / FAILURE_FILE
        return path.read_text() if path.exists() else ""

    def prepare(self) -> None:
        """Create the input files, and delete the files of an earlier attempt.

        The checkpoints of the earlier attempt remain.
        """
        for old in ("code", "input", "output", "model"):
            shutil.rmtree(self.folder / old, ignore_errors=True)
        config = self.folder / "input" / "config"
        config.mkdir(parents=True)
        for channel in self.channels:
            self.channel_folder(channel).mkdir(parents=True)
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
            ("inputdataconfig", dict.fromkeys(self.channels, _CHANNEL_CONFIG)),
        ):
            (config / f"{name}.json").write_text(json.dumps(content, indent=2))

    def channel_folder(self, name: str) -> Path:
        """Return the directory of a channel's data."""
        return self.folder / "input" / "data" / name

    def _make_command(self) -> list[str]:
        """Return the container's command with paths of this machine."""
        if not self.program:
            # As in the training image, sagemaker-training ignores SIGTERM. Otherwise,
            # sagemaker-training would exit immediately, and the script would continue to run.
            program = "trap '' TERM; exec \"$0\" -m sagemaker_training.cli.train"
            return ["sh", "-c", program, sys.executable]
        here = str(self.folder.absolute())
        for path in self.channel_folder(_DRIVER_CHANNEL).rglob("*"):
            if path.suffix in (".py", ".sh"):
                path.write_text(path.read_text().replace(_CONTAINER_DIR, here))
        return [word.replace(_CONTAINER_DIR, here) for word in self.program]

    def start(self, job: str, environment: Mapping[str, str]) -> None:
        """Start the process of the instance."""
        python = str(Path(sys.executable).parent)
        self.process = subprocess.Popen(
            self._make_command(),
            env=os.environ
            | dict(environment)
            | {
                "SAGEMAKER_BASE_DIR": str(self.folder.absolute()),
                "TRAINING_JOB_NAME": job,
                # The PATH starts with this machine's Python, which replaces the image's Python.
                "PATH": os.pathsep.join((python, os.environ.get("PATH", os.defpath))),
                # Simulated host names do not resolve. In the local mode of SageMaker Studio,
                # sagemaker-training does not wait for DNS.
                "SM_STUDIO_LOCAL_MODE": "true",
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": add_compiled_modules(os.environ.get("PYTHONPATH", "")),
                # PIP_QUIET prevents pip from listing all installed requirements.
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
        # If this process ends, even by SIGKILL, the pipe closes, and the guard kills the instance.
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat; kill -s KILL -- "-$0"', str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def iter_log(self) -> Iterator[str]:
        """Yield the instance's output lines until the instance ends, and write a log file."""
        assert self.process is not None
        assert self.process.stdout is not None
        with (self.folder / "log").open("w", buffering=1) as log, self.process.stdout as lines:
            for line in lines:
                log.write(line)
                yield line
        self.process.wait()
        if self._guard is not None:
            os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.communicate()

    def print_log(self) -> None:
        """Print the instance's output lines until the instance ends.

        Each printed line starts with the instance's name.
        """
        for line in self.iter_log():
            sys.stdout.write(f"{self.name} | {line}")

    def send_signal(self, number: int) -> None:
        """Send the signal ``number`` to all processes of the instance."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass(frozen=True, slots=True)
class LocalJob:
    """Simulated training job, or pair of a primary and a secondary job.

    The fields correspond to the arguments of an estimator.
    """

    entry_point: str
    source_dir: Path
    dependencies: Sequence[Path]
    hyperparameters: Mapping[str, Any]
    folder: Path
    """Parent directory of the instances' ``/opt/ml`` directories.

    The job resumes from existing checkpoints.
    """
    instance_count: int = 1
    secondary_instance_count: int = 0
    """Number of instances of a secondary job; 0 for no secondary job."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    """Path of each channel's data, keyed by channel name.

    The path is a file or a directory. Each instance has its own copy.
    """

    def fit(self) -> int:
        """Run the job.

        Ctrl-C stops all instances; a second Ctrl-C kills all instances.

        Returns:
            Exit status of the first failed instance, or 0.

        Raises:
            ValueError: If a setting of the job is invalid.
        """
        self._check_settings()
        with simulated_aws() as environment:
            self._upload_sources(environment)
            instances = self._make_instances()
            try:
                with _forward_signals(instances):
                    statuses = self._run_instances(instances, environment)
            finally:
                # After an error, no other code would end the instances.
                for instance in instances:
                    instance.send_signal(signal.SIGKILL)
        for instance in instances:
            if instance.failure_reason:
                sys.stdout.write(f"{instance.name} failed: {instance.failure_reason}\n")
        status = next((status for status in statuses if status), 0)
        if status == 0:
            self._pack_model(instances[0].folder / "model")
        return status

    def _run_instances(
        self, instances: Sequence[Instance], environment: Mapping[str, str]
    ) -> list[int]:
        """Run all instances until they end, and return their exit statuses."""
        for instance in instances:
            instance.prepare()
            for name, data in self.channels.items():
                if data.is_dir():
                    shutil.copytree(data, instance.channel_folder(name), dirs_exist_ok=True)
                else:
                    shutil.copy(data, instance.channel_folder(name))
            instance.start(self.folder.name, environment)
        threads = [threading.Thread(target=instance.print_log) for instance in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [instance.process.wait() for instance in instances if instance.process]

    def _check_settings(self) -> None:
        """Reject missing files and invalid numbers of instances."""
        script = self.source_dir / self.entry_point
        if not script.is_file():
            raise HyperparameterError(
                f"there is no {script}; the entry point must be a file in --source-dir"
            )
        for folder in self.dependencies:
            if not folder.is_dir():
                raise HyperparameterError(
                    f"there is no folder {folder}; run the command in the repository, or set "
                    "--dependencies"
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

    def _make_instances(self) -> list[Instance]:
        """Return the instances of the job or of both jobs."""
        count = self.instance_count + self.secondary_instance_count
        rendezvous = {
            "s3_bucket": _BUCKET_NAME,
            "s3_prefix": self.folder.name,
            "aws_region": REGION,
        }
        common = {
            **(rendezvous if count > 1 else {}),
            **self.hyperparameters,
            "sagemaker_program": self.entry_point,
            "sagemaker_submit_directory": f"s3://{_BUCKET_NAME}/{self._source_key}",
            "sagemaker_region": REGION,
        }
        if self.secondary_instance_count == 0:
            jobs = [("", self.instance_count, common)]
        else:
            common["rl_num_instances_secondary"] = self.secondary_instance_count
            jobs = [
                (f"{kind}/", number, common | {"rl_cluster_type": kind})
                for kind, number in (
                    (PRIMARY_JOB, self.instance_count),
                    (SECONDARY_JOB, self.secondary_instance_count),
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
        """S3 key of the packed source files."""
        return f"{self.folder.name}/source/sourcedir.tar.gz"

    def _upload_sources(self, environment: Mapping[str, str]) -> None:
        """Pack the source files, and upload the archive to the simulated S3."""
        packed = pack_sources(self.source_dir, self.dependencies)
        client = _make_s3_client(environment)
        client.create_bucket(Bucket=_BUCKET_NAME)
        client.put_object(Bucket=_BUCKET_NAME, Key=self._source_key, Body=packed)

    def _pack_model(self, model_dir: Path) -> None:
        """Pack the model artifacts into ``model.tar.gz``."""
        target = self.folder / "model.tar.gz"
        pack_folder(model_dir, target)
        sys.stdout.write(f"wrote {target}\n")


def pack_folder(folder: Path, target: Path) -> None:
    """Pack the content of ``folder`` into the ``.tar.gz`` file ``target``."""

    def write(draft: Path) -> None:
        with tarfile.open(draft, "w:gz") as archive:
            archive.add(folder, arcname=".")

    write_atomically(target, write)


def cpus_of_instance(position: int, instances: int) -> set[int]:
    """Return the CPU numbers of the instance with index ``position``.

    The job's ``instances`` instances share the CPUs of this machine.
    """
    cpus = sorted(os.sched_getaffinity(0))
    return set(cpus[position::instances]) or {cpus[position % len(cpus)]}


def pack_sources(source_dir: Path, dependencies: Sequence[Path]) -> bytes:
    """Return the content of ``sourcedir.tar.gz``.

    The SageMaker SDK packs the same content. The dependencies are next to the script. The function
    omits compiled files (see `copy_sources`).
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(source_dir.iterdir()):
            archive.add(path, arcname=path.name, filter=_filter_source)
        for folder in dependencies:
            archive.add(folder, arcname=folder.name, filter=_filter_source)
    return buffer.getvalue()


def _filter_source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return the archive member, or None for a compiled file."""
    return member if is_source_path(member.name) else None


@contextmanager
def simulated_aws() -> Iterator[dict[str, str]]:
    """Simulate AWS on this machine for the duration of the block.

    Yields:
        Environment variables of AWS clients.
    """
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        yield {
            # boto3 reads AWS_ENDPOINT_URL, and sagemaker-training reads S3_ENDPOINT_URL.
            "AWS_ENDPOINT_URL": url,
            "S3_ENDPOINT_URL": url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
        }
    finally:
        server.stop()


def _make_s3_client(environment: Mapping[str, str]) -> Any:
    """Return a boto3 client of the simulated S3."""
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
    """Forward SIGINT, SIGTERM and SIGHUP to all instances.

    The instances receive SIGTERM for the first signal, and SIGKILL for later signals.
    """
    numbers = [signal.SIGTERM, signal.SIGKILL]

    def forward_signal(number: int) -> None:
        sent = numbers.pop(0) if len(numbers) > 1 else numbers[0]
        for instance in instances:
            instance.send_signal(sent)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled_signals(forward_signal):
        yield


def parse_hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """Parse hyperparameters from command-line arguments.

    An argument is ``NAME=VALUE``, a JSON object or a JSON file. Later arguments override earlier
    arguments.

    >>> parse_hyperparameters(["num_iters=3", '{"rl.training.config.lr": 5e-5}'])
    {'num_iters': 3, 'rl.training.config.lr': 5e-05}

    Raises:
        HyperparameterError: If an argument is malformed.
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
            values[name] = parse_value(text)
        else:
            raise HyperparameterError(
                f"hyperparameters must be NAME=VALUE, a JSON object or a .json file, got {word!r}"
            )
    return values


def parse_channels(words: Sequence[str]) -> dict[str, Path]:
    """Parse data channels from ``NAME=PATH`` arguments.

    Returns:
        Path of each channel's data, keyed by channel name.

    Raises:
        HyperparameterError: If an argument is malformed.
    """
    pairs = [word.partition("=") for word in words]
    for word, (name, _, path) in zip(words, pairs, strict=True):
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not path:
            raise HyperparameterError(f"--channels must be NAME=PATH, got {word!r}")
    return {name: Path(path) for name, _, path in pairs}

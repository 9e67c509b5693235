"""A SageMaker training job rehearsed on this machine.

Each instance is a process of the real ``sagemaker-training`` program in an ``/opt/ml`` of its own;
S3 is played by moto. The code travels as it does with ``RLEstimator``: packed, dependencies flat
beside the script, uploaded and unpacked again.
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

from sagemaker_rl.cluster.membership import PRIMARY, SECONDARY
from sagemaker_rl.job.hyperparameters import HyperparameterError, parse
from sagemaker_rl.job.job_environment import FAILURE_FILE
from sagemaker_rl.job.source_files import is_wanted, with_compiled_parts

_BUCKET = "sagemaker-local"
REGION = "us-east-1"
_CHANNEL = {
    "TrainingInputMode": "File",
    "S3DistributionType": "FullyReplicated",
    "RecordWrapperType": "None",
}
"""What ``inputdataconfig.json`` says of each channel of a rehearsal."""

_ROOT = "/opt/ml"
"""Where a job's folders are on a real instance."""

_DRIVERS = "sm_drivers"
"""The channel with which the SDK 3 brings the programs that start a script."""


@dataclass(slots=True)
class Instance:
    """One instance of a job: its ``/opt/ml``, and its process while it runs."""

    name: str
    folder: Path
    hosts: Sequence[str]
    hyperparameters: Mapping[str, Any]
    cpus: set[int]
    channels: Sequence[str] = ()
    """Names of data channels; each is a folder in ``input/data``, which others fill."""
    groups: Sequence[Mapping[str, Any]] = ()
    """The job's instance groups, as ``resourceconfig.json`` lists them."""
    program: Sequence[str] = ()
    """What runs instead of ``sagemaker-training``, as the SDK 3 has it: of the container that has
    `_ROOT`, the files of the channel `_DRIVERS` included."""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def failure(self) -> str:
        """Why it failed, or ""."""
        path = self.folder / FAILURE_FILE
        return path.read_text() if path.exists() else ""

    def prepare(self) -> None:
        """Lay out ``input``, and clear what an earlier attempt left; checkpoints stay."""
        for old in ("code", "input", "output", "model"):
            shutil.rmtree(self.folder / old, ignore_errors=True)
        config = self.folder / "input" / "config"
        config.mkdir(parents=True)
        for channel in self.channels:
            self.channel(channel).mkdir(parents=True)
        for folder in ("model", "output/data", "checkpoints"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        # SageMaker takes strings alone, so the SDK writes every value as JSON.
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
        """Where a channel's data are put."""
        return self.folder / "input" / "data" / name

    def _command(self) -> list[str]:
        """What the container runs, with its folders where they are here."""
        if not self.program:
            # As in the training image, sagemaker-training ignores SIGTERM: it would end at once and
            # leave the script alone.
            program = "trap '' TERM; exec \"$0\" -m sagemaker_training.cli.train"
            return ["sh", "-c", program, sys.executable]
        here = str(self.folder.absolute())
        for path in self.channel(_DRIVERS).rglob("*"):
            if path.suffix in (".py", ".sh"):
                path.write_text(path.read_text().replace(_ROOT, here))
        return [word.replace(_ROOT, here) for word in self.program]

    def start(self, job: str, environment: Mapping[str, str]) -> None:
        """Run the job's program."""
        python = str(Path(sys.executable).parent)
        self.process = subprocess.Popen(
            self._command(),
            env=os.environ
            | dict(environment)
            | {
                "SAGEMAKER_BASE_DIR": str(self.folder.absolute()),
                "TRAINING_JOB_NAME": job,
                # The image's Python is this one.
                "PATH": os.pathsep.join((python, os.environ.get("PATH", os.defpath))),
                # Host names of a rehearsal do not resolve; this skips the wait for them.
                "SM_STUDIO_LOCAL_MODE": "true",
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": with_compiled_parts(os.environ.get("PYTHONPATH", "")),
                # It lists all requirements, and that they are there.
                "PIP_QUIET": "1",
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A process group of its own, in which the script alone listens to SIGTERM.
            start_new_session=True,
        )
        os.sched_setaffinity(self.process.pid, self.cpus)

    def log(self) -> Iterator[str]:
        """What it prints, line by line to its end; the file ``log`` keeps it."""
        assert self.process is not None
        assert self.process.stdout is not None
        with (self.folder / "log").open("w") as log, self.process.stdout as lines:
            for line in lines:
                log.write(line)
                yield line

    def show_log(self) -> None:
        """Pass on what it prints, to its end; every line under its name."""
        for line in self.log():
            sys.stdout.write(f"{self.name} | {line}")

    def send(self, number: int) -> None:
        """Send a signal to all its processes."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A training job, or a primary and a secondary one, with the arguments of an estimator."""

    entry_point: str
    source_dir: Path
    dependencies: Sequence[Path]
    hyperparameters: Mapping[str, Any]
    folder: Path
    """Where the instances have their ``/opt/ml``; a folder with checkpoints is resumed."""
    instances: int = 1
    secondary: int = 0
    """Instances of a secondary job."""
    channels: Mapping[str, Path] = field(default_factory=dict)
    """Data channels: the file or folder that each instance gets a copy of."""

    def fit(self) -> int:
        """Run to the end; returns the exit status of the first instance that failed, or 0.

        Ctrl-C asks all instances to stop in order, a second one ends them at once.

        Raises:
            ValueError: the job is impossible.
        """
        self._check()
        with aws() as environment:
            self._upload(environment)
            everybody = self._instances()
            try:
                with _passing_on_signals(everybody):
                    statuses = self._run(everybody, environment)
            finally:
                # Nothing else would end them if something went wrong here.
                for instance in everybody:
                    instance.send(signal.SIGKILL)
        for instance in everybody:
            if instance.failure:
                sys.stdout.write(f"{instance.name} failed: {instance.failure}\n")
        status = next((status for status in statuses if status), 0)
        if status == 0:
            self._pack_model(everybody[0].folder / "model")
        return status

    def _run(self, instances: Sequence[Instance], environment: Mapping[str, str]) -> list[int]:
        """Run all to their end; returns their exit statuses."""
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
                f"there is no {script}; the entry point is a file in --source-dir"
            )
        for folder in self.dependencies:
            if not folder.is_dir():
                raise HyperparameterError(
                    f"there is no folder {folder}; start this in the repository, or give "
                    "--dependencies"
                )
        for name, data in self.channels.items():
            if not data.exists():
                raise HyperparameterError(f"--channels {name}: there is no {data}")
        for name, count, least in (
            ("instances", self.instances, 1),
            ("secondary", self.secondary, 0),
        ):
            if count < least:
                raise HyperparameterError(f"{name} must be at least {least}, got {count}")

    def _instances(self) -> list[Instance]:
        count = self.instances + self.secondary
        meeting = {"s3_bucket": _BUCKET, "s3_prefix": self.folder.name, "aws_region": REGION}
        common = {
            **(meeting if count > 1 else {}),
            **self.hyperparameters,
            "sagemaker_program": self.entry_point,
            "sagemaker_submit_directory": f"s3://{_BUCKET}/{self._source_key}",
            "sagemaker_region": REGION,
        }
        if self.secondary == 0:
            jobs = [("", self.instances, common)]
        else:
            common["rl_num_instances_secondary"] = self.secondary
            jobs = [
                (f"{kind}/", number, common | {"rl_cluster_type": kind})
                for kind, number in ((PRIMARY, self.instances), (SECONDARY, self.secondary))
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
    """Write ``target``, a ``.tar.gz`` of what is in ``folder``."""
    draft = target.with_name(target.name + ".unfinished")
    with tarfile.open(draft, "w:gz") as archive:
        archive.add(folder, arcname=".")
    draft.replace(target)


def cpus_of_instance(position: int, instances: int) -> set[int]:
    """The CPUs of the instance at ``position`` of those that share this machine."""
    cpus = sorted(os.sched_getaffinity(0))
    return set(cpus[position::instances]) or {cpus[position % len(cpus)]}


def pack_sources(source_dir: Path, dependencies: Sequence[Path]) -> bytes:
    """``sourcedir.tar.gz`` as the SageMaker SDK makes it: dependencies flat beside the script.

    What was compiled here stays here, as with `files.copy_sources`.
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
    """AWS on this machine, S3 above all; yields what its users need in their environment."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        yield {
            # The one for boto3, the other for sagemaker-training.
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
def _passing_on_signals(instances: Sequence[Instance]) -> Iterator[None]:
    """Within, the first SIGINT or SIGTERM becomes SIGTERM for all, the second SIGKILL."""
    numbers = [signal.SIGTERM, signal.SIGKILL]

    def pass_on(*_: Any) -> None:
        number = numbers.pop(0) if len(numbers) > 1 else numbers[0]
        for instance in instances:
            instance.send(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def read_hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` words, JSON objects and JSON files, later ones over earlier ones.

    >>> read_hyperparameters(["num_iters=3", '{"rl.training.config.lr": 5e-5}'])
    {'num_iters': 3, 'rl.training.config.lr': 5e-05}

    Raises:
        HyperparameterError: a word is not one of these.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if word.endswith(".json") and Path(word).is_file():
            word = Path(word).read_text()
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
    """``NAME=PATH`` words.

    Raises:
        HyperparameterError: a word is something else.
    """
    pairs = [word.partition("=") for word in words]
    for word, (name, _, path) in zip(words, pairs, strict=True):
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not path:
            raise HyperparameterError(f"--channels takes NAME=PATH, got {word!r}")
    return {name: Path(path) for name, _, path in pairs}

"""Instances, source files and AWS account of simulated training jobs.

Each instance is a process of the real ``sagemaker-training`` program with its own ``/opt/ml``. moto
simulates S3.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from battlesnake_gym.common.extensions import portable_environment
from battlesnake_gym.common.untrusted_text import read_text
from sagemaker_rl.job.hyperparameters import HyperparameterError, load_json, parse_value
from sagemaker_rl.job.job_environment import FAILURE_FILE
from sagemaker_rl.job.source_files import add_compiled_modules

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
            env=portable_environment()
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

    def send_signal(self, number: int) -> None:
        """Send the signal ``number`` to all processes of the instance."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


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


def parse_hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """Parse hyperparameters from command-line arguments.

    An argument is ``NAME=VALUE``, a JSON object or a JSON file. ``NAME=VALUE`` overrides JSON
    objects and files, and later ones override earlier ones.

    >>> parse_hyperparameters(["num_iters=3", '{"rl.training.config.lr": 5e-5}'])
    {'rl.training.config.lr': 5e-05, 'num_iters': 3}

    Raises:
        HyperparameterError: If an argument is malformed or repeats a name.
    """
    values: dict[str, Any] = {}
    typed: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        is_file = word.endswith(".json") and Path(word).is_file()
        given = read_text(word) if is_file else word
        if given.lstrip().startswith("{"):
            try:
                values |= load_json(given)
            except json.JSONDecodeError as error:
                raise HyperparameterError(f"{word:.80} is not JSON: {error}") from None
        elif equals:
            if name in typed:
                raise HyperparameterError(
                    f"--hyperparameters repeats {name}, got {word!r}; omit it"
                )
            typed[name] = parse_value(text)
        else:
            raise HyperparameterError(
                f"hyperparameters must be NAME=VALUE, a JSON object or a .json file, got {word!r}"
            )
    return values | typed

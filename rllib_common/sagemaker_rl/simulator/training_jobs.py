"""Simulated training jobs.

The simulator runs SageMaker's requests as processes on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from botocore import xform_name

from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.common.temporary_dirs import temporary_dir
from sagemaker_rl.job.hyperparameters import decode_twice_encoded, parse_value
from sagemaker_rl.job.job_environment import (
    HOMOGENEOUS_GROUP,
    SECONDARY_JOB,
    assign_hosts,
)
from sagemaker_rl.job.source_files import split_s3_uri
from sagemaker_rl.simulator.local_job import REGION, Instance

_METRICS_NAMESPACE = "/aws/sagemaker/TrainingJobs"
"""CloudWatch namespace of the metrics of training jobs."""
_MAX_METRICS = 500
"""Maximum number of metric values per request; CloudWatch accepts 1,000 values."""
JOB_COMPLETED, JOB_FAILED = "Completed", "Failed"
JOB_STOPPED, JOB_IN_PROGRESS = "Stopped", "InProgress"
_MAX_RUNTIME_STATUS = "MaxRuntimeExceeded"
"""Secondary status of a job that was stopped after ``max_run`` seconds."""
_DEFAULT_MAX_RUNTIME_S = 86_400
"""Default of the request's field ``MaxRuntimeInSeconds``, as in AWS."""
_STOP_GRACE_S = 120.0
"""Duration between SIGTERM, which requests a stop, and SIGKILL, in seconds."""


class _ChannelDataError(Exception):
    """Error raised if a channel has no data, or data outside its folder.

    Such a job fails before its script starts.
    """


class BackgroundJob(threading.Thread):
    """Job that runs in its own thread; other threads can read the log of the job.

    Args:
        request: Request that created the job.
        client: Client that received the request, a `SimulatedSageMaker`.
    """

    kind: ClassVar[str]
    """Kind of the job, which begins the names of AWS's fields."""

    def __init__(self, request: Mapping[str, Any], client: Any) -> None:
        super().__init__(name=request[f"{self.kind}Name"], daemon=True)
        self._request = request
        self._client = client
        self._status, self._failure = JOB_IN_PROGRESS, ""
        self._stop_requested = False
        self._created = self._changed = datetime.now(UTC)
        self._lines: list[str] = []
        self._condition = threading.Condition()

    @property
    def arn(self) -> dict[str, str]:
        """ARN of the job, in the response to the request."""
        kind = xform_name(self.kind, "-")
        return {f"{self.kind}Arn": f"arn:aws:sagemaker:::{kind}/{self.name}"}

    def describe(self) -> dict[str, Any]:
        """Return the description of the job in the format of AWS."""
        description = {
            **self._request,
            **self.arn,
            f"{self.kind}Status": self._status,
            "CreationTime": self._created,
            "LastModifiedTime": self._changed,
        }
        return description | ({"FailureReason": self._failure} if self._failure else {})

    def stop(self) -> None:
        """Request that the job stops."""
        raise NotImplementedError

    def kill(self) -> None:
        """End the job immediately."""
        raise NotImplementedError

    def run(self) -> None:
        """Run the job to its end, and set its final status."""
        try:
            self._work()
            ended = JOB_FAILED if self._failure else JOB_COMPLETED
            status = JOB_STOPPED if self._stop_requested else ended
        except Exception as error:
            self._append_log_line(traceback.format_exc())
            self._failure, status = f"InternalServerError: {describe_exception(error)}", JOB_FAILED
            self.kill()
        with self._condition:
            self._status, self._changed = status, datetime.now(UTC)
            self._condition.notify_all()

    def _work(self) -> None:
        """Do the work of the job, and set the reason of a failure."""
        raise NotImplementedError

    def iter_log(self, wait: bool) -> Iterator[str]:
        """Yield the log lines of the job.

        ``wait`` selects all lines until the job ends. Otherwise, the method yields only the
        existing lines.
        """
        seen = 0
        while True:
            with self._condition:
                while wait and seen == len(self._lines) and self._status == JOB_IN_PROGRESS:
                    self._condition.wait()
                lines, over = self._lines[seen:], not wait or self._status != JOB_IN_PROGRESS
            yield from lines
            seen += len(lines)
            if over and seen == len(self._lines):
                return

    def _append_log_line(self, line: str) -> None:
        """Append a line to the log, and wake the threads that read the log."""
        with self._condition:
            self._lines.append(line)
            self._condition.notify_all()


class TrainingJob(BackgroundJob):
    """Simulated training job: its request, its instances and its results.

    The instances' ``/opt/ml`` directories are ``FOLDER/JOB/algo-1``, ``FOLDER/JOB/algo-2`` and so
    on. When instances start, checkpoints are copied from ``checkpoint_s3_uri``. When instances end,
    checkpoints are copied to ``checkpoint_s3_uri``. The model and the output are copied to S3 at
    the end of the job.
    """

    kind = "TrainingJob"

    def __init__(self, request: Mapping[str, Any], client: Any) -> None:
        super().__init__(request, client)
        self._folder = client.folder / self.name
        self._environment = {**client.environment, **request.get("Environment", {})}
        self._instances = _make_instances(request, self._folder)
        self._metrics: list[dict[str, Any]] = []
        self.exit_statuses: list[int] = []
        self._interrupt_requested = False
        self._out_of_time = False
        self._timers: list[threading.Timer] = []

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after `_STOP_GRACE_S` seconds."""
        self._stop_requested = True
        self._send_signal(signal.SIGTERM)
        self._start_timer(_STOP_GRACE_S, lambda: self._send_signal(signal.SIGKILL))

    def interrupt(self) -> None:
        """Replace the instances with new instances.

        The method simulates the interruption of a spot job.
        """
        self._interrupt_requested = True
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes of the job immediately."""
        self._stop_requested = True
        self._send_signal(signal.SIGKILL)

    def describe(self) -> dict[str, Any]:
        """Return the response of ``describe_training_job``."""
        description = super().describe() | {
            "OutputDataConfig": {"KmsKeyId": "", **self._request["OutputDataConfig"]},
            "SecondaryStatus": self._secondary_status(),
            "TrainingStartTime": self._created,
            "FinalMetricDataList": list(
                {metric["MetricName"]: metric for metric in self._metrics}.values()
            ),
        }
        if self._status != JOB_IN_PROGRESS:
            seconds = round((self._changed - self._created).total_seconds())
            description |= {
                "TrainingEndTime": self._changed,
                "TrainingTimeInSeconds": seconds,
                "ModelArtifacts": {"S3ModelArtifacts": f"{self._output_uri}/model.tar.gz"},
            }
        return description

    def _secondary_status(self) -> str:
        """Return the secondary status in the format of AWS."""
        if self._out_of_time and self._status == JOB_STOPPED:
            return _MAX_RUNTIME_STATUS
        return "Training" if self._status == JOB_IN_PROGRESS else self._status

    def _stop_at_max_runtime(self) -> None:
        """Stop the job because its maximum runtime has expired."""
        self._append_log_line("the job has reached max_run; stopping the job")
        self._out_of_time = True
        self.stop()

    def _start_timer(self, seconds: float, do: Callable[[], None]) -> None:
        """Call ``do`` after ``seconds`` seconds, unless the job ends earlier."""
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _work(self) -> None:
        """Run the instances, and publish their results."""
        limits = self._request.get("StoppingCondition", {})
        self._start_timer(
            limits.get("MaxRuntimeInSeconds", _DEFAULT_MAX_RUNTIME_S), self._stop_at_max_runtime
        )
        try:
            while True:
                self.exit_statuses = self._run_instances()
                if not self._interrupt_requested or self._stop_requested:
                    break
                self._interrupt_requested = False
                self._append_log_line(
                    "the instances were interrupted; the job resumes on new instances"
                )
            self._publish_metrics()
            self._upload_artifacts()
            if not self._stop_requested:
                self._failure = self._failure_reason()
        except _ChannelDataError as error:
            self._failure = str(error)
        finally:
            for timer in self._timers:
                timer.cancel()

    def _run_instances(self) -> list[int]:
        """Run all instances until they end, and return their exit statuses."""
        for instance in self._instances:
            instance.prepare()
            self._transfer_checkpoints(instance, _download)
            self._download_channels(instance)
            instance.start(self.name, self._environment)
        readers = [
            threading.Thread(target=self._read_output, args=[instance], daemon=True)
            for instance in self._instances
        ]
        for reader in readers:
            reader.start()
        if self._stop_requested or self._interrupt_requested:
            self._send_signal(signal.SIGTERM)
        for reader in readers:
            reader.join()
        statuses = [one.process.wait() for one in self._instances if one.process]
        for instance in self._instances:
            self._transfer_checkpoints(instance, _upload_folder)
        return statuses

    def _send_signal(self, number: int) -> None:
        """Send the signal ``number`` to all instances."""
        for instance in self._instances:
            instance.send_signal(number)

    def _read_output(self, instance: Instance) -> None:
        """Add an instance's output lines to the log and to the metrics."""
        for line in instance.iter_log():
            self._append_log_line(f"{instance.name} | {line.rstrip()}")
            self._record_metrics(line)

    def _record_metrics(self, line: str) -> None:
        """Record the metrics in an output line."""
        now = datetime.now(UTC)
        for metric in self._request["AlgorithmSpecification"].get("MetricDefinitions", []):
            match = re.search(metric["Regex"], line)
            with suppress(ValueError, IndexError):
                if match is not None:
                    found = {"MetricName": metric["Name"], "Value": float(match[1])}
                    self._metrics.append(found | {"Timestamp": now})

    def _publish_metrics(self) -> None:
        """Send the metrics to CloudWatch.

        ``TrainingJobAnalytics`` reads the metrics from CloudWatch.
        """
        dimensions = [{"Name": "TrainingJobName", "Value": self.name}]
        data = [metric | {"Dimensions": dimensions} for metric in self._metrics]
        for start in range(0, len(data), _MAX_METRICS):
            self._client.cloudwatch.put_metric_data(
                Namespace=_METRICS_NAMESPACE, MetricData=data[start : start + _MAX_METRICS]
            )

    def _failure_reason(self) -> str:
        """Return the failure reason of the first failed instance, or ""."""
        for instance, status in zip(self._instances, self.exit_statuses, strict=True):
            if status != 0:
                reason = instance.failure_reason or f"see the log, {instance.folder / 'log'}"
                return f"AlgorithmError: {reason} (exit status {status} of {instance.name})"[:1024]
        return ""

    @property
    def _output_uri(self) -> str:
        """S3 URI of the directory for the artifacts of the job."""
        return f"{self._request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"

    def _upload_artifacts(self) -> None:
        """Upload ``model.tar.gz`` and ``output.tar.gz`` to S3.

        Each archive contains the files of all instances.
        """
        for source, stem in (("model", "model"), ("output/data", "output")):
            with temporary_dir("artifacts") as merged:
                for instance in reversed(self._instances):
                    folder = instance.folder / source
                    shutil.copytree(folder, merged, symlinks=True, dirs_exist_ok=True)
                draft = shutil.make_archive(str(self._folder / f".{stem}"), "gztar", merged)
            packed = Path(draft).replace(self._folder / f"{stem}.tar.gz")
            bucket, key = split_s3_uri(f"{self._output_uri}/{packed.name}")
            self._client.s3.upload_file(str(packed), bucket, key)

    def _download_channels(self, instance: Instance) -> None:
        """Download the data of all channels to an instance."""
        for channel in self._request.get("InputDataConfig", []):
            uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
            target = instance.channel_folder(channel["ChannelName"])
            _download(self._client.s3, uri, target)
            if not any(target.iterdir()):
                raise _ChannelDataError(
                    f"ClientError: Data download failed: there is nothing in S3 at {uri}, which "
                    f"the channel {channel['ChannelName']!r} names"
                )

    def _transfer_checkpoints(
        self, instance: Instance, move: Callable[[Any, str, Path], None]
    ) -> None:
        """Call ``move`` for the checkpoints of an instance, if the job has an S3 URI."""
        uri = self._request.get("CheckpointConfig", {}).get("S3Uri")
        if uri is not None:
            move(self._client.s3, uri, instance.folder / "checkpoints")


def _make_instances(request: Mapping[str, Any], folder: Path) -> list[Instance]:
    """Return the simulated instances that a request describes.

    The instances of a cluster share this machine's CPUs.
    """
    hyperparameters = {
        name: parse_value(text) for name, text in request.get("HyperParameters", {}).items()
    }
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    count = sum(group["InstanceCount"] for group in groups)
    kind = decode_twice_encoded(hyperparameters.get("rl_cluster_type"))
    before = 1 if kind == SECONDARY_JOB else 0
    total = before + count
    if kind is not None and before == 0:
        total += int(hyperparameters.get("rl_num_instances_secondary", 0))
    elif count > 1:
        # Simulated host names do not resolve, so the instances find the head node through S3.
        bucket, _ = split_s3_uri(request["OutputDataConfig"]["S3OutputPath"])
        region = hyperparameters.get("sagemaker_region", REGION)
        rendezvous = {"s3_bucket": bucket, "s3_prefix": folder.name, "aws_region": region}
        hyperparameters = rendezvous | hyperparameters
    hosts, described = assign_hosts(
        (
            group.get("InstanceGroupName", HOMOGENEOUS_GROUP),
            group["InstanceType"],
            group["InstanceCount"],
        )
        for group in groups
    )
    cpus = sorted(os.sched_getaffinity(0))
    channels = [channel["ChannelName"] for channel in request.get("InputDataConfig", [])]
    container = request.get("AlgorithmSpecification", {})
    program = [*container.get("ContainerEntrypoint", ()), *container.get("ContainerArguments", ())]
    return [
        Instance(
            host,
            folder / host,
            hosts,
            hyperparameters,
            set(cpus[i::total]) or {cpus[i % len(cpus)]},
            channels,
            described if len(described) > 1 or program else (),
            program,
        )
        for i, host in enumerate(hosts, before)
    ]


def _download(s3: Any, uri: str, folder: Path) -> None:
    """Download the S3 object ``uri``, and all objects below ``uri``, into ``folder``.

    Raises:
        _ChannelDataError: If a key names a file outside ``folder``.
    """
    bucket, key = split_s3_uri(uri)
    parent = f"{key}/" if key else ""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
        for name in (one["Key"] for one in page.get("Contents", [])):
            is_wanted = name == key or name.startswith(parent)
            if not is_wanted or name.endswith("/"):  # The S3 console's marker of a folder.
                continue
            path = folder / (Path(key).name if name == key else name.removeprefix(parent))
            if not path.resolve().is_relative_to(folder.resolve()):
                raise _ChannelDataError(
                    f"ClientError: Data download failed: the S3 key {name!r} leaves its folder; "
                    "rename the object"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, name, str(path))


def _upload_folder(s3: Any, uri: str, folder: Path) -> None:
    """Upload all files in ``folder`` to S3 objects below ``uri``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            s3.upload_file(str(path), *split_s3_uri(f"{uri.rstrip('/')}/{name}"))

"""Training jobs as SageMaker runs them, rehearsed: requests in, processes on this machine."""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import Session as Models
from botocore.validate import validate_parameters

from sagemaker_rl.cluster.membership import SECONDARY
from sagemaker_rl.job.hyperparameters import parse
from sagemaker_rl.job.source_files import bucket_and_key
from sagemaker_rl.simulator.local_job import REGION, Instance, cpus_of_instance, pack_folder

_METRICS_NAMESPACE = "/aws/sagemaker/TrainingJobs"
_MOST_METRICS = 500
"""In one request to CloudWatch, which takes 1000."""
_FULLY_REPLICATED = "FullyReplicated"
"""Each instance gets all data of a channel."""
COMPLETED, FAILED, STOPPED, IN_PROGRESS = "Completed", "Failed", "Stopped", "InProgress"
_OUT_OF_TIME = "MaxRuntimeExceeded"
"""The secondary status of a job that is stopped because its ``max_run`` is over."""
_DEFAULT_MAX_RUNTIME_S = 86_400
"""Seconds of a job that names no ``MaxRuntimeInSeconds``, as in AWS."""
_STOP_GRACE_S = 120.0
"""Seconds from SIGTERM, which asks for an end in order, to SIGKILL."""


@dataclass(frozen=True, slots=True)
class Services:
    """boto3's clients of what jobs use, and what instances need in their environment to do so."""

    s3: Any
    cloudwatch: Any
    environment: Mapping[str, str]


class DataError(Exception):
    """The data of a channel are not there, which ends a job before its script begins."""


class BackgroundJob:
    """What the service does about a request, in a thread of its own; others read what it prints."""

    def __init__(self, name: str, request: Mapping[str, Any]) -> None:
        self.name = name
        self._request = request
        self._status, self._failure = IN_PROGRESS, ""
        self._stop_asked = False
        self._created = self._changed = datetime.now(UTC)
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self) -> None:
        """Until it has ended."""
        self._thread.join()

    def log(self, wait: bool) -> Iterator[str]:
        """The lines printed so far; to the end if ``wait``."""
        seen = 0
        while True:
            with self._news:
                while wait and seen == len(self._lines) and self._status == IN_PROGRESS:
                    self._news.wait()
                lines, over = self._lines[seen:], not wait or self._status != IN_PROGRESS
            yield from lines
            seen += len(lines)
            if over and seen == len(self._lines):
                return

    def _run(self) -> None:
        raise NotImplementedError

    def _say(self, line: str) -> None:
        with self._news:
            self._lines.append(line)
            self._news.notify_all()

    def _end(self, status: str) -> None:
        with self._news:
            self._status, self._changed = status, datetime.now(UTC)
            self._news.notify_all()


class TrainingJob(BackgroundJob):
    """One job: its request, its instances and what becomes of them.

    The instances' ``/opt/ml`` are ``FOLDER/JOB/algo-1`` and so on. Checkpoints travel to and from
    ``checkpoint_s3_uri`` whenever instances start and end, model and output go to S3 at the end.
    """

    def __init__(self, request: Mapping[str, Any], folder: Path, services: Services) -> None:
        super().__init__(request["TrainingJobName"], request)
        self._folder = folder / self.name
        self._services = services
        self._environment = {**services.environment, **request.get("Environment", {})}
        self._instances = _instances(request, self._folder)
        self._metrics: list[dict[str, Any]] = []
        self._interrupt_asked = False
        self._out_of_time = False
        self._timers: list[threading.Timer] = []

    # What the account's owner sees and does

    def stop(self) -> None:
        """Ask for an end in order, as ``stop_training_job`` does, and see to it after `_STOP_GRACE_S`."""
        self._stop_asked = True
        self._send(signal.SIGTERM)
        self._after(_STOP_GRACE_S, lambda: self._send(signal.SIGKILL))

    def interrupt(self) -> None:
        """Take the instances away and give them back, as happens to a spot job."""
        self._interrupt_asked = True
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End all processes at once."""
        self._stop_asked = True
        self._send(signal.SIGKILL)

    def describe(self) -> dict[str, Any]:
        """What ``describe_training_job`` answers."""
        description: dict[str, Any] = {
            **self._request,
            "OutputDataConfig": {"KmsKeyId": "", **self._request["OutputDataConfig"]},
            "TrainingJobArn": f"arn:aws:sagemaker:::training-job/{self.name}",
            "TrainingJobStatus": self._status,
            "SecondaryStatus": self._secondary_status(),
            "CreationTime": self._created,
            "TrainingStartTime": self._created,
            "LastModifiedTime": self._changed,
            "FinalMetricDataList": list(
                {metric["MetricName"]: metric for metric in self._metrics}.values()
            ),
        }
        if self._status != IN_PROGRESS:
            seconds = round((self._changed - self._created).total_seconds())
            description |= {
                "TrainingEndTime": self._changed,
                "TrainingTimeInSeconds": seconds,
                "ModelArtifacts": {"S3ModelArtifacts": f"{self._output}/model.tar.gz"},
            }
        if self._failure:
            description["FailureReason"] = self._failure
        return description

    def _secondary_status(self) -> str:
        if self._status == IN_PROGRESS:
            return "Training"
        return _OUT_OF_TIME if self._out_of_time and self._status == STOPPED else self._status

    # What the service does in the background

    def _run_out_of_time(self) -> None:
        self._say("the job's max_run is over: it is stopped")
        self._out_of_time = True
        self.stop()

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _run(self) -> None:
        limits = self._request.get("StoppingCondition", {})
        self._after(
            limits.get("MaxRuntimeInSeconds", _DEFAULT_MAX_RUNTIME_S), self._run_out_of_time
        )
        try:
            while True:
                statuses = self._run_instances()
                if not self._interrupt_asked or self._stop_asked:
                    break
                self._interrupt_asked = False
                self._say("the instances were taken away; the job goes on with new ones")
            self._publish_metrics()
            self._deliver()
            self._failure = "" if self._stop_asked else self._reason(statuses)
            status = STOPPED if self._stop_asked else FAILED if self._failure else COMPLETED
        except DataError as error:
            self._failure, status = str(error), FAILED
        except Exception as error:
            self._say(traceback.format_exc())
            self._failure, status = f"InternalServerError: {error!r}", FAILED
            self.kill()
        for timer in self._timers:
            timer.cancel()
        self._end(status)

    def _run_instances(self) -> list[int]:
        """Run all instances to their end; returns their exit statuses."""
        for instance in self._instances:
            instance.prepare()
            self._move_checkpoints(instance, _download)
            self._bring_data(instance)
            instance.start(self.name, self._environment)
        readers = [
            threading.Thread(target=self._read, args=[instance], daemon=True)
            for instance in self._instances
        ]
        for reader in readers:
            reader.start()
        if self._stop_asked or self._interrupt_asked:
            self._send(signal.SIGTERM)
        for reader in readers:
            reader.join()
        statuses = [one.process.wait() for one in self._instances if one.process]
        for instance in self._instances:
            self._move_checkpoints(instance, _upload)
        return statuses

    def _send(self, number: int) -> None:
        for instance in self._instances:
            instance.send(number)

    def _read(self, instance: Instance) -> None:
        for line in instance.log():
            self._say(f"{instance.name} | {line.rstrip()}")
            self._find_metrics(line)

    def _find_metrics(self, line: str) -> None:
        now = datetime.now(UTC)
        for metric in self._request["AlgorithmSpecification"].get("MetricDefinitions", []):
            match = re.search(metric["Regex"], line)
            with suppress(ValueError, IndexError):
                if match is not None:
                    found = {"MetricName": metric["Name"], "Value": float(match[1])}
                    self._metrics.append(found | {"Timestamp": now})

    def _publish_metrics(self) -> None:
        """Send them to CloudWatch, so that ``TrainingJobAnalytics`` finds them."""
        dimensions = [{"Name": "TrainingJobName", "Value": self.name}]
        data = [metric | {"Dimensions": dimensions} for metric in self._metrics]
        for start in range(0, len(data), _MOST_METRICS):
            self._services.cloudwatch.put_metric_data(
                Namespace=_METRICS_NAMESPACE, MetricData=data[start : start + _MOST_METRICS]
            )

    def _reason(self, statuses: list[int]) -> str:
        for instance, status in zip(self._instances, statuses, strict=True):
            if status != 0:
                reason = instance.failure or f"see the log, {instance.folder / 'log'}"
                return f"AlgorithmError: {reason} (exit status {status} of {instance.name})"[:1024]
        return ""

    @property
    def _output(self) -> str:
        return f"{self._request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{self.name}/output"

    def _deliver(self) -> None:
        """Put ``model.tar.gz`` and ``output.tar.gz`` into S3."""
        first = self._instances[0].folder
        for source, name in (("model", "model.tar.gz"), ("output/data", "output.tar.gz")):
            packed = self._folder / name
            pack_folder(first / source, packed)
            bucket, key = bucket_and_key(f"{self._output}/{name}")
            self._services.s3.upload_file(str(packed), bucket, key)

    def _bring_data(self, instance: Instance) -> None:
        for channel in self._request.get("InputDataConfig", []):
            uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
            bucket, key = bucket_and_key(uri)
            target = instance.channel(channel["ChannelName"])
            if _exists(self._services.s3, bucket, key):
                self._services.s3.download_file(bucket, key, str(target / Path(key).name))
            else:
                _download(self._services.s3, uri, target)
            if not any(target.iterdir()):
                raise DataError(
                    f"ClientError: Data download failed: there is nothing in S3 at {uri}, which "
                    f"the channel {channel['ChannelName']!r} names"
                )

    def _move_checkpoints(self, instance: Instance, move: Callable[[Any, str, Path], None]) -> None:
        uri = self._request.get("CheckpointConfig", {}).get("S3Uri")
        if uri is not None:
            move(self._services.s3, uri, instance.folder / "checkpoints")


class TrainingJobs:
    """What the SDK asks of boto3's client ``sagemaker``, answered on this machine."""

    def __init__(self, folder: Path, services: Services) -> None:
        self._folder = folder
        self._services = services
        self._jobs: dict[str, TrainingJob] = {}
        model = Models().get_service_model("sagemaker").operation_model("CreateTrainingJob")
        self._shape = model.input_shape

    def create_training_job(self, **request: Any) -> dict[str, str]:
        """Start a job.

        Raises:
            botocore.exceptions.ParamValidationError: the request is not a valid one.
            ClientError: there are no instances, or there was a job of this name.
            ValueError: a rehearsal cannot do what the request asks for.
        """
        validate_parameters(request, self._shape)
        if request["AlgorithmSpecification"].get("AlgorithmName"):
            raise ValueError(
                "AlgorithmSpecification.AlgorithmName cannot be rehearsed; give image_uri"
            )
        _check_channels(request.get("InputDataConfig", []))
        name = request["TrainingJobName"]
        for group in _groups(request):
            if (count := group["InstanceCount"]) < 1:
                raise client_error(
                    "ValidationException", f"InstanceCount must be at least 1, got {count}"
                )
        if name in self._jobs:
            raise client_error(
                "ResourceInUse", f"there is a training job {name} already; take another"
            )
        job = TrainingJob(request, self._folder, self._services)
        self._jobs[name] = job
        job.start()
        return {"TrainingJobArn": job.describe()["TrainingJobArn"]}

    def describe_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        """All about a job."""
        return self.job(TrainingJobName).describe()

    def stop_training_job(self, TrainingJobName: str) -> None:  # noqa: N803
        """End a job in order."""
        self.job(TrainingJobName).stop()

    def delete_training_job(self, TrainingJobName: str) -> None:  # noqa: N803
        """Forget a job that is over."""
        if self.job(TrainingJobName).describe()["TrainingJobStatus"] == IN_PROGRESS:
            raise client_error(
                "ValidationException", f"{TrainingJobName} is not over; stop it first"
            )
        del self._jobs[TrainingJobName]

    def list_tags(self, ResourceArn: str, MaxResults: int = 50) -> dict[str, Any]:  # noqa: N803
        """None: ``attach`` asks for them."""
        return {"Tags": []}

    def __contains__(self, name: str) -> bool:
        return name in self._jobs

    @property
    def newest(self) -> str:
        """The name of the job that was started last."""
        return next(reversed(self._jobs))

    def job(self, name: str) -> TrainingJob:
        """The job of this name.

        Raises:
            ClientError: there is none.
        """
        if name not in self._jobs:
            raise client_error("ValidationException", f"there is no training job {name}")
        return self._jobs[name]

    def kill_all(self) -> None:
        """End all processes of all jobs at once."""
        for job in self._jobs.values():
            job.kill()


def _instances(request: Mapping[str, Any], folder: Path) -> list[Instance]:
    """The instances that a request asks for; those of a cluster share this machine's CPUs."""
    hyperparameters = {
        name: parse(text) for name, text in request.get("HyperParameters", {}).items()
    }
    groups = _groups(request)
    count = sum(group["InstanceCount"] for group in groups)
    before = 1 if hyperparameters.get("rl_cluster_type") == SECONDARY else 0
    total = before + count
    if "rl_cluster_type" in hyperparameters and before == 0:
        total += int(hyperparameters["rl_num_instances_secondary"])
    elif count > 1:
        # Host names of a rehearsal do not resolve, so they meet as two jobs do.
        bucket, _ = bucket_and_key(request["OutputDataConfig"]["S3OutputPath"])
        region = hyperparameters.get("sagemaker_region", REGION)
        meeting = {"s3_bucket": bucket, "s3_prefix": folder.name, "aws_region": region}
        hyperparameters = meeting | hyperparameters
    hosts = [f"algo-{i + 1}" for i in range(count)]
    left = iter(hosts)
    described = [
        {
            "instance_group_name": group.get("InstanceGroupName", "homogeneousCluster"),
            "instance_type": group["InstanceType"],
            "hosts": [next(left) for _ in range(group["InstanceCount"])],
        }
        for group in groups
    ]
    channels = [channel["ChannelName"] for channel in request.get("InputDataConfig", [])]
    container = request.get("AlgorithmSpecification", {})
    program = [
        *container.get("ContainerEntrypoint", ()),
        *container.get("ContainerArguments", ()),
    ]
    return [
        Instance(
            host,
            folder / host,
            hosts,
            hyperparameters,
            cpus_of_instance(before + i, total),
            channels,
            described if len(described) > 1 or program else (),
            program,
        )
        for i, host in enumerate(hosts)
    ]


def _groups(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The instance groups of a job; equal instances are one."""
    resources = request["ResourceConfig"]
    return resources.get("InstanceGroups") or [resources]


def _check_channels(channels: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``ValueError`` for data that do not come as copies of files in S3."""
    for channel in channels:
        name, source = channel["ChannelName"], channel["DataSource"].get("S3DataSource", {})
        for what, got, wanted in (
            ("S3DataType", source.get("S3DataType"), "S3Prefix"),
            (
                "distribution",
                source.get("S3DataDistributionType", _FULLY_REPLICATED),
                _FULLY_REPLICATED,
            ),
            ("input_mode", channel.get("InputMode", "File"), "File"),
            ("compression", channel.get("CompressionType", "None"), "None"),
            ("record_wrapping", channel.get("RecordWrapperType", "None"), "None"),
        ):
            if got != wanted:
                raise ValueError(
                    f"the channel {name!r} with {what} {got} cannot be rehearsed; take {wanted}"
                )


def _exists(s3: Any, bucket: str, key: str) -> bool:
    """Whether there is an object of exactly this name, as of the packed model of a job."""
    try:
        s3.head_object(Bucket=bucket, Key=key or "/")
    except ClientError:
        return False
    return True


def _download(s3: Any, uri: str, folder: Path) -> None:
    bucket, prefix = bucket_and_key(uri)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
        for one in page.get("Contents", []):
            path = folder / one["Key"].removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, one["Key"], str(path))


def _upload(s3: Any, uri: str, folder: Path) -> None:
    bucket, prefix = bucket_and_key(uri)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            s3.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(folder).as_posix()}")


def client_error(code: str, message: str) -> ClientError:
    """The error with which boto3 reports that AWS refuses."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "TrainingJob")

"""Simulated boto3 client ``sagemaker`` for training jobs and tuning jobs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import Session as Models
from botocore.validate import validate_parameters

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import CHECKPOINT_DIR, check_instance_gpus, log_line
from sagemaker_rl.simulator.training_jobs import JOB_IN_PROGRESS, BackgroundJob, TrainingJob
from sagemaker_rl.simulator.tuning_jobs import TuningJob

_SUPPORTED_STRATEGIES = ("Bayesian", "Random")
"""Tuning strategies that the simulator accepts."""


class _Jobs(dict[str, Any]):
    """Jobs of one kind, keyed by name, oldest first."""

    def __missing__(self, name: str) -> BackgroundJob:
        raise _client_error("ValidationException", f"there is no job {name}")

    def start(self, job: BackgroundJob) -> dict[str, str]:
        """Add and start a job, and return its ARN.

        Raises:
            ClientError: If the job's name is in use.
        """
        if job.name in self:
            message = f"there is a job {job.name} already; use another name"
            raise _client_error("ResourceInUse", message)
        self[job.name] = job
        job.start()
        return job.arn


class SimulatedSageMaker:
    """Simulated boto3 client ``sagemaker`` with the methods that the SDK calls.

    Args:
        folder: Parent directory of the jobs' directories.
        account: boto3 session of the simulated account.
        environment: Environment variables of AWS clients in the instances.
    """

    def __init__(self, folder: Path, account: Any, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.s3, self.cloudwatch = account.client("s3"), account.client("cloudwatch")
        self.environment = environment
        self.jobs, self.tuning_jobs = _Jobs(), _Jobs()

    def create_training_job(self, **request: Any) -> dict[str, str]:
        """Start a training job.

        Raises:
            botocore.exceptions.ParamValidationError: If the request is malformed.
            ClientError: If the request has no instances, or the job name is in use.
            ValueError: If the request needs a feature that the simulator does not support.
        """
        _validate_request("CreateTrainingJob", request)
        if request["AlgorithmSpecification"].get("AlgorithmName"):
            raise ValueError(
                "AlgorithmSpecification.AlgorithmName cannot be simulated; use image_uri"
            )
        local = request.get("CheckpointConfig", {}).get("LocalPath", CHECKPOINT_DIR)
        if Path(local) != Path(CHECKPOINT_DIR):
            raise ValueError(f"checkpoint_local_path {local} cannot be simulated; leave it out")
        _check_channels(request.get("InputDataConfig", []))
        resources = request["ResourceConfig"]
        for group in resources.get("InstanceGroups") or [resources]:
            if (count := group["InstanceCount"]) < 1:
                message = f"InstanceCount must be at least 1, got {count}"
                raise _client_error("ValidationException", message)
            try:
                check_instance_gpus(group["InstanceType"])
            except HyperparameterError as error:
                log_line(f"warning: in an AWS account, this job would fail: {error}")
        return self.jobs.start(TrainingJob(request, self))

    def describe_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        """Return the description of a training job in the format of AWS."""
        described: dict[str, Any] = self.jobs[TrainingJobName].describe()
        return described

    def stop_training_job(self, TrainingJobName: str) -> None:  # noqa: N803
        """Request that a training job stops."""
        self.jobs[TrainingJobName].stop()

    def delete_training_job(self, TrainingJobName: str) -> None:  # noqa: N803
        """Delete a finished training job."""
        if self.jobs[TrainingJobName].describe()["TrainingJobStatus"] == JOB_IN_PROGRESS:
            message = f"{TrainingJobName} is still running; stop the job first"
            raise _client_error("ValidationException", message)
        del self.jobs[TrainingJobName]

    def list_tags(self, ResourceArn: str, MaxResults: int = 50) -> dict[str, Any]:  # noqa: N803
        """Return an empty list of tags, because the SDK's ``attach`` calls this method."""
        return {"Tags": []}

    def create_hyper_parameter_tuning_job(self, **request: Any) -> dict[str, str]:
        """Start a tuning job.

        Raises:
            botocore.exceptions.ParamValidationError: If the request is malformed.
            ClientError: If the objective is not a defined metric, or the job name is in use.
            ValueError: If the request needs a feature that the simulator does not support.
        """
        _validate_request("CreateHyperParameterTuningJob", request)
        _check_tuning_request(request)
        return self.tuning_jobs.start(TuningJob(request, self))

    def describe_hyper_parameter_tuning_job(
        self,
        HyperParameterTuningJobName: str,  # noqa: N803
    ) -> dict[str, Any]:
        """Return the description of a tuning job in the format of AWS."""
        described: dict[str, Any] = self.tuning_jobs[HyperParameterTuningJobName].describe()
        return described

    def list_training_jobs_for_hyper_parameter_tuning_job(
        self,
        HyperParameterTuningJobName: str,  # noqa: N803
        MaxResults: int = 100,  # noqa: N803
    ) -> dict[str, Any]:
        """Return the summaries of a tuning job's training jobs, newest first."""
        summaries = self.tuning_jobs[HyperParameterTuningJobName].training_job_summaries()
        return {"TrainingJobSummaries": summaries[:MaxResults]}

    def stop_hyper_parameter_tuning_job(self, HyperParameterTuningJobName: str) -> None:  # noqa: N803
        """Stop a tuning job and its running training job."""
        self.tuning_jobs[HyperParameterTuningJobName].stop()

    def kill_all(self) -> None:
        """Kill all processes of all jobs immediately, and start no more jobs of tuners."""
        for job in (*self.tuning_jobs.values(), *self.jobs.values()):
            job.kill()


def _check_channels(channels: Sequence[Mapping[str, Any]]) -> None:
    """Check that each channel copies all of its files from S3 to every instance.

    Raises:
        ValueError: If the simulator does not support a setting of a channel.
    """
    for channel in channels:
        source = channel["DataSource"].get("S3DataSource", {"S3DataType": None})
        for what, settings, key, wanted in (
            ("S3DataType", source, "S3DataType", "S3Prefix"),
            ("distribution", source, "S3DataDistributionType", "FullyReplicated"),
            ("input_mode", channel, "InputMode", "File"),
            ("compression", channel, "CompressionType", "None"),
            ("record_wrapping", channel, "RecordWrapperType", "None"),
        ):
            if (got := settings.get(key, wanted)) != wanted:
                raise ValueError(
                    f"the channel {channel['ChannelName']!r} with {what} {got} cannot be "
                    f"simulated; use {wanted}"
                )


def _check_tuning_request(request: Mapping[str, Any]) -> None:
    """Check that AWS and the simulator would accept the request.

    Raises:
        ClientError: If the objective is not a defined metric.
        ValueError: If the simulator does not support a setting of the request.
    """
    config = request["HyperParameterTuningJobConfig"]
    definition = request.get("TrainingJobDefinition")
    if definition is None:
        raise ValueError("TrainingJobDefinitions cannot be simulated; give the tuner one estimator")
    resources = definition.get("HyperParameterTuningResourceConfig", {})
    for part, name, remedy in (
        (request, "WarmStartConfig", "leave out warm_start_config"),
        (request, "Autotune", "leave out autotune"),
        (config["ResourceLimits"], "MaxRuntimeInSeconds", "leave out max_runtime_in_seconds"),
        (config, "TuningJobCompletionCriteria", "leave out completion_criteria_config"),
        (resources, "InstanceConfigs", "use instance_type"),
        (definition, "CheckpointConfig", "leave out checkpoint_s3_uri, because a tuner's jobs "
         "would resume each other's checkpoints"),
    ):  # fmt: skip
        if part.get(name):
            raise ValueError(f"{name} cannot be simulated; {remedy}")
    if (strategy := config["Strategy"]) not in _SUPPORTED_STRATEGIES:
        raise ValueError(f"{strategy} cannot be simulated; use the strategy Random")
    objective = config["HyperParameterTuningJobObjective"]["MetricName"]
    defined = definition["AlgorithmSpecification"].get("MetricDefinitions", [])
    known = [one["Name"] for one in defined]
    if objective not in known:
        raise _client_error(
            "ValidationException",
            f"the objective {objective!r} is not one of the metric definitions: {', '.join(known)}",
        )


@functools.cache
def _sagemaker_model() -> Any:
    """Return the description of the requests to SageMaker."""
    return Models().get_service_model("sagemaker")


def _validate_request(operation: str, request: Mapping[str, Any]) -> None:
    """Check that a request has the form that AWS describes.

    Raises:
        botocore.exceptions.ParamValidationError: If the request is malformed.
    """
    validate_parameters(request, _sagemaker_model().operation_model(operation).input_shape)


def _client_error(code: str, message: str) -> ClientError:
    """Return the error that boto3 raises if AWS rejects a request."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "TrainingJob")

"""Simulated tuning jobs: sequential training jobs with values drawn from ranges.

SageMaker runs several jobs in parallel, and its strategy ``Bayesian`` learns from earlier jobs. The
simulator draws all values at random, like SageMaker's strategy ``Random``. Training jobs run one at
a time, because all jobs share this machine.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from battlesnake_gym.common.exceptions import describe_exception
from sagemaker_rl.simulator.training_jobs import (
    JOB_COMPLETED,
    JOB_FAILED,
    JOB_IN_PROGRESS,
    JOB_STOPPED,
    BackgroundJob,
    JobRegistry,
    Services,
    TrainingJob,
    TrainingJobs,
    client_error,
    validate_request,
)

_SUPPORTED_STRATEGIES = ("Bayesian", "Random")
"""Tuning strategies that the simulator accepts."""
_OBJECTIVE_HYPERPARAMETER = "_tuning_objective_metric"
"""Name of the hyperparameter that contains the name of the objective metric.

SageMaker compares training jobs by this metric.
"""

_COPIED_KEYS = (
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "StoppingCondition",
    "Environment",
)
"""Keys that each training job's request copies from the job definition."""


class _TuningJob(BackgroundJob):
    """Simulated tuning job: its request and the training jobs that the job started."""

    def __init__(self, request: Mapping[str, Any], training: TrainingJobs) -> None:
        super().__init__(request["HyperParameterTuningJobName"], request)
        self._config = request["HyperParameterTuningJobConfig"]
        self._definition = request["TrainingJobDefinition"]
        self._objective = self._config["HyperParameterTuningJobObjective"]
        self._training = training
        self._random = random.Random(self._config.get("RandomSeed"))
        self._drawn: dict[str, dict[str, str]] = {}

    def stop(self) -> None:
        """Stop the running training job, and do not start further training jobs."""
        self._stop_requested = True
        for job in self._training_jobs():
            job.stop()

    def describe(self) -> dict[str, Any]:
        """Return the response of ``describe_hyper_parameter_tuning_job``."""
        statuses = [job.describe()["TrainingJobStatus"] for job in self._training_jobs()]
        scores = self._objective_values()
        description = {
            **self._request,
            "HyperParameterTuningJobArn": _tuning_job_arn(self.name),
            "HyperParameterTuningJobStatus": self._status,
            "CreationTime": self._created,
            "LastModifiedTime": self._changed,
            "TrainingJobStatusCounters": {
                "Completed": statuses.count(JOB_COMPLETED),
                "InProgress": statuses.count(JOB_IN_PROGRESS),
                "RetryableError": 0,
                "NonRetryableError": statuses.count(JOB_FAILED),
                "Stopped": statuses.count(JOB_STOPPED),
            },
            "ObjectiveStatusCounters": {
                "Succeeded": len(scores),
                "Pending": statuses.count(JOB_IN_PROGRESS),
                "Failed": len(statuses) - statuses.count(JOB_IN_PROGRESS) - len(scores),
            },
        }
        if self._status != JOB_IN_PROGRESS:
            description["HyperParameterTuningEndTime"] = self._changed
        if self._failure:
            description["FailureReason"] = self._failure
        if scores:
            best = sorted(scores, key=scores.__getitem__)
            best_name = best[-1] if self._objective["Type"] == "Maximize" else best[0]
            description["BestTrainingJob"] = self._summarize(self._training.jobs[best_name])
        return description

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of the started training jobs, newest first."""
        return [self._summarize(job) for job in reversed(self._training_jobs())]

    def run(self) -> None:
        """Run the training jobs one after another."""
        try:
            for number in range(self._config["ResourceLimits"]["MaxNumberOfTrainingJobs"]):
                if self._stop_requested:
                    break
                self._run_training_job(f"{self.name}-{number + 1:03d}-{secrets.token_hex(4)}")
            status = JOB_STOPPED if self._stop_requested else JOB_COMPLETED
            if status == JOB_COMPLETED and not self._objective_values():
                status = JOB_FAILED
                self._failure = f"No training job has reported {self._objective['MetricName']!r}"
        except Exception as error:
            status, self._failure = JOB_FAILED, f"InternalServerError: {describe_exception(error)}"
        self._set_final_status(status)

    def _run_training_job(self, name: str) -> None:
        """Run one training job with random hyperparameters, and log its result."""
        values = dict(self._draw_values())
        self._drawn[name] = values
        self._append_log_line(
            f"{name}: {', '.join(f'{one} {text}' for one, text in values.items())}"
        )
        self._training.create_training_job(**self._make_training_request(name, values))
        job = self._training.jobs[name]
        if self._stop_requested:
            job.stop()
        job.join()
        description = job.describe()
        score = self._objective_values().get(name)
        what = "nothing" if score is None else f"{score:.6g}"
        why = f" ({description['FailureReason']})" if "FailureReason" in description else ""
        status = description["TrainingJobStatus"]
        self._append_log_line(f"{name}: {status}, {self._objective['MetricName']} {what}{why}")

    def _make_training_request(self, name: str, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the request for a training job with the drawn hyperparameters."""
        definition = self._definition
        specification = definition["AlgorithmSpecification"]
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": specification,
            "HyperParameters": {
                **definition.get("StaticHyperParameters", {}),
                **values,
                _OBJECTIVE_HYPERPARAMETER: self._objective["MetricName"],
            },
            "ResourceConfig": definition.get("HyperParameterTuningResourceConfig")
            or definition["ResourceConfig"],
            **{part: definition[part] for part in _COPIED_KEYS if part in definition},
        }

    def _draw_values(self) -> Iterator[tuple[str, str]]:
        """Yield a name and a random value, as strings, for each hyperparameter range."""
        ranges = self._config["ParameterRanges"]
        for one in ranges.get("ContinuousParameterRanges", []):
            yield one["Name"], repr(_value_at_fraction(one, self._random.random()))
        for one in ranges.get("IntegerParameterRanges", []):
            yield one["Name"], str(round(_value_at_fraction(one, self._random.random())))
        for one in ranges.get("CategoricalParameterRanges", []):
            yield one["Name"], self._random.choice(one["Values"])

    def _training_jobs(self) -> list[TrainingJob]:
        """Return the started training jobs that still exist."""
        jobs = self._training.jobs
        return [jobs[name] for name in self._drawn if name in jobs]

    def _objective_values(self) -> dict[str, float]:
        """Return the last value of the objective metric, keyed by training job.

        The result contains only completed jobs that reported the metric.
        """
        described = ((job, job.describe()) for job in self._training_jobs())
        return {
            job.name: one["Value"]
            for job, description in described
            if description["TrainingJobStatus"] == JOB_COMPLETED
            for one in description["FinalMetricDataList"]
            if one["MetricName"] == self._objective["MetricName"]
        }

    def _summarize(self, job: TrainingJob) -> dict[str, Any]:
        """Return the summary of a training job in the format of AWS."""
        description = job.describe()
        names = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingJobStatus")
        times = ("TrainingStartTime", "TrainingEndTime", "FailureReason")
        summary = {name: description[name] for name in (*names, *times) if name in description}
        summary["TunedHyperParameters"] = self._drawn[job.name]
        if (score := self._objective_values().get(job.name)) is not None:
            metric = {"Type": self._objective["Type"], "MetricName": self._objective["MetricName"]}
            summary["FinalHyperParameterTuningJobObjectiveMetric"] = metric | {"Value": score}
        return summary


class SimulatedSageMaker(TrainingJobs):
    """Simulated boto3 client ``sagemaker`` for training jobs and tuning jobs."""

    def __init__(self, folder: Path, services: Services) -> None:
        super().__init__(folder, services)
        self.tuning_jobs = JobRegistry[_TuningJob]("tuning job")

    def create_hyper_parameter_tuning_job(self, **request: Any) -> dict[str, str]:
        """Start a tuning job.

        Raises:
            botocore.exceptions.ParamValidationError: If the request is malformed.
            ClientError: If the objective is not a defined metric, or the job name is in use.
            ValueError: If the request needs a feature that the simulator does not support.
        """
        validate_request("CreateHyperParameterTuningJob", request)
        _check_request(request)
        job = _TuningJob(request, self)
        self.tuning_jobs.start(job)
        return {"HyperParameterTuningJobArn": _tuning_job_arn(job.name)}

    def describe_hyper_parameter_tuning_job(
        self,
        HyperParameterTuningJobName: str,  # noqa: N803
    ) -> dict[str, Any]:
        """Return the description of a tuning job in the format of AWS."""
        return self.tuning_jobs[HyperParameterTuningJobName].describe()

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


def _check_request(request: Mapping[str, Any]) -> None:
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
    strategy = config["Strategy"]
    for given, name, remedy in (
        (request.get("WarmStartConfig"), "WarmStartConfig", "leave out warm_start_config"),
        (request.get("Autotune"), "Autotune", "leave out autotune"),
        (
            config["ResourceLimits"].get("MaxRuntimeInSeconds"),
            "MaxRuntimeInSeconds",
            "leave out max_runtime_in_seconds",
        ),
        (
            config.get("TuningJobCompletionCriteria"),
            "TuningJobCompletionCriteria",
            "leave out completion_criteria_config",
        ),
        (strategy not in _SUPPORTED_STRATEGIES, strategy, "use the strategy Random"),
        (resources.get("InstanceConfigs"), "InstanceConfigs", "use instance_type"),
        (
            definition.get("CheckpointConfig"),
            "checkpoint_s3_uri with a tuner",
            "leave out checkpoint_s3_uri: jobs would resume each other's checkpoints",
        ),
    ):
        if given:
            raise ValueError(f"{name} cannot be simulated; {remedy}")
    objective = config["HyperParameterTuningJobObjective"]["MetricName"]
    defined = definition["AlgorithmSpecification"].get("MetricDefinitions", [])
    known = [one["Name"] for one in defined]
    if objective not in known:
        raise client_error(
            "ValidationException",
            f"the objective {objective!r} is not one of the metric definitions: {', '.join(known)}",
        )


def _value_at_fraction(one: Mapping[str, str], fraction: float) -> float:
    """Return the value at ``fraction`` of a range, on the scale of the range.

    ``fraction`` is in [0, 1].
    """
    low, high = float(one["MinValue"]), float(one["MaxValue"])
    scale = one.get("ScalingType", "Auto")
    if scale == "Logarithmic":
        return math.exp(math.log(low) + fraction * (math.log(high) - math.log(low)))
    if scale == "ReverseLogarithmic":
        return 1 - math.exp(math.log(1 - low) + fraction * (math.log(1 - high) - math.log(1 - low)))
    return low + fraction * (high - low)


def _tuning_job_arn(name: str) -> str:
    """Return the ARN of a tuning job."""
    return f"arn:aws:sagemaker:::hyper-parameter-tuning-job/{name}"

"""Simulated tuning jobs: training jobs in sequence, with values drawn from ranges.

SageMaker runs several jobs in parallel, and its strategy ``Bayesian`` learns from earlier jobs. The
simulator draws all values at random, like SageMaker's strategy ``Random``. Jobs run one at a time,
because all jobs share this machine.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from botocore.session import Session as Models
from botocore.validate import validate_parameters

from sagemaker_rl.simulator.training_jobs import (
    JOB_COMPLETED,
    JOB_FAILED,
    JOB_IN_PROGRESS,
    JOB_STOPPED,
    BackgroundJob,
    Services,
    TrainingJob,
    TrainingJobs,
    client_error,
)

_STRATEGIES = ("Bayesian", "Random")
_OBJECTIVE = "_tuning_objective_metric"
"""Hyperparameter with the name of the metric by which SageMaker compares jobs."""

_COPIED = ("RoleArn", "InputDataConfig", "OutputDataConfig", "StoppingCondition", "Environment")
"""Keys of the job definition that training jobs copy unchanged."""


class TuningJob(BackgroundJob):
    """One tuning job: its request and the training jobs that it started."""

    def __init__(self, request: Mapping[str, Any], training: TrainingJobs) -> None:
        super().__init__(request["HyperParameterTuningJobName"], request)
        self._config = request["HyperParameterTuningJobConfig"]
        self._definition = request["TrainingJobDefinition"]
        self._objective = self._config["HyperParameterTuningJobObjective"]
        self._training = training
        self._random = random.Random(self._config.get("RandomSeed"))
        self._drawn: dict[str, dict[str, str]] = {}

    def stop(self) -> None:
        """Stop the running training job, and start no further training jobs."""
        self._stop_requested = True
        for job in self._jobs():
            job.stop()

    def describe(self) -> dict[str, Any]:
        """Return the response of ``describe_hyper_parameter_tuning_job``."""
        statuses = [job.describe()["TrainingJobStatus"] for job in self._jobs()]
        scores = self._scores()
        description = {
            **self._request,
            "HyperParameterTuningJobArn": _arn(self.name),
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
            description["BestTrainingJob"] = self._summary(self._training.job(best_name))
        return description

    def summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of the started training jobs, newest first."""
        return [self._summary(job) for job in reversed(self._jobs())]

    def _run(self) -> None:
        try:
            for number in range(self._config["ResourceLimits"]["MaxNumberOfTrainingJobs"]):
                if self._stop_requested:
                    break
                self._train(f"{self.name}-{number + 1:03d}-{secrets.token_hex(4)}")
            status = JOB_STOPPED if self._stop_requested else JOB_COMPLETED
            if status == JOB_COMPLETED and not self._scores():
                status = JOB_FAILED
                self._failure = f"No training job has reported {self._objective['MetricName']!r}"
        except Exception as error:
            status, self._failure = JOB_FAILED, f"InternalServerError: {error!r}"
        self._end(status)

    def _train(self, name: str) -> None:
        values = dict(self._values())
        self._drawn[name] = values
        self._log(f"{name}: {', '.join(f'{one} {text}' for one, text in values.items())}")
        self._training.create_training_job(**self._training_request(name, values))
        job = self._training.job(name)
        if self._stop_requested:
            job.stop()
        job.wait()
        description = job.describe()
        score = self._scores().get(name)
        what = "nothing" if score is None else f"{score:.6g}"
        why = f" ({description['FailureReason']})" if "FailureReason" in description else ""
        status = description["TrainingJobStatus"]
        self._log(f"{name}: {status}, {self._objective['MetricName']} {what}{why}")

    def _training_request(self, name: str, values: Mapping[str, str]) -> dict[str, Any]:
        definition = self._definition
        specification = definition["AlgorithmSpecification"]
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": specification,
            "HyperParameters": {
                **definition.get("StaticHyperParameters", {}),
                **values,
                _OBJECTIVE: self._objective["MetricName"],
            },
            "ResourceConfig": definition.get("HyperParameterTuningResourceConfig")
            or definition["ResourceConfig"],
            **{part: definition[part] for part in _COPIED if part in definition},
        }

    def _values(self) -> Iterator[tuple[str, str]]:
        """Yield a name and a random value for each range, as strings."""
        ranges = self._config["ParameterRanges"]
        for one in ranges.get("ContinuousParameterRanges", []):
            yield one["Name"], repr(_between(one, self._random.random()))
        for one in ranges.get("IntegerParameterRanges", []):
            yield one["Name"], str(round(_between(one, self._random.random())))
        for one in ranges.get("CategoricalParameterRanges", []):
            yield one["Name"], self._random.choice(one["Values"])

    def _jobs(self) -> list[TrainingJob]:
        return [self._training.job(name) for name in self._drawn if name in self._training]

    def _scores(self) -> dict[str, float]:
        """Return the last value of the objective by training job.

        Jobs that did not report the objective are omitted.
        """
        described = ((job, job.describe()) for job in self._jobs())
        return {
            job.name: one["Value"]
            for job, description in described
            if description["TrainingJobStatus"] == JOB_COMPLETED
            for one in description["FinalMetricDataList"]
            if one["MetricName"] == self._objective["MetricName"]
        }

    def _summary(self, job: TrainingJob) -> dict[str, Any]:
        description = job.describe()
        names = ("TrainingJobName", "TrainingJobArn", "CreationTime", "TrainingJobStatus")
        times = ("TrainingStartTime", "TrainingEndTime", "FailureReason")
        summary = {name: description[name] for name in (*names, *times) if name in description}
        summary["TunedHyperParameters"] = self._drawn[job.name]
        if (score := self._scores().get(job.name)) is not None:
            metric = {"Type": self._objective["Type"], "MetricName": self._objective["MetricName"]}
            summary["FinalHyperParameterTuningJobObjectiveMetric"] = metric | {"Value": score}
        return summary


class SimulatedSageMaker(TrainingJobs):
    """Methods of boto3's ``sagemaker`` client for training and tuning."""

    def __init__(self, folder: Path, services: Services) -> None:
        super().__init__(folder, services)
        self._tuning: dict[str, TuningJob] = {}
        models = Models().get_service_model("sagemaker")
        self._tuning_shape = models.operation_model("CreateHyperParameterTuningJob").input_shape

    def create_hyper_parameter_tuning_job(self, **request: Any) -> dict[str, str]:
        """Start a tuning job.

        Raises:
            botocore.exceptions.ParamValidationError: If the request is malformed.
            ClientError: If the objective is not a defined metric, or the job name is in use.
            ValueError: If the request needs a feature that the simulator does not support.
        """
        validate_parameters(request, self._tuning_shape)
        _check(request)
        name = request["HyperParameterTuningJobName"]
        if name in self._tuning:
            raise client_error(
                "ResourceInUse", f"there is a tuning job {name} already; use another name"
            )
        self._tuning[name] = TuningJob(request, self)
        self._tuning[name].start()
        return {"HyperParameterTuningJobArn": _arn(name)}

    def describe_hyper_parameter_tuning_job(
        self,
        HyperParameterTuningJobName: str,  # noqa: N803
    ) -> dict[str, Any]:
        """Return the description of a tuning job."""
        return self.tuning_job(HyperParameterTuningJobName).describe()

    def list_training_jobs_for_hyper_parameter_tuning_job(
        self,
        HyperParameterTuningJobName: str,  # noqa: N803
        MaxResults: int = 100,  # noqa: N803
    ) -> dict[str, Any]:
        """Return summaries of the training jobs of a tuning job."""
        summaries = self.tuning_job(HyperParameterTuningJobName).summaries()
        return {"TrainingJobSummaries": summaries[:MaxResults]}

    def stop_hyper_parameter_tuning_job(self, HyperParameterTuningJobName: str) -> None:  # noqa: N803
        """Stop a tuning job and its running training job."""
        self.tuning_job(HyperParameterTuningJobName).stop()

    def tuning_job(self, name: str) -> TuningJob:
        """Return the tuning job ``name``.

        Raises:
            ClientError: If there is no such tuning job.
        """
        if name not in self._tuning:
            raise client_error("ValidationException", f"there is no tuning job {name}")
        return self._tuning[name]


def _check(request: Mapping[str, Any]) -> None:
    """Reject requests that AWS rejects or that the simulator does not support."""
    config = request["HyperParameterTuningJobConfig"]
    definition = request.get("TrainingJobDefinition")
    if definition is None:
        raise ValueError("TrainingJobDefinitions cannot be simulated; give the tuner one estimator")
    resources = definition.get("HyperParameterTuningResourceConfig", {})
    for asked, what, hint in (
        (request.get("WarmStartConfig"), "WarmStartConfig", "leave out warm_start_config"),
        (request.get("Autotune"), "Autotune", "leave out autotune"),
        (config["Strategy"] not in _STRATEGIES, config["Strategy"], "use the strategy Random"),
        (resources.get("InstanceConfigs"), "InstanceConfigs", "use instance_type"),
        (
            definition.get("CheckpointConfig"),
            "checkpoint_s3_uri with a tuner",
            "leave it out: jobs would resume each other's checkpoints",
        ),
    ):
        if asked:
            raise ValueError(f"{what} cannot be simulated; {hint}")
    objective = config["HyperParameterTuningJobObjective"]["MetricName"]
    defined = definition["AlgorithmSpecification"].get("MetricDefinitions", [])
    known = [one["Name"] for one in defined]
    if objective not in known:
        raise client_error(
            "ValidationException",
            f"the objective {objective!r} is not one of the metric definitions: {', '.join(known)}",
        )


def _between(one: Mapping[str, str], part: float) -> float:
    """Return the value at the fraction ``part`` of a range, on the scale of the range."""
    low, high = float(one["MinValue"]), float(one["MaxValue"])
    scale = one.get("ScalingType", "Auto")
    if scale == "Logarithmic":
        return math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
    if scale == "ReverseLogarithmic":
        return 1 - math.exp(math.log(1 - low) + part * (math.log(1 - high) - math.log(1 - low)))
    return low + part * (high - low)


def _arn(name: str) -> str:
    return f"arn:aws:sagemaker:::hyper-parameter-tuning-job/{name}"

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
from typing import Any

from sagemaker_rl.simulator.training_jobs import (
    JOB_COMPLETED,
    JOB_FAILED,
    JOB_IN_PROGRESS,
    JOB_STOPPED,
    BackgroundJob,
    TrainingJob,
)

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


class TuningJob(BackgroundJob):
    """Simulated tuning job: its request and the training jobs that the job started."""

    kind = "HyperParameterTuningJob"

    def __init__(self, request: Mapping[str, Any], client: Any) -> None:
        super().__init__(request, client)
        self._config = request["HyperParameterTuningJobConfig"]
        self._definition = request["TrainingJobDefinition"]
        self._objective = self._config["HyperParameterTuningJobObjective"]
        self._random = random.Random(self._config.get("RandomSeed"))
        self._drawn: dict[str, dict[str, str]] = {}

    def stop(self) -> None:
        """Stop the running training job, and do not start further training jobs."""
        self._stop_requested = True
        for job in self._training_jobs():
            job.stop()

    kill = stop

    def describe(self) -> dict[str, Any]:
        """Return the response of ``describe_hyper_parameter_tuning_job``."""
        statuses = [job.describe()["TrainingJobStatus"] for job in self._training_jobs()]
        scores = self._objective_values()
        description = super().describe() | {
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
        if scores:
            select = max if self._objective["Type"] == "Maximize" else min
            best = self._client.jobs[select(scores, key=scores.__getitem__)]
            description["BestTrainingJob"] = self._summarize(best)
        return description

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of the started training jobs, newest first."""
        return [self._summarize(job) for job in reversed(self._training_jobs())]

    def _work(self) -> None:
        """Run the training jobs one after another."""
        for number in range(self._config["ResourceLimits"]["MaxNumberOfTrainingJobs"]):
            if self._stop_requested:
                return
            self._run_training_job(f"{self.name}-{number + 1:03d}-{secrets.token_hex(4)}")
        if not self._stop_requested and not self._objective_values():
            self._failure = f"No training job has reported {self._objective['MetricName']!r}"

    def _run_training_job(self, name: str) -> None:
        """Run one training job with random hyperparameters, and log its result."""
        values = dict(self._draw_values())
        self._drawn[name] = values
        self._append_log_line(
            f"{name}: {', '.join(f'{one} {text}' for one, text in values.items())}"
        )
        self._client.create_training_job(**self._make_training_request(name, values))
        job = self._client.jobs[name]
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
        jobs = self._client.jobs
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

"""Session of the SageMaker SDK with a simulated AWS account and simulated jobs.

With SDK 2::

    session = SimulatedSession("sagemaker-local")
    estimator = RLEstimator(..., sagemaker_session=session)
    estimator.fit()

With SDK 3, which reads the log from CloudWatch if ``wait`` is True::

    trainer = ModelTrainer(..., sagemaker_session=session)
    trainer.train(wait=False)
    session.logs_for_job(session.newest_job, wait=True)

The SDK's own code uploads files, sends requests and reads metrics. moto simulates S3, IAM, ECR, EC2
and CloudWatch. Jobs are processes of the real ``sagemaker-training`` (`simulator.training_jobs`).
This module does not send requests to AWS.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3

from sagemaker_rl.job.process_environment import find_interpreter_problem
from sagemaker_rl.job.source_files import IMAGE_REPOSITORY
from sagemaker_rl.simulator.local_job import REGION, simulated_aws
from sagemaker_rl.simulator.simulated_sagemaker import SimulatedSageMaker
from sagemaker_rl.simulator.training_jobs import JOB_FAILED, BackgroundJob

# On import, SDK 2 warns that SDK 3 exists; docs/how-to/run-sagemaker-jobs.md covers both SDKs.
logging.getLogger("sagemaker.deprecations").setLevel(logging.ERROR)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    try:  # The first import succeeds only with SDK 3.
        from sagemaker.core.exceptions import UnexpectedStatusException
        from sagemaker.core.helper.session_helper import Session
    except ImportError:
        from sagemaker.exceptions import UnexpectedStatusException
        from sagemaker.session import Session

ROLE_NAME = "simulated"
"""Name of the simulated IAM role."""
_TRUST_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}
"""Trust policy that allows SageMaker to assume the role."""
IMAGE_MANIFEST = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
    "config": {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "size": 1,
        "digest": f"sha256:{0:064}",
    },
    "layers": [],
}
"""Manifest of an empty image.

Simulated jobs use this process's Python environment instead of an image.
"""


class SimulatedSession(Session):  # type: ignore[misc]
    """``sagemaker_session`` whose jobs run on this machine without AWS costs.

    Every Python process starts with a new simulated account. The account has a role, a training
    image, and the default VPC of a new AWS account. Each job writes its files to its own directory
    in ``folder``.
    """

    def __init__(self, folder: str | Path = "sagemaker-local") -> None:
        if problem := find_interpreter_problem():
            raise ValueError(problem)
        os.environ.setdefault("SAGEMAKER_SUPPRESS_V2_WARNING", "1")
        # These loggers report disabled telemetry and every missing metric.
        for name in ("sagemaker.telemetry", "sagemaker.config", "sagemaker.analytics"):
            logging.getLogger(name).setLevel(logging.ERROR)
        resources = ExitStack()
        environment = resources.enter_context(simulated_aws())
        account = _SimulatedBotoSession(
            environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            region_name=REGION,
        )
        self._jobs = SimulatedSageMaker(Path(folder).absolute(), account, environment)
        account.sagemaker = self._jobs
        resources.callback(self._jobs.kill_all)
        self._resources = resources
        atexit.register(self.close)
        super().__init__(
            boto_session=account,
            sagemaker_client=self._jobs,
            sagemaker_config={
                "SchemaVersion": "1.0",
                "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}},
            },
        )
        _create_defaults(account)

    def close(self) -> None:
        """End all jobs and delete the simulated account."""
        self._resources.close()

    @property
    def newest_job(self) -> str:
        """Name of the most recently created training job."""
        return next(reversed(self._jobs.jobs))

    def interrupt(self, job_name: str, after: str = "") -> None:
        """Replace a job's instances with new instances.

        The method simulates the interruption of a spot job.

        Args:
            job_name: Name of the training job.
            after: Text of a log line, or "". Before the interruption, the method waits until the
                job logs this text or ends.
        """
        job = self._jobs.jobs[job_name]
        if not after or any(after in line for line in job.iter_log(wait=True)):
            job.interrupt()

    def get_caller_identity_arn(self) -> str:
        """Return the ARN of the simulated role.

        ``sagemaker.get_execution_role(session)`` calls this method.
        """
        return str(self.boto_session.client("iam").get_role(RoleName=ROLE_NAME)["Role"]["Arn"])

    def logs_for_job(self, job_name: str, wait: bool = False, *_: Any, **__: Any) -> dict[str, Any]:
        """Print the log lines of a job.

        The SDK's own method polls every 30 seconds. The method ignores its other arguments.

        Args:
            job_name: Name of the training job.
            wait: Whether to print all lines until the job ends; False prints only the existing
                lines.

        Returns:
            Description of the job.

        Raises:
            UnexpectedStatusException: If the job has failed.
        """
        return _print_log("training job", self._jobs.jobs[job_name], wait)

    def wait_for_tuning_job(self, job: str, poll: int = 5) -> dict[str, Any]:
        """Print a line for each training job that a tuning job starts or ends.

        The method returns when the tuning job ends. The SDK's own method prints only dots.

        Returns:
            Description of the tuning job.

        Raises:
            UnexpectedStatusException: If no training job reported the objective metric.
        """
        return _print_log("tuning job", self._jobs.tuning_jobs[job], wait=True)


def _print_log(kind: str, job: BackgroundJob, wait: bool) -> dict[str, Any]:
    """Print the log lines of a job, and return the description of the job.

    If ``wait`` is True, the function waits for the end of the job, and raises the SDK's error if
    the job has failed.
    """
    sys.stdout.writelines(f"{line}\n" for line in job.iter_log(wait))
    description = job.describe()
    if wait and (reason := description.get("FailureReason")):
        raise UnexpectedStatusException(
            message=f"{kind} {job.name} has failed: {reason}",
            allowed_statuses=["Completed", "Stopped"],
            actual_status=JOB_FAILED,
        )
    return description


class _SimulatedBotoSession(boto3.Session):  # type: ignore[misc]
    """boto3 session with a simulated SageMaker client.

    All other clients use moto's URL.
    """

    sagemaker: Any = None

    def __init__(self, url: str, **credentials: str) -> None:
        super().__init__(**credentials)
        self._url = url

    def client(self, service_name: str, *args: Any, **options: Any) -> Any:
        """Return the simulated SageMaker client, or a client that uses moto's URL."""
        if service_name == "sagemaker" and self.sagemaker is not None:
            return self.sagemaker
        return super().client(service_name, *args, **options | {"endpoint_url": self._url})

    def resource(self, service_name: str, *args: Any, **options: Any) -> Any:
        """Return a boto3 resource that uses moto's URL."""
        return super().resource(service_name, *args, **options | {"endpoint_url": self._url})


def _create_defaults(account: _SimulatedBotoSession) -> None:
    """Create the role, the image and the S3 endpoint that a job needs."""
    iam, ecr, ec2 = (account.client(name) for name in ("iam", "ecr", "ec2"))
    if ROLE_NAME in [role["RoleName"] for role in iam.list_roles()["Roles"]]:
        return  # Another session of this process has created the defaults.
    iam.create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=json.dumps(_TRUST_POLICY))
    ecr.create_repository(repositoryName=IMAGE_REPOSITORY)
    ecr.put_image(
        repositoryName=IMAGE_REPOSITORY, imageTag="latest", imageManifest=json.dumps(IMAGE_MANIFEST)
    )
    (vpc,) = ec2.describe_vpcs()["Vpcs"]
    ec2.create_vpc_endpoint(VpcId=vpc["VpcId"], ServiceName=f"com.amazonaws.{REGION}.s3")

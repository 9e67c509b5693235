"""The notebook's role has the permissions that simulations need, and no unexplained others."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")
pytest.importorskip("cfnlint", reason="needs the extra dev")

from battlesnake_server.aws import publish, snake_stack
from battlesnake_server.aws.lambda_simulator import SimulatedAccount
from battlesnake_server.commands import pack_command
from sagemaker_rl.job import preflight
from sagemaker_rl.job.job_environment import METRIC_DEFINITIONS
from tests.sagemaker_rl.recorded_aws_calls import allowed, recording

SCRIPT = """
import json, os, signal, sys
from pathlib import Path

from sagemaker_rl.cluster.membership import ClusterRun, S3Discovery

if "--dry-run" in sys.argv:
    sys.exit(0)
(Path(os.environ["SM_OUTPUT_INTERMEDIATE_DIR"]) / "curve").write_text("x")
(Path(os.environ["SAGEMAKER_BASE_DIR"]) / "checkpoints" / "one").write_text("x")
given = json.loads(os.environ["SM_HPS"])
if "s3_bucket" in given:
    note = S3Discovery(given["s3_bucket"], "run", given["aws_region"])
    note.publish_address(run := ClusterRun("run", "secret", "here", 1))
    note.withdraw_address(run)
print("training_iteration=1 episode_reward_mean=1.5", flush=True)
if given.get("wait"):
    signal.pause()
"""


@pytest.fixture(scope="module")
def calls() -> Iterator[set[str]]:
    with recording() as calls:
        yield calls


@pytest.fixture(scope="module")
def session(calls: set[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return an account as the stacks create it, with a role, an image, a network and a bucket."""
    from sagemaker_rl.simulator.simulated_session import SimulatedSession

    one = SimulatedSession(tmp_path_factory.mktemp("jobs"))
    one.default_bucket()
    calls.clear()
    yield one
    one.close()


FREE = {"sts:GetCallerIdentity"}
"""Actions that every principal may use."""

ELSEWHERE = {
    "s3:AbortMultipartUpload": "an upload of more than 8 MB that is interrupted",
    "s3:GetBucketLocation": "the console, and `aws s3`",
    "sagemaker:AddTags": "a job that is started with tags, as Studio does",
    "sagemaker:DescribeNotebookInstance": "`get_execution_role()`, in the notebook",
    "iam:PassRole": "every `CreateTrainingJob` call, implicitly",
    "ecr:GetAuthorizationToken": "docker login, and SageMaker when it fetches the image",
    "ecr:BatchCheckLayerAvailability": "docker push, and SageMaker when it fetches the image",
    "ecr:BatchGetImage": "SageMaker when it fetches the image",
    "ecr:GetDownloadUrlForLayer": "SageMaker when it fetches the image",
    "ecr:InitiateLayerUpload": "docker push",
    "ecr:UploadLayerPart": "docker push",
    "ecr:CompleteLayerUpload": "docker push",
    "ecr:PutImage": "docker push",
    "logs:CreateLogGroup": "SageMaker, for a job's log",
    "logs:CreateLogStream": "SageMaker, for a job's log",
    "logs:PutLogEvents": "SageMaker, for a job's log",
    "logs:DescribeLogStreams": "`fit()` and `logs()`; a simulation reads process output instead",
    "logs:GetLogEvents": "`fit()` and `logs()`; a simulation reads process output instead",
    **dict.fromkeys(
        ("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission",
         "ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission",
         "ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces", "ec2:DescribeVpcs",
         "ec2:DescribeSecurityGroups"),
        "SageMaker, for a job in a VPC",
    ),
}  # fmt: skip
"""Actions that no simulation uses, with their users."""


@pytest.mark.slow
def test_every_call_is_allowed_and_every_right_is_used(
    estimator: Callable[..., Any], session: Any, calls: set[str], tmp_path: Path
) -> None:
    from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

    bucket, ec2 = session.default_bucket(), session.boto_session.client("ec2")
    common = {"metric_definitions": METRIC_DEFINITIONS[:8]}
    network = {
        "subnets": [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]],
        "security_group_ids": ["sg-1"],
    }
    calls.clear()
    make = partial(estimator, SCRIPT, "", **common)
    meeting = {"s3_bucket": bucket, "s3_prefix": "run", "aws_region": "us-east-1"}
    pair = meeting | {"rl_cluster_type": "primary", "rl_num_instances_secondary": 1}
    preflight.check(make(hyperparameters=pair, **network))

    job = make(hyperparameters=meeting, checkpoint_s3_uri=f"s3://{bucket}/kept")
    preflight.check(job)
    job.fit()
    job.training_job_analytics.dataframe()
    type(job).attach(job.latest_training_job.name, session)
    job.fit({"policy": job.model_data})

    stopped = make(hyperparameters={"wait": True})
    stopped.fit(wait=False)
    session.interrupt(stopped.latest_training_job.name, after="training_iteration")
    stopped.latest_training_job.stop()
    stopped.logs()

    ranges = {"lr": ContinuousParameter(0.1, 0.2)}
    tuner = HyperparameterTuner(make(), "episode_reward_mean", ranges, max_jobs=1, **common)
    preflight.check(tuner)
    tuner.fit()
    tuner.describe()  # the SDK's own `fit` polls this call
    tuner.analytics().dataframe()
    tuner.stop_tuning_job()

    bundle = tmp_path / "snake.zip"
    assert pack_command.main(["--snake", "hungry", "-o", str(bundle)]) == 0
    with SimulatedAccount() as account:
        notebook_s = set(calls)
        account.deploy(snake_stack.parser().parse_args([str(bundle)]))
        calls.clear()  # another principal deploys
        publish(bundle, session=account.session)
    asked = {one.partition(" ")[0] for one in (calls | notebook_s) - {"", *FREE}}
    rights = allowed()
    assert asked <= rights, sorted(asked - rights)
    places = {one.partition(" ")[2] for one in notebook_s if one.startswith("s3:")}
    assert places == {bucket}
    assert rights - asked == set(ELSEWHERE)

"""Creates a job with the real SageMaker SDK 3: ``seen`` by preflight, or ``simulated`` to its end.

``documented`` runs the listing of docs/how-to/use-sagemaker-sdk-3.md, for one iteration instead of
an hour.

The last line of output is JSON: preflight's view of the job, or the result of the job.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from sagemaker.core.shapes import InstanceGroup, OutputDataConfig
from sagemaker.core.training.configs import (
    CheckpointConfig,
    Compute,
    InputData,
    SourceCode,
    StoppingCondition,
)
from sagemaker.train import model_trainer
from sagemaker.train.defaults import TrainDefaults
from sagemaker.train.model_trainer import ModelTrainer

from sagemaker_rl.job import preflight
from sagemaker_rl.job.source_files import (
    PROJECT_DEPENDENCIES,
    SCRIPT_COMMAND,
    split_s3_uri,
    training_image_uri,
)
from sagemaker_rl.simulator.simulated_session import ROLE_NAME, SimulatedSession

ROOT = Path(__file__).parents[2]


def trainer(session: SimulatedSession, source_dir: str, **hyperparameters: Any) -> ModelTrainer:
    """Return a job of two instance groups that runs a script of the folder."""
    account, bucket = session.account_id(), session.default_bucket()
    return ModelTrainer(
        sagemaker_session=session,
        role=f"arn:aws:iam::{account}:role/{ROLE_NAME}",
        training_image=training_image_uri(session),
        source_code=SourceCode(
            source_dir=source_dir, command=SCRIPT_COMMAND.format(script="train-mabs.py")
        ),
        compute=Compute(
            instance_groups=[
                InstanceGroup(
                    instance_group_name="learns", instance_type="ml.g5.2xlarge", instance_count=1
                ),
                InstanceGroup(
                    instance_group_name="plays", instance_type="ml.c5.4xlarge", instance_count=2
                ),
            ]
        ),
        output_data_config=OutputDataConfig(s3_output_path=f"s3://{bucket}/runs"),
        checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/checkpoints"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=7200),
        hyperparameters=hyperparameters,
    )


def seen(one: ModelTrainer) -> dict[str, Any]:
    """Return preflight's view of the job."""
    job = preflight._as_estimator(one)
    groups = [
        (one.instance_group_name, one.instance_type, one.instance_count)
        for one in job.instance_groups
    ]
    return {
        "groups": groups,
        "hyperparameters": job.hyperparameters(),
        "entry_point": job.entry_point,
        "max_run": job.max_run,
        "misses_sigterm": job.misses_sigterm,
        "instance_count": job.instance_count,
    }


def simulated(session: SimulatedSession, one: ModelTrainer) -> dict[str, Any]:
    """Check, run and interrupt the job, with a data channel."""
    s3, bucket = session.boto_session.client("s3"), session.default_bucket()
    s3.put_object(Bucket=bucket, Key="policies/policy.json", Body=b"{}")
    inputs = [InputData(channel_name="policy", data_source=f"s3://{bucket}/policies")]
    preflight.check(one, inputs)
    one.train(inputs, wait=False)
    session.interrupt(session.newest_job, after="training algo-1")
    session.logs_for_job(session.newest_job, wait=True)
    job = one._latest_training_job
    job.wait(poll=1)  # the SDK itself sees that the job is done
    bucket, key = split_s3_uri(job.model_artifacts.s3_model_artifacts)
    return {
        "status": job.training_job_status,
        "name": job.training_job_name,
        "model": s3.head_object(Bucket=bucket, Key=key)["ContentLength"],
    }


def documented(session: SimulatedSession) -> dict[str, Any]:
    """Train with the listing of docs/how-to/use-sagemaker-sdk-3.md."""
    page = (ROOT / "docs/how-to/use-sagemaker-sdk-3.md").read_text()
    listing = re.findall(r"^```python train_with_sdk_3.py\n(.*?)^```", page, re.M | re.S)[0]
    short = '"num_iters": 1, "additional_configs": {"min_time_s_per_iteration": 1}'
    for here, there in (('"minutes": 60', short), (".train()", ".train(wait=False)")):
        assert here in listing
        listing = listing.replace(here, there)
    account = session.account_id()
    names = {
        "image_uri": training_image_uri(session),
        "role": f"arn:aws:iam::{account}:role/{ROLE_NAME}",
        "folders": {
            "source_dir": ROOT / "rllib_src",
            "dependencies": [ROOT / o for o in PROJECT_DEPENDENCIES],
        },
    }
    with mock.patch.object(
        model_trainer, "ModelTrainer", partial(ModelTrainer, sagemaker_session=session)
    ):
        exec(listing, names)
    job = session.logs_for_job(session.newest_job, wait=True)
    return {"status": job["TrainingJobStatus"]}


def main() -> int:
    what, source_dir, folder = sys.argv[1:]
    # The SDK simulates policies with IAM, which moto does not support.
    TrainDefaults.get_role = lambda role, **_: role
    session = SimulatedSession(Path(folder))
    if what == "documented":
        told = documented(session)
    else:
        one = trainer(session, source_dir, algorithm="APEX", minutes=60)
        told = seen(one) if what == "seen" else simulated(session, one)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

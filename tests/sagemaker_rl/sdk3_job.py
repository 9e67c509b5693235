"""Makes a job with the real SageMaker SDK 3, and prints what preflight would see of it."""

import json
import sys

import boto3
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.shapes import InstanceGroup, OutputDataConfig
from sagemaker.core.training.configs import Compute, SourceCode, StoppingCondition
from sagemaker.train.defaults import TrainDefaults
from sagemaker.train.model_trainer import ModelTrainer

from sagemaker_rl.launch.files import START
from sagemaker_rl.launch.model_trainer import as_estimator


def main() -> int:
    # Nobody is asked. What the role may do, the SDK would ask IAM.
    TrainDefaults.get_role = lambda role, **_: role
    account = boto3.Session("nobody", "nothing", region_name="us-east-1")
    trainer = ModelTrainer(
        sagemaker_session=Session(account),
        role="arn:aws:iam::123456789012:role/rehearsal",
        training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/battlesnake-training:latest",
        source_code=SourceCode(
            source_dir=sys.argv[1], command=START.format(script="train-mabs.py")
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
        output_data_config=OutputDataConfig(s3_output_path="s3://bucket/runs"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=7200),
        hyperparameters={"algorithm": "APEX", "minutes": 60},
    )
    seen = as_estimator(trainer)
    groups = [
        (one.instance_group_name, one.instance_type, one.instance_count)
        for one in seen.instance_groups
    ]
    told = {
        "groups": groups,
        "hyperparameters": seen.hyperparameters(),
        "entry_point": seen.entry_point,
        "max_run": seen.max_run,
        "deaf": seen.deaf,
        "instance_count": seen.instance_count,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The four calls of the article on distributed training, as data.

A preamble defines the values that the article leaves open: the arguments of `calls`.
"""

from typing import Any


def calls(
    *,
    image_name: str,
    role: str,
    s3_output_path: str,
    bucket: str,
    region: str,
    subnets: list[str],
    security_groups: list[str],
    run: str = "snakes",
    max_run: int = 14_400,
    secondary_instances: int = 2,
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the algorithm that the article names and the arguments of each call."""
    from sagemaker.rl import RLEstimator, RLToolkit

    def call(kind: str, count: int, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "entry_point": "train-mabs.py",
            "source_dir": "rllib_src",
            "dependencies": ["rllib_common/sagemaker_rl", "battlesnake_gym/"],
            "image_name": image_name,
            "role": role,
            "train_instance_type": kind,
            "train_instance_count": count,
            "output_path": s3_output_path,
            "base_job_name": "snakes",
            "metric_definitions": RLEstimator.default_metric_definitions(RLToolkit.RAY),
            "hyperparameters": {**settings, "num_iters": 5000, "num_agents": 5},
            **more,
        }

    prefix = "rl.training.config."
    network = {"train_max_run": max_run, "subnets": subnets, "security_group_ids": security_groups}
    meeting = {"s3_prefix": run, "s3_bucket": bucket, "aws_region": region}
    single = {prefix + "num_gpus": 0, prefix + "num_cpus": 3}
    equal = {prefix + "num_workers": 11, prefix + "num_gpus": 0}
    primary = {
        "rl_cluster_type": "primary",
        "rl_num_instances_secondary": secondary_instances,
        prefix + "num_workers": 3,
        prefix + "num_gpus": 1,
    }
    return {
        "single": ("DQN", call("ml.m5.xlarge", 1, single)),
        "homogeneous": ("APEX", call("ml.m5.xlarge", 3, equal)),
        "primary": ("APEX", call("ml.p2.xlarge", 1, meeting | primary, **network)),
        "secondary": (
            "APEX",
            call("ml.m5.xlarge", 2, meeting | {"rl_cluster_type": "secondary"}, **network),
        ),
    }

"""Membership from SM_HOSTS and hyperparameters, and contradictions between them."""

import json
import os
import re
from typing import Any
from unittest import mock

import pytest

from sagemaker_rl.cluster.membership import ClusterHyperparameters, Membership
from sagemaker_rl.job.hyperparameters import HyperparameterError

TWO_JOBS: dict[str, Any] = {
    "rl_num_instances_secondary": 2,
    "s3_bucket": "bucket",
    "s3_prefix": "run-1",
    "aws_region": "us-west-2",
}


def member(hosts: list[str] | None, current: str | None, **settings: Any) -> Membership:
    environ = {} if hosts is None else {"SM_HOSTS": json.dumps(hosts)}
    if current is not None:
        environ["SM_CURRENT_HOST"] = current
    with mock.patch.dict(os.environ, environ):
        return Membership.from_environment(ClusterHyperparameters(**settings))


def test_a_laptop_is_a_single_instance() -> None:
    me = member(None, None)
    assert me.is_single_instance
    assert me.is_head
    assert member(["algo-1"], "algo-1").is_single_instance


def test_equal_instances_agree_on_the_head() -> None:
    hosts = ["algo-2", "algo-1", "algo-10"]
    members = [member(hosts, host) for host in hosts]
    assert [one.is_head for one in members] == [False, True, False]
    assert {one.head for one in members} == {"algo-1"}
    assert set(members[1].workers) == {"algo-10", "algo-2"}
    assert not members[1].is_single_instance


def test_names_are_compared_whole() -> None:
    assert not member(["algo-1", "algo-10"], "algo-10").is_head
    with pytest.raises(HyperparameterError, match="'algo-1'"):
        member(["algo-10", "algo-11"], "algo-1")


def test_two_jobs_make_one_cluster() -> None:
    primary = member(["algo-1"], "algo-1", rl_cluster_type="primary", **TWO_JOBS)
    assert primary.is_head
    assert primary.workers == ("secondary/algo-1", "secondary/algo-2")
    for host in ("algo-1", "algo-2"):
        one = member(["algo-1", "algo-2"], host, rl_cluster_type="secondary", **TWO_JOBS)
        assert one.name in primary.workers
        assert not one.is_head
        assert one.head == primary.name


def test_a_primary_job_may_have_several_instances() -> None:
    hosts = ["algo-1", "algo-2"]
    first, second = (member(hosts, h, rl_cluster_type="primary", **TWO_JOBS) for h in hosts)
    assert first.workers == ("primary/algo-2", "secondary/algo-1", "secondary/algo-2")
    assert second.name == "primary/algo-2"
    assert second.head == first.name
    assert not second.is_head


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rl_cluster_type": "first"}, r"primary.* secondary.* 'first'"),
        ({"rl_cluster_type": "primary"}, "s3_bucket"),
        ({"rl_cluster_type": "secondary", "s3_bucket": "runs"}, "s3_prefix"),
        ({"s3_bucket": "runs"}, r"s3_bucket.* s3_prefix"),
        ({"s3_prefix": "p"}, r"s3_prefix.* without s3_bucket"),
        ({"rl_cluster_type": "primary", "s3_bucket": "runs", "s3_prefix": "p"},
         "rl_num_instances_secondary"),
        ({"rl_cluster_type": "primary"} | TWO_JOBS | {"rl_num_instances_secondary": 0},
         r"rl_num_instances_secondary.* 1.* 0"),
        ({"rl_cluster_type": "secondary"} | TWO_JOBS | {"rl_num_instances_secondary": 3},
         r"rl_num_instances_secondary.* 3.* 1"),
        ({"s3_bucket": "s3://runs", "s3_prefix": "p"},
         r"'s3://runs'.* s3://"),
        ({"rl_num_instances_secondary": 2}, "rl_cluster_type"),
        ({"rl_join_timeout_minutes": 0.0}, r"rl_join_timeout_minutes.* 0"),
    ],
)  # fmt: skip
def test_contradictions_are_rejected_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError) as error:
        member(["algo-1"], "algo-1", **settings)
    assert re.search(message, str(error.value))


def grouped(*groups: tuple[str, list[str]]) -> dict[str, str]:
    """Return SageMaker's variables for a job with these instance types and hosts."""
    return {
        "SM_HOSTS": json.dumps([host for _, hosts in groups for host in hosts]),
        "SM_RESOURCE_CONFIG": json.dumps(
            {
                "instance_groups": [
                    {"instance_group_name": f"g{i}", "instance_type": kind, "hosts": hosts}
                    for i, (kind, hosts) in enumerate(groups)
                ]
            }
        ),
    }


@pytest.mark.parametrize(
    ("groups", "head"),
    [
        ([("ml.c5.4xlarge", ["algo-1", "algo-2"]), ("ml.g5.xlarge", ["algo-4", "algo-3"])], 3),
        ([("ml.g5.xlarge", ["algo-10", "algo-9"]), ("ml.c5.4xlarge", ["algo-1"])], 9),
        ([("ml.g5.xlarge", ["algo-2"]), ("ml.c5.4xlarge", ["algo-1"])], 2),
        ([("ml.g5.xlarge", ["algo-3"]), ("ml.p3.2xlarge", ["algo-1", "algo-2"])], 3),
        ([("ml.c5.4xlarge", ["algo-2"]), ("ml.m5.xlarge", ["algo-1"])], 1),
        ([("ml.c5.4xlarge", ["algo-2", "algo-1"])], 1),
    ],
)
def test_the_head_is_of_the_group_with_gpus(groups: list[tuple[str, list[str]]], head: int) -> None:
    environ = grouped(*groups)
    hosts = json.loads(environ["SM_HOSTS"])
    for host in hosts:
        with mock.patch.dict(os.environ, environ | {"SM_CURRENT_HOST": host}):
            me = Membership.from_environment(ClusterHyperparameters())
        assert me.head == me.head_host == f"algo-{head}"
        assert sorted([me.head, *me.workers]) == sorted(hosts)

"""Network of two jobs that form one cluster."""

from __future__ import annotations

from typing import Any

_NETWORK_NAME = "battlesnake-training"
"""Name of the subnets and the security group that ``network.yaml`` creates."""


def find_network(session: Any) -> dict[str, list[str]]:
    """Return the arguments ``subnets`` and ``security_group_ids`` of two jobs' estimators.

    The network is that of the stack ``network.yaml`` if it exists, or the default VPC.

    Args:
        session: SageMaker session.

    Raises:
        ValueError: If the account has neither network.
    """
    ec2 = session.boto_session.client("ec2")
    filters = [{"Name": "tag:Name", "Values": [_NETWORK_NAME]}]
    subnets = ec2.describe_subnets(Filters=filters)["Subnets"]
    groups = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    if not subnets:
        default = [{"Name": "is-default", "Values": ["true"]}]
        if not (vpcs := ec2.describe_vpcs(Filters=default)["Vpcs"]):
            raise ValueError("the account has no default VPC; create the stack network.yaml")
        vpc = [{"Name": "vpc-id", "Values": [vpcs[0]["VpcId"]]}]
        subnets = ec2.describe_subnets(Filters=vpc)["Subnets"]
        named = [*vpc, {"Name": "group-name", "Values": ["default"]}]
        groups = ec2.describe_security_groups(Filters=named)["SecurityGroups"]
    return {
        "subnets": [one["SubnetId"] for one in subnets],
        "security_group_ids": [one["GroupId"] for one in groups],
    }

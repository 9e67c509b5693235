"""CloudFormation templates: valid, documented, and without superfluous permissions."""

import json
import re
from importlib import resources as files
from typing import Any

import pytest

pytest.importorskip("cfnlint", reason="needs the extra dev")

from cfnlint.api import lint
from cfnlint.config import ManualArgs

from tests.deployment import templates

EVERY = pytest.mark.parametrize("name", templates.NAMES)

REGIONS = ["us-west-2", "us-east-1", "eu-central-1", "ap-northeast-1"]


@EVERY
def test_nothing_is_wrong(name: str) -> None:
    found = lint(
        templates.text(name), config=ManualArgs(regions=REGIONS, include_experimental=True)
    )
    assert [str(match) for match in found] == []


@EVERY
def test_parameters_and_outputs_are_explained(name: str) -> None:
    template = templates.load(name)
    for key, parameter in template["Parameters"].items():
        assert parameter["Description"], key
        if "AllowedPattern" in parameter:
            assert parameter["ConstraintDescription"], key
        else:
            bounded = {"AllowedValues", "MinValue"} & set(parameter)
            assert bounded or "AWS::" in parameter["Type"], f"{key} takes anything"
    for key, output in template["Outputs"].items():
        assert output["Description"], key


@EVERY
def test_examples_and_defaults_are_allowed(name: str) -> None:
    parameters = templates.load(name)["Parameters"]
    examples = templates.PARAMETERS[name]
    assert set(examples) == {key for key, value in parameters.items() if "Default" not in value}
    for key, parameter in parameters.items():
        assert refusal(parameter, examples.get(key, parameter.get("Default"))) is None, key


@pytest.mark.parametrize(
    ("name", "key", "wrong"),
    [
        ("notebook", "BucketName", "My_Bucket"),
        ("notebook", "BucketName", "ab"),
        ("notebook", "RepositoryUrl", "https://user:word@example.org/x"),
        ("notebook", "RepositoryUrl", 'https://example.org/x"; rm -rf /; "'),
        ("notebook", "RepositoryBranch", "$(reboot)"),
        ("notebook", "TrainingInstanceTypes", "ml.c5.xlarge,c5.xlarge"),
        ("notebook", "NotebookVolumeSize", "5"),
        ("network", "RoleName", "arn:aws:iam::123456789012:role/x"),
        ("container", "ImageUri", "battlesnake:latest"),
        ("container", "ImageUri", templates.IMAGE.rpartition(":")[0]),
        ("container", "CertificateArn", "example.org"),
        ("container", "Cpu", "1000"),
        ("snake", "Color", "blue"),
        ("snake", "Head", "a head"),
        ("snake", "Author", "<script>"),
        ("snake", "SnakeName", "arn:aws:lambda:x"),
        ("snake", "BundleKey", "my_snake.py"),
        ("snake", "BudgetEmail", "jane"),
        ("everything", "RepositoryUrl", "git@example.org:x"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_made(name: str, key: str, wrong: str) -> None:
    assert refusal(templates.load(name)["Parameters"][key], wrong) is not None


def refusal(parameter: dict[str, Any], value: Any) -> str | None:
    """Return why CloudFormation rejects a value, or None."""
    values = str(value).split(",") if parameter["Type"] == "CommaDelimitedList" else [str(value)]
    for one in values:
        if not re.fullmatch(parameter.get("AllowedPattern", "(?s).*"), one):
            return "the pattern"
        if one not in parameter.get("AllowedValues", [one]):
            return "not listed"
        if not parameter.get("MinLength", 0) <= len(one) <= parameter.get("MaxLength", 4096):
            return "the length"
        if parameter["Type"] == "Number" and not (
            parameter["MinValue"] <= float(one) <= parameter["MaxValue"]
        ):
            return "out of bounds"
    return None


def knows_resources(action: str) -> bool:
    """Whether IAM can limit this action to resources, from AWS's service reference."""
    reference = files.files("cfnlint") / "data/AdditionalSpecs/Policies.json"
    service, _, verb = action.partition(":")
    actions = json.loads(reference.read_text())[service]["Actions"]
    return bool(actions[verb.lower()].get("Resources"))


@EVERY
def test_no_wildcard_but_where_nothing_else_exists(name: str) -> None:
    for statement in templates.statements(name):
        actions = templates.listed(statement["Action"])
        assert not [action for action in actions if "*" in action]
        for action in actions:
            if "*" in templates.listed(statement["Resource"]):
                bounded = action == "cloudwatch:PutMetricData" and (
                    statement["Condition"]["StringLike"]["cloudwatch:namespace"]
                    == "/aws/sagemaker/*"
                )
                assert bounded or not knows_resources(action), action
        assert "NotAction" not in statement
        assert "NotResource" not in statement


def test_roles_trust_one_service_each() -> None:
    trusted = {}
    for name in templates.NAMES:
        for role in templates.resources(name, "AWS::IAM::Role"):
            (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
            assert statement["Action"] == "sts:AssumeRole"
            trusted[name] = statement["Principal"]["Service"]
            if trusted[name].startswith("sagemaker"):
                condition = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
                assert statement["Condition"] == condition
    assert trusted == {
        "notebook": "sagemaker.amazonaws.com",
        "snake": "lambda.amazonaws.com",
        "container": "ecs-tasks.amazonaws.com",
    }


def allowed(name: str) -> dict[str, dict[str, Any]]:
    """Return the statement of each allowed action."""
    return {
        action: statement
        for statement in templates.statements(name)
        for action in templates.listed(statement["Action"])
    }


def test_the_notebook_passes_its_own_role_to_sagemaker_alone() -> None:
    statement = allowed("notebook")["iam:PassRole"]
    assert statement["Resource"] == {"Fn::GetAtt": ["Role", "Arn"]}
    condition = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    assert statement["Condition"] == condition
    passing = [name for name in templates.NAMES if "iam:PassRole" in allowed(name)]
    assert passing == ["notebook"]


def test_jobs_may_run_on_the_instances_that_were_named() -> None:
    for action in ("CreateTrainingJob", "CreateHyperParameterTuningJob"):
        statement = allowed("notebook")[f"sagemaker:{action}"]
        assert statement["Condition"] == {
            "ForAllValues:StringEquals": {
                "sagemaker:InstanceTypes": {"Ref": "TrainingInstanceTypes"}
            }
        }


def test_a_job_has_the_rights_that_it_needs() -> None:
    """The permissions required by the page on SageMaker jobs and AWS's page on execution roles."""
    training = set(allowed("notebook"))
    assert training >= {
        "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket",
        "sagemaker:CreateTrainingJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob",
        "sagemaker:CreateHyperParameterTuningJob", "sagemaker:DescribeHyperParameterTuningJob",
        "sagemaker:StopHyperParameterTuningJob", "sagemaker:ListTags",
        "sagemaker:ListTrainingJobsForHyperParameterTuningJob",
        "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
        "logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams",
        "logs:GetLogEvents", "logs:PutLogEvents",
        "cloudwatch:PutMetricData", "iam:PassRole",
    }  # fmt: skip
    services = {action.partition(":")[0] for action in training}
    assert services == {"s3", "sagemaker", "ecr", "logs", "cloudwatch", "iam"}
    assert {action for action in allowed("network") if action.startswith("ec2:")} == {
        "ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission",
        "ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission",
        "ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets", "ec2:DescribeVpcEndpoints", "ec2:DescribeVpcs",
    }  # fmt: skip


def test_what_serves_can_only_read_its_image_and_its_policy() -> None:
    logs = {"logs:CreateLogStream", "logs:PutLogEvents"}
    image = {
        "ecr:GetAuthorizationToken",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
    }
    assert set(allowed("snake")) == logs
    assert set(allowed("container")) == logs | image


def test_nested_templates_get_parameters_that_they_have() -> None:
    resources = templates.load("everything")["Resources"]
    for name in ("notebook", "network", "snake"):
        given = resources[name.capitalize()]["Properties"]["Parameters"]
        known = templates.load(name)["Parameters"]
        assert set(templates.PARAMETERS[name]) <= set(given) <= set(known)


def test_what_two_templates_ask_for_they_ask_for_alike() -> None:
    snake, everything = (templates.load(name)["Parameters"] for name in ("snake", "everything"))
    for key in set(snake) & set(everything) - {"SnakeName", "CodeBucket"}:
        assert snake[key] == everything[key], key


def test_every_path_and_method_leads_to_the_function() -> None:
    (route,) = templates.resources("snake", "AWS::ApiGatewayV2::Route")
    assert route["RouteKey"] == "$default"
    assert route["Target"] == {"Fn::Sub": "integrations/${Integration}"}
    (integration,) = templates.resources("snake", "AWS::ApiGatewayV2::Integration")
    assert integration["IntegrationUri"] == {"Fn::GetAtt": ["Function", "Arn"]}
    assert integration["PayloadFormatVersion"] == "2.0"


@pytest.mark.parametrize("name", ["snake", "notebook"])
def test_the_budget_is_told_of_at_90_percent(name: str) -> None:
    (budget,) = templates.resources(name, "AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": {"Ref": "BudgetDollars"}, "Unit": "USD"}
    ((told,),) = [budget["NotificationsWithSubscribers"]]
    assert (told["Notification"]["Threshold"], told["Notification"]["ThresholdType"]) == (
        90,
        "PERCENTAGE",
    )
    assert told["Subscribers"] == [{"SubscriptionType": "EMAIL", "Address": {"Ref": "BudgetEmail"}}]


def test_every_request_is_logged_and_no_log_outlives_the_stack() -> None:
    (stage,) = templates.resources("snake", "AWS::ApiGatewayV2::Stage")
    access = stage["AccessLogSettings"]
    assert access["DestinationArn"] == {"Fn::GetAtt": ["AccessLogs", "Arn"]}
    assert set(json.loads(access["Format"])) >= {"time", "ip", "path", "status", "milliseconds"}
    for resource in templates.load("snake")["Resources"].values():
        assert resource.get("DeletionPolicy", "Delete") == "Delete"


def test_the_bucket_is_private_and_outlives_the_stack() -> None:
    bucket = templates.load("notebook")["Resources"]["Bucket"]
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
    assert bucket["UpdateReplacePolicy"] == "Retain"


def test_a_container_has_memory_that_fargate_sells_with_its_cores() -> None:
    template = templates.load("container")
    memory = template["Mappings"]["Memory"]["MiB"]
    assert set(memory) == set(template["Parameters"]["Cpu"]["AllowedValues"])
    assert all(mib == 2 * int(cpu) for cpu, mib in memory.items())


def test_both_subnets_have_the_way_to_the_bucket() -> None:
    """Associations made by a template are not visible in moto."""
    (way,) = templates.resources("network", "AWS::EC2::VPCEndpoint")
    links = templates.resources("network", "AWS::EC2::SubnetRouteTableAssociation")
    assert [[link["RouteTableId"]] for link in links] == 2 * [way["RouteTableIds"]]
    assert [link["SubnetId"]["Ref"] for link in links] == ["FirstSubnet", "SecondSubnet"]

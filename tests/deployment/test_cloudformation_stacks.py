"""CloudFormation stacks, created and deleted in moto."""

import ast
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deployment import templates

boto3 = pytest.importorskip("boto3", reason="needs the extra sagemaker-simulator")
moto = pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")

REGION = "us-west-2"
ACCOUNT = "123456789012"

GATEWAY = {f"AWS::ApiGatewayV2::{part}" for part in ("Api", "Integration", "Route", "Stage")}
NOT_CREATED_BY_MOTO = {
    "snake": GATEWAY | {"AWS::Budgets::Budget"},
    "notebook": {"AWS::Budgets::Budget"},
    "everything": GATEWAY,
}
"""Types that moto's CloudFormation does not support."""


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start with an empty account."""
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(key, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it may refer to another account
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        yield


@pytest.fixture(autouse=True)
def deleting_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the two types that moto keeps when their stack is deleted.

    Otherwise, the network that contains them could not be deleted.
    """
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.route_tables import RouteTable
    from moto.ec2.models.vpcs import VPCEndPoint

    def delete_table(name: str, properties: object, account: str, region: str) -> None:
        ec2_backends[account][region].delete_route_table(name)

    def delete_endpoint(name: str, properties: object, account: str, region: str) -> None:
        del ec2_backends[account][region].vpc_end_points[name]

    for model, delete in ((RouteTable, delete_table), (VPCEndPoint, delete_endpoint)):
        monkeypatch.setattr(model, "delete_from_cloudformation_json", delete)


def create(name: str, parameters: dict[str, str] | None = None) -> dict[str, str]:
    """Create a stack and return its outputs."""
    values = templates.PARAMETERS[name] | (parameters or {})
    cloudformation = boto3.client("cloudformation")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cloudformation.create_stack(
            StackName=name,
            TemplateBody=templates.text(name),
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
            Capabilities=["CAPABILITY_IAM"],
        )
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    left_out = {
        str(warning.message).split()[3]
        for warning in said
        if str(warning.message).startswith("Tried to parse")
    }
    assert left_out == NOT_CREATED_BY_MOTO.get(name, set())
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def delete(name: str) -> None:
    cloudformation = boto3.client("cloudformation")
    with warnings.catch_warnings():
        if name in NOT_CREATED_BY_MOTO:
            warnings.simplefilter("ignore")
        cloudformation.delete_stack(StackName=name)
    gone = cloudformation.list_stacks(StackStatusFilter=["DELETE_COMPLETE"])["StackSummaries"]
    assert name in [stack["StackName"] for stack in gone]


def policies(role: str) -> list[dict[str, Any]]:
    """Return a role's statements with resolved references."""
    iam = boto3.client("iam")
    statements = []
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        if isinstance(document, str):  # moto returns policies inside roles as Python, not JSON
            document = ast.literal_eval(document)
        statements += document["Statement"]
    return statements


def roles() -> list[str]:
    return [role["RoleName"] for role in boto3.client("iam").list_roles()["Roles"]]


def check_resources(statements: list[dict[str, Any]], bucket: str = "battlesnake-test") -> None:
    """All resources are in this account, region and bucket."""
    assert statements
    for statement in statements:
        for resource in templates.listed(statement["Resource"]):
            if resource == "*":
                continue  # test_cloudformation lists the exceptions
            assert "${" not in resource
            arn, partition, service, *place = resource.split(":")[:5]
            assert (arn, partition) == ("arn", "aws")
            if service == "s3":
                assert resource.split(":::")[1].split("/")[0] == bucket
            elif service == "iam":
                assert place == ["", ACCOUNT]
            else:
                assert place == [REGION, ACCOUNT], resource


def test_notebook_and_network() -> None:
    outputs = create("notebook", {"BudgetEmail": "jane@example.org"})
    sagemaker = boto3.client("sagemaker")
    (notebook,) = sagemaker.list_notebook_instances()["NotebookInstances"]
    described = sagemaker.describe_notebook_instance(
        NotebookInstanceName=notebook["NotebookInstanceName"]
    )
    assert described["InstanceType"] == "ml.t3.xlarge"
    assert described["RoleArn"] == outputs["RoleArn"]
    assert described["RoleArn"].endswith(f"/{outputs['RoleName']}")
    assert outputs["NotebookUrl"].endswith(notebook["NotebookInstanceName"])
    assert outputs["Bucket"] == "battlesnake-test"
    assert boto3.client("s3").list_buckets()["Buckets"][0]["Name"] == outputs["Bucket"]
    images = boto3.client("ecr").describe_repositories()["repositories"]
    assert [image["repositoryUri"] for image in images] == [
        outputs["TrainingImages"],
        outputs["SnakeImages"],
    ]
    before = policies(outputs["RoleName"])
    check_resources(before)

    network = create("network", {"BucketName": outputs["Bucket"], "RoleName": outputs["RoleName"]})
    check_network(network)
    check_resources(policies(outputs["RoleName"]))
    assert len(policies(outputs["RoleName"])) == len(before) + 3

    delete("network")
    assert policies(outputs["RoleName"]) == before
    ec2 = boto3.client("ec2")
    assert [vpc["IsDefault"] for vpc in ec2.describe_vpcs()["Vpcs"]] == [True]
    delete("notebook")
    assert sagemaker.list_notebook_instances()["NotebookInstances"] == []
    assert boto3.client("ecr").describe_repositories()["repositories"] == []
    assert roles() == []


def check_network(outputs: dict[str, str]) -> None:
    ec2 = boto3.client("ec2")
    subnets = ec2.describe_subnets(SubnetIds=outputs["Subnets"].split(","))["Subnets"]
    assert len({subnet["AvailabilityZone"] for subnet in subnets}) == 2
    (group,) = ec2.describe_security_groups(GroupIds=[outputs["SecurityGroup"]])["SecurityGroups"]
    (entrance,) = group["IpPermissions"]
    assert entrance["IpProtocol"] == "-1"
    assert [pair["GroupId"] for pair in entrance["UserIdGroupPairs"]] == [group["GroupId"]]
    assert entrance["IpRanges"] == []
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert endpoint["ServiceName"] == f"com.amazonaws.{REGION}.s3"
    assert len(endpoint["RouteTableIds"]) == 1
    assert ec2.describe_internet_gateways()["InternetGateways"] == []


def put_code() -> None:
    s3 = boto3.client("s3")
    place = {"LocationConstraint": REGION}
    s3.create_bucket(Bucket="battlesnake-code", CreateBucketConfiguration=place)
    for key in ("layers/1a2b.zip", "bundles/3c4d.zip"):
        s3.put_object(Bucket="battlesnake-code", Key=key, Body=b"a zip")
    for name in templates.NAMES:
        body = templates.text(name).encode()
        s3.put_object(Bucket="battlesnake-code", Key=f"templates/{name}.yaml", Body=body)


def test_snake() -> None:
    put_code()
    more = {"Color": "#112233", "Author": "jane", "BudgetEmail": "jane@example.org"}
    outputs = create("snake", more)
    assert outputs["SnakeUrl"].startswith("https://")
    functions = boto3.client("lambda")
    function = functions.get_function_configuration(FunctionName=outputs["FunctionName"])
    assert function["Runtime"] == "python3.13"
    assert function["Handler"] == "battlesnake_server.live.lambda_handler.handler"
    assert function["Environment"]["Variables"] == {
        "BATTLESNAKE_SNAKE": "/var/task/snake.json",
        "BATTLESNAKE_COLOR": "#112233",
        "BATTLESNAKE_HEAD": "",
        "BATTLESNAKE_TAIL": "",
        "BATTLESNAKE_AUTHOR": "jane",
    }
    assert (function["MemorySize"], function["Timeout"]) == (1769, 2)
    policy = functions.get_policy(FunctionName="battlesnake")["Policy"]
    (permission,) = json.loads(policy)["Statement"]
    assert permission["Principal"] == {"Service": "apigateway.amazonaws.com"}
    assert permission["Action"] == "lambda:InvokeFunction"
    assert len(functions.list_layers()["Layers"]) == 1  # moto's template does not attach it
    (written,) = templates.resources("snake", "AWS::Lambda::Function")
    assert written["Layers"] == [{"Ref": "Packages"}]
    (role,) = roles()
    check_resources(policies(role))
    groups = boto3.client("logs").describe_log_groups()["logGroups"]
    assert {group["logGroupName"]: group["retentionInDays"] for group in groups} == {
        outputs["LogGroup"]: 14,
        outputs["AccessLogGroup"]: 14,
    }


def test_everything_fits_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.cloudformation.models import Stack

    def output(stack: Any, name: str) -> Any:
        """Return an output of a nested stack, which moto does not support."""
        found = {output.key: output.value for output in stack.output_map.values()}
        return found[name.removeprefix("Outputs.")]

    monkeypatch.setattr(Stack, "get_cfn_attribute", output, raising=False)
    put_code()
    outputs = create("everything")
    cloudformation = boto3.client("cloudformation")
    made = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
    assert len(made) == 4
    function = boto3.client("lambda").get_function_configuration(FunctionName="battlesnake")
    sagemaker = boto3.client("sagemaker")
    (notebook,) = sagemaker.list_notebook_instances()["NotebookInstances"]
    role = sagemaker.describe_notebook_instance(
        NotebookInstanceName=notebook["NotebookInstanceName"]
    )["RoleArn"].rpartition("/")[2]
    statements = policies(role)
    check_resources(statements)
    (publishing,) = [s for s in statements if s.get("Sid") == "ThisSnakeAndNoOther"]
    assert publishing["Resource"] == function["FunctionArn"]
    assert publishing["Action"] == ["lambda:GetFunctionConfiguration", "lambda:UpdateFunctionCode"]
    (creating,) = [s for s in statements if s["Action"] == "ec2:CreateNetworkInterface"]
    assert all(
        any(subnet in arn for arn in creating["Resource"])
        for subnet in outputs["Subnets"].split(",")
    )
    delete("everything")
    assert boto3.client("lambda").list_functions()["Functions"] == []
    assert sagemaker.list_notebook_instances()["NotebookInstances"] == []
    assert roles() == []
    buckets = boto3.client("s3").list_buckets()["Buckets"]
    assert {bucket["Name"] for bucket in buckets} <= {"battlesnake-code", outputs["Bucket"]}


@pytest.mark.parametrize("domain", ["", "snake.example.org"])
def test_container(domain: str) -> None:
    certificate = ""
    if domain:
        acm = boto3.client("acm")
        certificate = acm.request_certificate(DomainName=domain)["CertificateArn"]
    ec2 = boto3.client("ec2")
    (vpc,) = ec2.describe_vpcs()["Vpcs"]
    subnets = [subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"][:2]]
    outputs = create(
        "container",
        {
            "VpcId": vpc["VpcId"],
            "Subnets": ",".join(subnets),
            "CertificateArn": certificate,
            "Cpu": "2048",
            "Snake": "minimax",
        },
    )
    check_task(outputs)
    check_balancer(outputs, 443 if domain else 80)
    ecs = boto3.client("ecs")
    (cluster,) = ecs.list_clusters()["clusterArns"]
    services = ecs.list_services(cluster=cluster)["serviceArns"]
    (service,) = ecs.describe_services(cluster=cluster, services=services)["services"]
    assert service["desiredCount"] == 1
    (role,) = roles()
    check_resources(policies(role))
    repository = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/battlesnake-snake"
    assert repository in [statement["Resource"] for statement in policies(role)]
    delete("container")
    assert boto3.client("elbv2").describe_load_balancers()["LoadBalancers"] == []
    groups = ec2.describe_security_groups()["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    assert roles() == []


def check_task(outputs: dict[str, str]) -> None:
    ecs = boto3.client("ecs")
    (arn,) = ecs.list_task_definitions()["taskDefinitionArns"]
    task = ecs.describe_task_definition(taskDefinition=arn)["taskDefinition"]
    assert "taskRoleArn" not in task, "the snake itself has no rights"
    (container,) = task["containerDefinitions"]
    assert container["image"] == templates.IMAGE
    assert container["logConfiguration"]["options"]["awslogs-group"] == outputs["LogGroup"]
    environment = {pair["name"]: pair["value"] for pair in container["environment"]}
    assert environment["BATTLESNAKE_SNAKE"] == "minimax"
    assert environment["BATTLESNAKE_POLICY"] == ""


def check_balancer(outputs: dict[str, str], port: int) -> None:
    balancing = boto3.client("elbv2")
    (balancer,) = balancing.describe_load_balancers()["LoadBalancers"]
    assert outputs["SnakeUrl"] == f"http://{balancer['DNSName']}"
    arn = balancer["LoadBalancerArn"]
    (listener,) = balancing.describe_listeners(LoadBalancerArn=arn)["Listeners"]
    assert (listener["Port"], listener["Protocol"]) == (port, "HTTPS" if port == 443 else "HTTP")
    (targets,) = balancing.describe_target_groups()["TargetGroups"]
    assert (targets["Port"], targets["HealthCheckPath"]) == (8000, "/healthz")
    rules = balancing.describe_rules(ListenerArn=listener["ListenerArn"])["Rules"]
    (hidden,) = [rule for rule in rules if not rule["IsDefault"]]
    assert hidden["Actions"][0]["FixedResponseConfig"]["StatusCode"] == "404"
    groups = boto3.client("ec2").describe_security_groups(GroupIds=balancer["SecurityGroups"])
    (entrance,) = groups["SecurityGroups"][0]["IpPermissions"]
    assert (entrance["FromPort"], entrance["ToPort"]) == (port, port)

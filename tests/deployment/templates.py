"""Parsed CloudFormation templates, with functions as dictionaries like ``{"Ref": ...}``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cfnlint.decode import cfn_yaml

FOLDER = Path(__file__).parents[2] / "deployment/cloudformation"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/battlesnake-snake:1"

NOTEBOOK = {
    "BucketName": "battlesnake-test",
    "RepositoryUrl": "https://example.org/battlesnake.git",
}
SNAKE = {
    "CodeBucket": "battlesnake-code",
    "LayerKey": "layers/1a2b.zip",
    "BundleKey": "bundles/3c4d.zip",
}
PARAMETERS: dict[str, dict[str, str]] = {
    "notebook": NOTEBOOK,
    "snake": SNAKE,
    "everything": SNAKE | NOTEBOOK,
    "network": {"BucketName": "battlesnake-test", "RoleName": "battlesnake-Role-1"},
    "container": {"ImageUri": IMAGE, "VpcId": "vpc-1", "Subnets": "subnet-1,subnet-2"},
}
"""Values of the parameters without a default."""


def text(name: str) -> str:
    return (FOLDER / f"{name}.yaml").read_text()


def load(name: str) -> dict[str, Any]:
    template: dict[str, Any] = cfn_yaml.loads(text(name))
    return template


def resources(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the properties of a template's resources of one type."""
    every = load(name)["Resources"].values()
    return [resource["Properties"] for resource in every if resource["Type"] == kind]


def documents(name: str) -> Iterator[dict[str, Any]]:
    """Yield all policy documents of a template."""
    for role in resources(name, "AWS::IAM::Role"):
        for policy in role.get("Policies", []):
            yield policy["PolicyDocument"]
    for kind in ("AWS::IAM::Policy", "AWS::EC2::VPCEndpoint"):
        for holder in resources(name, kind):
            yield holder["PolicyDocument"]


def statements(name: str) -> list[dict[str, Any]]:
    """Return the statements of a template's policies."""
    return [statement for document in documents(name) for statement in document["Statement"]]


def listed(value: Any) -> list[Any]:
    """IAM omits the list around a single value."""
    return value if isinstance(value, list) else [value]

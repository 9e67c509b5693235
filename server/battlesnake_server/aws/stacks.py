"""CloudFormation stacks and their files on S3."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import boto3
import yaml
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from battlesnake_server.aws import find_deployment_file

_TEMPLATE_NAMES = ("snake", "notebook", "network", "everything")
_RESOURCE_TAG = {"Key": "made-by", "Value": "battlesnake-gym aws deploy"}
_POLL_INTERVAL_S = 3.0
_CONSOLE_DOMAINS = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}
"""Domains of the AWS console by partition."""


@contextmanager
def converted_errors() -> Iterator[None]:
    """Convert the errors of requests to AWS, such as missing permissions, to ``ValueError``."""
    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise ValueError(f"AWS rejects a request: {error}") from error


@dataclass(frozen=True)
class Account:
    """AWS account and region, accessed through a boto3 session."""

    session: Any
    region: str
    account_id: str

    @classmethod
    def from_session(cls, session: Any = None) -> Account:
        """Build the account of a boto3 session, by default with the environment's credentials.

        Raises:
            ValueError: If credentials or a region are missing.
        """
        session = session or boto3.Session()
        if not session.region_name:
            raise ValueError("no AWS region; set AWS_DEFAULT_REGION, for example to us-west-2")
        try:
            number = session.client("sts").get_caller_identity()["Account"]
        except (BotoCoreError, ClientError) as error:
            raise ValueError(
                f"AWS rejects the credentials ({error}); log in, or run this command in CloudShell"
            ) from error
        return cls(session, session.region_name, number)

    def bucket_name(self, name: str) -> str:
        """Return the name of the bucket that a deployment of the snake ``name`` creates."""
        return f"battlesnake-{name}-{self.account_id}-{self.region}"

    def ensure_bucket(self, bucket: str, *, create: bool) -> None:
        """Ensure that a bucket exists and belongs to this account.

        Args:
            bucket: Name of the bucket.
            create: Whether to create the bucket if it does not exist.

        Raises:
            ValueError: If the bucket is missing, or belongs to another account.
        """
        s3 = self.session.client("s3")
        try:
            s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=self.account_id)
        except ClientError as error:
            if not create or error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
                raise ValueError(
                    f"the bucket {bucket} does not exist or is not in this account; give "
                    "another bucket"
                ) from error
            place = {"LocationConstraint": self.region}
            extra = {} if self.region == "us-east-1" else {"CreateBucketConfiguration": place}
            s3.create_bucket(Bucket=bucket, **extra)
            blocks = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy",
                      "RestrictPublicBuckets")  # fmt: skip
            s3.put_public_access_block(
                Bucket=bucket, PublicAccessBlockConfiguration=dict.fromkeys(blocks, True)
            )
            s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [_RESOURCE_TAG]})

    def upload_file(self, path: Path, bucket: str, folder: str) -> str:
        """Upload a file to S3 and return the key of the object.

        The key contains the hash of the file. A file whose key exists is not uploaded again.
        """
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        key = f"{folder}/{digest}{path.suffix}"
        s3 = self.session.client("s3")
        with suppress(ClientError):
            s3.head_object(Bucket=bucket, Key=key)
            return key
        s3.upload_file(str(path), bucket, key)
        return key

    def upload_templates(self, bucket: str) -> None:
        """Upload the templates that ``everything.yaml`` and console links refer to."""
        for name in _TEMPLATE_NAMES:
            path = find_deployment_file(f"cloudformation/{name}.yaml")
            self.session.client("s3").upload_file(str(path), bucket, f"templates/{name}.yaml")

    def quick_create_url(
        self, bucket: str, template: str, name: str, values: Mapping[str, str]
    ) -> str:
        """Return a link to the prefilled console form for a new stack.

        Args:
            bucket: Name of the bucket with the templates.
            template: Name of the template, without ``.yaml``.
            name: Name of the stack.
            values: Values of the template's parameters.
        """
        partition = self.session.get_partition_for_region(self.region)
        domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
        console = _CONSOLE_DOMAINS.get(partition, "console.aws.amazon.com")
        url = f"https://{bucket}.s3.{self.region}.{domain}/templates/{template}.yaml"
        parameters = {"templateURL": url, "stackName": name}
        parameters |= {f"param_{key}": value for key, value in values.items()}
        return (
            f"https://{self.region}.{console}/cloudformation/home"
            f"?region={self.region}#/stacks/create/review?{urlencode(parameters, quote_via=quote)}"
        )

    def deploy_stack(self, name: str, template: str, values: Mapping[str, str]) -> dict[str, str]:
        """Create or update a stack, and wait for the result.

        Args:
            name: Name of the stack.
            template: Name of the template, without ``.yaml``.
            values: Parameters of the template.

        Returns:
            Outputs of the stack.

        Raises:
            ValueError: If AWS rejects the stack. The message contains the reasons given by AWS.
        """
        stacks = self.session.client("cloudformation")
        request = {
            "StackName": name,
            "TemplateBody": find_deployment_file(f"cloudformation/{template}.yaml").read_text(),
            "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
            "Capabilities": ["CAPABILITY_IAM"],
            "Tags": [_RESOURCE_TAG],
        }
        name_or_id, good = name, ["CREATE_COMPLETE", "UPDATE_COMPLETE"]
        try:
            if self.find_stack(name) is None:
                # A failed creation deletes the stack, whose events then require the stack id.
                name_or_id = stacks.create_stack(**request, OnFailure="DELETE")["StackId"]
            else:
                stacks.update_stack(**request)
        except ClientError as error:
            if "No updates are to be performed" not in str(error):
                raise ValueError(f"CloudFormation rejects the stack: {error}") from error
            good.append("UPDATE_ROLLBACK_COMPLETE")  # The restored stack equals the request.
        stack = self._wait_for_final_status(name)
        if stack is None or stack["StackStatus"] not in good:
            reasons = "; ".join(self._iter_failure_reasons(name_or_id)) or "no reason was given"
            raise ValueError(f"the stack {name} was not created: {reasons}")
        return _outputs(stack)

    def find_stack(self, name: str) -> dict[str, Any] | None:
        """Return the ``Stack`` object of a stack, or None if the stack does not exist."""
        try:
            answer = self.session.client("cloudformation").describe_stacks(StackName=name)
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        stack: dict[str, Any] = answer["Stacks"][0]
        return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack

    def require_stack(self, name: str) -> dict[str, Any]:
        """Return the ``Stack`` object of the stack ``name``.

        Raises:
            ValueError: If the stack does not exist.
        """
        stack = self.find_stack(name)
        if stack is None:
            raise ValueError(f"stack {name!r} does not exist in {self.region}; use --name STACK")
        return stack

    def find_snake_bucket(self, name: str) -> str | None:
        """Return the bucket with the bundle of a snake's stack, or None without a stack.

        Raises:
            ValueError: If the stack is not a snake's, such as the stack of ``notebook.yaml``.
        """
        if (stack := self.find_stack(name)) is None:
            return None
        for one in stack.get("Parameters", ()):
            if one["ParameterKey"] == "CodeBucket":
                return str(one["ParameterValue"])
        raise ValueError(f"--name: the stack {name!r} is not a snake; use another name")

    @converted_errors()
    def undeploy(self, name: str) -> list[str]:
        """Delete a snake's stack, and the bucket that `snake_stack.deploy` created.

        Returns:
            Descriptions of the kept resources.

        Raises:
            ValueError: If the stack does not exist, is not a snake's, or cannot be deleted.
        """
        bucket = self.find_snake_bucket(name)
        if bucket is None:
            with suppress(ClientError):  # An interrupted call left the bucket.
                self.delete_bucket(self.bucket_name(name))
                return []
        outputs = _outputs(self.require_stack(name))
        sys.stderr.write(f"{name}: deleting the stack, which takes some minutes\n")
        self.delete_stack(name)
        kept = []
        if bucket == self.bucket_name(name):
            self.delete_bucket(bucket)
        else:
            kept.append(
                f"the bucket {bucket}, which you named, with bundles/, layers/ and templates/"
            )
        if "Bucket" in outputs:
            trained = outputs["Bucket"]
            kept.append(
                f"the bucket {trained} with the model artifacts; delete it with "
                f"aws s3 rb s3://{trained} --force"
            )
            kept.append("the log groups /aws/sagemaker/... of its jobs and notebook")
        return kept

    def delete_stack(self, name: str) -> None:
        """Delete a stack, and wait for the result.

        Raises:
            ValueError: If a resource of the stack cannot be deleted.
        """
        self.session.client("cloudformation").delete_stack(StackName=name)
        remaining = self._wait_for_final_status(name)
        if remaining is not None:
            reasons = "; ".join(self._iter_failure_reasons(name))
            raise ValueError(
                f"the stack {name} was not deleted ({remaining['StackStatus']}): {reasons}"
            )

    def delete_bucket(self, bucket: str) -> None:
        """Delete a bucket and all its objects."""
        self.empty_bucket(bucket)
        self.session.client("s3").delete_bucket(Bucket=bucket)

    def empty_bucket(self, bucket: str, prefix: str = "") -> None:
        """Delete the objects of a bucket whose keys start with ``prefix``."""
        s3 = self.session.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for one in page.get("Contents", []):
                s3.delete_object(Bucket=bucket, Key=one["Key"])

    def _wait_for_final_status(self, name: str) -> dict[str, Any] | None:
        """Wait until the stack's status is final.

        Returns:
            The ``Stack`` object, or None after the deletion of the stack.
        """
        status = ""
        while True:
            stack = self.find_stack(name)
            if stack is None or not stack["StackStatus"].endswith("_IN_PROGRESS"):
                return stack
            if stack["StackStatus"] != status:
                status = stack["StackStatus"]
                sys.stderr.write(f"{name}: {status}\n")
            time.sleep(_POLL_INTERVAL_S)

    def _iter_failure_reasons(self, name_or_id: str) -> Iterator[str]:
        """Yield the reason of every failed event of the latest operation on a stack."""
        with suppress(ClientError):
            stacks = self.session.client("cloudformation")
            events = stacks.describe_stack_events(StackName=name_or_id)
            for event in events["StackEvents"]:  # Newest first.
                reason = event.get("ResourceStatusReason", "")
                if event["ResourceStatus"].endswith("_FAILED"):
                    yield f"{event['LogicalResourceId']}: {reason}"
                if reason == "User Initiated":  # The first event of an operation.
                    return


def _outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    """Return the outputs of a ``Stack`` object by name."""
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}


def check_name(name: str) -> None:
    """Raise ``ValueError`` if ``name`` is not valid for a snake on Lambda."""
    if not re.fullmatch("[a-z][a-z0-9-]{0,19}", name):
        raise ValueError(
            f"--name {name!r} is invalid; use up to 20 lower-case letters, digits and hyphens, "
            "a letter first"
        )


def check_parameters(template: str, values: Mapping[str, str]) -> None:
    """Check parameters of a template as CloudFormation does.

    Raises:
        ValueError: If a value is invalid.
    """
    text = find_deployment_file(f"cloudformation/{template}.yaml").read_text()
    section = text[text.index("Parameters:") : text.index("Resources:")].partition("Conditions:")[0]
    rules = yaml.safe_load(section)["Parameters"]
    for name, value in values.items():
        rule = rules[name]
        if rule["Type"] == "Number":
            valid = rule["MinValue"] <= float(value) <= rule["MaxValue"]
            wanted = f"between {rule['MinValue']} and {rule['MaxValue']}"
        else:
            valid = bool(re.fullmatch(rule["AllowedPattern"], value))
            wanted = rule["ConstraintDescription"]
        if not valid:
            raise ValueError(f"{name} must be {wanted}, got {value!r}")

"""Stacks of CloudFormation: made, changed, watched and taken away, with what they need in S3."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from battlesnake_server.aws import deployment_file

_TEMPLATES = ("snake", "notebook", "network", "everything")
_TAG = {"Key": "made-by", "Value": "battlesnake-gym aws deploy"}
_POLL_SECONDS = 3.0


class StackError(ValueError):
    """A stack, bucket or account is not as it must be; says what to do."""


@dataclass(frozen=True)
class Account:
    """One account and region, as boto3's ``session`` reaches them."""

    session: Any
    region: str
    number: str

    @classmethod
    def of(cls, session: Any) -> Account:
        """Ask who we are; raises `StackError` without credentials or a region."""
        from botocore.exceptions import BotoCoreError, ClientError

        if not session.region_name:
            raise StackError("no region is chosen; set AWS_DEFAULT_REGION=us-west-2, or another")
        try:
            number = session.client("sts").get_caller_identity()["Account"]
        except (BotoCoreError, ClientError) as error:
            raise StackError(
                f"AWS does not know us ({error}); log in, or type this in CloudShell"
            ) from error
        return cls(session, session.region_name, number)

    def bucket_of(self, name: str) -> str:
        """The bucket that `deploy` makes for the snake ``name``."""
        return f"battlesnake-{name}-{self.number}-{self.region}"

    def open_bucket(self, bucket: str, *, make: bool) -> None:
        """See that the bucket is there; raises `StackError` where it is not, or not ours."""
        from botocore.exceptions import ClientError

        s3 = self.session.client("s3")
        try:
            s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=self.number)
        except ClientError as error:
            if not make or error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
                raise StackError(
                    f"the bucket {bucket} is not there, or not this account's; name another"
                ) from error
            place = {"LocationConstraint": self.region}
            extra = {} if self.region == "us-east-1" else {"CreateBucketConfiguration": place}
            s3.create_bucket(Bucket=bucket, **extra)
            closed = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy")
            s3.put_public_access_block(
                Bucket=bucket,
                PublicAccessBlockConfiguration=dict.fromkeys(
                    (*closed, "RestrictPublicBuckets"), True
                ),
            )
            s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [_TAG]})

    def upload(self, path: Path, bucket: str, folder: str) -> str:
        """Put a file under a key that its content names; returns the key."""
        from botocore.exceptions import ClientError

        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        key = f"{folder}/{digest}{path.suffix}"
        s3 = self.session.client("s3")
        with suppress(ClientError):
            s3.head_object(Bucket=bucket, Key=key)
            return key
        s3.upload_file(str(path), bucket, key)
        return key

    def upload_templates(self, bucket: str) -> None:
        """Put the templates where ``everything.yaml`` and links look for them."""
        for name in _TEMPLATES:
            path = deployment_file(f"cloudformation/{name}.yaml")
            self.session.client("s3").upload_file(str(path), bucket, f"templates/{name}.yaml")

    def quick_create(self, bucket: str, template: str, name: str, values: Mapping[str, str]) -> str:
        """A link to the console's form for this stack, filled in."""
        url = f"https://{bucket}.s3.{self.region}.amazonaws.com/templates/{template}.yaml"
        words = {"templateURL": url, "stackName": name}
        words |= {f"param_{key}": value for key, value in values.items()}
        return (
            f"https://{self.region}.console.aws.amazon.com/cloudformation/home"
            f"?region={self.region}#/stacks/create/review?{urlencode(words, quote_via=quote)}"
        )

    def make_stack(self, name: str, template: str, values: Mapping[str, str]) -> dict[str, str]:
        """Create the stack, or change the one that is there; returns its outputs.

        Raises `StackError` with the reasons where AWS gives up.
        """
        from botocore.exceptions import ClientError

        stacks = self.session.client("cloudformation")
        request = {
            "StackName": name,
            "TemplateBody": deployment_file(f"cloudformation/{template}.yaml").read_text(),
            "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in values.items()],
            "Capabilities": ["CAPABILITY_IAM"],
            "Tags": [_TAG],
        }
        try:
            if self.describe(name) is None:
                stacks.create_stack(**request, OnFailure="DELETE")
            else:
                stacks.update_stack(**request)
        except ClientError as error:
            if "No updates are to be performed" not in str(error):
                raise StackError(f"CloudFormation refuses the stack: {error}") from error
        found = self._settled(name)
        if found is None or found["StackStatus"] not in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            why = "; ".join(self._failures(name)) or "no reason was given"
            raise StackError(f"the stack {name} was not made: {why}")
        return {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}

    def describe(self, name: str) -> dict[str, Any] | None:
        """The stack of this name, or None."""
        from botocore.exceptions import ClientError

        try:
            answer = self.session.client("cloudformation").describe_stacks(StackName=name)
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        stack: dict[str, Any] = answer["Stacks"][0]
        return None if stack["StackStatus"] == "DELETE_COMPLETE" else stack

    def delete_stack(self, name: str) -> None:
        """Take the stack away and wait; raises `StackError` where something of it stays."""
        self.session.client("cloudformation").delete_stack(StackName=name)
        left = self._settled(name)
        if left is not None:
            why = "; ".join(self._failures(name))
            raise StackError(f"the stack {name} is not gone ({left['StackStatus']}): {why}")

    def empty_and_delete(self, bucket: str) -> None:
        """Delete a bucket with all that is in it."""
        self.empty(bucket)
        self.session.client("s3").delete_bucket(Bucket=bucket)

    def empty(self, bucket: str, prefix: str = "") -> None:
        """Delete what is in a bucket below a prefix."""
        s3 = self.session.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for one in page.get("Contents", []):
                s3.delete_object(Bucket=bucket, Key=one["Key"])

    def _settled(self, name: str) -> dict[str, Any] | None:
        """The stack once nothing happens to it any more."""
        said = ""
        while True:
            stack = self.describe(name)
            if stack is None or not stack["StackStatus"].endswith("_IN_PROGRESS"):
                return stack
            if stack["StackStatus"] != said:
                said = stack["StackStatus"]
                sys.stderr.write(f"{name}: {said}\n")
            time.sleep(_POLL_SECONDS)

    def _failures(self, name: str) -> Iterator[str]:
        from botocore.exceptions import ClientError

        with suppress(ClientError):
            events = self.session.client("cloudformation").describe_stack_events(StackName=name)
            for event in events["StackEvents"]:
                if event["ResourceStatus"].endswith("_FAILED"):
                    yield f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"


def check_name(name: str) -> None:
    """Raise ``ValueError`` for what cannot be the name of a snake on Lambda."""
    if not re.fullmatch("[a-z][a-z0-9-]{0,19}", name):
        raise ValueError(
            f"--name {name!r} cannot be; up to 20 lower-case letters, digits and hyphens, "
            "a letter first"
        )


def account() -> Account:
    """The account of this environment; raises `StackError` where AWS does not know us."""
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise StackError("boto3 is missing; install the extra: pip install '.[aws]'") from error
    return Account.of(boto3.Session())


def stack_of(account: Account, name: str) -> dict[str, Any]:
    """The stack that `deploy` made; raises `StackError` where there is none."""
    stack = account.describe(name)
    if stack is None:
        raise StackError(f"there is no stack {name!r} in {account.region}; give its --name")
    return stack

"""``battlesnake-gym aws undeploy``: delete a deployed snake from AWS.

The command lists the resources that are kept.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

from botocore.exceptions import ClientError

from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_server.aws.publishing import DEFAULT_NAME
from battlesnake_server.aws.stacks import (
    Account,
    check_name,
    converted_errors,
    snake_bucket,
)

_PROG = "battlesnake-gym aws undeploy"


def main(argv: list[str] | None = None) -> int:
    """Delete a snake's stack and bucket, and print the resources that are kept.

    The exit status is 2 if the stack does not exist.
    """
    options: argparse.Namespace = parser().parse_args(argv)
    try:
        check_name(options.name)
        account = Account.from_session()
        with converted_errors():
            kept = undeploy(account, options.name)
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    sys.stdout.write(f"{options.name} is deleted\n" + "".join(f"kept: {one}\n" for one in kept))
    return 0


def undeploy(account_: Account, name: str) -> list[str]:
    """Delete a snake's stack, and the bucket that `deploy` created.

    Args:
        account_: AWS account of the stack.
        name: Name of the stack.

    Returns:
        Descriptions of the kept resources.

    Raises:
        ValueError: If the stack does not exist, is not a snake's, or cannot be deleted.
    """
    if account_.find_stack(name) is None:
        with suppress(ClientError):  # An interrupted call left the bucket.
            account_.delete_bucket(account_.bucket_name(name))
            return []
    stack = account_.require_stack(name)
    bucket = snake_bucket(stack)
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
    sys.stderr.write(f"{name}: deleting the stack, which takes some minutes\n")
    account_.delete_stack(name)
    kept = []
    if bucket == account_.bucket_name(name):
        account_.delete_bucket(bucket)
    else:
        kept.append(f"the bucket {bucket}, which you named, with bundles/, layers/ and templates/")
    if "Bucket" in outputs:
        trained = outputs["Bucket"]
        kept.append(
            f"the bucket {trained} with the model artifacts; delete it with "
            f"aws s3 rb s3://{trained} --force"
        )
        kept.append("the log groups /aws/sagemaker/... of its jobs and notebook")
    return kept


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog=_PROG,
        description="Delete a snake deployed by `battlesnake-gym aws deploy` from AWS: its stack "
        "and its bucket. Prints the resources that are kept.",
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="name of the stack")
    return parser

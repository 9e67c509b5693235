"""``battlesnake-gym aws undeploy``: take away what ``deploy`` made, and list what stays."""

from __future__ import annotations

import argparse
import sys

from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_server.aws.publishing import DEFAULT_NAME
from battlesnake_server.aws.stacks import Account, account, check_name, stack_of

_PROG = "battlesnake-gym aws undeploy"


def main(argv: list[str] | None = None) -> int:
    """Delete the stack and its bucket; the exit status is 2 where there is none."""
    options: argparse.Namespace = parser().parse_args(argv)
    try:
        check_name(options.name)
        stays = undeploy(account(), options.name)
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    sys.stdout.write(f"{options.name} is gone\n" + "".join(f"kept: {one}\n" for one in stays))
    return 0


def undeploy(ours: Account, name: str) -> list[str]:
    """Delete the stack, and the bucket that `deploy` made; returns what is kept, with the reason.

    Raises `StackError` where there is no such stack, or it cannot be deleted.
    """
    stack = stack_of(ours, name)
    values = {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
    sys.stderr.write(f"{name}: deleting the stack, which takes some minutes\n")
    ours.delete_stack(name)
    stays = []
    bucket = values["CodeBucket"]
    if bucket == ours.bucket_of(name):
        ours.empty_and_delete(bucket)
    else:
        stays.append(
            f"the bucket {bucket}, which you named; bundles/, layers/ and templates/ in it"
        )
    if "Bucket" in outputs:
        trained = outputs["Bucket"]
        stays.append(
            f"the bucket {trained} with what was trained; aws s3 rb s3://{trained} --force"
        )
        stays.append("the log groups /aws/sagemaker/... of its jobs and notebook")
    return stays


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="Take a snake away that `battlesnake-gym aws deploy` put on AWS: its stack and "
        "its bucket. What is kept is printed.",
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="of the stack")
    return parser

"""``battlesnake-gym aws undeploy``: delete a deployed snake from AWS.

The command lists the resources that are kept.
"""

from __future__ import annotations

import argparse
import sys

from battlesnake_gym.common.command_line import Parser, reports_errors
from battlesnake_server.aws.publishing import DEFAULT_NAME
from battlesnake_server.aws.stacks import Account, check_name


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Delete a snake's stack and bucket, and print the resources that are kept.

    The exit status is 2 if the stack does not exist.
    """
    options: argparse.Namespace = parser().parse_args(argv)
    check_name(options.name)
    kept = Account.from_session().undeploy(options.name)
    sys.stdout.write(f"{options.name} is deleted\n" + "".join(f"kept: {one}\n" for one in kept))
    return 0


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym aws undeploy",
        description="Delete a snake deployed by `battlesnake-gym aws deploy` from AWS: its stack "
        "and its bucket. Prints the resources that are kept.",
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="name of the stack")
    return parser

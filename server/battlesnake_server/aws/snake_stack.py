"""The stack of a snake: what may be asked for, and how it is made."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, positive
from battlesnake_gym.snakes import is_bundle
from battlesnake_server.aws import layer
from battlesnake_server.aws.publishing import DEFAULT_NAME, plays, publish
from battlesnake_server.aws.stacks import Account, check_name
from battlesnake_server.bundle import Bundle, check_looks

PROG = "battlesnake-gym aws deploy"


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=PROG,
        description="Put a bundle behind a URL on AWS Lambda: uploads it with the packages that it "
        "needs, makes one stack of CloudFormation, and prints the snake's address. Typed again "
        "it changes the stack. `battlesnake-gym aws undeploy` takes everything away.",
        epilog="Example: battlesnake-gym aws deploy snake.zip --budget-email jane@example.org",
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the file that `battlesnake-gym pack` wrote")
    add("--name", default=DEFAULT_NAME, help="of the stack and the function")
    add("--color", default="", help="#rrggbb; this and the next three replace the bundle's")
    add("--head", default="", help="name of the head")
    add("--tail", default="", help="name of the tail")
    add("--author", default="", help="your name on arena.battlesnake.com")
    add("--budget-email", default="", metavar="ADDRESS",
        help="where to send a mail at 90 %% of the budget")  # fmt: skip
    add("--budget", type=positive, default=10, metavar="DOLLARS", help="US dollars a month")
    add("--everything", metavar="REPOSITORY", help="also a notebook with this git repository, "
        "which may publish the snake, and the network for its jobs")  # fmt: skip
    add("--bucket", metavar="NAME", help="a bucket that is there, for the uploads (default: one "
        "is made)")  # fmt: skip
    add("--layer", type=Path, metavar="FILE", help="the packages, as built before by "
        "`python -m battlesnake_server.aws.layer`")  # fmt: skip
    add("--link", action="store_true", help="upload only, and print a link to the console's form, "
        "filled in")  # fmt: skip
    add("--rehearse", action="store_true", help="make it in an account simulated on this machine, "
        "ask it for a move, and take it away")  # fmt: skip
    return parser


def check(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` where an option cannot be: before AWS is asked for anything."""
    check_name(options.name)
    looks = {name: getattr(options, name) for name in ("color", "head", "tail", "author")}
    check_looks({name: value for name, value in looks.items() if value})
    if not is_bundle(options.bundle) or options.bundle.endswith(".json"):
        raise ValueError(f"{options.bundle} is not a bundle; pack it first: battlesnake-gym pack")
    if options.layer and not options.layer.is_file():
        raise ValueError(
            f"{options.layer} is not there; python -m battlesnake_server.aws.layer builds it"
        )
    Bundle.open(options.bundle)
    if options.everything and options.rehearse:
        raise ValueError("--everything cannot be rehearsed: the simulated AWS has no nested stacks")


def deploy(account: Account, options: argparse.Namespace) -> str:
    """Upload what the stack needs and make it; returns the snake's address, or a link to click."""
    bucket = options.bucket or account.bucket_of(options.name)
    account.open_bucket(bucket, make=options.bucket is None)
    account.upload_templates(bucket)
    values = {
        "CodeBucket": bucket,
        "LayerKey": _upload_layer(account, bucket, options.layer),
        "BundleKey": account.upload(Path(options.bundle), bucket, "bundles"),
        "SnakeName": options.name,
        "Color": options.color,
        "Head": options.head,
        "Tail": options.tail,
        "Author": options.author,
        "BudgetEmail": options.budget_email,
        "BudgetDollars": str(options.budget),
    }
    template = "snake"
    if options.everything:
        template = "everything"
        values["RepositoryUrl"] = options.everything
        values["BucketName"] = f"{account.bucket_of(options.name)}-training"[:63].rstrip("-")
    if options.link:
        return account.quick_create(bucket, template, options.name, values)
    sys.stderr.write(f"{options.name}: making the stack, which takes some minutes\n")
    outputs = account.make_stack(options.name, template, values)
    # CloudFormation does not know what was published since it made the stack.
    if not plays(options.bundle, options.name, account.session):
        publish(options.bundle, options.name, account.session)
    return outputs["SnakeUrl"]


def _upload_layer(account: Account, bucket: str, given: Path | None) -> str:
    if given:
        return account.upload(given, bucket, "layers")
    sys.stderr.write("building the layer: the live snake and its packages\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.zip"
        layer.build(path)
        return account.upload(path, bucket, "layers")

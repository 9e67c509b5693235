"""``battlesnake-gym deploy``: a bundle behind a URL on AWS Lambda, in one step."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from pathlib import Path

from battlesnake_gym.board import Board
from battlesnake_gym.command_line import Parser, refuse
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import is_bundle
from server.aws import layer
from server.aws.publishing import DEFAULT_NAME
from server.aws.stacks import Account, StackError, account, check_name
from server.bundle import Bundle, check_looks

PROG = "battlesnake-gym deploy"


def main(argv: list[str] | None = None) -> int:
    """Make the stack and print the snake's address; the exit status is 2 where it is refused."""
    options = parser().parse_args(argv)
    try:
        check(options)
        if options.rehearse:
            rehearse(options)
            return 0
        sys.stdout.write(deploy(account(), options) + "\n")
    except (ValueError, OSError) as error:
        return refuse(PROG, error)
    return 0


def check(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` where an option cannot be: before AWS is asked for anything."""
    check_name(options.name)
    if not is_bundle(options.bundle) or options.bundle.endswith(".json"):
        raise ValueError(f"{options.bundle} is no bundle; pack it first: battlesnake-gym pack")
    Bundle.open(options.bundle)
    looks = {name: getattr(options, name) for name in ("color", "head", "tail", "author")}
    check_looks({name: value for name, value in looks.items() if value})
    if options.layer and not options.layer.is_file():
        raise ValueError(f"{options.layer} is not there; python -m server.aws.layer builds it")
    if options.everything and options.rehearse:
        raise ValueError("--everything cannot be rehearsed: what plays AWS knows no nested stacks")
    if options.everything and options.endpoint:
        raise ValueError("--endpoint belongs to a snake alone; leave --everything out")


def rehearse(options: argparse.Namespace) -> None:
    """Make the stack in an account on this machine, ask the snake, and take all away again."""
    try:
        from server.aws.rehearsal import RehearsedAccount

        account = RehearsedAccount()
    except ModuleNotFoundError as error:
        raise StackError(
            f"{error.name} is missing; install the extra: pip install '.[sagemaker-local]'"
        ) from error
    from server.aws.undeploy import undeploy

    with account:
        url = account.deploy(options)
        sys.stdout.write(f"rehearsed: the stack {options.name} is made\n")
        for path, body in (("/", None), ("/move", _a_move())):
            with urllib.request.urlopen(f"{url}{path}", body) as answer:
                sys.stdout.write(f"{path}  {answer.read().decode().strip()}\n")
        for one in undeploy(account.account, options.name):
            sys.stdout.write(f"kept: {one}\n")
        sys.stdout.write(f"rehearsed: the stack {options.name} is gone\n")


def _a_move() -> bytes:
    board = Board.new(11, 11, 2, game=Game(seed=1, id="rehearsal", timeout=10_000))
    return json.dumps(board.to_api("snake_0")).encode()


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
    else:
        values["EndpointName"] = options.endpoint
    if options.link:
        return account.quick_create(bucket, template, options.name, values)
    sys.stderr.write(f"{options.name}: making the stack, which takes some minutes\n")
    outputs = account.make_stack(options.name, template, values)
    return outputs["SnakeUrl"]


def _upload_layer(account: Account, bucket: str, given: Path | None) -> str:
    if given:
        return account.upload(given, bucket, "layers")
    sys.stderr.write("building the layer: the live snake and its packages\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.zip"
        layer.build(path)
        return account.upload(path, bucket, "layers")


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=PROG,
        description="Put a bundle behind a URL on AWS Lambda: uploads it with the packages that it "
        "needs, makes one stack of CloudFormation, and prints the snake's address. Typed again "
        "it changes the stack. `battlesnake-gym undeploy` takes everything away.",
        epilog="Example: battlesnake-gym deploy snake.zip --budget-email jane@example.org",
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the file that `battlesnake-gym pack` wrote")
    add("--name", default=DEFAULT_NAME, help="of the stack and the function")
    add("--color", default="", help="#rrggbb; this and the next three go before the bundle's")
    add("--head", default="", help="name of the head")
    add("--tail", default="", help="name of the tail")
    add("--author", default="", help="your name on play.battlesnake.com")
    add("--budget-email", default="", metavar="ADDRESS", help="who is told at 90 %% of the budget")
    add("--budget", type=int, default=10, metavar="DOLLARS", help="US dollars a month")
    add("--endpoint", default="", metavar="NAME", help="a SageMaker endpoint that is asked for "
        "each move; the bundle plays where it does not answer")  # fmt: skip
    add("--everything", metavar="REPOSITORY", help="also a notebook with this git repository, "
        "which may publish the snake, and the network for its jobs")  # fmt: skip
    add("--bucket", metavar="NAME", help="a bucket that is there, for the uploads (default: one "
        "is made)")  # fmt: skip
    add("--layer", type=Path, metavar="FILE", help="the packages, as `python -m server.aws.layer` "
        "built them before")  # fmt: skip
    add("--link", action="store_true", help="upload only, and print a link to the console's form, "
        "filled in")  # fmt: skip
    add("--rehearse", action="store_true", help="make it in an account played on this machine, "
        "ask it for a move, and take it away")  # fmt: skip

    return parser

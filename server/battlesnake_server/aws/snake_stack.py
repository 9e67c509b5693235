"""Options of ``battlesnake-gym aws deploy``, and deployment of a snake's stack."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, positive
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_server.aws import layer
from battlesnake_server.aws.publishing import DEFAULT_NAME, is_published, publish
from battlesnake_server.aws.stacks import Account, check_name, check_parameters, converted_errors
from battlesnake_server.bundle import CUSTOMIZATION_FORMATS, Bundle, check_customization


def parser() -> Parser:
    """Return the argument parser of ``battlesnake-gym aws deploy``."""
    parser = Parser(
        prog="battlesnake-gym aws deploy",
        description="Deploy a bundle to AWS Lambda: upload the bundle and its packages, "
        "create one CloudFormation stack, and print the snake's URL. Run the command again to "
        "update the stack. `battlesnake-gym aws undeploy` deletes everything.",
        epilog="Example: battlesnake-gym aws deploy snake.zip --budget-email jane@example.org",
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="file written by `battlesnake-gym pack`")
    add("--name", default=DEFAULT_NAME, help="name of the stack and the function")
    add("--color", default="", help="snake color, #rrggbb; overrides the color in the bundle")
    add("--head", default="", help="snake head; overrides the head in the bundle")
    add("--tail", default="", help="snake tail; overrides the tail in the bundle")
    add("--author", default="", help="your user name on arena.battlesnake.com")
    add("--budget-email", default="", metavar="ADDRESS",
        help="email address that AWS notifies at 90%% of the budget")  # fmt: skip
    add("--budget", type=positive, default=10, metavar="DOLLARS",
        help="budget in US dollars per month")  # fmt: skip
    add("--with-notebook", metavar="REPOSITORY", help="git repository for a notebook that can "
        "update the snake; also creates the notebook and the network of its jobs")  # fmt: skip
    add("--bucket", metavar="NAME",
        help="existing bucket for the uploads (default: a new bucket)")  # fmt: skip
    add("--layer", type=Path, metavar="FILE", help="layer built by "
        "`python -m battlesnake_server.aws.layer` (default: build it now)")  # fmt: skip
    add("--console-link", action="store_true", help="only upload the files, and print a link to "
        "the prefilled console form")  # fmt: skip
    add("--simulate", action="store_true", help="deploy to an account simulated on this machine, "
        "request a move, and delete the stack")  # fmt: skip
    return parser


def check_options(options: argparse.Namespace) -> None:
    """Validate the options before any call to AWS.

    Raises:
        ValueError: If an option is invalid.
    """
    check_name(options.name)
    customization = {name: getattr(options, name) for name in CUSTOMIZATION_FORMATS}
    check_customization({key: value for key, value in customization.items() if value})
    if not SnakeSpec.parse(options.bundle).is_bundle or options.bundle.endswith(".json"):
        raise ValueError(f"{options.bundle!r} is not a bundle; pack it first: battlesnake-gym pack")
    if options.layer and not options.layer.is_file():
        raise ValueError(
            f"{options.layer} does not exist; build it with python -m battlesnake_server.aws.layer"
        )
    Bundle.load(options.bundle)
    if not options.budget_email:
        parser().reject_given(options, ["budget"], "without --budget-email")
    if options.simulate:
        parser().reject_given(options, ["console_link"], "with --simulate")
    if options.with_notebook and options.simulate:
        raise ValueError(
            "--with-notebook excludes --simulate: the simulated AWS has no nested stacks"
        )
    check_parameters(_template(options), _given_parameters(options))


def _template(options: argparse.Namespace) -> str:
    """Return the name of the stack's template."""
    return "everything" if options.with_notebook else "snake"


def _given_parameters(options: argparse.Namespace) -> dict[str, str]:
    """Return the parameters of the template that the options contain."""
    values = {
        "SnakeName": options.name,
        **{name.capitalize(): getattr(options, name) for name in CUSTOMIZATION_FORMATS},
        "BudgetEmail": options.budget_email,
        "BudgetDollars": str(options.budget),
        "RepositoryUrl": options.with_notebook,
        "CodeBucket": options.bucket,
    }
    return {name: value for name, value in values.items() if value is not None}


@converted_errors()
def deploy(account: Account, options: argparse.Namespace) -> str:
    """Upload the stack's files and create the stack.

    Returns:
        URL of the snake. With ``--console-link``, the result is the URL of the prefilled console
        form instead.

    Raises:
        ValueError: If a stack of the name is not a snake's, or AWS rejects the stack.
    """
    account.find_snake_bucket(options.name)
    bucket = options.bucket or account.bucket_name(options.name)
    account.ensure_bucket(bucket, create=options.bucket is None)
    account.upload_templates(bucket)
    values = _given_parameters(options) | {
        "CodeBucket": bucket,
        "LayerKey": _upload_layer(account, bucket, options.layer),
        "BundleKey": account.upload_file(Path(options.bundle), bucket, "bundles"),
    }
    template = _template(options)
    if options.with_notebook:
        values["BucketName"] = f"{account.bucket_name(options.name)}-training"[:63].rstrip("-")
    if options.console_link:
        return account.quick_create_url(bucket, template, options.name, values)
    sys.stderr.write(f"{options.name}: creating the stack, which takes some minutes\n")
    outputs = account.deploy_stack(options.name, template, values)
    # CloudFormation does not detect updates by `publish`. An updated stack may therefore still
    # contain an old version of the code.
    if not is_published(options.bundle, options.name, account.session):
        publish(options.bundle, options.name, account.session)
    return outputs["SnakeUrl"]


def _upload_layer(account: Account, bucket: str, given: Path | None) -> str:
    """Upload the given layer, or build and upload a new layer."""
    if given:
        return account.upload_file(given, bucket, "layers")
    sys.stderr.write("building the layer with the live snake and its packages\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.zip"
        layer.build_layer(path)
        return account.upload_file(path, bucket, "layers")

"""AWS calls of a simulation, as the actions that a role needs.

moto's server records the calls of the SDK, of instances and of this project's code. The object that
simulates SageMaker records calls to SageMaker.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import parse_qs

from tests.deployment import templates

ROLES = ("notebook", "network", "everything")
"""Templates whose policies the notebook's role and its jobs have."""

S3 = {
    ("GET", True): "GetObject",
    ("HEAD", True): "GetObject",
    ("PUT", True): "PutObject",
    ("POST", True): "PutObject",
    ("DELETE", True): "DeleteObject",
    ("GET", False): "ListBucket",
    ("HEAD", False): "ListBucket",
    ("PUT", False): "CreateBucket",
    ("POST", False): "DeleteObject",
}
"""Actions by HTTP method, and whether the request is for an object."""


def action(environ: dict[str, Any]) -> str:
    """Return the action of a request to AWS as in policies; for S3, with its bucket."""
    signed = re.search(r"/([a-z0-9-]+)/aws4_request", environ.get("HTTP_AUTHORIZATION", ""))
    if signed is None:
        return ""  # moto's own pages
    service = {"monitoring": "cloudwatch"}.get(signed[1], signed[1])
    path = environ["PATH_INFO"].strip("/")
    if service == "s3":
        bucket, _, key = path.partition("/")
        if not bucket:
            return "s3:ListAllMyBuckets"
        return f"s3:{S3[environ['REQUEST_METHOD'], bool(key)]} {bucket}"
    if service == "lambda":
        changes = path.endswith("/code")
        return f"lambda:{'UpdateFunctionCode' if changes else 'GetFunctionConfiguration'}"
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return f"{service}:{target.rpartition('.')[2]}"
    if "/operation/" in path:
        return f"{service}:{path.rpartition('/')[2]}"
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)
    return f"{service}:{parse_qs(body.decode())['Action'][0]}"


@contextmanager
def recording() -> Iterator[set[str]]:
    """Record the actions of all calls to accounts that are opened in the block."""
    from moto.moto_server import threaded_moto_server

    from sagemaker_rl.simulator.simulated_sagemaker import SimulatedSageMaker

    calls: set[str] = set()

    plain: Any = vars(threaded_moto_server)["DomainDispatcherApplication"]

    class Noting(plain):  # type: ignore[misc]
        def __call__(self, environ: dict[str, Any], answer: Any) -> Any:
            calls.add(action(environ))
            return super().__call__(environ, answer)

    def noted(name: str) -> Callable[..., Any]:
        method = getattr(SimulatedSageMaker, name)

        def call(*given: Any, **named: Any) -> Any:
            calls.add(f"sagemaker:{name.title().replace('_', '')}")
            return method(*given, **named)

        return call

    verbs = ("create_", "describe_", "stop_", "list_")
    methods: dict[str, Any] = {
        name: noted(name) for name in dir(SimulatedSageMaker) if name.startswith(verbs)
    }
    with (
        mock.patch.object(threaded_moto_server, "DomainDispatcherApplication", Noting),
        mock.patch.multiple(SimulatedSageMaker, **methods),
    ):
        yield calls


def allowed() -> set[str]:
    """Return the actions that the role's policies allow, without those of an endpoint's policy."""
    return {
        action
        for name in ROLES
        for policy in templates.resources(name, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        for action in templates.listed(statement["Action"])
    }

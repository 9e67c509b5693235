"""Another bundle for a snake that is on Lambda already."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from battlesnake_server.bundle import Bundle

DEFAULT_NAME = "battlesnake"
"""The function's name, where no other was chosen."""


def publish(bundle: str | Path, function: str = DEFAULT_NAME, session: Any = None) -> str:
    """Let the Lambda function play ``bundle`` from its next request on; returns its code's SHA-256.

    The bundle is the function's whole code, so that is one call, and a wait of seconds.
    ``session`` is boto3's. The role of ``everything.yaml``'s notebook may do this, to this function
    alone.

    Raises:
        BundleError: there is no such bundle, or it is damaged.
        botocore.exceptions.ClientError: there is no such function, or this role may not change it.
    """
    import boto3

    Bundle.open(bundle)
    functions = (session or boto3.Session()).client("lambda")
    answer = functions.update_function_code(
        FunctionName=function, ZipFile=Path(bundle).read_bytes()
    )
    waiter = functions.get_waiter("function_updated")
    waiter.wait(FunctionName=function, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return str(answer["CodeSha256"])


def plays(bundle: str | Path, function: str, session: Any) -> bool:
    """Whether the code of the Lambda function is this bundle."""
    digest = hashlib.sha256(Path(bundle).read_bytes()).digest()
    found = session.client("lambda").get_function_configuration(FunctionName=function)
    return bool(found["CodeSha256"] == base64.b64encode(digest).decode())

"""Bundle updates for a snake that is deployed on Lambda."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from battlesnake_server.bundle import Bundle

DEFAULT_NAME = "battlesnake"
"""Default name of the Lambda function."""


def publish(bundle: str | Path, function: str = DEFAULT_NAME, session: Any = None) -> str:
    """Deploy ``bundle`` to a Lambda function.

    The next request already uses the new bundle. The bundle is the function's entire code, so an
    update is one call that lasts seconds. In ``everything.yaml``, the role of the notebook may make
    this call for this function only.

    Args:
        bundle: Path of the bundle.
        function: Name of the Lambda function.
        session: boto3 session; None for the default session.

    Returns:
        SHA-256 hash of the function's code, in Base64.

    Raises:
        ValueError: If the bundle is missing or damaged.
        botocore.exceptions.ClientError: If the function does not exist, or the role may not
            change the function.
    """
    import boto3

    Bundle.load(bundle)
    functions = (session or boto3.Session()).client("lambda")
    answer = functions.update_function_code(
        FunctionName=function, ZipFile=Path(bundle).read_bytes()
    )
    waiter = functions.get_waiter("function_updated")
    waiter.wait(FunctionName=function, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return str(answer["CodeSha256"])


def is_published(bundle: str | Path, function: str, session: Any) -> bool:
    """Return whether the code of the Lambda function equals ``bundle``."""
    digest = hashlib.sha256(Path(bundle).read_bytes()).digest()
    found = session.client("lambda").get_function_configuration(FunctionName=function)
    return bool(found["CodeSha256"] == base64.b64encode(digest).decode())

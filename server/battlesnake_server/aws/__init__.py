"""Deployment of a snake on AWS Lambda: layer, stack, and bundle updates."""

from __future__ import annotations

from pathlib import Path

from battlesnake_server.aws.publishing import publish as publish

__all__ = ["publish"]

_DEPLOYMENT_DIRECTORIES = (
    Path(__file__).parents[1] / "deployment",
    Path(__file__).parents[3] / "deployment",
)
"""Directories of the templates and the package list.

The first directory exists in an installation, the second in a checkout.
"""


def find_deployment_file(name: str) -> Path:
    """Return the path of a file in ``deployment/``.

    Raises:
        FileNotFoundError: If this installation does not contain the file.
    """
    for place in _DEPLOYMENT_DIRECTORIES:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(2, "is missing from this installation", name)

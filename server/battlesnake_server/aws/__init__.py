"""A snake on AWS: its layer, its stack, and publishing another bundle."""

from __future__ import annotations

from pathlib import Path

from battlesnake_server.aws.publishing import publish as publish

__all__ = ["publish"]

_PLACES = (
    Path(__file__).parents[1] / "deployment",
    Path(__file__).parents[3] / "deployment",
)
"""Where the templates and the list of packages are: in an installation, in a checkout."""


def deployment_file(name: str) -> Path:
    """A file of ``deployment/``; raises ``FileNotFoundError`` where there is none."""
    for place in _PLACES:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(2, "is missing from this installation", name)

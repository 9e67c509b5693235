"""Data channels of a job: ``fit({"policy": "s3://..."})`` makes a folder on each instance.

Data that nobody reads are refused: somebody meant them to be used.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path

from sagemaker_rl.launch.hyperparameters import HyperparameterError

OF_THE_SDK = ("code", "sm_drivers")
"""Channels in which the SageMaker SDK 3's `ModelTrainer` brings the sources and their starter."""

PACKED = ".tar.gz"
"""What a job delivers ends so; SageMaker brings it here as it is."""


def names(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The channels of this job; a preflight names them too, before there are folders."""
    found: list[str] = json.loads(environ.get("SM_CHANNELS") or "[]")
    return [name for name in found if name not in OF_THE_SDK]


def check(read: Collection[str], environ: Mapping[str, str] = os.environ) -> None:
    """Refuse channels but those that are ``read``.

    Raises:
        HyperparameterError: naming the first that nobody reads.
    """
    for name in names(environ):
        if name not in read:
            known = f"it reads {', '.join(read)}" if read else "it reads none"
            raise HyperparameterError(
                f"the script does not read the data channel {name!r}; {known}: rename it or leave "
                "it out of fit()"
            )


def folder(name: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the data of channel ``name`` are; None where there is no such channel, or none yet.

    What is packed (``model.tar.gz``) is unpacked beside itself into a folder (``model``).

    Raises:
        HyperparameterError: there is nothing in it, or what is packed is damaged.
    """
    where = environ.get(f"SM_CHANNEL_{name.upper()}")
    if where is None:
        return None
    path = Path(where)
    if not path.is_dir() or not any(path.iterdir()):
        raise HyperparameterError(f"the data channel {name!r} is empty; look at its address in S3")
    for packed in path.glob(f"*{PACKED}"):
        target = path / packed.name.removesuffix(PACKED)
        try:
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
        except (OSError, tarfile.TarError, EOFError) as error:
            raise HyperparameterError(
                f"the data channel {name!r}: cannot unpack {packed.name}: {error}"
            ) from error
    return path

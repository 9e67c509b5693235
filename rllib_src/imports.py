"""Imports of a training script, with an explanation if an import fails.

This module needs only the standard library and runs on older Python versions. Therefore, the module
can report the failure in an unsuitable image.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PACKAGES = ("sagemaker_rl", "battlesnake_gym", "battlesnake_heuristics", "battlesnake_rl")
"""Packages that SageMaker copies next to the script."""


@contextmanager
def explained() -> "Iterator[None]":
    """End the process with a remedy if an import in the block fails.

    The remedy is also reported as the ``FailureReason`` of a SageMaker job.
    """
    try:
        # `sagemaker_rl` must be imported first, because this package rejects old Python versions
        # and finds the folders next to the script.
        import sagemaker_rl  # noqa: F401

        yield
    except ImportError as error:
        _report(_explanation(error))
        sys.exit(1)


def _explanation(error: ImportError) -> str:
    """Return the message of the import error with a remedy."""
    if error.name is None:
        return str(error)  # raised by this project, with a remedy
    if error.name.partition(".")[0] in _PACKAGES:
        remedy = (
            "a job needs this project's packages next to its script: give the estimator "
            "**sagemaker_rl.job.source_files.copy_sources(source_dir='rllib_src', "
            "dependencies=['rllib_common/sagemaker_rl', 'battlesnake_gym', 'heuristics'])"
        )
    else:
        remedy = (
            "give the estimator the image_uri of an image built from deployment/training/"
            "Dockerfile, or have SageMaker install requirements.txt, which must be in source_dir; "
            "on your own machine: pip install -c constraints.txt -e '.[rllib]'"
        )
    return f"{error} ({sys.executable}): {remedy}"


def _report(reason: str) -> None:
    """Write the reason to stderr and, in a job, to SageMaker's failure file."""
    sys.stderr.write(f"{reason}\n")
    if "SM_MODEL_DIR" in os.environ:
        # The module `sagemaker_rl.job.job_environment` may be missing, so the path is repeated
        # here.
        file = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "output" / "failure"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(reason)

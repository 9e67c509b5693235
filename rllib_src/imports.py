"""Import guard of the training scripts, which explains import errors.

This module needs only the standard library and supports older Python versions. The module can
therefore report the error in an unsuitable image.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COPIED_PACKAGES = ("sagemaker_rl", "battlesnake_gym", "battlesnake_heuristics", "battlesnake_rl")
"""Packages of this project that SageMaker copies next to the script."""


@contextmanager
def explain_import_errors() -> "Iterator[None]":
    """Exit with a remedy if an import in the context fails.

    A SageMaker job also reports the remedy as its ``FailureReason``.
    """
    try:
        # `sagemaker_rl` must be imported first, because this package rejects old Python versions
        # and adds the folders next to the script to the import path.
        import sagemaker_rl  # noqa: F401

        yield
    except ImportError as error:
        _report_failure(_message_with_remedy(error))
        sys.exit(1)


def _message_with_remedy(error: ImportError) -> str:
    """Return the message of an import error, with a remedy."""
    if error.name is None:
        return str(error)  # The errors of this project already contain a remedy.
    if error.name.partition(".")[0] in _COPIED_PACKAGES:
        remedy = (
            "give the estimator this project's packages: "
            "**sagemaker_rl.job.source_files.copy_project_sources()"
        )
    else:
        remedy = (
            "in a job, add rllib_src/requirements.txt to source_dir; elsewhere, "
            "pip install -c constraints.txt -e '.[rllib]'"
        )
    return f"{error} ({sys.executable}): {remedy}"


def _report_failure(reason: str) -> None:
    """Write the reason to stderr and, in a job, also to SageMaker's failure file."""
    sys.stderr.write(f"{reason}\n")
    if "SM_MODEL_DIR" in os.environ:
        # The module `sagemaker_rl.job.job_environment` may be missing. The path is therefore
        # repeated here.
        file = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "output" / "failure"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(reason)

"""What a training script imports, or a word on what to do where it is not there.

It needs nothing but Python, and not the newest, so that it can speak in the wrong image.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OURS = ("sagemaker_rl", "battlesnake_gym", "battlesnake_heuristics", "battlesnake_rl")
"""What a job brings along beside the script."""


@contextmanager
def explained() -> "Iterator[None]":
    """Within, a failed import ends the process, with what to do about it as the job's failure."""
    try:
        # In a job, this finds what was copied beside the script.
        with suppress(ModuleNotFoundError):
            import sagemaker_rl  # noqa: F401
        # First of the rest, because it is what notices an old Python.
        import sagemaker_rl  # noqa: F401

        yield
    except ImportError as error:
        _report(_what_to_do(error))
        sys.exit(1)


def _what_to_do(error: ImportError) -> str:
    if error.name is None:
        return str(error)  # a complaint of our own
    if error.name.partition(".")[0] in _OURS:
        remedy = (
            "a job needs our packages beside its script: give the estimator "
            "**sagemaker_rl.job.source_files.copy_sources(source_dir='rllib_src', "
            "dependencies=['rllib_common/sagemaker_rl', 'battlesnake_gym', 'heuristics'])"
        )
    else:
        remedy = (
            "give the estimator the image_uri of an image built from deployment/training/"
            "Dockerfile, or let SageMaker install requirements.txt, which must lie in source_dir; "
            "on a machine of your own: pip install -c constraints.txt -e '.[rllib]'"
        )
    return f"{error} ({sys.executable}): {remedy}"


def _report(reason: str) -> None:
    sys.stderr.write(f"{reason}\n")
    if "SM_MODEL_DIR" in os.environ:
        # Where SageMaker looks for the FailureReason; sagemaker_rl may be what is missing.
        file = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "output" / "failure"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(reason)

"""Why a job failed: on stderr, and where SageMaker looks for it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

FAILURE_FILE = Path("output") / "failure"
"""Under ``/opt/ml``. SageMaker shows its first 1024 characters as the job's ``FailureReason``."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, a quota, a limit on a file's size."""


def base_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """SageMaker's ``/opt/ml``, which a rehearsal puts elsewhere."""
    return Path(environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))


def disk_is_full(error: BaseException | None) -> bool:
    """Whether ``error``, or what it came from, is that there was no room to write."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False


def report_failure(
    reason: str, environ: Mapping[str, str] = os.environ, prog: str | None = None
) -> None:
    """Tell ``reason`` (behind the name of the command, ``prog``); the first stays in the file."""
    sys.stderr.write(f"{prog}: {reason}\n" if prog else f"{reason}\n")
    sys.stderr.flush()
    if "SM_MODEL_DIR" not in environ:
        return
    path = base_folder(environ) / FAILURE_FILE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(reason)

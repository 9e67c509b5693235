"""Environment variables, skipped imports, log levels and number of torch threads of processes.

OpenMP threads wait for each other in a busy loop. The loop stalls when another process needs the
same core. Every training process therefore uses one thread unless ``OMP_NUM_THREADS`` is set.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

SLOW_MODULE = "rfc3987_syntax"
"""Module that the training processes skip.

jsonschema 4.25 and later import the module if it is installed, for example by Jupyter. The import
compiles a grammar for 4 CPU seconds. Every Ray process imports jsonschema, so Ray would not start
on a busy machine. Without the module, jsonschema only checks no IRIs.
"""

_DEFAULT_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Default values of environment variables, keyed by name."""


def quiet_sagemaker_sdk() -> None:
    """Hide the SageMaker SDK's notes about SDK 3 and about default settings.

    A command must call this function before it imports the SDK.
    """
    os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
    for name in ("sagemaker", "sagemaker.config"):
        logging.getLogger(name).setLevel(logging.WARNING)


def set_default_variables() -> None:
    """Set default environment variables, keep existing values, and skip `SLOW_MODULE`.

    torch and Ray read the variables on import. A train command must therefore call this function
    before it imports torch or Ray.
    """
    sys.modules.setdefault(SLOW_MODULE, None)  # type: ignore[arg-type]  # its import then fails
    for name, value in _DEFAULT_VARIABLES.items():
        os.environ.setdefault(name, value)


def actor_variables() -> dict[str, str]:
    """Return the environment variables of Ray's processes.

    Environment variables of this process override the defaults.
    """
    return {name: os.environ.get(name, value) for name, value in _DEFAULT_VARIABLES.items()}


def find_interpreter_problem() -> str:
    """Return why Ray and sagemaker-training cannot run this Python interpreter, or "".

    Both pass the path of Python to a shell without quotes.
    """
    if not re.search(r"""[\s"'\\$&;()<>|`]""", sys.executable):
        return ""
    return (
        f"the path of Python must have no space or special character, got "
        f"{sys.executable!r:.60}; create .venv in another directory"
    )


def limit_torch_threads() -> None:
    """Make torch use one thread in this process, unless ``OMP_NUM_THREADS`` is set."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of those ``packages`` that are installed, keyed by name."""
    found = {}
    for name in packages:
        # Source files next to a script are not an installed package.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def process_tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, in seconds.

    An ended process counts if its parent waited for it.
    """
    import psutil

    seconds = 0.0
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):
                seconds += sum(process.cpu_times()[:4])
    return seconds

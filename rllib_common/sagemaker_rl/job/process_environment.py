"""Environment variables of training processes, and torch's number of threads.

OpenMP threads wait for each other in a busy loop, which stalls as soon as another process needs
the same core. Every training process therefore uses one thread unless ``OMP_NUM_THREADS`` is set.
"""

from __future__ import annotations

import os

_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def set_defaults() -> None:
    """Set default environment variables, and keep existing values.

    torch and Ray read the variables on import, so a train command must call this function before
    the import of torch or Ray.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


def actor_variables() -> dict[str, str]:
    """Return the environment variables of Ray's processes.

    Variables of this process override the defaults.
    """
    return {name: os.environ.get(name, value) for name, value in _DEFAULTS.items()}


def limit_torch_threads() -> None:
    """Make torch use one thread in this process, unless ``OMP_NUM_THREADS`` is set."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)

"""Memory allocator settings of the C library and of torch.

The settings make training faster.
"""

from __future__ import annotations

import ctypes

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter codes of glibc's ``mallopt``, from malloc.h."""

_TRIM_THRESHOLD_BYTES = 512 << 20
_MMAP_THRESHOLD_BYTES = 32 << 20
"""Maximum size of a reused memory block, in bytes; glibc allows no larger value.

Larger blocks, such as the arrays of the replay buffer, are not reused.
"""


def keep_freed_memory() -> bool:
    """Make the C library reuse freed memory instead of returning it to the system.

    Every forward pass frees megabytes of activations, and the next pass allocates the same amount.
    The Linux kernel clears newly allocated pages. Without the setting, clearing takes a quarter of
    the time of a pass. The setting applies to the whole process.

    Returns:
        True if the C library supports the setting; glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        and mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    )


def disable_nan_fill() -> None:
    """Stop torch from filling new memory with NaN in deterministic mode.

    RLlib enables deterministic mode whenever a seed is set. The NaN values serve only to reveal
    reads of uninitialized memory. Results do not depend on the fill, and updates without the fill
    are a few percent faster. The setting applies to the whole process.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

"""Settings of the C library's and torch's memory allocators that speed up training."""

from __future__ import annotations

import ctypes

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers from glibc's malloc.h."""

_KEEP = 512 << 20
_REUSE_UP_TO = 32 << 20
"""Largest block that is kept, in bytes; glibc allows no more. Replay buffer arrays are larger."""


def keep_freed_memory() -> bool:
    """Make the C library reuse freed blocks instead of returning them to the system.

    Every pass of a batch through the network frees megabytes of activations and allocates them
    again. Clearing thousands of pages each time costs a quarter of the pass's time. The setting
    applies to the whole process.

    Returns:
        Whether the C library supports the setting; glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEEP) and mallopt(_M_MMAP_THRESHOLD, _REUSE_UP_TO))


def leave_new_memory_unfilled() -> None:
    """Stop torch from filling new memory with NaN in deterministic mode.

    RLlib enables deterministic mode whenever a seed is set. The NaN values only reveal reads of
    uninitialized memory. Without them, results are the same and updates are a few percent faster.
    The setting applies to the whole process.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

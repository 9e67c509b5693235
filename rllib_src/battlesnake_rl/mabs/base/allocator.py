"""Memory costs no more than it must: what torch frees stays, what it takes is not filled first."""

from __future__ import annotations

import ctypes

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters' numbers in glibc's malloc.h."""

_KEEP = 512 << 20
_REUSE_UP_TO = 32 << 20
"""The largest block, in bytes, that is kept; glibc refuses more. A replay's arrays are larger."""


def keep_freed_memory() -> bool:
    """Have the C library reuse freed blocks instead of giving them back to the system.

    Every pass of a batch through the network frees megabytes of activations and asks for them
    again. Each time the system would have to clear thousands of pages, which costs a quarter of a
    pass's time. Changes the whole process; returns whether its C library can do so (glibc can).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEEP) and mallopt(_M_MMAP_THRESHOLD, _REUSE_UP_TO))


def leave_new_memory_unfilled() -> None:
    """Have torch not write NaN to all memory it takes, where it was asked to be deterministic.

    RLlib asks for that wherever a seed is given. The NaN would show reads of memory that was
    never written; results are the same without, and updates a few hundredths faster. Changes the
    whole process.
    """
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

"""The instance groups of a job, and what the name of an instance type tells of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SIZES = {"medium": 2, "large": 2, "xlarge": 4}
"""vCPUs by the last word of a name; ``8xlarge`` has eight times those of ``xlarge``."""


def vcpus(instance_type: str) -> int | None:
    """Its vCPUs, as nearly all types count them; None where the name does not say.

    >>> vcpus("ml.c5.2xlarge"), vcpus("ml.m5.large"), vcpus("local")
    (8, 2, None)
    """
    match = re.fullmatch(r"ml\.[\w-]+\.(\d*)(medium|large|xlarge)", instance_type)
    if match is None:
        return None
    return int(match[1] or 1) * SIZES[match[2]]


def has_gpu(instance_type: str) -> bool:
    """Whether it has NVIDIA's GPUs: the families g and p.

    >>> has_gpu("ml.g5.2xlarge"), has_gpu("ml.p4d.24xlarge"), has_gpu("ml.c5.xlarge")
    (True, True, False)
    """
    return re.match(r"ml\.[gp]\d", instance_type) is not None


def instance_groups(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of this job as ``SM_RESOURCE_CONFIG`` has them, of equal instances one.

    Each has an ``instance_type`` and ``hosts``. None outside of a job.
    """
    told = json.loads(environ.get("SM_RESOURCE_CONFIG") or "{}")
    groups: list[dict[str, Any]] = told.get("instance_groups") or []
    return [group for group in groups if {"instance_type", "hosts"} <= group.keys()]

"""CPU quota of this process, in cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

_CGROUP_ROOT, _PROC_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_LAMBDA_MEMORY_VARIABLE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
_LAMBDA_MB_PER_CORE = 1769
"""Memory in MB for which AWS Lambda grants the CPU time of one core.

A function has access to two cores, regardless of its memory.
Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
"""


def available_cores(
    cgroup_root: Path = _CGROUP_ROOT,
    process_cgroup_file: Path = _PROC_CGROUP,
    environment: Mapping[str, str] = os.environ,
) -> float:
    """Return the number of cores that this process may use.

    The result is the minimum of three limits:

    * the number of cores in the affinity mask;
    * the quotas of the control groups (cgroup v1 and v2), which containers or systemd units set;
    * the number of cores that AWS Lambda grants for the memory.

    Args:
        cgroup_root: Root of the cgroup file systems.
        process_cgroup_file: File that lists the cgroups of this process.
        environment: Environment variables.
    """
    bound = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    shares = [float(bound), *_iter_process_quotas(cgroup_root, process_cgroup_file)]
    with suppress(KeyError, ValueError):
        shares.append(int(environment[_LAMBDA_MEMORY_VARIABLE]) / _LAMBDA_MB_PER_CORE)
    return min(shares)


def _iter_process_quotas(groups: Path, own: Path) -> Iterator[float]:
    """Yield the quotas of this process's cgroups and their ancestors, in cores."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # In a container, the path may be a path of the host. Then only the root of the path
            # exists in the container.
            for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                yield from _iter_cgroup_quota(
                    groups / ("cpu" if controllers else "") / str(group).lstrip("/")
                )


def _iter_cgroup_quota(group: Path) -> Iterator[float]:
    """Yield the quota of a cgroup in cores, or nothing if the cgroup has no quota.

    The values "max" and -1 mean no quota.
    """
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        yield int(quota) / int(period)
    with suppress(OSError, ValueError):
        microseconds = int((group / "cpu.cfs_quota_us").read_text())
        if microseconds > 0:
            yield microseconds / int((group / "cpu.cfs_period_us").read_text())

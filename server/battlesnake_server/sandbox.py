"""Isolation of the commands that run agents' code.

On Linux, a command runs in its own namespaces (``unshare`` of util-linux). The command has no
network access. The kernel kills all processes of the command when the first process ends. Landlock
restricts the files that the command can read and write. If the platform lacks namespaces or
Landlock, the command runs with the remaining protection.

The sandbox does not limit these resources:

* the total memory and the number of the command's processes;
* the total size of the files in the command's directories;
* shared memory in ``/dev/shm``.

References:
    https://man7.org/linux/man-pages/man7/pid_namespaces.7.html
    https://man7.org/linux/man-pages/man7/landlock.7.html
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_UNSHARE = ("--user", "--map-current-user", "--net", "--ipc", "--pid", "--fork", "--kill-child")

_PACKAGES = (
    *("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server"),
    *("battlesnake_rl", "sagemaker_rl"),
)
_READABLE = (
    *("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/sys"),
    *("/dev/null", "/dev/urandom", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
)

_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE, _READ, _READ_FOLDER = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_NUM_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file access rights by Landlock version; later versions have 16 rights."""


class _PathBeneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


@functools.cache
def namespaces() -> tuple[str, ...]:
    """Return the command prefix that runs a command in its own namespaces.

    The tuple is empty if this system does not support namespaces.
    """
    if program := shutil.which("unshare"):
        command = program, *_UNSHARE
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run((*command, "true"), check=True, capture_output=True, timeout=10)
            return command
    return ()


def isolated(folder: Path, temporary: Path, words: Iterable[str]) -> list[str]:
    """Return the command line of an isolated ``battlesnake-gym`` process.

    Args:
        folder: Directory that the command may read and write.
        temporary: Directory for temporary files, which the command may read and write.
        words: Arguments of ``battlesnake-gym``.
    """
    module = (sys.executable, "-P", "-m", "battlesnake_server.sandbox")
    return [*namespaces(), *module, str(folder), str(temporary), *words]


def adopt_orphans() -> None:
    """Adopt orphaned descendant processes, so that `kill_children` finds them.

    This process becomes a child subreaper (``prctl``).
    """
    with contextlib.suppress(AttributeError):  # Only Linux has prctl.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children() -> None:
    """Kill the child processes of this process until no child process is left.

    After `adopt_orphans`, the children of a killed process become children of this process.
    """
    tasks = Path("/proc/self/task")
    while children := [
        int(child) for path in tasks.glob("*/children") for child in path.read_text().split()
    ]:
        for child in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _restrict_files(writable: Iterable[Path], readable: Iterable[str | Path]) -> bool:
    """Restrict the files that this thread can access.

    The restriction also applies to threads and child processes that this thread starts later.

    Args:
        writable: Directories that may be read and written.
        readable: Files and directories that may be read and executed; missing paths are ignored.

    Returns:
        Whether the kernel supports Landlock.
    """
    version = _landlock_version()
    if version < 1:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _NUM_RIGHTS.get(version, 16)) - 1
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(ctypes.c_uint64(handled)), 8, 0)
    rules = [(Path(path), _EXECUTE | _READ | _READ_FOLDER) for path in readable]
    rules += [(path, handled) for path in writable]
    # Semaphores are files in /dev/shm.
    rules += [(Path(path), handled) for path in (os.devnull, "/dev/shm")]
    for path, rights in rules:
        with contextlib.suppress(OSError):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = handled & rights & (-1 if path.is_dir() else _FILE_RIGHTS)
            rule = _PathBeneath(allowed, folder)
            failed = libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(folder)
            if failed:
                raise RuntimeError(f"{path}: Landlock returned {os.strerror(ctypes.get_errno())}")
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise RuntimeError(f"Landlock returned {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)
    return True


def _landlock_version() -> int:
    """Return the version of Landlock, or a number below 1 if Landlock is missing."""
    if sys.platform != "linux":
        return 0
    version: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return version


def _code() -> Iterable[str | Path]:
    """Yield the files and directories that Python and this project's packages need."""
    yield from (*_READABLE, sys.prefix, sys.base_prefix, *filter(None, sys.path))
    plugins = importlib.metadata.entry_points(group="battlesnake_gym")
    for package in {*_PACKAGES, *(plugin.module.partition(".")[0] for plugin in plugins)}:
        if spec := importlib.util.find_spec(package):
            yield from spec.submodule_search_locations or ()


def main() -> None:
    """Restrict this process and run ``battlesnake-gym``."""
    folder, temporary, *words = sys.argv[1:]
    _restrict_files([Path(folder), Path(temporary)], _code())
    sys.argv = ["battlesnake-gym", *words]
    runpy.run_module("battlesnake_gym", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

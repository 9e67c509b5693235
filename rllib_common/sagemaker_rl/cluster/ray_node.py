"""Ray node on this instance; the node ends when its parent process ends."""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants, utils
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled module
from ray.job_config import JobConfig

from battlesnake_gym.common.signals import mask_signal
from battlesnake_gym.common.temporary_dirs import TemporaryDir
from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.job.job_environment import log_line
from sagemaker_rl.job.process_environment import (
    SLOW_MODULE,
    actor_variables,
    find_interpreter_problem,
    process_tree_cpu_seconds,
)

_START_ATTEMPTS = 3
"""Maximum number of attempts to start a Ray node.

Only a failed start is repeated. A slow start is not repeated.
"""

_SLOW_START_S = 60.0
"""Duration after which a slow start is logged, in seconds."""

_START_TIMEOUT_S = 90.0
"""Duration without CPU usage after which a start counts as failed, in seconds.

A start on a slow machine still uses some CPU time.
"""

LOOPBACK = "127.0.0.1"
"""IP address of a head node that other machines cannot reach."""

_STOP_TIMEOUT_S = 1.0
"""Duration between SIGTERM and SIGKILL when a node is stopped, in seconds."""
_START_COMMAND = ("-m", "ray.scripts.scripts", "start", "--block")
"""Arguments of the Python command that starts a node."""

_STARTED_MESSAGE = "Ray runtime started"
"""Text that ``ray start`` prints after a successful start."""

_PR_SET_PDEATHSIG = 1
"""Operation of Linux's ``prctl`` that sets the parent-death signal."""

_MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""Maximum length of a socket path, in bytes.

The length excludes the final zero byte of ``sun_path``.
"""

_MAX_RAY_SOCKET_PATH = (
    "/bsgym-ray-12345678/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
)
"""Longest path of a Ray socket, relative to the directory for temporary files."""

_MIN_FREE_BYTES = 256 << 10
"""Minimum free space for Ray's files, in bytes.

With less free space, a start fails after minutes. A short training writes about 200 KiB.
"""

_FALLBACK_DIR = "/tmp"
"""Parent directory of Ray's files if the temporary directory has a long path."""


class RayNode:
    """Ray node that runs ``ray start --block`` as a child process."""

    def __init__(self, arguments: list[str], *, loopback: bool = False) -> None:
        self._arguments = arguments
        self._loopback = loopback
        self._directory: TemporaryDir | None = None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def create_head(cls, address: str, port: int, cpus: int) -> RayNode:
        """Create the head node, which the worker nodes join.

        At `LOOPBACK`, the node listens only on this address, and worker nodes cannot join. At
        another address, the node listens on all network interfaces.
        """
        flags = ["--head", f"--port={port}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        flags += ["--include-dashboard=false", "--disable-usage-stats", "--no-monitor"]
        return cls(flags, loopback=address == LOOPBACK)

    @classmethod
    def create_worker(cls, address: str, ray_address: str, cpus: int) -> RayNode:
        """Create a worker node that joins the head node at ``ray_address``."""
        return cls(
            [f"--address={ray_address}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        )

    def start(self, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start the node without a time limit, and retry after a failure.

        Args:
            give_up: Function polled during the start. If the function returns True, this method
                returns without a running node.

        Raises:
            ClusterError: If Ray cannot run this Python, or all attempts to start the node failed.
                The message contains the reason or Ray's last output.
        """
        if problem := find_interpreter_problem():
            raise ClusterError(problem)
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._start_once(give_up) or give_up():
                return
            self.stop()
            reason = self._failure_reason()
            log_line(f"{reason} (ray start failed, attempt {attempt} of {_START_ATTEMPTS})")
        raise ClusterError(f"{reason} (ray start failed {_START_ATTEMPTS} times)")

    def _failure_reason(self) -> str:
        """Return the exception of the last traceback, or else Ray's last output lines."""
        lines = [line for line in self._last_lines if line]
        frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
        after = lines[frames[-1] + 1 :] if frames else []
        # Unlike the frames' source lines, the exception is not indented.
        exception = next((line for line in after if not line.startswith(" ")), None)
        return exception or " | ".join(lines)

    @property
    def is_running(self) -> bool:
        """Whether the node's process is alive."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Terminate the node and all processes of the node."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
            # Child processes of the node may outlive the node's main process.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.delete()

    def _start_once(self, give_up: Callable[[], bool]) -> bool:
        """Start the node once, and return whether the start succeeded."""
        # Each node has its own directory. Nodes that start at the same time would otherwise share
        # sockets.
        self._directory = _create_ray_dir()
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", *_START_COMMAND),
                *(f"--temp-dir={self._directory.path}", *self._arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self._environment(self._directory.path / "python"),
            # A signal to this process's group must not end the node before the checkpoint is
            # written.
            start_new_session=True,
            preexec_fn=_configure_child_signals,
        )
        self._process = process
        started = threading.Event()
        with mask_signal(signal.SIGTERM):  # The thread inherits the mask; see `connect_to_ray`.
            threading.Thread(target=self._read_output, args=(process, started), daemon=True).start()
        began = worked = time.monotonic()
        used, slow = 0.0, False
        while process.poll() is None and not give_up():
            if started.wait(0.1):
                return True
            now = time.monotonic()
            if now - worked > _START_TIMEOUT_S:
                before, used, worked = used, process_tree_cpu_seconds(process.pid), now
                if used <= before:
                    self._last_lines.append(
                        f"the start used no CPU time for {_START_TIMEOUT_S:g} s"
                    )
                    return False
            if now - began > _SLOW_START_S and not slow:
                slow = True
                log_line("Ray starts slowly on this busy machine; the start continues")
        return False

    def _environment(self, modules_dir: Path) -> dict[str, str]:
        """Return the environment variables of the node's processes.

        Env runners import the same modules as this process, regardless of the script's directory.
        The exception is `SLOW_MODULE`, which a file in ``modules_dir`` replaces.
        """
        modules_dir.mkdir()
        (modules_dir / f"{SLOW_MODULE}.py").write_text("raise ImportError\n")
        path = os.pathsep.join([str(modules_dir), *filter(None, sys.path)])
        cluster = {ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"} if self._loopback else {}
        return {
            **os.environ,
            **actor_variables(),
            **cluster,
            "PYTHONPATH": path,
            "PYTHONSAFEPATH": "1",
        }

    def _read_output(self, process: subprocess.Popen[str], started: threading.Event) -> None:
        """Collect Ray's last output lines, and set ``started`` after a successful start."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._last_lines.append(line.rstrip())
                if _STARTED_MESSAGE in line:
                    started.set()


def _create_ray_dir() -> TemporaryDir:
    """Create a directory whose path is short enough for the sockets of a Ray node.

    Raises:
        ClusterError: If the directory cannot be created.
    """
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent + _MAX_RAY_SOCKET_PATH)) > _MAX_SOCKET_PATH_BYTES:
        parent = _FALLBACK_DIR
    remedy = (
        f"set TMPDIR to a directory with free space and a path of at most "
        f"{_MAX_SOCKET_PATH_BYTES - len(_MAX_RAY_SOCKET_PATH)} characters"
    )
    if (free := shutil.disk_usage(parent).free) < _MIN_FREE_BYTES:
        raise ClusterError(
            f"{parent} has {free >> 10} KiB of free space, but Ray needs {_MIN_FREE_BYTES >> 10} "
            f"KiB; {remedy}"
        )
    try:
        return TemporaryDir("ray", parent)
    except OSError as error:
        raise ClusterError(
            f"Ray cannot create a directory in {parent}: {error.strerror}; {remedy}"
        ) from error


@mask_signal(signal.SIGTERM)
def connect_to_ray(address: str, *, loopback: bool = False, **options: Any) -> None:
    """Call `ray.init` without changing this process's SIGTERM handler.

    Ray's own handler would end the process without a checkpoint. The calling thread blocks SIGTERM
    during the call, because a partly initialized Ray can crash the exit of the process.

    Args:
        address: ``HOST:PORT`` of the head node, or ``auto``.
        loopback: Whether the head node is a `RayNode` at `LOOPBACK`.
        **options: Keyword arguments of `ray.init`.
    """
    handler, set_handler = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    cluster = ray_constants.ENABLE_RAY_CLUSTER
    # Ray would replace the loopback address with the network address of this machine.
    ray_constants.ENABLE_RAY_CLUSTER = cluster and not loopback
    # Actors would search this process's working directory first, before the path of `RayNode`.
    without_working_dir = {"job_config": JobConfig(_client_job=True)} if loopback else {}
    try:
        ray.init(
            address=address,
            **without_working_dir,
            logging_level=logging.ERROR,
            # The driver raises the exceptions of Ray's processes; their output is RLlib's warnings.
            log_to_driver=False,
            **options,
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        utils.set_sigterm_handler = set_handler
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's C++ code also replaces the handler.


def cluster_resources() -> tuple[int, int]:
    """Return the numbers of CPUs and GPUs of the connected cluster."""
    resources = ray.cluster_resources()
    return int(resources.get("CPU", 0)), int(resources.get("GPU", 0))


@contextmanager
def ray_connection(address: str, environment: dict[str, Any] | None = None) -> Iterator[None]:
    """Connect to the Ray cluster at ``address`` for the duration of the block.

    Args:
        address: ``HOST:PORT`` of the head node, or ``auto``.
        environment: ``runtime_env`` of all tasks (see Ray's documentation).

    Raises:
        ClusterError: If no Ray cluster responds at ``address``.
    """
    try:
        if address != "auto":
            # This function checks the address first, because Ray would retry for minutes.
            host, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise ValueError("give HOST:PORT")
            socket.create_connection((host, int(port)), timeout=10).close()
        # A `RayNode` passes these variables to its processes. An existing cluster lacks the
        # variables. With a runtime_env, the first actors start later, because Ray cannot use its
        # prestarted processes.
        runtime_env = {"env_vars": actor_variables(), **(environment or {})}
        connect_to_ray(address, runtime_env=runtime_env)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster at {address}: {error}; start a cluster with `ray start --head`, and "
            "join the cluster on each machine with `ray start --address HOST:PORT`"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


_AUTH_ENV_VARIABLES = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"
"""Environment variables of Ray's token authentication: mode and token file."""


def _read_token_again() -> None:
    """Make Ray read its configuration and its token again, which it caches."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def private_auth_token(token: str | None = None) -> Iterator[None]:
    """Require a token for all Ray connections of this process and its children.

    Only this user can read the token's file, which the function deletes at the end of the block.

    Args:
        token: The secret of a cluster run, or None for a new secret.
    """
    before = {name: os.environ.pop(name) for name in _AUTH_ENV_VARIABLES if name in os.environ}
    # `temporary_dir` would name its directory in the error of a full disk of the block.
    directory = TemporaryDir("token")
    path = directory.path.absolute() / "token"
    try:
        path.write_text(token or secrets.token_hex(32))
        os.environ.update(zip(_AUTH_ENV_VARIABLES, ("token", str(path)), strict=True))
        _read_token_again()
        yield
    finally:
        for name in _AUTH_ENV_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)
        _read_token_again()
        directory.delete()


def find_free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _configure_child_signals() -> None:
    """Make the child process receive SIGTERM when its parent process ends."""
    # The parent may ignore SIGTERM while writing a checkpoint. Ray must not inherit this setting.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

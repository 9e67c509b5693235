"""Ray node on this instance, which ends when its parent process ends."""

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

import psutil
import ray
from ray._private import ray_constants, utils
from ray._raylet import Config  # type: ignore[attr-defined]  # it is compiled

from battlesnake_gym.common.temporary_dirs import TemporaryDir, temporary_dir
from sagemaker_rl.cluster.rendezvous import ClusterError
from sagemaker_rl.job.job_environment import log_line
from sagemaker_rl.job.process_environment import actor_variables

_START_ATTEMPTS = 3
"""Maximum number of starts of a Ray node.

A failed start is repeated. A slow start is not repeated.
"""

_SLOW_START_S = 60.0
"""Seconds after which a slow start is logged."""

_START_TIMEOUT_S = 90.0
"""Seconds without CPU usage after which a start counts as failed.

A start on a slow machine still uses some CPU time.
"""

LOOPBACK = "127.0.0.1"
"""Address of a head node that other machines cannot reach."""

_STOP_TIMEOUT_S = 1.0
_STARTED = "Ray runtime started"

_PR_SET_PDEATHSIG = 1

_MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""Maximum length of a socket's path (``sun_path`` without the final zero byte)."""

_RAY_SOCKET = "/bsgym-ray-12345678/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""Longest path of a Ray socket below the directory for temporary files."""

_MIN_FREE_BYTES = 256 << 10
"""Minimum free space for Ray's files in bytes; with less, a start fails after minutes.

The files of a short training have about 200 KiB.
"""

_SHORT_DIR = "/tmp"
"""Directory of Ray's files if the path of the directory for temporary files is too long."""


class RayNodeError(RuntimeError):
    """Error raised if Ray does not start; the message contains Ray's last output."""


class RayNode:
    """``ray start --block`` as a child process."""

    def __init__(self, arguments: list[str], *, loopback: bool = False) -> None:
        self._arguments = arguments
        self._loopback = loopback
        self._directory: TemporaryDir | None = None
        self._last_lines: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def head(cls, address: str, port: int, cpus: int) -> RayNode:
        """Return the head node, which the worker nodes join.

        At `LOOPBACK`, the node listens only on this address, and worker nodes cannot join. At
        another address, it listens on all interfaces.
        """
        flags = ["--head", f"--port={port}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        flags += ["--include-dashboard=false", "--disable-usage-stats", "--no-monitor"]
        return cls(flags, loopback=address == LOOPBACK)

    @classmethod
    def worker(cls, address: str, ray_address: str, cpus: int) -> RayNode:
        """Return a worker node that joins the head node at ``ray_address``."""
        return cls(
            [f"--address={ray_address}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        )

    def start(self, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start the node without a time limit, and retry after a failure.

        Args:
            give_up: Function polled during the start. If the function returns True, this method
                returns without a running node.

        Raises:
            RayNodeError: If the node did not start.
        """
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._started(give_up) or give_up():
                return
            self.stop()
            reason = self._failure_reason()
            log_line(f"ray start failed, attempt {attempt} of {_START_ATTEMPTS}: {reason}")
        raise RayNodeError(f"ray start failed {_START_ATTEMPTS} times; its last output: {reason}")

    def _failure_reason(self) -> str:
        """Return Ray's last lines of output; of a traceback, only the last line."""
        lines = [line for line in self._last_lines if line]
        if any(line.startswith('File "') for line in lines):
            lines = lines[-1:]
        return " | ".join(lines)

    @property
    def running(self) -> bool:
        """Whether the node's process is alive."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the node and all processes of the node."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
            # Some processes of the node may still be running.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.delete()

    def _started(self, give_up: Callable[[], bool]) -> bool:
        # Each node has its own directory, because nodes that start at the same time would share
        # sockets.
        self._directory = _ray_dir()
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
                *(f"--temp-dir={self._directory.path}", *self._arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            # Env runners must import the same modules as this process, independently of the
            # script's folder.
            env=os.environ
            | actor_variables()
            | ({ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"} if self._loopback else {})
            | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
            # A signal to this process's group must not end the node before the checkpoint is
            # written.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._process = process
        started = threading.Event()
        threading.Thread(target=self._read, args=(process, started), daemon=True).start()
        began = worked = time.monotonic()
        used, slow = 0.0, False
        while process.poll() is None and not give_up():
            if started.wait(0.1):
                return True
            now = time.monotonic()
            if now - worked > _START_TIMEOUT_S:
                before, used, worked = used, _cpu_seconds(process.pid), now
                if used <= before:
                    self._last_lines.append(f"it has used no CPU time for {_START_TIMEOUT_S:g} s")
                    return False
            if now - began > _SLOW_START_S and not slow:
                slow = True
                log_line("Ray starts slowly on this busy machine; waiting for it")
        return False

    def _read(self, process: subprocess.Popen[str], started: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._last_lines.append(line.strip())
                if _STARTED in line:
                    started.set()


def _ray_dir() -> TemporaryDir:
    """Create the directory of a Ray node, in which the paths of sockets are short enough.

    Raises:
        RayNodeError: If the directory cannot be created.
    """
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent + _RAY_SOCKET)) > _MAX_SOCKET_PATH_BYTES:
        parent = _SHORT_DIR
    remedy = (
        f"set TMPDIR to a directory with free space and a path of at most "
        f"{_MAX_SOCKET_PATH_BYTES - len(_RAY_SOCKET)} characters"
    )
    if (free := shutil.disk_usage(parent).free) < _MIN_FREE_BYTES:
        raise RayNodeError(
            f"{parent} has {free >> 10} KiB of free space, but Ray needs {_MIN_FREE_BYTES >> 10} "
            f"KiB; {remedy}"
        )
    try:
        return TemporaryDir("ray", parent)
    except OSError as error:
        raise RayNodeError(
            f"Ray cannot create a directory in {parent}: {error.strerror}; {remedy}"
        ) from error


def _cpu_seconds(number: int) -> float:
    """Return the CPU seconds of a process and its descendants."""
    seconds = 0.0
    with suppress(psutil.Error):
        parent = psutil.Process(number)
        for one in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):
                seconds += sum(one.cpu_times()[:2])
    return seconds


def connect(address: str, *, loopback: bool = False, **options: Any) -> None:
    """Call `ray.init` without changing this process's SIGTERM handler.

    Ray's own handler would end the process without a checkpoint.

    Args:
        address: ``HOST:PORT`` of the head node, or ``auto``.
        loopback: Whether the head node is a `RayNode` at `LOOPBACK`.
        **options: Options of `ray.init`.
    """
    handler, set_handler = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    cluster = ray_constants.ENABLE_RAY_CLUSTER
    # Ray would replace the loopback address by the address of this machine in its network.
    ray_constants.ENABLE_RAY_CLUSTER = cluster and not loopback
    try:
        ray.init(
            address=address,
            logging_level=logging.ERROR,
            **options,
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        utils.set_sigterm_handler = set_handler
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's C++ code replaces the handler, too


@contextmanager
def connected_ray(
    address: str, environment: dict[str, Any] | None = None
) -> Iterator[tuple[int, int]]:
    """Connect to the Ray cluster at ``address`` and yield its CPUs and GPUs.

    Args:
        address: ``HOST:PORT`` of the head node, or ``auto``.
        environment: Ray's ``runtime_env`` of all tasks.

    Raises:
        ClusterError: If there is no cluster at this address.
    """
    try:
        if address != "auto":
            # The address is checked first, because Ray would retry for minutes.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        # A `RayNode` passes on the variables, but the nodes of an existing cluster lack the
        # variables. With a runtime_env, the first actors start later, because Ray's prestarted
        # processes cannot be used.
        runtime_env = {"env_vars": actor_variables(), **(environment or {})}
        connect(address, log_to_driver=False, runtime_env=runtime_env)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster at {address}: {error}; start one with `ray start --head`, and join it "
            "from this machine and the others with `ray start --address HOST:PORT`"
        ) from None
    try:
        there = ray.cluster_resources()
        yield int(there.get("CPU", 0)), int(there.get("GPU", 0))
    finally:
        ray.shutdown()


_AUTH_VARIABLES = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"


def set_auth_token(token: str, path: Path) -> None:
    """Make Ray require ``token`` in this process and its children.

    ``path`` is the file that stores the token.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    os.environ.update(zip(_AUTH_VARIABLES, ("token", str(path.absolute())), strict=True))
    # Ray read its configuration on import, so the configuration must be read again.
    Config.initialize("")


@contextmanager
def private_auth_token() -> Iterator[None]:
    """Make Ray require a token that only this process and its children can read."""
    before = {name: os.environ.pop(name) for name in _AUTH_VARIABLES if name in os.environ}
    with temporary_dir("token") as folder:
        set_auth_token(secrets.token_hex(32), folder / "token")
        try:
            yield
        finally:
            for name in _AUTH_VARIABLES:
                os.environ.pop(name, None)
            os.environ.update(before)
            Config.initialize("")


def free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _die_with_parent() -> None:
    # The parent may ignore SIGTERM while it writes a checkpoint. Ray must not inherit this setting.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

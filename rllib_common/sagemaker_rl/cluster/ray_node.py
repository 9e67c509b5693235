"""One Ray node on this instance, which lives no longer than the process that started it."""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
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
from ray._private import utils
from ray._raylet import Config  # type: ignore[attr-defined]  # it is compiled

from sagemaker_rl.cluster.rendezvous import ClusterError
from sagemaker_rl.job.job_environment import log_line
from sagemaker_rl.process_environment import actor_variables

_START_ATTEMPTS = 3
"""Of starts that failed: one that is only slow is waited for."""

_SLOW_START_S = 60.0
"""After which it is said that a start is slow."""

_START_TIMEOUT_S = 90.0
"""Without any CPU time, after which a start is taken to hang; a busy machine gives some."""

_STOP_TIMEOUT_S = 1.0
_STARTED = "Ray runtime started"

_PR_SET_PDEATHSIG = 1


class RayNodeError(RuntimeError):
    """Ray did not start; the message has its last words."""


class RayNode:
    """``ray start --block`` as a child process."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        # Nodes that start at once in the same folder, as on a laptop, take each other's sockets.
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        self._last_words: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def head(cls, address: str, port: int, cpus: int) -> RayNode:
        """The node that the others join."""
        flags = ["--head", f"--port={port}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        return cls([*flags, "--include-dashboard=false", "--disable-usage-stats", "--no-monitor"])

    @classmethod
    def worker(cls, address: str, ray_address: str, cpus: int) -> RayNode:
        """A node that joins the head at ``ray_address``."""
        return cls(
            [f"--address={ray_address}", f"--node-ip-address={address}", f"--num-cpus={cpus}"]
        )

    def start(self, give_up: Callable[[], bool] = lambda: False) -> None:
        """Start it, however long that takes; again where it fails.

        It returns without a running node as soon as ``give_up`` says so.

        Raises:
            RayNodeError: it did not start.
        """
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._started(give_up) or give_up():
                return
            self.stop()
            last_words = " | ".join(line for line in self._last_words if line)
            log_line(f"ray start failed, attempt {attempt} of {_START_ATTEMPTS}: {last_words}")
        raise RayNodeError(
            f"ray start failed {_START_ATTEMPTS} times; its last words: {last_words}"
        )

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it and all its processes."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT_S)
            # Whatever is left of it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._folder.cleanup()

    def _started(self, give_up: Callable[[], bool]) -> bool:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                *(f"--temp-dir={self._folder.name}", *self._arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            # Runners import what this process imports, whatever folder the script is in.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # A signal to this process's group must not end the node before the checkpoint.
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
                    self._last_words.append(f"it has done nothing for {_START_TIMEOUT_S:g} s")
                    return False
            if now - began > _SLOW_START_S and not slow:
                slow = True
                log_line("Ray is slow to start on this busy machine; waiting for it")
        return False

    def _read(self, process: subprocess.Popen[str], started: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._last_words.append(line.strip())
                if _STARTED in line:
                    started.set()


def _cpu_seconds(number: int) -> float:
    """CPU time of a process and of those that it has started."""
    seconds = 0.0
    with suppress(psutil.Error):
        parent = psutil.Process(number)
        for one in (parent, *parent.children(recursive=True)):
            with suppress(psutil.Error):
                seconds += sum(one.cpu_times()[:2])
    return seconds


def connect(address: str, runtime_env: dict[str, Any] | None = None, **options: Any) -> None:
    """`ray.init`, but SIGTERM stays ours: Ray's handler ends the process without a checkpoint."""
    ours, set_handler = signal.getsignal(signal.SIGTERM), utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        ray.init(
            address=address,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": actor_variables(), **(runtime_env or {})},
            **options,
        )
    finally:
        utils.set_sigterm_handler = set_handler
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ours)  # Ray's C++ has one too


@contextmanager
def connected_ray(
    address: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[int, int]]:
    """The Ray cluster at ``address``, quietly; gives the numbers of its CPUs and GPUs.

    ``environment`` is Ray's for all tasks (``runtime_env``).

    Raises:
        ClusterError: there is none.
    """
    try:
        if address != "auto":
            # Ray itself would try for minutes.
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        connect(address, log_to_driver=False, runtime_env=environment)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster at {address}: {error}; start one with `ray start --head`, join it "
            "from other machines and from this one with `ray start --address HOST:PORT`"
        ) from None
    try:
        there = ray.cluster_resources()
        yield int(there.get("CPU", 0)), int(there.get("GPU", 0))
    finally:
        ray.shutdown()


_AUTH_VARIABLES = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"


def set_auth_token(token: str, path: Path) -> None:
    """Have Ray, in this process and its children, ask for ``token``; it is kept in ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    os.environ.update(zip(_AUTH_VARIABLES, ("token", str(path.absolute())), strict=True))
    # Ray has read its configuration when it was imported; this is how it reads it again.
    Config.initialize("")


@contextmanager
def private_auth_token() -> Iterator[None]:
    """Within, Ray asks for a token that only this process and its children can read."""
    before = {name: os.environ.pop(name) for name in _AUTH_VARIABLES if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="ray-token-") as folder:
        set_auth_token(secrets.token_hex(32), Path(folder) / "token")
        try:
            yield
        finally:
            for name in _AUTH_VARIABLES:
                os.environ.pop(name, None)
            os.environ.update(before)
            Config.initialize("")


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _die_with_parent() -> None:
    # The parent may ignore SIGTERM so that it can write a checkpoint; Ray must not inherit that.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

"""Control connections between the head node and the worker nodes of a cluster.

The head node waits for worker nodes with known names. Missing heartbeats indicate a lost
connection. Ray counts the CPUs and GPUs of the cluster and restarts lost env runners, but Ray's own
membership (``ray.nodes()``) cannot replace these connections: a worker node needs Ray's token
before it can reach Ray, Ray reports a lost machine only after several failed health checks, and
Ray's worker nodes do not learn the exit status of the run.
"""

from __future__ import annotations

import json
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from sagemaker_rl.cluster.membership import (
    ClusterError,
    ClusterRun,
    Discovery,
    DiscoveryError,
    Membership,
)

STOPPED_EXIT_STATUS, STOP_REASON = 128 + signal.SIGTERM, "a stop was requested"
"""Exit status of a job that shut down cleanly after a stop request, and the reason in logs."""

_HEARTBEAT_INTERVAL_S = 1.0
"""Interval between two heartbeats of a connection, in seconds."""
_HEARTBEAT_TIMEOUT_S = 15.0
"""Duration without a message after which a connection counts as lost, in seconds.

The end of a process closes the connection immediately.
"""

_MAX_MESSAGE_BYTES = 1 << 16
"""Maximum length of a message, in bytes."""

_HANDSHAKE_TIMEOUT_S = 5.0
"""Duration that a worker node waits for the head node's response, in seconds.

Afterwards, the worker node tries again.
"""

_HEAD_POLL_INTERVAL_S = 1.0
"""Interval between two attempts to join the head node, in seconds."""


class JsonConnection:
    """TCP connection that transfers JSON objects, one object per line.

    Several threads may call `send` at the same time.
    """

    def __init__(self, connection: socket.socket, timeout_s: float = _HEARTBEAT_TIMEOUT_S) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._sending = threading.Lock()
        self._closed = threading.Event()
        connection.settimeout(timeout_s)
        self._lines = connection.makefile("rb")
        self.peer_address: str = connection.getpeername()[0]
        self.own_address: str = connection.getsockname()[0]

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one JSON object.

        Raises:
            ConnectionError: If the connection is lost.
        """
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError as error:
            raise ConnectionError(f"the connection broke ({error})") from None

    def receive(self) -> dict[str, Any]:
        """Wait for the next message that is not a heartbeat, and return the message.

        Raises:
            ConnectionError: If the connection is lost.
        """
        while True:
            try:
                line = self._lines.readline(_MAX_MESSAGE_BYTES)
            except TimeoutError:
                raise ConnectionError(f"no message arrived for {self._timeout_s:g} s") from None
            except (OSError, ValueError) as error:
                raise ConnectionError(f"the connection broke ({error})") from None
            if not line:
                raise ConnectionError("the other process closed the connection without a message")
            message = None
            with suppress(ValueError):
                message = json.loads(line)
            if not isinstance(message, dict):
                raise ConnectionError("a message is not a JSON object")
            if message:
                return message

    def start_heartbeat(self) -> None:
        """Start a thread that sends heartbeats until the connection is closed.

        A heartbeat is an empty JSON object.
        """
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def _send_heartbeats(self) -> None:
        """Send a heartbeat every `_HEARTBEAT_INTERVAL_S` seconds."""
        while not self._closed.wait(_HEARTBEAT_INTERVAL_S):
            try:
                self.send({})
            except ConnectionError:
                return

    def close(self) -> None:
        """Close the connection; messages sent before this call are still delivered."""
        self._closed.set()
        # The other instance may have closed the connection already.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()


class ClusterHead:
    """Control server of the head node.

    The server records the joined, ready and lost worker nodes. A lost worker node may rejoin.
    """

    def __init__(
        self, workers: Sequence[str], discovery: Discovery, address: str, ray_address: str
    ) -> None:
        self._discovery = discovery
        self._server = socket.create_server(("", discovery.port), backlog=128)
        port = self._server.getsockname()[1]
        self.run = ClusterRun(secrets.token_hex(8), secrets.token_hex(32), address, port)
        self.ray_address = ray_address
        self._workers = tuple(workers)
        self._joined: dict[str, JsonConnection] = {}
        self._ready: set[str] = set()
        self._rejections: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._changed = threading.Condition()
        self._impossible = ""
        self._show: Callable[[str], None] = lambda text: None
        self._started = self._ended = False

    def accept_workers(self) -> None:
        """Accept connections of worker nodes, and publish the head node's address.

        Raises:
            ClusterError: If the address of the head node cannot be published.
        """
        threading.Thread(target=self._accept_connections, daemon=True).start()
        self._discovery.publish_address(self.run)

    def wait_for_workers(
        self, timeout_s: float, report: Callable[[str], None] = lambda text: None
    ) -> None:
        """Wait until all worker nodes are ready or the timeout has expired.

        A worker node that is ready later still joins the cluster.

        Args:
            timeout_s: Maximum duration of the wait, in seconds.
            report: Function called with a line for each worker node that is ready or lost. Threads
                of this class call the function until the end of the run.

        Raises:
            ClusterError: If no worker node is ready, or a worker node is rejected permanently. The
                message names the worker node.
        """
        deadline = time.monotonic() + timeout_s
        self._show = report
        shown = -1
        with self._changed:
            while True:
                if self._impossible:
                    raise ClusterError(self._impossible)
                if len(self._ready) > shown:
                    shown = len(self._ready)
                    report(self._ready_workers_message())
                if self.all_workers_ready:
                    break
                if not self._changed.wait(deadline - time.monotonic()):
                    missing = f"after {timeout_s:g} s: {self._missing_workers_message()}"
                    if not self._ready:
                        raise ClusterError(missing)
                    report(f"{missing}; starting without the missing workers, which may join later")
                    break
            self._started = True

    @property
    def all_workers_ready(self) -> bool:
        """Whether all worker nodes are ready at present."""
        return self._ready == set(self._workers)

    def end_run(self, status: int = STOPPED_EXIT_STATUS, reason: str = STOP_REASON) -> None:
        """Send the shutdown message to all worker nodes, and stop listening.

        Args:
            status: Exit status of the head node; 0 if training is complete. The default is the
                status of a stopped job.
            reason: Reason for the end of the run, for the logs of the worker nodes.
        """
        with self._changed:
            if self._ended:
                return
            self._ended = True
            links = list(self._joined.values())
        for link in links:
            # A lost worker node cannot receive the shutdown message.
            with suppress(ConnectionError):
                link.send({"shutdown": status, "reason": reason})
            link.close()
        # close() alone would keep the socket open until the next connection. On Linux, shutdown()
        # wakes the accepting thread. On other systems, shutdown() raises an error, because the
        # socket is not connected.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with suppress(ClusterError):
            self._discovery.withdraw_address(self.run)

    def _missing_workers_message(self) -> str:
        """Return a message about absent, lost and rejected worker nodes."""
        never = [name for name in self._workers if name not in self._joined]
        late = [name for name in self._joined if name not in self._ready]
        parts = []
        if never:
            parts.append(f"{', '.join(never)} did not join")
        if late:
            parts.append(f"{', '.join(late)} joined but did not start Ray")
        parts += [f"{name} was lost: {reason}" for name, reason in self._lost.items()]
        parts += [f"rejected {name}: {reason}" for name, reason in self._rejections.items()]
        return "; ".join(parts)

    def _accept_connections(self) -> None:
        """Start a thread for each connection of a worker node."""
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_worker, args=(connection,), daemon=True).start()

    def _serve_worker(self, connection: socket.socket) -> None:
        """Handle one worker node's connection from its first message to its last message."""
        try:
            link = JsonConnection(connection)
        except OSError:
            connection.close()
            return
        with closing(link):
            try:
                name = self._admit_worker(link)
            except ConnectionError:
                # The handshake failed; the worker node may retry.
                return
            if name:
                link.start_heartbeat()
                self._receive_messages(name, link)

    def _admit_worker(self, link: JsonConnection) -> str:
        """Admit or reject a worker node.

        Returns:
            Name of the admitted worker node, or "" for a rejected worker node.
        """
        hello = link.receive()
        name = str(hello.get("name"))
        temporary = self._discovery.rejection_reason(self.run, hello, link.peer_address)
        if not temporary and name in self._joined:
            temporary = f"{name} has joined already"
        permanent = "" if temporary else self._permanent_rejection_reason(name, hello)
        if reason := temporary or permanent:
            with self._changed:
                self._rejections[name] = reason
                self._impossible = permanent or self._impossible
                self._changed.notify_all()
            link.send({"rejected": reason, "permanent": bool(permanent)})
            return ""
        link.send({"run_id": self.run.run_id, "token": self.run.token, "ray": self.ray_address})
        link.receive()
        with self._changed:
            if self._ended:
                return ""
            self._joined[name] = link
            self._lost.pop(name, None)
            self._changed.notify_all()
        return name

    def _permanent_rejection_reason(self, name: str, hello: Mapping[str, Any]) -> str:
        """Return the reason to reject a worker node permanently, or "".

        A worker node can never join if the two jobs disagree on the number of instances.
        """
        mine, theirs = (
            _select_same_job(name, workers) for workers in (self._workers, hello.get("workers", []))
        )
        if name in mine and mine == theirs:
            return ""
        return (
            f"{name} is one of {len(theirs)} instances, but the head node waits for "
            f"{', '.join(sorted(mine)) or 'none'}; in both jobs, set rl_num_instances_secondary to "
            "the instance_count of the secondary job"
        )

    def _receive_messages(self, name: str, link: JsonConnection) -> None:
        """Process the messages from a worker node until its connection is lost."""
        while True:
            try:
                message = link.receive()
            except ConnectionError as error:
                self._on_worker_lost(name, link, str(error))
                return
            if "ready" in message:
                with self._changed:
                    self._ready.add(name)
                    self._changed.notify_all()
                if self._started:
                    self._show(f"{name} is ready: {self._ready_workers_message()}")
            elif "leaving" in message:
                self._show(f"{name} stops: {message['leaving']}")

    def _on_worker_lost(self, name: str, link: JsonConnection, reason: str) -> None:
        """Remove a lost worker node, and report the reason."""
        with self._changed:
            if self._ended or self._joined[name] is not link:
                return
            del self._joined[name]
            self._ready.discard(name)
            self._lost[name] = reason
            self._changed.notify_all()
        self._show(
            f"{name} was lost: {reason}; the worker may rejoin. {self._ready_workers_message()}"
        )

    def _ready_workers_message(self) -> str:
        """Return a message with the number of ready worker nodes."""
        return f"{len(self._ready)} of {len(self._workers)} workers are ready"


@dataclass(frozen=True, slots=True)
class _ClusterWorker:
    """Joined worker node: its connection to the head node, and the data of the run."""

    link: JsonConnection
    run_id: str
    token: str
    ray_address: str


def join_cluster(membership: Membership, discovery: Discovery, timeout_s: float) -> _ClusterWorker:
    """Find the head node and join its cluster.

    Args:
        membership: Membership of this instance.
        discovery: Method by which this instance finds the head node.
        timeout_s: Maximum duration of the wait for the head node, in seconds.

    Raises:
        ClusterError: If the head node did not respond in time, or rejected this instance
            permanently, or the address of the head node cannot be read from S3.
    """
    hello = {"name": membership.name, "host": membership.host, "workers": membership.workers}
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return _request_join(discovery.find_head(), hello)
        except (DiscoveryError, OSError) as error:
            reason = error
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{membership.head} did not respond within {timeout_s:g} s: {reason}; start both "
                "jobs with the same settings, and allow all traffic between the instances"
            )
        time.sleep(_HEAD_POLL_INTERVAL_S)


def _request_join(run: ClusterRun, hello: Mapping[str, Any]) -> _ClusterWorker:
    """Connect to the head node and perform the handshake."""
    connection = socket.create_connection((run.address, run.port), timeout=_HANDSHAKE_TIMEOUT_S)
    link = JsonConnection(connection)
    try:
        link.send({**hello, "run_id": run.run_id, "token": run.token})
        connection.settimeout(_HANDSHAKE_TIMEOUT_S)
        answer = link.receive()
        if "rejected" in answer:
            rejected = f"the head node at {run.address} rejects this instance: {answer['rejected']}"
            raise (ClusterError(rejected) if answer.get("permanent") else ConnectionError(rejected))
        if not {"run_id", "token", "ray"} <= answer.keys():
            raise ConnectionError(f"another program responds at {run.address}")
        link.send({"joined": True})
    except (ClusterError, ConnectionError):
        link.close()
        raise
    connection.settimeout(_HEARTBEAT_TIMEOUT_S)
    link.start_heartbeat()
    return _ClusterWorker(link, str(answer["run_id"]), str(answer["token"]), str(answer["ray"]))


def _select_same_job(name: str, workers: Iterable[str]) -> set[str]:
    """Return the names in ``workers`` that belong to the same job as ``name``."""
    return {other for other in workers if other.rpartition("/")[0] == name.rpartition("/")[0]}

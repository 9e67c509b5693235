"""Control connections between the head node and the worker nodes of a cluster.

The head node waits for the worker nodes by name. The head node and the worker nodes detect a lost
connection by missing heartbeats.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from sagemaker_rl.cluster.membership import (
    BucketError,
    ClusterRun,
    Discovery,
    DiscoveryError,
    Membership,
)

_HEARTBEAT_INTERVAL_S = 1.0
_HEARTBEAT_TIMEOUT_S = 15.0
"""Seconds without a message after which a connection counts as lost.

The end of a process is detected immediately.
"""

_MAX_MESSAGE_BYTES = 1 << 16

_HELLO_TIMEOUT_S = 5.0
"""Seconds that a worker node waits for the head node's response before a retry."""

_HEAD_POLL_INTERVAL_S = 1.0


class ConnectionLostError(ConnectionError):
    """Error raised if a connection is lost; the message gives the reason."""


class JsonConnection:
    """Connection that transfers JSON objects, one object per line.

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
        """Send one message.

        Raises:
            ConnectionLostError: If the connection is lost.
        """
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError as error:
            raise ConnectionLostError(f"the connection broke ({error})") from None

    def receive(self) -> dict[str, Any]:
        """Wait for the next message that is not a heartbeat.

        Raises:
            ConnectionLostError: If the connection is lost.
        """
        while True:
            try:
                line = self._lines.readline(_MAX_MESSAGE_BYTES)
            except TimeoutError:
                raise ConnectionLostError(
                    f"it has sent nothing for {self._timeout_s:g} s"
                ) from None
            except (OSError, ValueError) as error:
                raise ConnectionLostError(f"the connection broke ({error})") from None
            if not line:
                raise ConnectionLostError(
                    "it closed the connection without a message: its process has ended"
                )
            try:
                message = json.loads(line)
            except ValueError:
                raise ConnectionLostError("it sends no JSON objects") from None
            if not isinstance(message, dict):
                raise ConnectionLostError("it sends no JSON objects")
            if message:
                return message

    def start_heartbeat(self) -> None:
        """Send heartbeats, which are empty messages, until the connection is closed."""
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(_HEARTBEAT_INTERVAL_S):
            try:
                self.send({})
            except ConnectionLostError:
                return

    def close(self) -> None:
        """Close the connection; messages sent before this call are still delivered."""
        self._closed.set()
        # The peer may have closed the connection already.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()


class ClusterError(RuntimeError):
    """Error raised if a cluster fails; the message names the instance and the reason."""


@dataclass(slots=True)
class _WorkerState:
    link: JsonConnection
    cpus: int
    ready: bool = False


class ClusterHead:
    """Control server of the head node.

    The server records which worker nodes joined, which are ready, and which were lost and may
    rejoin.
    """

    def __init__(
        self, workers: Sequence[str], discovery: Discovery, address: str, ray_address: str
    ) -> None:
        self._discovery = discovery
        self._server = socket.create_server(("", discovery.port), backlog=128)
        self.run = ClusterRun.new(address, self._server.getsockname()[1])
        self.ray_address = ray_address
        self._workers = tuple(workers)
        self._joined: dict[str, _WorkerState] = {}
        self._rejections: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._changed = threading.Condition()
        self._impossible = ""
        self._show: Callable[[str], None] = lambda text: None
        self._started = self._ended = False

    def open(self) -> None:
        """Accept connections of worker nodes.

        Raises:
            DiscoveryError: If the address of the head node cannot be published.
        """
        threading.Thread(target=self._accept, daemon=True).start()
        self._discovery.announce(self.run)

    def wait(self, seconds: float, show: Callable[[str], None] = lambda text: None) -> int:
        """Wait until all worker nodes are ready or the time is up.

        A worker node that is ready later still joins the cluster.

        Args:
            seconds: Maximum time to wait.
            show: Function that receives a line for each worker node that is ready or lost, until
                the end of the run. Threads of this class call the function.

        Returns:
            Number of CPUs of the worker nodes that are ready.

        Raises:
            ClusterError: If no worker node is ready, or a worker node can never join; the message
                names the worker node.
        """
        deadline = time.monotonic() + seconds
        self._show = show
        shown = -1
        with self._changed:
            while True:
                if self._impossible:
                    raise ClusterError(self._impossible)
                ready = [peer for peer in self._joined.values() if peer.ready]
                if len(ready) > shown:
                    shown = len(ready)
                    show(self._count())
                if len(ready) == len(self._workers):
                    break
                if not self._changed.wait(deadline - time.monotonic()):
                    missing = f"after {seconds:g} s: {self._missing_workers_message()}"
                    if not ready:
                        raise ClusterError(missing)
                    show(f"{missing}; starting without it, and it may join later")
                    break
            self._started = True
            return sum(peer.cpus for peer in ready)

    @property
    def all_workers_ready(self) -> bool:
        """Whether all worker nodes are ready now."""
        with self._changed:
            peers = list(self._joined.values())
        return len(peers) == len(self._workers) and all(peer.ready for peer in peers)

    def end(self, status: int, reason: str) -> None:
        """Send the end of the run to all worker nodes, and stop listening.

        Args:
            status: Exit status of the head node; 0 if training is complete.
            reason: Reason for the end, for the logs of the worker nodes.
        """
        with self._changed:
            if self._ended:
                return
            self._ended = True
            peers = list(self._joined.values())
        for peer in peers:
            # A lost worker node needs no message.
            with suppress(ConnectionLostError):
                peer.link.send({"shutdown": status, "reason": reason})
            peer.link.close()
        # Closing alone would keep the socket open until the next connection. On Linux, shutdown
        # wakes the accepting thread. On other systems, shutdown raises an error, because the socket
        # is not connected.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with suppress(DiscoveryError):
            self._discovery.withdraw(self.run)

    def _missing_workers_message(self) -> str:
        never = [name for name in self._workers if name not in self._joined]
        late = [name for name, peer in self._joined.items() if not peer.ready]
        parts = []
        if never:
            parts.append(f"{', '.join(never)} did not join")
        if late:
            parts.append(f"{', '.join(late)} joined but did not start Ray")
        parts += [f"{name} was lost: {reason}" for name, reason in self._lost.items()]
        parts += [f"rejected {name}: {reason}" for name, reason in self._rejections.items()]
        return "; ".join(parts)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Serve one worker node from its first message to its last message."""
        try:
            link = JsonConnection(connection)
        except OSError:
            connection.close()
            return
        with closing(link):
            try:
                name = self._admit_worker(link)
            except ConnectionLostError:
                # The handshake failed; the worker node may retry.
                return
            if name:
                link.start_heartbeat()
                self._listen(name, link)

    def _admit_worker(self, link: JsonConnection) -> str:
        """Admit a worker node and return its name, or return "" after a rejection."""
        hello = link.receive()
        name = str(hello.get("name"))
        temporary = self._rejection_reason(name, hello, link)
        permanent = "" if temporary else self._permanent_rejection_reason(name, hello)
        if reason := temporary or permanent:
            self._record_rejection(name, reason, bool(permanent))
            link.send({"rejected": reason, "permanent": bool(permanent)})
            return ""
        link.send({"run_id": self.run.run_id, "token": self.run.token, "ray": self.ray_address})
        link.receive()
        with self._changed:
            if self._ended:
                return ""
            self._joined[name] = _WorkerState(link, int(hello["cpus"]))
            self._lost.pop(name, None)
            self._changed.notify_all()
        return name

    def _rejection_reason(self, name: str, hello: Mapping[str, Any], link: JsonConnection) -> str:
        """Return the reason to reject a worker node now, or "" to accept the worker node."""
        reason = self._discovery.rejection_reason(self.run, hello, link.peer_address)
        if not reason and name in self._joined:
            reason = f"{name} has joined already"
        return reason

    def _permanent_rejection_reason(self, name: str, hello: Mapping[str, Any]) -> str:
        """Return the reason to reject a worker node permanently, or "".

        A worker node can never join if the two jobs have different settings for the number of
        instances.
        """
        mine, theirs = (
            _job_of(name, workers) for workers in (self._workers, hello.get("workers", []))
        )
        if name in mine and mine == theirs:
            return ""
        return (
            f"{name} is one of {len(theirs)} instances, and the head waits for "
            f"{', '.join(sorted(mine)) or 'none'}; in both jobs, set rl_num_instances_secondary to "
            "the instance_count of the secondary job"
        )

    def _record_rejection(self, name: str, reason: str, permanent: bool) -> None:
        with self._changed:
            self._rejections[name] = reason
            if permanent:
                self._impossible = reason
                self._changed.notify_all()

    def _listen(self, name: str, link: JsonConnection) -> None:
        while True:
            try:
                message = link.receive()
            except ConnectionLostError as error:
                self._on_worker_lost(name, link, str(error))
                return
            if "ready" in message:
                with self._changed:
                    self._joined[name].ready = True
                    self._changed.notify_all()
                if self._started:
                    self._show(f"{name} is ready: {self._count()}")
            elif "leaving" in message:
                self._show(f"{name} stops: {message['leaving']}")

    def _on_worker_lost(self, name: str, link: JsonConnection, reason: str) -> None:
        with self._changed:
            if self._ended or self._joined[name].link is not link:
                return
            del self._joined[name]
            self._lost[name] = reason
            self._changed.notify_all()
        self._show(f"{name} was lost: {reason}; it may rejoin. {self._count()}")

    def _count(self) -> str:
        ready = sum(peer.ready for peer in list(self._joined.values()))
        return f"{ready} of {len(self._workers)} workers are ready"


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """Connection of a worker node that joined a cluster."""

    link: JsonConnection
    run_id: str
    token: str
    ray_address: str


def join_cluster(me: Membership, discovery: Discovery, cpus: int, seconds: float) -> ClusterWorker:
    """Find the head node and join its cluster.

    Args:
        me: Membership of this instance.
        discovery: Method of finding the head node.
        cpus: Number of CPUs of this instance.
        seconds: Maximum time to wait for the head node.

    Raises:
        ClusterError: If the head node did not respond in time, or rejects this instance
            permanently.
        BucketError: If the address of the head node cannot be read from S3.
    """
    hello = {"name": me.name, "host": me.host, "workers": me.workers, "cpus": cpus}
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _request_join(discovery.find(), hello)
        except BucketError:
            raise
        except (DiscoveryError, ConnectionLostError, OSError) as error:
            reason = error
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{me.head} did not respond within {seconds:g} s: {reason}; start both jobs with "
                "the same settings, and allow all traffic between the instances"
            )
        time.sleep(_HEAD_POLL_INTERVAL_S)


def _request_join(run: ClusterRun, hello: Mapping[str, Any]) -> ClusterWorker:
    connection = socket.create_connection((run.address, run.port), timeout=_HELLO_TIMEOUT_S)
    link = JsonConnection(connection)
    try:
        link.send({**hello, "run_id": run.run_id, "token": run.token})
        connection.settimeout(_HELLO_TIMEOUT_S)
        answer = link.receive()
        if "rejected" in answer:
            rejected = f"the head at {run.address} rejects this instance: {answer['rejected']}"
            raise (
                ClusterError(rejected) if answer.get("permanent") else ConnectionLostError(rejected)
            )
        if not {"run_id", "token", "ray"} <= answer.keys():
            raise ConnectionLostError(f"another program responds at {run.address}")
        link.send({"joined": True})
    except (ClusterError, ConnectionLostError):
        link.close()
        raise
    connection.settimeout(_HEARTBEAT_TIMEOUT_S)
    link.start_heartbeat()
    return ClusterWorker(link, str(answer["run_id"]), str(answer["token"]), str(answer["ray"]))


def _job_of(name: str, workers: Iterable[str]) -> set[str]:
    """Return the ``workers`` that belong to the same job as ``name``."""
    return {other for other in workers if other.rpartition("/")[0] == name.rpartition("/")[0]}

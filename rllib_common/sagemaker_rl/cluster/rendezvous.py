"""Control connections between the head and the workers of a cluster.

The head waits for the workers by name. Both sides detect a lost connection by missing heartbeats.
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
"""Silence after which a connection counts as lost; the end of a process is noticed immediately."""

_MAX_MESSAGE_BYTES = 1 << 16

_HELLO_TIMEOUT_S = 5.0
"""Time that a worker waits for the head's response before it retries."""

_HEAD_POLL_INTERVAL_S = 1.0


class ConnectionLostError(ConnectionError):
    """The connection is lost; the message gives the reason."""


class JsonConnection:
    """JSON objects, one per line, over a connected socket; every thread may send."""

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
        """Close the connection; messages that were sent still arrive."""
        self._closed.set()
        # The other side may have closed it already.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()


class ClusterError(RuntimeError):
    """The cluster cannot form or has failed; the message names the instance and the reason."""


@dataclass(slots=True)
class _WorkerState:
    link: JsonConnection
    cpus: int
    ready: bool = False


class ClusterHead:
    """Control server of the head: workers that joined, are ready, or were lost and may rejoin."""

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
        """Accept connections of workers.

        Raises:
            DiscoveryError: If the head cannot be announced.
        """
        threading.Thread(target=self._accept, daemon=True).start()
        self._discovery.announce(self.run)

    def wait(self, seconds: float, show: Callable[[str], None] = lambda text: None) -> int:
        """Wait until all workers are ready or the time is up.

        A worker that is ready later still joins the cluster.

        Args:
            seconds: Maximum time to wait.
            show: Receives a line for each worker that is ready or lost until the end of the run. It
                is called in threads of this class.

        Returns:
            Number of CPUs of the workers that are ready.

        Raises:
            ClusterError: If no worker is ready, or one can never join; the message names it.
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
        """Whether all workers are ready now."""
        with self._changed:
            peers = list(self._joined.values())
        return len(peers) == len(self._workers) and all(peer.ready for peer in peers)

    def end(self, status: int, reason: str) -> None:
        """Send the end of the run to all workers and stop listening.

        Args:
            status: Exit status of the head; 0 if training is complete.
            reason: Reason for the workers' logs.
        """
        with self._changed:
            if self._ended:
                return
            self._ended = True
            peers = list(self._joined.values())
        for peer in peers:
            # A lost worker needs no message.
            with suppress(ConnectionLostError):
                peer.link.send({"shutdown": status, "reason": reason})
            peer.link.close()
        # Closing alone would keep the socket open until the next connection. On Linux, shutdown
        # wakes the accepting thread; other systems raise, because the socket is not connected.
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
        """Serve one worker from its first message to its last."""
        try:
            link = JsonConnection(connection)
        except OSError:
            connection.close()
            return
        with closing(link):
            try:
                name = self._admit_worker(link)
            except ConnectionLostError:
                # The handshake failed; the worker may retry.
                return
            if name:
                link.start_heartbeat()
                self._listen(name, link)

    def _admit_worker(self, link: JsonConnection) -> str:
        """Admit a worker and return its name, or reject it and return ""."""
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
        """Return why a worker cannot join now, or ""."""
        reason = self._discovery.rejection_reason(self.run, hello, link.peer_address)
        if not reason and name in self._joined:
            reason = f"{name} has joined already"
        return reason

    def _permanent_rejection_reason(self, name: str, hello: Mapping[str, Any]) -> str:
        """Return why a worker can never join: the jobs disagree about their number of instances."""
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
                self._show(f"{name} leaves: {message['leaving']}")

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
    """Connection of a worker that joined a cluster."""

    link: JsonConnection
    run_id: str
    token: str
    ray_address: str


def join_cluster(me: Membership, discovery: Discovery, cpus: int, seconds: float) -> ClusterWorker:
    """Find the head and join its cluster.

    Args:
        me: Membership of this instance.
        discovery: Way to find the head.
        cpus: Number of CPUs of this instance.
        seconds: Maximum time to wait for the head.

    Raises:
        ClusterError: If the head did not respond in time, or rejects this instance permanently.
        BucketError: If the announcement cannot be read.
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

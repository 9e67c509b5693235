"""Instances meet: the master waits for the others by name, and each notices when one is lost."""

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
"""A peer that says nothing for so long is lost; the end of its process is noticed at once."""

_MAX_MESSAGE_BYTES = 1 << 16

_HELLO_TIMEOUT_S = 5.0
"""How long a worker waits for an answer before it knocks again."""

_HEAD_POLL_INTERVAL_S = 1.0


# Connections: messages, heartbeats, and a loss that is noticed


class ConnectionLostError(ConnectionError):
    """The peer is lost; the message says how."""


class JsonConnection:
    """JSON objects, one a line, over a connected socket; any thread may send."""

    def __init__(self, connection: socket.socket, silence: float = _HEARTBEAT_TIMEOUT_S) -> None:
        self._connection = connection
        self._silence = silence
        self._sending = threading.Lock()
        self._closed = threading.Event()
        connection.settimeout(silence)
        self._lines = connection.makefile("rb")
        self.peer_address: str = connection.getpeername()[0]
        self.own_address: str = connection.getsockname()[0]

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        Raises:
            LinkError: the peer is lost.
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
            LinkError: the peer is lost.
        """
        while True:
            try:
                line = self._lines.readline(_MAX_MESSAGE_BYTES)
            except TimeoutError:
                raise ConnectionLostError(f"it has said nothing for {self._silence:g} s") from None
            except (OSError, ValueError) as error:
                raise ConnectionLostError(f"the connection broke ({error})") from None
            if not line:
                raise ConnectionLostError(
                    "it closed the connection without a word: its process has ended"
                )
            try:
                message = json.loads(line)
            except ValueError:
                raise ConnectionLostError("it does not speak our language") from None
            if not isinstance(message, dict):
                raise ConnectionLostError("it does not speak our language")
            if message:
                return message

    def start_heartbeat(self) -> None:
        """Send heartbeats, empty messages, from now on."""
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(_HEARTBEAT_INTERVAL_S):
            try:
                self.send({})
            except ConnectionLostError:
                return

    def close(self) -> None:
        """Close the connection; what was sent still arrives."""
        self._closed.set()
        # The peer may have been faster.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()


# The master, and those who join it


class ClusterError(RuntimeError):
    """The cluster cannot form, or has broken; the message says who and why."""


@dataclass(slots=True)
class _Peer:
    link: JsonConnection
    cpus: int
    ready: bool = False


class ClusterHead:
    """The master's side: who has come, who is ready, who was lost and may come again."""

    def __init__(
        self, workers: Sequence[str], discovery: Discovery, address: str, ray_address: str
    ) -> None:
        self._discovery = discovery
        self._server = socket.create_server(("", discovery.port), backlog=128)
        self.run = ClusterRun.new(address, self._server.getsockname()[1])
        self.ray_address = ray_address
        self._others = tuple(workers)
        self._peers: dict[str, _Peer] = {}
        self._refused: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        self._changed = threading.Condition()
        self._impossible = ""
        self._show: Callable[[str], None] = lambda text: None
        self._begun = self._ended = False

    def open(self) -> None:
        """Let the others come.

        Raises:
            DiscoveryError: the master cannot be announced.
        """
        threading.Thread(target=self._accept, daemon=True).start()
        self._discovery.announce(self.run)

    def wait(self, seconds: float, show: Callable[[str], None] = lambda text: None) -> int:
        """Wait until all others are ready, but not longer; returns the CPUs of those that are.

        An instance that is ready later joins the cluster too. ``show`` is called for each one
        that is ready or lost, from now to the end, in a thread of this class.

        Raises:
            ClusterError: no instance is ready, or one can never join; naming it.
        """
        deadline = time.monotonic() + seconds
        self._show = show
        shown = -1
        with self._changed:
            while True:
                if self._impossible:
                    raise ClusterError(self._impossible)
                ready = [peer for peer in self._peers.values() if peer.ready]
                if len(ready) > shown:
                    shown = len(ready)
                    show(self._count())
                if len(ready) == len(self._others):
                    break
                if not self._changed.wait(deadline - time.monotonic()):
                    missing = f"after {seconds:g} s: {self._missing_workers_message()}"
                    if not ready:
                        raise ClusterError(missing)
                    show(f"{missing}; beginning without, and an instance that comes later joins")
                    break
            self._begun = True
            return sum(peer.cpus for peer in ready)

    @property
    def all_workers_ready(self) -> bool:
        """Whether all others are ready now."""
        with self._changed:
            peers = list(self._peers.values())
        return len(peers) == len(self._others) and all(peer.ready for peer in peers)

    def end(self, status: int, reason: str) -> None:
        """Send all the end of the run (0: as planned), and stop listening."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            peers = list(self._peers.values())
        for peer in peers:
            # An instance that is lost already needs no message.
            with suppress(ConnectionLostError):
                peer.link.send({"end": status, "reason": reason})
            peer.link.close()
        # Closing alone would leave it open until the next connection. Linux wakes the thread that
        # accepts; where it is not connected, others say so.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with suppress(DiscoveryError):
            self._discovery.withdraw(self.run)

    def _missing_workers_message(self) -> str:
        never = [name for name in self._others if name not in self._peers]
        late = [name for name, peer in self._peers.items() if not peer.ready]
        parts = []
        if never:
            parts.append(f"{', '.join(never)} did not come")
        if late:
            parts.append(f"{', '.join(late)} came but did not start Ray")
        parts += [f"{name} was lost: {reason}" for name, reason in self._lost.items()]
        parts += [f"refused {name}: {reason}" for name, reason in self._refused.items()]
        return "; ".join(parts)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """One peer, from its first word to its last."""
        try:
            link = JsonConnection(connection)
        except OSError:
            connection.close()
            return
        with closing(link):
            try:
                name = self._admit_worker(link)
            except ConnectionLostError:
                # A peer that only knocked may knock again.
                return
            if name:
                link.start_heartbeat()
                self._listen(name, link)

    def _admit_worker(self, link: JsonConnection) -> str:
        """Let a peer join, and return its name; or refuse it, and return ""."""
        hello = link.receive()
        name = str(hello.get("name"))
        for_now = self._rejection_reason(name, hello, link)
        for_good = "" if for_now else self._permanent_rejection_reason(name, hello)
        if reason := for_now or for_good:
            self._record_rejection(name, reason, bool(for_good))
            link.send({"refused": reason, "for_good": bool(for_good)})
            return ""
        link.send({"run_id": self.run.run_id, "token": self.run.token, "ray": self.ray_address})
        link.receive()
        with self._changed:
            if self._ended:
                return ""
            self._peers[name] = _Peer(link, int(hello["cpus"]))
            self._lost.pop(name, None)
            self._changed.notify_all()
        return name

    def _rejection_reason(self, name: str, hello: Mapping[str, Any], link: JsonConnection) -> str:
        """Why a peer cannot join now; "" if it can."""
        reason = self._discovery.rejection_reason(self.run, hello, link.peer_address)
        if not reason and name in self._peers:
            reason = f"{name} is here already"
        return reason

    def _permanent_rejection_reason(self, name: str, hello: Mapping[str, Any]) -> str:
        """Why a peer of this run can never join: its job is not as large as was agreed."""
        mine, theirs = (_job_of(name, others) for others in (self._others, hello.get("others", [])))
        if name in mine and mine == theirs:
            return ""
        return (
            f"{name} is one of {len(theirs)}, and the master waits for "
            f"{', '.join(sorted(mine)) or 'none'}; in both jobs, set rl_num_instances_secondary to "
            "the instance_count of the secondary job"
        )

    def _record_rejection(self, name: str, reason: str, for_good: bool) -> None:
        with self._changed:
            self._refused[name] = reason
            if for_good:
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
                    self._peers[name].ready = True
                    self._changed.notify_all()
                if self._begun:
                    self._show(f"{name} is ready: {self._count()}")
            elif "leaving" in message:
                self._show(f"{name} leaves: {message['leaving']}")

    def _on_worker_lost(self, name: str, link: JsonConnection, reason: str) -> None:
        with self._changed:
            if self._ended or self._peers[name].link is not link:
                return
            del self._peers[name]
            self._lost[name] = reason
            self._changed.notify_all()
        self._show(f"{name} was lost: {reason}; it may come again. {self._count()}")

    def _count(self) -> str:
        ready = sum(peer.ready for peer in list(self._peers.values()))
        return f"{ready} of {len(self._others)} other instances are ready"


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """A worker's place in the cluster."""

    link: JsonConnection
    run_id: str
    token: str
    ray_address: str


def join_cluster(me: Membership, discovery: Discovery, cpus: int, seconds: float) -> ClusterWorker:
    """Find the master and join its cluster.

    Raises:
        ClusterError: it did not appear in time, or it refuses this instance for good.
        BucketError: the note about the master cannot be read.
    """
    hello = {"name": me.name, "host": me.host, "others": me.workers, "cpus": cpus}
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
                f"{me.head} did not come within {seconds:g} s: {reason}. Start both jobs with "
                "the same settings, and let security groups pass all traffic between the instances"
            )
        time.sleep(_HEAD_POLL_INTERVAL_S)


def _request_join(run: ClusterRun, hello: Mapping[str, Any]) -> ClusterWorker:
    connection = socket.create_connection((run.address, run.port), timeout=_HELLO_TIMEOUT_S)
    link = JsonConnection(connection)
    try:
        link.send({**hello, "run_id": run.run_id, "token": run.token})
        connection.settimeout(_HELLO_TIMEOUT_S)
        answer = link.receive()
        if "refused" in answer:
            refused = f"the master at {run.address} refuses: {answer['refused']}"
            raise ClusterError(refused) if answer.get("for_good") else ConnectionLostError(refused)
        if not {"run_id", "token", "ray"} <= answer.keys():
            raise ConnectionLostError(f"something else answers at {run.address}")
        link.send({"joined": True})
    except (ClusterError, ConnectionLostError):
        link.close()
        raise
    connection.settimeout(_HEARTBEAT_TIMEOUT_S)
    link.start_heartbeat()
    return ClusterWorker(link, str(answer["run_id"]), str(answer["token"]), str(answer["ray"]))


def _job_of(name: str, workers: Iterable[str]) -> set[str]:
    """Those of ``workers`` that are of the same job as ``name``."""
    return {other for other in workers if other.rpartition("/")[0] == name.rpartition("/")[0]}

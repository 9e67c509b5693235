"""A connection between two instances: messages, heartbeats, and a loss that is noticed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 15.0
"""A peer that says nothing for so long is lost; the end of its process is noticed at once."""

LONGEST_LINE = 1 << 16


class LinkError(ConnectionError):
    """The peer is lost; the message says how."""


class Link:
    """JSON objects, one a line, over a connected socket; any thread may send."""

    def __init__(self, connection: socket.socket, silence: float = SILENCE_SECONDS) -> None:
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
            raise LinkError(f"the connection broke ({error})") from None

    def receive(self) -> dict[str, Any]:
        """Wait for the next message that is not a heartbeat.

        Raises:
            LinkError: the peer is lost.
        """
        while True:
            try:
                line = self._lines.readline(LONGEST_LINE)
            except TimeoutError:
                raise LinkError(f"it has said nothing for {self._silence:g} s") from None
            except (OSError, ValueError) as error:
                raise LinkError(f"the connection broke ({error})") from None
            if not line:
                raise LinkError("it closed the connection without a word: its process has ended")
            try:
                message = json.loads(line)
            except ValueError:
                raise LinkError("it does not speak our language") from None
            if not isinstance(message, dict):
                raise LinkError("it does not speak our language")
            if message:
                return message

    def start_beating(self) -> None:
        """Send heartbeats, empty messages, from now on."""
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            try:
                self.send({})
            except LinkError:
                return

    def close(self) -> None:
        """Close the connection; what was sent still arrives."""
        self._closed.set()
        # The peer may have been faster.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._lines.close()

"""A websocket: what is sent leaves as fast as its reader takes it, and nothing is listened to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, TextMessage
from wsproto.utilities import ProtocolError

from battlesnake_server.http.hub import Hub, Request

PING_SECONDS = 20.0
"""A silent reader is asked whether it is there after these, and closed after twice as many."""

Talk = Callable[[str, "Websocket"], Awaitable[None]]
"""Talks to the websocket at a path."""

log = logging.getLogger(__name__)


class Websocket(asyncio.Protocol):
    """A connection whose ``request`` asked for a websocket, and what ``talk`` says on it.

    Raises ``ValueError`` where the request asked wrongly.
    """

    def __init__(
        self, hub: Hub, transport: asyncio.Transport, request: Request, talk: Talk
    ) -> None:
        self._hub, self._transport = hub, transport
        self._wire = WSConnection(ConnectionType.SERVER)
        self._silent = False
        self._is_read = asyncio.Event()
        self._is_read.set()
        try:
            self._wire.initiate_upgrade_connection(request.headers, "/")
            transport.write(self._wire.send(AcceptConnection()))
        except (ProtocolError, h11.ProtocolError) as error:
            raise ValueError(str(error)) from error
        hub.answering.add(self)
        self._talking = asyncio.ensure_future(
            self._talk(talk, request.path.decode("utf-8", "replace"))
        )
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)

    async def _talk(self, talk: Talk, path: str) -> None:
        try:
            await talk(path, self)
        except ConnectionError:
            return
        except Exception:
            log.exception("internal error")
        self.end(1012 if self._hub.stopping else 1011)  # unless it has ended by itself

    @property
    def gone(self) -> bool:
        """Whether the client has left, or the server stops."""
        return self._transport.is_closing() or self._hub.stopping

    async def send(self, text: str) -> None:
        """Send once what was sent before is read; ``ConnectionError`` when the client has left."""
        await self._is_read.wait()
        if self._transport.is_closing():
            raise ConnectionResetError
        self._transport.write(self._wire.send(TextMessage(text)))

    def end(self, code: int, why: str = "") -> None:
        """Close, saying why by a code of RFC 6455."""
        if not self._transport.is_closing():
            self._transport.write(self._wire.send(CloseConnection(code, why)))
            self._transport.close()

    def close(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _ping(self) -> None:
        if self._silent or self._transport.is_closing():
            self.close()
            return
        self._silent = True
        self._transport.write(self._wire.send(Ping()))
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)

    # --- asyncio's side -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Answer pings, and notice the end."""
        self._silent = False
        try:
            self._wire.receive_data(data)
            for event in self._wire.events():
                if isinstance(event, Ping):
                    self._transport.write(self._wire.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self.end(1000)
        except ProtocolError:
            self.close()

    def pause_writing(self) -> None:
        """More is sent than is read: nothing else is read or sent, and not for long."""
        self._is_read.clear()
        self._transport.pause_reading()
        self._hub.wait(self, self._hub.reading, self._hub.limits.reading_seconds)

    def resume_writing(self) -> None:
        """It was read."""
        self._is_read.set()
        self._transport.resume_reading()
        self._hub.leave(self)
        self._hub.answering.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by either side."""
        self._timer.cancel()
        self._is_read.set()
        self._hub.leave(self)

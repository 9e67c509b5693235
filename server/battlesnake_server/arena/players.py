"""The players of a game: snakes behind a URL, and strategies in this process.

Both are given the API's request bodies and nothing else, so a strategy sees in process what it
would see over HTTP.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
import time
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from yarl import URL

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason, Strategy
from battlesnake_server.address_policy import AddressError, AddressPolicy
from battlesnake_server.live import decision_json
from battlesnake_server.live.fallback import FALLBACK, TIMEOUT_NOTE, safe_move
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.move_runner import MoveRunner
from battlesnake_server.live.sessions import Session
from battlesnake_server.strategy_loader import is_instant

Body = Mapping[str, Any]
"""A request body of the API."""

_MAX_RESPONSE_BYTES = 1 << 16
"""Bytes that are read of an answer; a move needs thirty."""

MAX_SHOUT_CHARS, MAX_CUSTOMIZATION_CHARS = 256, 64
"""Characters that are kept of what a snake says, and of the names of its head and tail."""

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}|#[0-9a-fA-F]{3}")

_MAX_REDIRECTS = 5


class InvalidResponseError(ValueError):
    """An answer that arrived and is not valid."""


class RedirectError(aiohttp.ClientError):
    """A snake sends its request elsewhere, where it may not go."""


@dataclass(frozen=True, slots=True)
class MoveResponse:
    """What came back for a move, and the ``problem`` if that is not the snake's own, else "".

    The problems are ``timeout``, ``connection``, ``address`` (not allowed), ``redirect`` (nor
    that), ``status`` and ``answer``. ``move`` is then None, or what the fallback chose.
    ``milliseconds`` is how long it took. A strategy in this process also gives its ``decision``,
    as does a snake elsewhere that gives its reasons (`battlesnake_server.live.decision_json`).
    """

    move: str | None
    milliseconds: float
    problem: str = ""
    shout: str = ""
    decision: Decision | None = None


class Player(Protocol):
    """One snake of one game."""

    remote: bool
    """Whether the snake thinks elsewhere, so that several may be asked at the same time."""

    async def fetch_customization(self) -> dict[str, str]:
        """The snake's looks: color, head, tail, as far as it gives them. Never raises."""
        ...

    async def start(self, body: Body) -> None:
        """Announce that the game begins. Never raises."""
        ...

    async def move(self, body: Body) -> MoveResponse:
        """Ask for a move. Never raises."""
        ...

    async def end(self, body: Body) -> None:
        """Announce that the game is over. Never raises."""
        ...


class HttpPlayer:
    """A snake behind a URL; its base path and query are kept.

    ``timeout`` (seconds) bounds every request from its first byte to its last, redirects included;
    an answer longer than `_MAX_RESPONSE_BYTES` does not count. ``client`` comes from `open_client`; with
    ``redirects`` those on the same host and port are followed.
    """

    remote = True

    def __init__(
        self, url: str, timeout: float, client: aiohttp.ClientSession, *, redirects: bool = False
    ) -> None:
        self._url = URL(url)
        self._timeout = timeout
        self._client = client
        self._redirects = redirects

    async def fetch_customization(self) -> dict[str, str]:
        """``GET url``; the status and malformed looks are ignored."""
        try:
            return parse_customization(await self.fetch())
        except (*_REQUEST_ERRORS, RecursionError):
            return {}

    async def fetch(self) -> bytes:
        """What ``GET url`` answers; raises one of `_REQUEST_ERRORS` where nothing does."""
        _, content = await self._request("GET", self._url)
        return content

    async def start(self, body: Body) -> None:
        """``POST url/start``."""
        await self._notify("start", body)

    async def end(self, body: Body) -> None:
        """``POST url/end``."""
        await self._notify("end", body)

    async def move(self, body: Body) -> MoveResponse:
        """``POST url/move``."""
        began = time.perf_counter()
        move, shout, problem, decision = None, "", "", None
        try:
            status, content = await self._request("POST", self._path("move"), body)
            if status == 200:
                move, shout = parse_move(content)
                decision = decision_json.read(content)
            else:
                problem = "status"
        except InvalidResponseError:
            problem = "answer"
        except _REQUEST_ERRORS as error:
            problem = _problem(error)
        return MoveResponse(move, 1000 * (time.perf_counter() - began), problem, shout, decision)

    async def _notify(self, what: str, body: Body) -> None:
        try:
            await self._request("POST", self._path(what), body)
        except _REQUEST_ERRORS:
            return  # as in the reference: the game goes on without

    def _path(self, last: str) -> URL:
        return self._url.with_path(f"{self._url.path.rstrip('/')}/{last}", keep_query=True)

    async def _request(self, method: str, url: URL, body: Body | None = None) -> tuple[int, bytes]:
        data = None if body is None else to_json(body)
        headers = {"Content-Type": "application/json"} if data else None
        async with (
            asyncio.timeout(self._timeout),
            self._client.request(
                method,
                url,
                data=data,
                headers=headers,
                allow_redirects=self._redirects,
                max_redirects=_MAX_REDIRECTS,
                middlewares=(self._stay,),
            ) as response,
        ):
            if response.status in _REDIRECTS:
                raise RedirectError(
                    f"{url} redirects to {response.headers.get('Location', 'nowhere')!r:.200}; "
                    "give the address that it leads to"
                )
            return response.status, await _read_all(response.content)

    async def _stay(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Let no redirect lead to another host or port."""
        if request.url.origin() != self._url.origin():
            raise RedirectError(f"{self._url} redirects to another host, {request.url.origin()}")
        return await handler(request)


_REDIRECTS = (301, 302, 303, 307, 308)


_REQUEST_ERRORS = (aiohttp.ClientError, OSError, ValueError, TimeoutError)
"""What a request may end in; ValueError is aiohttp's for answers that are not HTTP at all."""


def _problem(error: Exception) -> str:
    """What kind of problem one of `_REQUEST_ERRORS` is."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, RedirectError | aiohttp.TooManyRedirects):
        return "redirect"
    if isinstance(getattr(error, "os_error", None), AddressError):
        return "address"
    return "connection"


def open_client(reach: AddressPolicy) -> aiohttp.ClientSession:
    """The HTTP client of one snake's game: connections stay open, nothing is unpacked, no cookies.

    It connects to no address beyond ``reach``, whatever the URL or a name server says.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=reach.open_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        # The total deadline is ours (see _request); aiohttp's rounds up to whole seconds.
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        headers={"User-Agent": "battlesnake-gym", "Accept-Encoding": "identity"},
    )


async def check_responds(url: str, reach: AddressPolicy, *, introduced: bool = True) -> None:
    """As the official command line, refuse a snake that does not introduce itself.

    Raises ``ValueError``; unless ``introduced`` only where no connection can be made.
    """
    try:
        async with open_client(reach) as client:
            player = HttpPlayer(url, 5.0, client, redirects=reach.redirects)
            answer = json.loads(await player.fetch())
    except (*_REQUEST_ERRORS, RecursionError) as error:
        if not introduced and not isinstance(error, aiohttp.ClientConnectorError):
            return
        why = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            why = "nothing listens there"
        raise ValueError(f"{url} does not answer ({why}); is the snake running?") from error
    if introduced and not isinstance(answer, dict):
        raise ValueError(f"{url} does not answer with a JSON object; is it a Battlesnake?")


def to_json(body: Body) -> bytes:
    """A request body as it goes over the network."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def parse_move(content: bytes) -> tuple[str, str]:
    """The move and the shout in an answer's body.

    Raises `InvalidResponseError` where the reference would not accept it.

    >>> parse_move(b'{"move": "up", "shout": "hi", "more": 1}')
    ('up', 'hi')
    >>> parse_move(b'{"move": "UP"}')
    Traceback (most recent call last):
    battlesnake_server.arena.players.InvalidResponseError: no move in b'{"move": "UP"}'
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidResponseError(f"no JSON in {content[:60]!r}") from error
    if not isinstance(answer, dict) or answer.get("move") not in MOVES:
        raise InvalidResponseError(f"no move in {content[:60]!r}")
    shout = answer.get("shout")
    if shout is not None and not isinstance(shout, str):
        raise InvalidResponseError(f"shout must be a text, got {shout!r:.60}")
    return answer["move"], sanitize_text(shout or "", MAX_SHOUT_CHARS)


def parse_customization(content: bytes) -> dict[str, str]:
    """The colour, head and tail in a snake's introduction, as far as they are such.

    Raises ``ValueError`` where it is not JSON.

    >>> parse_looks(b'{"color": "url(x)", "head": "evil", "tail": 3, "author": "me"}')
    {'head': 'evil'}
    """
    answer = json.loads(content)
    if not isinstance(answer, dict):
        return {}
    looks = {
        key: sanitize_text(answer[key], MAX_CUSTOMIZATION_CHARS)
        for key in ("color", "head", "tail")
        if isinstance(answer.get(key), str)
    }
    if not _COLOUR.fullmatch(looks.get("color", "")):
        looks.pop("color", None)
    return looks


async def _read_all(content: aiohttp.StreamReader) -> bytes:
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > _MAX_RESPONSE_BYTES:
            raise aiohttp.ClientPayloadError(f"answer is longer than {_MAX_RESPONSE_BYTES} bytes")
    return bytes(received)


class LocalPlayer:
    """A strategy in this process, under the guard of a live snake.

    Where the strategy is late or broken the guard (`battlesnake_server.live.move_runner`) has the
    fallback answer; the answer's problem says so.
    """

    remote = False

    def __init__(
        self, strategy: Strategy, timeout: float, looks: Mapping[str, str] | None = None
    ) -> None:
        self._looks = dict(looks or {})
        self._session = Session(strategy)
        self._thinker = MoveRunner(Metrics(games_alive=lambda: 1), is_instant=is_instant(strategy))
        self._timeout = timeout

    async def fetch_customization(self) -> dict[str, str]:
        """A strategy has no looks of its own, but that of a bundle."""
        return self._looks

    async def start(self, body: Body) -> None:
        """Nothing to prepare."""

    async def end(self, body: Body) -> None:
        """Nothing to clear away."""

    async def move(self, body: Body) -> MoveResponse:
        """Ask the strategy, giving it what a server would of the game's timeout."""
        if (overrun := self._session.pending_move) is not None:
            # Over a network turns take their time. Here the next one comes at once, and one overrun
            # would cost all the moves for which the strategy is still busy with it.
            futures.wait([overrun], self._timeout)
        began = time.perf_counter()
        board = Board.from_api(body, corpses=self._session.eliminations)
        decision = self._thinker.decide(self._session, board, began)
        seconds = time.perf_counter() - began
        if seconds > self._timeout:
            # This machine was too busy even to give up in time, which must not cost the snake.
            decision = safe_move(board, TIMEOUT_NOTE)
        milliseconds = 1000 * seconds
        return MoveResponse(decision.move, milliseconds, _lost(decision), decision.shout, decision)


def _lost(decision: Decision) -> str:
    """Why the fallback chose, if it did."""
    for reason in decision.reasons[:1]:
        if reason.rule == FALLBACK:
            return "timeout" if reason.note == TIMEOUT_NOTE else "answer"
    return ""


async def request_single_move(body: dict[str, Any], url: str, reach: AddressPolicy) -> Decision:
    """Play a game of one move with a snake behind a URL; no answer is the move ``""``."""
    async with open_client(reach) as client:
        timeout = body["game"]["timeout"] / 1000
        player = HttpPlayer(url, timeout, client, redirects=reach.redirects)
        await player.start(body)
        answer = await player.move(body)
        await player.end(body)
    note = f"after {answer.milliseconds:.0f} ms"
    reasons = (Reason(answer.problem, note=note),) if answer.problem else ()
    return Decision(answer.move or "", reasons, shout=answer.shout)

"""The players of a game: snakes behind a URL, and strategies in this process.

A player receives only request bodies of the Battlesnake API. A strategy in this process therefore
sees the same data as a snake behind a URL.
"""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import aiohttp
from yarl import URL

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.untrusted_text import parse_json
from battlesnake_gym.draw.customization import HEX_COLOR_PATTERN
from battlesnake_gym.replays import turn_json
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Reason, Strategy
from battlesnake_heuristics.search.search import Search
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.guarded_strategy import fallback_problem, guard
from battlesnake_server.live.fallback import TIMEOUT_NOTE, choose_fallback_move
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.live.move_runner import MoveRunner
from battlesnake_server.live.sessions import Session
from battlesnake_server.strategy_loader import is_instant

Body = Mapping[str, Any]
"""A request body of the Battlesnake API."""

_MAX_RESPONSE_BYTES = 1 << 16
"""Maximum size of a response, in bytes.

A typical response to a move request has 30 bytes.
"""

MAX_DECISION_BYTES = 1 << 14
"""Maximum size in bytes of a response from which the arena reads a decision.

The response of a rule-based snake has about 1 kB.
"""
MAX_SHOUT_CHARS, MAX_CUSTOMIZATION_CHARS = 256, 64
"""Maximum number of characters of a shout, and of a color, head or tail name.

Longer texts are truncated.
"""

_MAX_REDIRECTS = 5


class _InvalidResponseError(ValueError):
    """Error raised if a snake's response is invalid."""


class _RedirectError(aiohttp.ClientError):
    """Error raised if a redirect is not allowed."""


@dataclass(frozen=True, slots=True)
class MoveResponse:
    """A snake's response to a move request.

    Attributes:
        move: The snake's move or the fallback move; None if the response does not
            contain a valid move.
        milliseconds: Response time in milliseconds.
        problem: Kind of problem, or "" for a valid move. The kinds are ``timeout``, ``connection``,
            ``address`` (not allowed), ``redirect`` (not allowed), ``status`` (not 200), ``answer``
            (invalid response) and ``exception`` (of a strategy in this process).
        error: Text of the exception of a strategy in this process, or ""; see
            `describe_exception`.
        shout: The snake's shout.
        decision: The decision of a strategy in this process, or of a snake that sends its decisions
            (`_parse_decision`).
    """

    move: str | None
    milliseconds: float
    problem: str = ""
    shout: str = ""
    decision: Decision | None = None
    error: str = ""

    @classmethod
    def from_decision(cls, decision: Decision, milliseconds: float) -> MoveResponse:
        """Return the response that contains the decision of a strategy in this process."""
        problem, error = fallback_problem(decision)
        return cls(decision.move, milliseconds, problem, decision.shout, decision, error)


class Player(Protocol):
    """Adapter for one snake in one refereed game."""

    is_remote: bool
    """Whether the snake runs outside this process.

    Requests to remote snakes may be sent concurrently.
    """

    async def fetch_customization(self) -> dict[str, str]:
        """Return the snake's known color, head and tail without raising an exception."""
        ...

    async def start(self, body: Body) -> None:
        """Send the start of the game without raising an exception."""
        ...

    async def move(self, body: Body) -> MoveResponse:
        """Request a move without raising an exception."""
        ...

    async def end(self, body: Body) -> None:
        """Send the end of the game without raising an exception."""
        ...


class HttpPlayer:
    """Player for a snake behind a URL; the context closes the connections.

    The URL of every request includes the base path and the query of ``url``.

    Args:
        url: The snake's URL.
        timeout: Timeout of a whole request in seconds, including redirects.
        address_policy: Addresses to which the player may connect, and whether to follow redirects.
    """

    is_remote = True

    def __init__(self, url: str, timeout: float, address_policy: AddressPolicy) -> None:
        self._url = URL(url)
        self._timeout = timeout
        self._client = open_client(address_policy)
        self._redirects = address_policy.redirects

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def fetch_customization(self) -> dict[str, str]:
        """Send ``GET url`` and return the valid fields of the customization.

        The status code and invalid fields are ignored.
        """
        try:
            return _parse_customization(await self.fetch_index())
        except (*_REQUEST_ERRORS, RecursionError):
            return {}

    async def fetch_index(self) -> bytes:
        """Send ``GET url`` and return the response body.

        If the request fails, the method raises one of `_REQUEST_ERRORS`.
        """
        _, content = await self._request("GET", self._url)
        return content

    async def start(self, body: Body) -> None:
        """Send ``POST url/start``."""
        await self._send_event("start", body)

    async def end(self, body: Body) -> None:
        """Send ``POST url/end``."""
        await self._send_event("end", body)

    async def move(self, body: Body) -> MoveResponse:
        """Send ``POST url/move``."""
        began = time.perf_counter()
        move, shout, problem, decision = None, "", "", None
        try:
            status, content = await self._request("POST", self._endpoint_url("move"), body)
            if status == 200:
                move, shout = _parse_move(content)
                decision = _parse_decision(content)
            else:
                problem = "status"
        except _InvalidResponseError:
            problem = "answer"
        except _REQUEST_ERRORS as error:
            problem = _classify_error(error)
        return MoveResponse(move, 1000 * (time.perf_counter() - began), problem, shout, decision)

    async def _send_event(self, event: str, body: Body) -> None:
        """Send ``POST url/event`` and ignore request errors."""
        try:
            await self._request("POST", self._endpoint_url(event), body)
        except _REQUEST_ERRORS:
            return  # The game continues, as in the official engine.

    def _endpoint_url(self, last: str) -> URL:
        """Return the snake's URL with ``/last`` appended to the base path."""
        return self._url.with_path(f"{self._url.path.rstrip('/')}/{last}", keep_query=True)

    async def _request(self, method: str, url: URL, body: Body | None = None) -> tuple[int, bytes]:
        """Send a request, and retry once if the server closed an idle connection.

        A server may close an idle connection while the client is sending a request. If no part of a
        response has arrived, the client retries on a new connection, as browsers do.
        """
        reused: list[bool] = []
        async with asyncio.timeout(self._timeout):
            try:
                return await self._request_once(method, url, body, reused)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not reused:
                    raise
            return await self._request_once(method, url, body, [])

    async def _request_once(
        self, method: str, url: URL, body: Body | None, reused: list[bool]
    ) -> tuple[int, bytes]:
        """Send a request without a retry.

        If an earlier request used the connection, the method appends True to ``reused``.
        """
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        async with self._client.request(
            method,
            url,
            data=data,
            headers={"Content-Type": "application/json"} if data else None,
            allow_redirects=self._redirects,
            max_redirects=_MAX_REDIRECTS,
            middlewares=(self._check_redirect,),
            trace_request_ctx=reused,
        ) as response:
            reused.clear()  # The server has responded, so a retry is not allowed.
            if response.status in _REDIRECT_STATUSES:
                raise _RedirectError(
                    f"{url} redirects to {response.headers.get('Location', 'nowhere')!r:.200}; "
                    "use the redirect target as the URL"
                )
            return response.status, await _read_body(response.content)

    async def _check_redirect(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Reject redirects to another host or port."""
        if request.url.origin() != self._url.origin():
            raise _RedirectError(f"{self._url} redirects to another host, {request.url.origin()}")
        return await handler(request)


_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


_REQUEST_ERRORS = (aiohttp.ClientError, OSError, ValueError, TimeoutError)
"""Exceptions that a request may raise.

aiohttp raises ValueError for invalid HTTP responses.
"""


def _classify_error(error: Exception) -> str:
    """Return the value of `MoveResponse.problem` for a request error."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, _RedirectError | aiohttp.TooManyRedirects):
        return "redirect"
    if isinstance(getattr(error, "os_error", None), PermissionError):
        return "address"
    return "connection"


def open_client(address_policy: AddressPolicy) -> aiohttp.ClientSession:
    """Open the HTTP client for one snake in one game.

    The client keeps connections alive, ignores cookies, and does not decompress responses. The
    client connects only to addresses that ``address_policy`` allows, regardless of the URL and the
    DNS response.
    """

    async def record_reuse(session: object, context: Any, parameters: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.append(True)

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(record_reuse)
    return aiohttp.ClientSession(
        trace_configs=[trace],
        connector=aiohttp.TCPConnector(limit=0, socket_factory=address_policy.open_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        # _request enforces the total timeout, because aiohttp rounds timeouts up to whole seconds.
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        headers={"User-Agent": "battlesnake-gym", "Accept-Encoding": "identity"},
    )


async def check_responds(
    url: str, address_policy: AddressPolicy, *, json_required: bool = True
) -> None:
    """Check that a snake responds to ``GET url`` with a JSON object.

    The official CLI makes the same check.

    Args:
        url: The snake's URL.
        address_policy: Addresses to which the client may connect.
        json_required: Whether the response must be a JSON object; if False, a connection suffices.

    Raises:
        ValueError: If the snake does not respond; the message names the URL and the reason.
    """
    try:
        async with HttpPlayer(url, 5.0, address_policy) as player:
            response = json.loads(await player.fetch_index())
    except (*_REQUEST_ERRORS, RecursionError) as error:
        if not json_required and not isinstance(error, aiohttp.ClientConnectorError):
            return
        reason = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            reason = "connection refused"
        raise ValueError(f"{url} does not respond ({reason}); is the snake running?") from error
    if json_required and not isinstance(response, dict):
        raise ValueError(f"{url} does not respond with a JSON object; is it a Battlesnake?")


def _parse_move(content: bytes) -> tuple[str, str]:
    """Parse the move and the shout from a response body.

    Raises:
        _InvalidResponseError: If the official engine would reject the response.

    >>> _parse_move(b'{"move": "up", "shout": "hi", "more": 1}')
    ('up', 'hi')
    >>> _parse_move(b'{"move": "UP"}')
    Traceback (most recent call last):
    battlesnake_server.arena.players._InvalidResponseError: no move in b'{"move": "UP"}'
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _InvalidResponseError(f"no JSON in {content[:60]!r}") from error
    if not isinstance(answer, dict) or answer.get("move") not in MOVES:
        raise _InvalidResponseError(f"no move in {content[:60]!r}")
    shout = answer.get("shout")
    if shout is not None and not isinstance(shout, str):
        raise _InvalidResponseError(f"shout must be text, got {shout!r:.60}")
    return answer["move"], sanitize_text(shout or "", MAX_SHOUT_CHARS)


def _parse_decision(content: bytes) -> Decision | None:
    """Parse the extra field ``decision`` of a response body that `_parse_move` accepted.

    The field has the format of `replay_json.decision_to_dict`. Official engines ignore the field.

    Returns:
        The decision, or None if it is missing, malformed, or in a body of more than
        `MAX_DECISION_BYTES`.

    >>> body = b'{"move": "up", "decision": {"reasons": [{"rule": "walls", "vetoed": ["left"]}]}}'
    >>> _parse_decision(body).reasons
    (Reason(rule='walls', vetoed=('left',), scores={}, note=''),)
    >>> _parse_decision(b'{"move": "up"}')
    """
    if b'"decision"' not in content or len(content) > MAX_DECISION_BYTES:
        return None
    try:
        answer = parse_json(content)
        value = json_fields.child(answer, "decision", "")
        decision = turn_json.read_decision(value, "decision") if value else None
    except (ValueError, RecursionError):
        return None
    return decision and replace(decision, move=answer["move"])


def _parse_customization(content: bytes) -> dict[str, str]:
    """Parse the color, head and tail from a response to ``GET /``.

    Invalid values are dropped.

    Raises:
        ValueError: If the content is not JSON.

    >>> _parse_customization(b'{"color": "url(x)", "head": "evil", "tail": 3, "author": "me"}')
    {'head': 'evil'}
    """
    answer = json.loads(content)
    if not isinstance(answer, dict):
        return {}
    customization = {
        key: sanitize_text(answer[key], MAX_CUSTOMIZATION_CHARS)
        for key in ("color", "head", "tail")
        if isinstance(answer.get(key), str)
    }
    if not HEX_COLOR_PATTERN.fullmatch(customization.get("color", "")):
        customization.pop("color", None)
    return customization


async def _read_body(content: aiohttp.StreamReader) -> bytes:
    """Read a response body of at most `_MAX_RESPONSE_BYTES`."""
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > _MAX_RESPONSE_BYTES:
            raise aiohttp.ClientPayloadError(f"response is longer than {_MAX_RESPONSE_BYTES} bytes")
    return bytes(received)


class LocalPlayer:
    """Player for a strategy in this process, with the safeguards of a live snake.

    The safeguards are a time budget and a fallback move. The fallback move is played if the
    strategy exceeds the time budget or raises an exception. ``MoveResponse.problem`` then contains
    the reason.
    """

    is_remote = False

    def __init__(
        self, strategy: Strategy, timeout: float, customization: Mapping[str, str] | None = None
    ) -> None:
        self._customization = dict(customization or {})
        # The move runner identifies instant strategies and searches by their types. Instant
        # strategies run inline, and late searches are stopped.
        is_own = isinstance(strategy, Search) or is_instant(strategy)
        self._session = Session(strategy if is_own else guard(strategy))
        self._move_runner = MoveRunner(Metrics(active_games=lambda: 1), is_instant=is_instant)
        self._timeout = timeout

    async def fetch_customization(self) -> dict[str, str]:
        """Return the customization of a bundle, or an empty dict for other strategies."""
        return self._customization

    async def start(self, body: Body) -> None:
        """Do nothing."""

    async def end(self, body: Body) -> None:
        """Do nothing."""

    async def move(self, body: Body) -> MoveResponse:
        """Run the strategy within the time budget of a live snake."""
        if (overrun := self._session.pending_move) is not None:
            # Over a network, a strategy has time to finish between turns. In this process, the next
            # turn follows immediately. Without this wait, one overrun would cause fallback moves
            # until the strategy returns.
            futures.wait([overrun], self._timeout)
        began = time.perf_counter()
        board = Board.from_api(body, tracker=self._session.eliminations)
        decision = self._move_runner.decide(self._session, board, began)
        seconds = time.perf_counter() - began
        if seconds > self._timeout:
            # A busy machine can delay the end of the strategy beyond the timeout. The snake must
            # then play the fallback move.
            decision = choose_fallback_move(board, TIMEOUT_NOTE)
        return MoveResponse.from_decision(decision, 1000 * seconds)


async def request_single_move(
    body: dict[str, Any], url: str, address_policy: AddressPolicy
) -> Decision:
    """Play a game of one move with a snake behind a URL.

    The decision contains the reasons that the snake sends. If the snake does not send a valid
    response, the decision's move is ``""``.
    """
    async with HttpPlayer(url, body["game"]["timeout"] / 1000, address_policy) as player:
        await player.start(body)
        response = await player.move(body)
        await player.end(body)
    note = f"after {response.milliseconds:.0f} ms"
    reasons = (Reason(response.problem, note=note),) if response.problem else ()
    decision = response.decision or Decision(response.move or "", reasons)
    return replace(decision, shout=response.shout)

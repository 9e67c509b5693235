"""Who sits at the referee's table: snakes behind a URL, and strategies in this process.

Both are given the API's request bodies and nothing else, so a strategy sees in process what it
would see over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from yarl import URL

from battlesnake_gym.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Strategy
from server import reasons
from server.budget import margin

Body = Mapping[str, Any]
"""A request body of the API."""

LARGEST_ANSWER = 1 << 16
"""Bytes that are read of an answer; a move needs thirty."""


class AnswerError(ValueError):
    """An answer that arrived and is none."""


LOOKS = ("color", "head", "tail")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a move: ``move`` is None where it was late, broken or missing.

    ``problem`` then says why: ``timeout``, ``connection``, ``status`` or ``answer``.
    ``milliseconds`` is how long it took. A strategy in this process also tells its ``decision``, as
    does a snake elsewhere that gives its reasons (`server.reasons`).
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

    async def introduce(self) -> dict[str, str]:
        """The snake's looks: color, head, tail, as far as it tells them. Never raises."""
        ...

    async def start(self, body: Body) -> None:
        """Tell that the game begins. Never raises."""
        ...

    async def move(self, body: Body) -> Answer:
        """Ask for a move. Never raises."""
        ...

    async def end(self, body: Body) -> None:
        """Tell that the game is over. Never raises."""
        ...


class HttpPlayer:
    """A snake behind a URL; its base path and query are kept.

    ``timeout`` (seconds) bounds every request from its first byte to its last, redirects included;
    an answer longer than `LARGEST_ANSWER` is none. ``client`` comes from `open_client`.
    """

    remote = True

    def __init__(self, url: str, timeout: float, client: aiohttp.ClientSession) -> None:
        self._url = URL(url)
        self._timeout = timeout
        self._client = client

    async def introduce(self) -> dict[str, str]:
        """``GET url``; the status is not looked at."""
        try:
            _, content = await self._request("GET", self._url)
            answer = json.loads(content)
        except (*FAILURES, ValueError, RecursionError):
            return {}
        if not isinstance(answer, dict):
            return {}
        return {key: answer[key] for key in LOOKS if isinstance(answer.get(key), str)}

    async def start(self, body: Body) -> None:
        """``POST url/start``."""
        await self._tell("start", body)

    async def end(self, body: Body) -> None:
        """``POST url/end``."""
        await self._tell("end", body)

    async def move(self, body: Body) -> Answer:
        """``POST url/move``."""
        began = time.perf_counter()
        move, shout, problem, decision = None, "", "", None
        try:
            status, content = await self._request("POST", self._path("move"), body)
            if status == 200:
                move, shout = parse_move(content)
                decision = reasons.read(content)
            else:
                problem = "status"
        except AnswerError:
            problem = "answer"
        except FAILURES as error:
            problem = "timeout" if isinstance(error, TimeoutError) else "connection"
        return Answer(move, 1000 * (time.perf_counter() - began), problem, shout, decision)

    async def _tell(self, what: str, body: Body) -> None:
        try:
            await self._request("POST", self._path(what), body)
        except FAILURES:
            return  # as in the reference: the game goes on without

    def _path(self, last: str) -> URL:
        return self._url.with_path(f"{self._url.path.rstrip('/')}/{last}", keep_query=True)

    async def _request(self, method: str, url: URL, body: Body | None = None) -> tuple[int, bytes]:
        data = None if body is None else to_json(body)
        headers = {"Content-Type": "application/json"} if data else None
        async with (
            asyncio.timeout(self._timeout),
            self._client.request(method, url, data=data, headers=headers) as response,
        ):
            return response.status, await _read_all(response.content)


FAILURES = (aiohttp.ClientError, OSError, ValueError, TimeoutError)
"""What a request may end in; ValueError is aiohttp's for answers that are not HTTP at all."""


def open_client() -> aiohttp.ClientSession:
    """The HTTP client of one game: connections stay open, nothing is unpacked, no cookies."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        # The total deadline is ours (see _request); aiohttp's rounds up to whole seconds.
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        headers={"User-Agent": "battlesnake-gym", "Accept-Encoding": "identity"},
    )


def to_json(body: Body) -> bytes:
    """A request body as it goes over the network."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def parse_move(content: bytes) -> tuple[str, str]:
    """The move and the shout in an answer's body.

    Raises `AnswerError` where the reference would not accept it.

    >>> parse_move(b'{"move": "up", "shout": "hi", "more": 1}')
    ('up', 'hi')
    >>> parse_move(b'{"move": "UP"}')
    Traceback (most recent call last):
    server.players.AnswerError: no move in b'{"move": "UP"}'
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"no JSON in {content[:60]!r}") from error
    if not isinstance(answer, dict) or answer.get("move") not in MOVES:
        raise AnswerError(f"no move in {content[:60]!r}")
    shout = answer.get("shout")
    if shout is not None and not isinstance(shout, str):
        raise AnswerError(f"shout must be a text, got {shout!r:.60}")
    return answer["move"], shout or ""


async def _read_all(content: aiohttp.StreamReader) -> bytes:
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > LARGEST_ANSWER:
            raise aiohttp.ClientPayloadError(f"answer is longer than {LARGEST_ANSWER} bytes")
    return bytes(received)


class LocalPlayer:
    """A strategy in this process. Its moves count like any other's: late or broken is none."""

    remote = False

    def __init__(self, strategy: Strategy, timeout: float) -> None:
        self._strategy = strategy
        self._timeout = timeout

    async def introduce(self) -> dict[str, str]:
        """A strategy has no looks of its own."""
        return {}

    async def start(self, body: Body) -> None:
        """Nothing to prepare."""

    async def end(self, body: Body) -> None:
        """Nothing to clear away."""

    async def move(self, body: Body) -> Answer:
        """Ask the strategy, giving it the timeout less what a server would keep back."""
        began = time.perf_counter()
        try:
            budget = self._timeout - margin(self._timeout)
            decision = self._strategy(Board.from_api(body), budget)
        except Exception:  # a broken strategy loses its own game, not the tournament
            return Answer(None, 1000 * (time.perf_counter() - began), "answer")
        seconds = time.perf_counter() - began
        if seconds > self._timeout:
            return Answer(None, 1000 * seconds, "timeout")
        if decision.move not in MOVES:
            return Answer(None, 1000 * seconds, "answer")
        return Answer(decision.move, 1000 * seconds, "", decision.shout, decision)

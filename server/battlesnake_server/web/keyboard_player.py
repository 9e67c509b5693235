"""A person at a keyboard, as a player of the referee's."""

from __future__ import annotations

import asyncio
import time

from battlesnake_gym.rules import OFFSETS
from battlesnake_server.arena.players import Body, MoveResponse

_KEY_TIMEOUT_S = 120.0
"""Seconds that a game waits for a key; a player who has left goes straight on, until the end."""


class KeyboardPlayer:
    """Goes where the last key said, else straight on.

    ``pace`` is the seconds of a turn; 0 waits for a key, as long as the player is there. `press`
    may be called from any thread. ``alone`` says that there never was a rival.
    """

    # As a snake elsewhere: others are not kept waiting in turn, nor do they keep this one waiting.
    remote = True

    def __init__(self, pace: float, *, alone: bool = False) -> None:
        self._pace = pace
        self._alone = alone
        self._wanted: str | None = None
        self._last = "up"
        self._asked: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone = False

    def press(self, move: str) -> None:
        """Want ``move`` in the coming turn."""
        self._wanted = move
        self._gone = False
        if self._loop is not None and self._asked is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._asked.set)

    def leave(self) -> None:
        """Stand up for good: the game waits for no more keys. May be called from any thread."""
        self.press(self._last)
        self._gone = True

    async def fetch_customization(self) -> dict[str, str]:
        """Human snakes have no looks of their own."""
        return {}

    async def start(self, body: Body) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()

    async def end(self, body: Body) -> None:
        """Nothing to clear away."""

    async def move(self, body: Body) -> MoveResponse:
        """The key of this turn, or straight on."""
        began = time.perf_counter()
        await self._listen(body)
        wanted = self._wanted
        self._wanted = None
        if wanted is None or _turns_back(wanted, body):
            wanted = self._last
        self._last = wanted
        return MoveResponse(wanted, 1000 * (time.perf_counter() - began))

    async def _listen(self, body: Body) -> None:
        if self._pace:
            await asyncio.sleep(self._pace)
            return
        assert self._asked is not None
        if len(body["board"]["snakes"]) == 1 and not self._alone:
            return  # the last rival is out: the referee asks once more, and it does not count
        while (self._wanted is None or _turns_back(self._wanted, body)) and not self._gone:
            self._asked.clear()
            try:
                await asyncio.wait_for(self._asked.wait(), _KEY_TIMEOUT_S)
            except TimeoutError:
                self._gone = True


def _turns_back(move: str, body: Body) -> bool:
    """Whether ``move`` leads into the own neck: a slip of the finger, which counts for nothing."""
    cells = body["you"]["body"]
    if len(cells) < 2:
        return False
    dx, dy = OFFSETS[move]
    board = body["board"]
    head, neck = cells[0], cells[1]
    ahead = ((head["x"] + dx) % board["width"], (head["y"] + dy) % board["height"])
    return ahead == (neck["x"], neck["y"]) and (neck["x"], neck["y"]) != (head["x"], head["y"])

"""Player that a person controls with the keyboard."""

from __future__ import annotations

import asyncio
import time

from battlesnake_gym.rules import OFFSETS
from battlesnake_server.arena.players import Body, MoveResponse

_KEY_TIMEOUT_S = 120.0
"""Maximum time to wait for a key, in seconds.

After a timeout, the snake moves straight ahead until a key is pressed.
"""


class KeyboardPlayer:
    """Player that moves in the direction of the last key, or straight ahead.

    `press` and `stop_waiting` may be called from any thread.

    Args:
        turn_delay_s: Duration of each turn in seconds; at 0, the player waits for a key.
    """

    # The referee requests the moves of this player and of remote snakes concurrently.
    is_remote = True

    def __init__(self, turn_delay_s: float) -> None:
        self._turn_delay_s = turn_delay_s
        self._next_move: str | None = None
        self._last_move = "up"
        self._pressed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._away = False

    def press(self, move: str) -> None:
        """Set the move of the next turn."""
        self._next_move = move
        self._away = False
        if self._loop is not None and self._pressed is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pressed.set)

    def stop_waiting(self) -> None:
        """Stop waiting for keys during the rest of the game."""
        self.press(self._last_move)
        self._away = True

    async def fetch_customization(self) -> dict[str, str]:
        """Return an empty customization."""
        return {}

    async def start(self, body: Body) -> None:
        """Prepare the player to receive keys from other threads."""
        self._loop = asyncio.get_running_loop()
        self._pressed = asyncio.Event()

    async def end(self, body: Body) -> None:
        """Do nothing, because this player has no resources to release."""

    async def move(self, body: Body) -> MoveResponse:
        """Return the move of the last key, or repeat the last move."""
        started = time.perf_counter()
        await self._wait_for_key(body)
        move = self._next_move
        self._next_move = None
        if move is None or _is_reversal(move, body):
            move = self._last_move
        self._last_move = move
        return MoveResponse(move, 1000 * (time.perf_counter() - started))

    async def _wait_for_key(self, body: Body) -> None:
        """Wait for the duration of the turn, or for a key."""
        if self._turn_delay_s:
            await asyncio.sleep(self._turn_delay_s)
            return
        assert self._pressed is not None
        while (self._next_move is None or _is_reversal(self._next_move, body)) and not self._away:
            self._pressed.clear()
            try:
                await asyncio.wait_for(self._pressed.wait(), _KEY_TIMEOUT_S)
            except TimeoutError:
                self._away = True


def _is_reversal(move: str, body: Body) -> bool:
    """Return whether ``move`` leads into the snake's own neck."""
    cells = body["you"]["body"]
    if len(cells) < 2:
        return False
    dx, dy = OFFSETS[move]
    board = body["board"]
    head, neck = cells[0], cells[1]
    ahead = ((head["x"] + dx) % board["width"], (head["y"] + dy) % board["height"])
    return ahead == (neck["x"], neck["y"]) and (neck["x"], neck["y"]) != (head["x"], head["y"])

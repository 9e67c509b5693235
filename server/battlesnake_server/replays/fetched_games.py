"""Games of the official engine: fetched by id or address, and kept as replays of our own form.

``GET /games/ID`` describes the game, ``GET /games/ID/frames`` gives its positions a page at a time;
our arena answers the same two. The engine gives no moves: they are found as for a file of the
official command line (`battlesnake_gym.records.official_form`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from battlesnake_gym.boards import board_json, json_fields
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.records import limits, official_form
from battlesnake_gym.records.json_lines import ReplayError, at_line
from battlesnake_gym.records.replay import Replay
from battlesnake_gym.rules.state import Snake, State
from battlesnake_server.addresses import Reach
from battlesnake_server.arena.players import open_client

OFFICIAL = "https://engine.battlesnake.com"
PAGE = 100
"""Positions that are asked for at a time."""

SECONDS = 30.0
"""For each answer."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?://[^/]+)(?:/games?|/g)/([\w-]+)(?:/.*)?")
_BOARD = re.compile(r"https?://(?:play|board|www)\.battlesnake\.com/")


def found(source: str, reach: Reach, folder: Path = Path()) -> Path:
    """The file of a recorded game: ``source`` itself, or fetched by id or address into ``folder``.

    A game that was fetched before is not fetched again. Raises `ReplayError` for what is neither
    file nor game, or cannot be fetched.
    """
    if Path(source).exists():
        return Path(source)
    engine, game_id = _address(source)
    path = folder / f"{game_id}.jsonl.gz"
    if not path.exists():
        try:
            replay = asyncio.run(fetch(engine, game_id, reach.naming(engine)))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ReplayError(
                f"{engine}/games/{game_id} cannot be fetched: {error or 'no answer in time'}"
            ) from error
        replay.save(path)
    return path


def _address(source: str) -> tuple[str, str]:
    """The engine and the id of a game that is not a file."""
    if _ID.fullmatch(source):
        return OFFICIAL, source
    match = _ADDRESS.fullmatch(source)
    if match is None:
        raise ReplayError(
            f"there is no file {source!r}, and it is not a game of an engine; give a recorded "
            f"game, an id, or an address like {OFFICIAL}/games/ID"
        )
    return OFFICIAL if _BOARD.match(source) else match[1], match[2]


async def fetch(engine: str, game_id: str, reach: Reach) -> Replay:
    """The game from the engine at this address; raises `ReplayError` where it cannot be read."""
    address = f"{engine}/games/{game_id}"
    frames: list[dict[str, Any]] = []
    async with open_client(reach) as client:
        game, size = await _get(client, address, limits.LARGEST_FILE)
        while True:
            asked = f"{address}/frames?offset={len(frames)}&limit={PAGE}"
            answer, more = await _get(client, asked, limits.LARGEST_FILE - size)
            size += more
            page = json_fields.items(answer, "frames", "")
            frames += [dict(json_fields.mapping(frame, "frames[]")) for frame in page]
            if len(page) < PAGE:
                return read(game, frames, game_id)


async def _get(
    client: aiohttp.ClientSession, address: str, most: int
) -> tuple[dict[str, Any], int]:
    """What the engine answers, its keys in lower case, and how many bytes that were."""
    async with (
        asyncio.timeout(SECONDS),
        client.get(address, allow_redirects=False) as response,
    ):
        if response.status != 200:
            raise ReplayError(f"{address} answers {response.status}; is the id right?")
        content = bytearray()
        async for piece in response.content.iter_chunked(1 << 16):
            content += piece
            if len(content) > most:
                raise ReplayError(f"{address}: the game has more than {limits.LARGEST_FILE} bytes")
    try:
        answer = _lowered(json.loads(content))
        return dict(json_fields.mapping(answer, "answer")), len(content)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{address} does not answer with a JSON object") from error


def _lowered(value: Any) -> Any:
    """The value with all keys in lower case: engines write them as ``Frames`` and ``frames``."""
    if isinstance(value, dict):
        return {str(key).lower(): _lowered(item) for key, item in value.items()}
    return [_lowered(item) for item in value] if isinstance(value, list) else value


def read(answer: dict[str, Any], frames: list[dict[str, Any]], name: str) -> Replay:
    """The game that an engine sent, keys in lower case; ``name`` is how errors call it."""
    with at_line(name, 0):
        sent = json_fields.child(answer, "game", "")
        if sent.get("status") == "running":
            raise BoardError("the game is still being played; wait for its end")
        if not frames:
            raise BoardError("the game has no frames")
        head = _head(sent)
        width, height = (json_fields.integer(sent, key, "game") for key in ("width", "height"))
    meter = limits.Meter()
    positions: list[State] = []
    heads: dict[str, tuple[int, int]] = {}
    for number, frame in enumerate(frames, 1):
        with at_line(name, number):
            positions.append(_position(frame, width, height))
            meter.count(positions[-1])
            heads |= _last_heads(frame)
    with at_line(name, 1):
        game = board_json.read_game(head, UNKNOWN_SEED, len(positions[0].snakes) < 2)
        replay = Replay(Board.from_state(positions[0], game), info={"fetched": name})
    for number, turn in enumerate(_turns(replay.first, positions[1:], heads, name), 2):
        with at_line(name, number):
            replay.append(turn.moves, after=turn.after, guessed=turn.guessed, latency=turn.latency)
    return replay


def _turns(
    first: Board, frames: list[State], heads: dict[str, tuple[int, int]], name: str
) -> Iterator[official_form.FoundTurn]:
    board = first
    for number, frame in enumerate(frames, 2):
        with at_line(name, number):
            turn = official_form.find_turn(board, frame, heads)
        board = turn.after
        yield turn


def _head(sent: Mapping[str, Any]) -> dict[str, Any]:
    """The game as it is in a request of the API."""
    ruleset = json_fields.child(sent, "ruleset", "game")
    numbers = {
        key: int(ruleset[key.lower()])
        for key in ("foodSpawnChance", "minimumFood", "hazardDamagePerTurn", "shrinkEveryNTurns")
        if str(ruleset.get(key.lower(), "")).lstrip("-").isdecimal()
    }
    settings: dict[str, Any] = {k: v for k, v in numbers.items() if k != "shrinkEveryNTurns"}
    if "shrinkEveryNTurns" in numbers:
        settings["royale"] = {"shrinkEveryNTurns": numbers["shrinkEveryNTurns"]}
    return {
        "id": json_fields.string(sent, "id", "game", ""),
        "ruleset": {
            "name": ruleset.get("name") or sent.get("rulesetname") or "standard",
            "settings": settings,
        },
        "map": ruleset.get("map") or sent.get("map") or "standard",
        "timeout": json_fields.integer(sent, "snaketimeout", "game", 500),
        "source": json_fields.string(sent, "source", "game", ""),
    }


def _position(frame: dict[str, Any], width: int, height: int) -> State:
    """The position with the living snakes."""
    snakes = [
        Snake(
            id=json_fields.string(snake, "id", "snakes[]"),
            body=json_fields.points(snake, "body", "snakes[]"),
            health=json_fields.integer(snake, "health", "snakes[]"),
            name=json_fields.string(snake, "name", "snakes[]", ""),
            latency=str(snake.get("latency") or ""),
            shout=str(snake.get("shout") or ""),
            customizations={
                key: str(snake[theirs])
                for key, theirs in (("color", "color"), ("head", "headtype"), ("tail", "tailtype"))
                if snake.get(theirs)
            },
        )
        for snake in _snakes(frame)
        if not snake.get("death")
    ]
    state = State(
        turn=json_fields.integer(frame, "turn", ""),
        width=width,
        height=height,
        snakes=snakes,
        food=json_fields.points({"food": frame.get("food") or []}, "food", ""),
        hazards=json_fields.points({"hazards": frame.get("hazards") or []}, "hazards", ""),
    )
    limits.check_start(state)
    for snake in snakes:
        if not snake.body:
            raise BoardError(f"snakes[].body of {snake.id!r} is empty")
    return state


def _last_heads(frame: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Where the heads of snakes lie that went out on this very turn."""
    return {
        str(snake.get("id")): body[0]
        for snake in _snakes(frame)
        if (death := snake.get("death")) and death.get("turn") == frame.get("turn")
        if (body := json_fields.points(snake, "body", "snakes[]"))
    }


def _snakes(frame: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        dict(json_fields.mapping(snake, "snakes[]"))
        for snake in json_fields.items(frame, "snakes", "")
    ]

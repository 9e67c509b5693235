"""Games of engines: fetched by id or address, and kept as replays of our own form.

``GET /games/ID`` describes the game, ``GET /games/ID/frames`` gives its positions a page at a time
(`battlesnake_gym.replays.engine_frames` reads them). The rules are those of the description; where it
has none, those of ``/games/ID/move-request``, of ``/games/ID/details``, or what the frames show.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from battlesnake_gym import rules
from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.replays import engine_frames, limits, rule_inference
from battlesnake_gym.replays.engine_frames import EngineFrames
from battlesnake_gym.replays.json_lines import ReplayError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules.maps import known_maps
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.players import open_client
from battlesnake_server.replay_viewer import game_urls

_PAGE = 100
"""Positions that are asked for at a time."""

_MAX_GAME_BYTES = 4 * limits.MAX_REPLAY_BYTES
"""Bytes of all pages; each answer may have as many as a file, and a file's number of values."""

_FETCH_REQUEST_TIMEOUT_S, _FETCH_TIMEOUT_S = 30.0, 300.0
"""For each answer, and for a whole game that is over."""

_MAX_GAME_WAIT_S = 7200.0
"""Seconds that a game that is being played may last: 5,000 turns of a second."""

_GAME_POLL_INTERVAL_S = 2.0
"""Before a game that is being played is asked for again."""

TOKEN = "BATTLESNAKE_TOKEN"
"""The environment variable with an API token of arena.battlesnake.com, sent there alone."""


class RemoteGameNotFoundError(ReplayError):
    """What an engine answers where it has no such game, or is no engine."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that take the address of a game, for `resolve_game`."""
    parser.add_argument("--ruleset", default="", metavar="NAME", help="what is played, for a game "
        "that is fetched where neither engine nor frames show it")  # fmt: skip
    parser.add_argument("--map", default="", metavar="NAME", help="its map, with --ruleset")
    address_policy.add_options(parser)


def resolve_game(
    source: str,
    reach: AddressPolicy,
    folder: Path = Path(),
    *,
    ruleset: str = "",
    board_map: str = "",
) -> Path:
    """The file of a recorded game: ``source`` itself, or fetched by id or address into ``folder``.

    A game that was fetched before is not fetched again, unless ``ruleset`` names its rules; one
    that is being played is waited for. Raises `ReplayError` for what is neither file nor game, or
    cannot be fetched.
    """
    chosen = bool(ruleset or board_map)
    if Path(source).exists():
        if chosen:
            raise ReplayError(f"{source} has its own rules; leave out --ruleset and --map")
        return Path(source)
    path = folder / f"{game_urls.engines(source)[1]}.jsonl.gz"
    if chosen or not path.exists():
        replay = fetch(
            source,
            reach.allowing_typed_address(source),
            ruleset=ruleset,
            board_map=board_map,
            wait=True,
        )
        sys.stderr.write(f"{path}: {replay.game.ruleset}, rules {replay.info['rules']}\n")
        replay.save(path)
    return path


def fetch(
    source: str,
    reach: AddressPolicy | None = None,
    *,
    ruleset: str = "",
    board_map: str = "",
    wait: bool = False,
) -> Replay:
    """The game with this id or address.

    ``ruleset`` and ``board_map`` are taken instead of what the engine says. With ``wait`` a game
    that is being played is waited for. Raises `ReplayError` for what cannot be fetched or read.
    """
    chosen = _chosen(ruleset, board_map)
    engines, game_id = game_urls.engines(source)
    reach = reach or AddressPolicy().allowing_typed_address(source)
    failed: dict[str, BaseException] = {}
    for engine in engines:
        fetching = GameFetch(f"{engine}/games/{game_id}", game_id, reach, chosen, wait)
        try:
            return asyncio.run(fetching.run())
        except RemoteGameNotFoundError as error:
            failed[str(error)] = error
        except BoardError as error:
            raise ReplayError(f"{fetching.address}: {error}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = f"{fetching.address} cannot be fetched: {error or 'no answer in time'}"
            failed[why] = error
    raise ReplayError("; ".join(failed)) from next(iter(failed.values()))


def last_games(snake: str, last: int, reach: AddressPolicy) -> tuple[str, list[str]]:
    """The name of a snake of arena.battlesnake.com and the ids of its ``last`` games, newest first.

    ``snake`` is its id, or its name on a ladder. Raises `ReplayError` for a snake that is not
    there, a name that several have, and where the list needs a token (`TOKEN`).
    """

    async def ask() -> tuple[str, list[str]]:
        async with open_client(reach) as client, asyncio.timeout(_FETCH_TIMEOUT_S):
            arena = GameFetch(game_urls.ARENA_API_URL, snake, reach, None, wait=False)
            named = {snake: ""} if game_urls.is_id(snake) else await _named(arena, client)
            if len(named) != 1:
                ids = ", ".join(named) or "none"
                raise ReplayError(f"{snake!r} is on ladders {len(named)} times; give an id ({ids})")
            (snake_id,) = named
            games = await arena.get_list(client, f"/games?snake_id={snake_id}&limit={last}")
            over = [game for game in games if game.get("status") == "finished"]
            listed = (one for game in over for one in json_fields.items(game, "snakes", ""))
            names = [one.get("name") for one in listed if one.get("id") == snake_id]
            return str(named[snake_id] or next(iter(names), snake)), [str(g["id"]) for g in over]

    try:
        return asyncio.run(ask())
    except (BoardError, KeyError, AttributeError) as error:
        raise ReplayError(f"the games of {snake!r} cannot be read: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ReplayError(f"the games of {snake!r} cannot be fetched: {error}") from error


async def _named(arena: GameFetch, client: aiohttp.ClientSession) -> dict[str, str]:
    """The snakes of this name on all ladders: names by id."""
    found = {}
    for ladder in await arena.get_list(client, "/leaderboards"):
        ranks = await arena.get(client, f"/leaderboards/{ladder['id']}/rankings", lower=False)
        for row in (*json_fields.items(ranks, "ranked", ""),
                    *json_fields.items(ranks, "placement", "")):  # fmt: skip
            if row.get("snake_name") == arena.name:
                found[str(row["battlesnake_id"])] = arena.name
    return found


def _chosen(ruleset: str, board_map: str) -> dict[str, Any] | None:
    """The rules that the caller names, as a ``game`` object; None for none."""
    if not ruleset and board_map:
        raise ReplayError("--map needs --ruleset")
    if not ruleset:
        return None
    if ruleset not in rules.RULESETS:
        raise ReplayError(unknown_name_message("ruleset", ruleset, rules.RULESETS))
    if board_map and board_map not in known_maps():
        raise ReplayError(
            unknown_name_message("map", board_map, known_maps(), "battlesnake-gym maps")
        )
    return rule_inference.game(ruleset, board_map or "standard")


@dataclass(slots=True)
class GameFetch:
    """One game being fetched from ``address``, ``ENGINE/games/ID``."""

    address: str
    name: str
    reach: AddressPolicy
    chosen: Mapping[str, Any] | None
    wait: bool
    _read: int = 0

    async def run(self) -> Replay:
        """The whole game."""
        async with open_client(self.reach) as client:
            if self.wait:
                await self._until_over(client)
            async with asyncio.timeout(_FETCH_TIMEOUT_S):
                status, frames, said = engine_frames.read_description(
                    await self.get(client), self.name
                )
                if status in ("running", "pending"):
                    raise ReplayError(
                        f"{self.name}: the game is still being played; wait for its end"
                    )
                page = _PAGE
                while page == _PAGE:
                    asked = f"/frames?offset={len(frames.positions)}&limit={_PAGE}"
                    shown = json_fields.items(await self.get(client, asked), "frames", "")
                    for frame in shown:
                        frames.add(frame)
                    page = len(shown)
                return frames.replay(*await self._rules(client, frames, said))

    async def _rules(
        self, client: aiohttp.ClientSession, frames: EngineFrames, said: dict[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, str]:
        """The rules as a ``game`` object, and who says so; None where no one does."""
        if self.chosen is not None:
            return self.chosen, "as given by --ruleset"
        if said is not None:
            return said, "as the engine says"
        for first in (snake for frame in frames.positions[:1] for snake in frame.snakes[:1]):
            turn = frames.positions[0].turn
            asked = f"/move-request?turn={turn}&you={quote(first.id, safe='')}"
            game = json_fields.child(await self._maybe(client, asked), "game", "move-request")
            if json_fields.child(game, "ruleset", "move-request.game").get("name"):
                return game, "as its snakes were sent them"
        mode = str((await self._maybe(client, "/details")).get("game_type"))
        known = rule_inference.of_mode(mode)
        return known, f"those of {mode}" if known else ""

    async def _maybe(self, client: aiohttp.ClientSession, asked: str) -> Mapping[str, Any]:
        """What the engine answers; nothing where it does not."""
        try:
            return await self.get(client, asked, lower=False)
        except (ReplayError, aiohttp.ClientError, TimeoutError):
            return {}

    async def get(
        self, client: aiohttp.ClientSession, asked: str = "", *, lower: bool = True
    ) -> Mapping[str, Any]:
        """The JSON object that the engine answers, its keys in lower case unless they matter."""
        answer = await self._ask(client, asked, _lowered if lower else None)
        return json_fields.mapping(answer, f"the answer of {self.address}{asked}")

    async def get_list(self, client: aiohttp.ClientSession, asked: str) -> list[dict[str, Any]]:
        """The JSON objects in the list that the engine answers."""
        answer = {"answer": await self._ask(client, asked, None)}
        return [dict(json_fields.mapping(one, "answer[]")) for one in
                json_fields.items(answer, "answer", "")]  # fmt: skip

    async def _ask(
        self, client: aiohttp.ClientSession, asked: str, hook: Callable[..., Any] | None
    ) -> Any:
        address = self.address + asked
        content = bytearray()
        async with (
            asyncio.timeout(_FETCH_REQUEST_TIMEOUT_S),
            client.get(address, headers=_token(address), allow_redirects=False) as response,
        ):
            if response.status == 401:
                raise RemoteGameNotFoundError(
                    f"{address} answers 401; set {TOKEN} to an API token of your account there"
                )
            if response.status != 200:
                raise RemoteGameNotFoundError(
                    f"{address} answers {response.status}; is the id right?"
                )
            async for piece in response.content.iter_chunked(1 << 16):
                content += piece
                if (
                    len(content) > limits.MAX_REPLAY_BYTES
                    or self._read + len(content) > _MAX_GAME_BYTES
                ):
                    raise ReplayError(f"{address}: the game has more than {_MAX_GAME_BYTES} bytes")
        self._read += len(content)
        if sum(content.count(mark) for mark in (b",", b"[", b"{")) > limits.MAX_JSON_VALUES:
            raise ReplayError(f"{address} answers with more than {limits.MAX_JSON_VALUES} values")
        try:
            return json.loads(content, object_pairs_hook=hook)
        except (ValueError, RecursionError) as error:
            raise RemoteGameNotFoundError(
                f"{address} does not answer with a JSON object or list"
            ) from error

    async def _until_over(self, client: aiohttp.ClientSession) -> None:
        """Wait while the game is being played."""
        told = False
        async with asyncio.timeout(_MAX_GAME_WAIT_S):
            while await self._status(client) in ("running", "pending"):
                if not told:
                    sys.stderr.write(f"{self.name} is being played; waiting for its end\n")
                    told = True
                await asyncio.sleep(_GAME_POLL_INTERVAL_S)

    async def _status(self, client: aiohttp.ClientSession) -> str:
        return engine_frames.read_description(await self.get(client), self.name)[0]


def _lowered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with its keys in lower case: engines write ``Frames`` and ``frames``."""
    return {key.lower(): value for key, value in pairs}


def _token(address: str) -> dict[str, str]:
    """The header with your API token, for the arena that gave it and for no other address."""
    token = os.environ.get(TOKEN, "") if address.startswith(f"{game_urls.ARENA_API_URL}/") else ""
    return {"Authorization": f"Bearer {token}"} if token else {}

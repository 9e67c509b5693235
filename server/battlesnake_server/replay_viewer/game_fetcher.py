"""Downloads of games from engines by id or address, saved as replays.

``GET /games/ID`` returns a ``game`` object; ``GET /games/ID/frames`` returns the positions of the
game in pages (`battlesnake_gym.replays.engine_frames` parses them). The rules come from the
``game`` object. If this object has no rules, the rules come from ``/games/ID/move-request``, from
``/games/ID/details``, or from the frames. The site of Battlesnake Blackout returns a complete game
at ``GET /api/replay/ID``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from battlesnake_gym import rules
from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.untrusted_text import parse_json
from battlesnake_gym.replays import engine_frames, limits, rule_inference
from battlesnake_gym.replays.engine_frames import EngineFrames
from battlesnake_gym.replays.json_lines import ReplayError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules.maps import known_maps
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.players import open_client
from battlesnake_server.replay_viewer import game_urls

_FRAMES_PER_REQUEST = 100
"""Number of positions that one request returns."""

_MAX_GAME_BYTES = 4 * limits.MAX_REPLAY_BYTES
"""Maximum total size of a game's pages in bytes.

The limits of a replay file apply to each response.
"""

_FETCH_REQUEST_TIMEOUT_S, _FETCH_TIMEOUT_S = 30.0, 300.0
"""Timeouts in seconds for one response, and for all pages of a finished game."""

_MAX_GAME_WAIT_S = 7200.0
"""Maximum time to wait for the end of a game, in seconds.

The limit covers 5,000 turns of 1 s.
"""

_UNFINISHED = ("running", "pending")
"""States of a game in progress."""

_GAME_POLL_INTERVAL_S = 2.0
"""Seconds between two requests for the state of a game in progress."""

TOKEN_VARIABLE = "BATTLESNAKE_TOKEN"
"""Name of the environment variable with an API token of arena.battlesnake.com.

The token is sent only to arena.battlesnake.com.
"""


class _RemoteGameNotFoundError(ReplayError):
    """Error raised if the engine has no such game or the address is not an engine."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--ruleset`` and ``--map`` of `resolve_game`."""
    parser.add_argument("--ruleset", default="", metavar="NAME", help="ruleset of a fetched game "
        "(default: from the engine or the frames)")  # fmt: skip
    parser.add_argument(
        "--map", default="", metavar="NAME", help="map of a fetched game; requires --ruleset"
    )


def resolve_game(
    source: str,
    address_policy: AddressPolicy,
    folder: Path = Path(),
    *,
    ruleset: str = "",
    board_map: str = "",
) -> Path:
    """Return the file of a recorded game, and fetch the game if the file is missing.

    An existing file is reused unless ``ruleset`` is given. If the game is in progress, the function
    waits for the end of the game.

    Args:
        source: Path, game id, or address of a game.
        address_policy: Policy for the addresses of engines.
        folder: Directory for fetched games.
        ruleset: Ruleset that replaces the engine's ruleset.
        board_map: Map that replaces the engine's map; requires ``ruleset``.

    Raises:
        ReplayError: If ``source`` is neither a file nor a game, or cannot be fetched.
    """
    chosen = bool(ruleset or board_map)
    if Path(source).exists():
        if chosen:
            raise ReplayError(f"{source} contains the rules of the game; omit --ruleset and --map")
        return Path(source)
    path = folder / f"{game_urls.find_engines(source)[1]}.jsonl.gz"
    if chosen or not path.exists():
        replay = fetch(
            source,
            address_policy.with_typed_address(source),
            ruleset=ruleset,
            board_map=board_map,
            wait=True,
        )
        sys.stderr.write(f"{path}: {replay.game.ruleset}, rules {replay.info['rules']}\n")
        replay.save(path)
    return path


def fetch(
    source: str,
    address_policy: AddressPolicy | None = None,
    *,
    ruleset: str = "",
    board_map: str = "",
    wait: bool = False,
) -> Replay:
    """Fetch the game with this id or address.

    Args:
        source: Game id or address.
        address_policy: Policy for the addresses of engines; None allows the host of ``source``.
        ruleset: Ruleset that replaces the engine's ruleset.
        board_map: Map that replaces the engine's map; requires ``ruleset``.
        wait: Whether to wait for the end of a game in progress.

    Raises:
        ReplayError: If the game cannot be fetched or parsed.
    """
    chosen = _build_game_object(ruleset, board_map)
    engines, game_id = game_urls.find_engines(source)
    address_policy = address_policy or AddressPolicy().with_typed_address(source)
    failed: dict[str, BaseException] = {}
    is_blackout = "/api/replay/" in source

    async def fetch_from(address: str) -> Replay:
        async with open_client(address_policy) as client:
            game = _GameFetch(address, game_id, client, chosen)
            return await (game.run_blackout() if is_blackout else game.run(wait=wait))

    for address in [source] if is_blackout else [f"{one}/games/{game_id}" for one in engines]:
        try:
            return asyncio.run(fetch_from(address))
        except _RemoteGameNotFoundError as error:
            failed[str(error)] = error
        except BoardError as error:
            raise ReplayError(f"{address}: {error}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failed[str(error) or f"no response in time from {address}"] = error
    reasons = ", and ".join(failed)
    raise ReplayError(f"{source} cannot be fetched: {reasons}") from next(iter(failed.values()))


def list_last_games(snake: str, last: int, address_policy: AddressPolicy) -> tuple[str, list[str]]:
    """Return the name and the last games of a snake of arena.battlesnake.com.

    Args:
        snake: Id of the snake, or the snake's name on a leaderboard.
        last: Number of games.
        address_policy: Policy for the addresses of engines.

    Returns:
        Name of the snake, and ids of finished games, newest game first.

    Raises:
        ReplayError: If the snake is unknown, the name is ambiguous, or the games require the API
            token in `TOKEN_VARIABLE`.
    """

    async def list_games() -> tuple[str, list[str]]:
        async with open_client(address_policy) as client, asyncio.timeout(_FETCH_TIMEOUT_S):
            arena = _GameFetch(game_urls.ARENA_API_URL, snake, client)
            is_id = game_urls.ARENA_ID_PATTERN.fullmatch(snake)
            named = {snake: ""} if is_id else await _find_snakes_by_name(arena)
            if len(named) != 1:
                ids = ", ".join(named) or "none"
                raise ReplayError(
                    f"{len(named)} snakes on the leaderboards are called {snake!r}; "
                    f"give an id ({ids})"
                )
            (snake_id,) = named
            games = await arena.get_list(f"/games?snake_id={snake_id}&limit={last}")
            over = [game for game in games if game.get("status") == "finished"]
            listed = (one for game in over for one in json_fields.items(game, "snakes", ""))
            names = [one.get("name") for one in listed if one.get("id") == snake_id]
            return str(named[snake_id] or next(iter(names), snake)), [str(g["id"]) for g in over]

    try:
        return asyncio.run(list_games())
    except (BoardError, KeyError, AttributeError) as error:
        raise ReplayError(f"the games of {snake!r} cannot be read: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ReplayError(f"the games of {snake!r} cannot be fetched: {error}") from error


async def _find_snakes_by_name(arena: _GameFetch) -> dict[str, str]:
    """Search all leaderboards for a snake name.

    Returns:
        Names of the matching snakes, by snake id.
    """
    found = {}
    for leaderboard in await arena.get_list("/leaderboards"):
        path = f"/leaderboards/{leaderboard['id']}/rankings"
        ranks = await arena.get_object(path, lower=False)
        for row in (*json_fields.items(ranks, "ranked", ""),
                    *json_fields.items(ranks, "placement", "")):  # fmt: skip
            if row.get("snake_name") == arena.name:
                found[str(row["battlesnake_id"])] = arena.name
    return found


def _build_game_object(ruleset: str, board_map: str) -> dict[str, Any] | None:
    """Build a ``game`` object with the rules, or return None if no ruleset is given."""
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
    return rule_inference.build_game_object(ruleset, board_map or "standard")


@dataclass(slots=True)
class _GameFetch:
    """Download of one game from an engine.

    Attributes:
        address: Address of the game, ``ENGINE/games/ID``.
        name: Id of the game, or the name of the snake to search for.
        client: HTTP session.
        chosen: ``game`` object that replaces the engine's rules, or None.
    """

    address: str
    name: str
    client: aiohttp.ClientSession
    chosen: Mapping[str, Any] | None = None
    _read: int = 0

    async def run(self, *, wait: bool) -> Replay:
        """Fetch the complete game, and wait for its end if ``wait`` is true."""
        if wait:
            await self._wait_until_over()
        async with asyncio.timeout(_FETCH_TIMEOUT_S):
            status, frames, description = await self._describe()
            if status in _UNFINISHED:
                raise ReplayError(
                    f"{self.name}: the game is still in progress; fetch it when it is over"
                )
            # An engine may return fewer frames than requested, or ignore the offset.
            before: Sequence[Any] | None = None
            page: Sequence[Any] = ()
            while page != before and len(page) >= len(before or ()):
                path = f"/frames?offset={len(frames.positions)}&limit={_FRAMES_PER_REQUEST}"
                before, page = page, json_fields.items(await self.get_object(path), "frames", "")
                for frame in page if page != before else ():
                    frames.add(frame)
            rules = await self._find_rules(frames, description)
            return Replay.from_engine_frames(frames, *rules)

    async def run_blackout(self) -> Replay:
        """Fetch a game from the site of Battlesnake Blackout."""
        content = await self.get_object(lower=False)
        frames = EngineFrames.from_blackout(content, self.name)
        game = self.chosen or engine_frames.BLACKOUT_GAME
        return Replay.from_engine_frames(frames, game, "of Battlesnake Blackout")

    async def _find_rules(
        self, frames: EngineFrames, description: dict[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, str]:
        """Return the ``game`` object of the rules or None, and the source of the rules."""
        if self.chosen is not None:
            return self.chosen, "as given by --ruleset"
        if description is not None:
            return description, "from the engine"
        for first in (snake for frame in frames.positions[:1] for snake in frame.snakes[:1]):
            turn = frames.positions[0].turn
            path = f"/move-request?turn={turn}&you={quote(first.id, safe='')}"
            game = json_fields.child(await self._get_or_empty(path), "game", "move-request")
            if json_fields.child(game, "ruleset", "move-request.game").get("name"):
                return game, "from its move requests"
        mode = str((await self._get_or_empty("/details")).get("game_type"))
        game_of_mode = rule_inference.game_object_of_mode(mode)
        return game_of_mode, f"of mode {mode}" if game_of_mode else ""

    async def _get_or_empty(self, path: str) -> Mapping[str, Any]:
        """Return the engine's response, or an empty mapping if the request fails."""
        try:
            return await self.get_object(path, lower=False)
        except (ReplayError, aiohttp.ClientError, TimeoutError):
            return {}

    async def get_object(self, path: str = "", *, lower: bool = True) -> Mapping[str, Any]:
        """Return the JSON object of a response.

        Args:
            path: Path relative to the address of the game.
            lower: Whether to convert the keys to lower case.
        """
        response = await self._request_json(path, _lower_keys if lower else None)
        return json_fields.mapping(response, f"the response of {self.address}{path}")

    async def get_list(self, path: str) -> list[dict[str, Any]]:
        """Return the JSON objects of a response that contains a list."""
        response = {"response": await self._request_json(path)}
        return [dict(json_fields.mapping(one, "response[]")) for one in
                json_fields.items(response, "response", "")]  # fmt: skip

    async def _request_json(self, path: str, hook: Callable[..., Any] | None = None) -> Any:
        """Send a GET request, and parse the JSON of the response."""
        address = self.address + path
        content = bytearray()
        async with (
            asyncio.timeout(_FETCH_REQUEST_TIMEOUT_S),
            self.client.get(
                address, headers=_token_header(address), allow_redirects=False
            ) as response,
        ):
            if response.status == 401:
                remedy = f"set {TOKEN_VARIABLE} to an API token of your account"
                raise _RemoteGameNotFoundError(f"{address} returns status 401; {remedy}")
            if response.status != 200:
                raise _RemoteGameNotFoundError(
                    f"{address} returns status {response.status}; check the id"
                )
            async for chunk in response.content.iter_chunked(1 << 16):
                content += chunk
                if (
                    len(content) > limits.MAX_REPLAY_BYTES
                    or self._read + len(content) > _MAX_GAME_BYTES
                ):
                    raise ReplayError(f"{address}: the game has more than {_MAX_GAME_BYTES} bytes")
        self._read += len(content)
        if sum(content.count(mark) for mark in (b",", b"[", b"{")) > limits.MAX_JSON_VALUES:
            raise ReplayError(f"{address} returns more than {limits.MAX_JSON_VALUES} values")
        try:
            return parse_json(bytes(content), object_pairs_hook=hook)
        except (ValueError, RecursionError) as error:
            raise _RemoteGameNotFoundError(
                f"{address} does not return a JSON object or list"
            ) from error

    async def _wait_until_over(self) -> None:
        """Wait for the end of the game."""
        announced = False
        async with asyncio.timeout(_MAX_GAME_WAIT_S):
            while (await self._describe())[0] in _UNFINISHED:
                if not announced:
                    sys.stderr.write(f"{self.name} is in progress; waiting for its end\n")
                    announced = True
                await asyncio.sleep(_GAME_POLL_INTERVAL_S)

    async def _describe(self) -> tuple[str, EngineFrames, dict[str, Any] | None]:
        """Return the status of the game, its frames without positions, and its rules or None."""
        return engine_frames.parse_description(await self.get_object(), self.name)


def _lower_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict with lower-case keys, because engines differ in the case of keys."""
    return {key.lower(): value for key, value in pairs}


def _token_header(address: str) -> dict[str, str]:
    """Return the header with the API token, or no header for other addresses.

    Only arena.battlesnake.com receives the API token.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if token and address.startswith(f"{game_urls.ARENA_API_URL}/"):
        return {"Authorization": f"Bearer {token}"}
    return {}

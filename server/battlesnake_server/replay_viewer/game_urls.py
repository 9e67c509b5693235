"""Addresses of games, and the engines that store the games.

>>> engines("https://arena.battlesnake.com/games/0b5a3a52-6f0c-4d4e-8a53-2c4d0e9f1a7b?turn=7")
(['https://arena.battlesnake.com/api'], '0b5a3a52-6f0c-4d4e-8a53-2c4d0e9f1a7b')
>>> engines("https://board.battlesnake.com/?engine=http://10.0.0.7:8085&game=final")
(['http://10.0.0.7:8085', 'http://10.0.0.7:8085/api'], 'final')
"""

from __future__ import annotations

import contextlib
import re
from urllib.parse import SplitResult, parse_qs, urlsplit

from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.replays.json_lines import ReplayError

ARENA_API_URL = "https://arena.battlesnake.com/api"
"""Engine of the games played since 2026."""

LEGACY_ENGINE_URL = "https://engine.battlesnake.com"
"""Engine of games before 2026, whose pages were on play.battlesnake.com."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_GAME_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
"""Ids of games on any engine, which are safe in a path and in a file name."""

_PATH = re.compile(rf"(?P<base>.*?)/(?:games?|g)/(?P<id>{_GAME_ID.pattern})(?:/.*)?", re.ASCII)


def engines(source: str) -> tuple[list[str], str]:
    """Return the engines that may store a game, and the game's id.

    The most likely engine is first. ``GET ENGINE/games/ID`` returns the game. The id consists of
    letters, digits, ``_`` and ``-``, so that it names a file in the caller's directory.

    Args:
        source: Id or address of a game, which may come from a stranger.

    Raises:
        ReplayError: If ``source`` is neither an id nor an address of a game.
    """
    if is_id(source):
        return [ARENA_API_URL, LEGACY_ENGINE_URL], source
    without_scheme = re.match(r"(www\.)?\w+\.battlesnake\.com/", source)
    try:
        url = urlsplit(f"https://{source}" if without_scheme else source)
        if _host(url) == "board.battlesnake.com":
            query = parse_qs(url.query)
            game = query["game"][0]
            url = urlsplit(query.get("engine", [""])[0].rstrip("/") + "/games/" + game)
            if not _GAME_ID.fullmatch(game):
                raise ValueError(game)
            if not url.scheme:
                return [ARENA_API_URL, LEGACY_ENGINE_URL], game
        found = _PATH.fullmatch(url.path)
        if url.scheme in ("http", "https", "ws", "wss") and url.hostname and found:
            return _engines_at(url, found["base"]), found["id"]
    except (ValueError, LookupError):  # Not an address, or a board without a valid game id.
        pass
    raise ReplayError(
        f"{format_value(source)} is neither a file nor a game of an engine; give a recorded "
        "game, an id, or an address like https://arena.battlesnake.com/games/ID"
    )


def is_id(source: str) -> bool:
    """Return whether ``source`` is an id of arena.battlesnake.com."""
    return bool(_ID.fullmatch(source))


def is_address(source: str) -> bool:
    """Return whether `engines` accepts ``source``."""
    with contextlib.suppress(ReplayError):
        return bool(engines(source))
    return False


def _host(url: SplitResult) -> str:
    return (url.hostname or "").removeprefix("www.")


def _engines_at(url: SplitResult, base: str) -> list[str]:
    known = {
        "arena.battlesnake.com": [ARENA_API_URL],
        "engine.battlesnake.com": [LEGACY_ENGINE_URL],
        "play.battlesnake.com": [LEGACY_ENGINE_URL, ARENA_API_URL],
    }
    if _host(url) in known:
        return known[_host(url)]
    # Arena sites serve the engine below /api. This project serves the pages and the engine from the
    # same path.
    site = f"{url.scheme.replace('ws', 'http')}://{url.netloc}{base}"
    return [site] if base.endswith("/api") else [site, f"{site}/api"]

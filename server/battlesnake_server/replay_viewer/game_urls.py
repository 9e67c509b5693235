"""Addresses of games, and the engines that store the games.

>>> find_engines("https://arena.battlesnake.com/games/0b5a3a52-6f0c-4d4e-8a53-2c4d0e9f1a7b?turn=7")
(['https://arena.battlesnake.com/api'], '0b5a3a52-6f0c-4d4e-8a53-2c4d0e9f1a7b')
>>> find_engines("https://board.battlesnake.com/?engine=http://10.0.0.7:8085&game=final")
(['http://10.0.0.7:8085', 'http://10.0.0.7:8085/api'], 'final')
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qs, urlsplit

from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.replays.json_lines import ReplayError

ARENA_API_URL = "https://arena.battlesnake.com/api"
"""Engine of the games played since 2026."""

LEGACY_ENGINE_URL = "https://engine.battlesnake.com"
"""Engine of games before 2026, whose pages were on play.battlesnake.com."""

ARENA_ID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_GAME_ID_PATTERN = re.compile(r"[\w-]{1,64}", re.ASCII)
"""Game ids of all engines; a matching id is safe in a path and in a file name."""

_GAME_PATH_PATTERN = re.compile(
    rf"(?P<base>.*?)/(?:games?|g|api/replay)/(?P<id>{_GAME_ID_PATTERN.pattern})(?:/.*)?", re.ASCII
)


def find_engines(source: str) -> tuple[list[str], str]:
    """Return the engines that may store a game, and the game's id.

    The most likely engine is first. ``GET ENGINE/games/ID`` returns the game. The id consists of
    letters, digits, ``_`` and ``-``, so that a file of this name is in the caller's directory.

    Args:
        source: Untrusted id or address of a game.

    Raises:
        ReplayError: If ``source`` is neither an id nor an address of a game.
    """
    if ARENA_ID_PATTERN.fullmatch(source):
        return [ARENA_API_URL, LEGACY_ENGINE_URL], source
    without_scheme = re.match(r"(www\.)?\w+\.battlesnake\.com/", source)
    try:
        url = urlsplit(f"https://{source}" if without_scheme else source)
        if _host_name(url) == "board.battlesnake.com":
            query = parse_qs(url.query)
            game = query["game"][0]
            url = urlsplit(query.get("engine", [""])[0].rstrip("/") + "/games/" + game)
            if not _GAME_ID_PATTERN.fullmatch(game):
                raise ValueError(game)
            if not url.scheme:
                return [ARENA_API_URL, LEGACY_ENGINE_URL], game
        found = _GAME_PATH_PATTERN.fullmatch(url.path)
        if url.scheme in ("http", "https", "ws", "wss") and url.hostname and found:
            return _engines_at(url, found["base"]), found["id"]
    except (ValueError, LookupError):  # The source is not an address, or has no valid game id.
        pass
    raise ReplayError(
        f"{format_value(source)} is neither a file nor a game of an engine; give a file, an id "
        "or https://arena.battlesnake.com/games/ID"
    )


def _host_name(url: SplitResult) -> str:
    """Return the host name of a URL without the prefix ``www.``."""
    return (url.hostname or "").removeprefix("www.")


def _engines_at(url: SplitResult, base: str) -> list[str]:
    """Return the engines of a site, the most likely engine first."""
    known = {
        "arena.battlesnake.com": [ARENA_API_URL],
        "engine.battlesnake.com": [LEGACY_ENGINE_URL],
        "play.battlesnake.com": [LEGACY_ENGINE_URL, ARENA_API_URL],
    }
    if _host_name(url) in known:
        return known[_host_name(url)]
    # Arena sites serve the engine below /api. This project serves the pages and the engine from the
    # same path.
    site = f"{url.scheme.replace('ws', 'http')}://{url.netloc}{base}"
    return [site] if base.endswith("/api") else [site, f"{site}/api"]

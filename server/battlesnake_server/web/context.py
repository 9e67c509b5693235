"""Context that all pages of the arena share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import current_app

from battlesnake_server.arena.database import Database
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.web.game_manager import GameManager
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.roster import Roster


@dataclass(frozen=True, slots=True)
class Arena:
    """State that the pages of an arena share.

    Attributes:
        league: League that the arena runs, or None.
    """

    database: Database
    roster: Roster
    broadcast: LiveGames
    game_manager: GameManager
    league: LeagueConfig | None


def current_arena() -> Arena:
    """Return the arena of the current application."""
    return cast(Arena, current_app.extensions["arena"])

"""What all pages of the arena share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from flask import current_app
from sqlalchemy.engine import Engine

from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.web.game_manager import GameManager
from battlesnake_server.web.live_games import Broadcast
from battlesnake_server.web.roster import Roster


@dataclass(frozen=True, slots=True)
class Arena:
    """The results, the roster, the games that are on, those that visitors start, and the league
    that is played here, if any.
    """

    database: Engine
    roster: Roster
    broadcast: Broadcast
    hall: GameManager
    league: LeagueConfig | None


def arena() -> Arena:
    """The arena of the current application."""
    return cast(Arena, current_app.extensions["arena"])

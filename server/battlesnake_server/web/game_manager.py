"""State that the pages of an arena share, and visitors' games: validation, execution, storage."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from flask import current_app
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, bounded_integer, format_value
from battlesnake_gym.game_spec import GameSpec, parse_game_spec
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules import Game
from battlesnake_server.arena.database import Database, StoredGame, Tournament
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.players import Player
from battlesnake_server.arena.referee import GameRecord, play
from battlesnake_server.arena.tournament import (
    Entrant,
    GameResult,
    ScheduledGame,
    open_players,
    replay_path,
)
from battlesnake_server.replay_viewer.analysis_queue import BusyError
from battlesnake_server.web.keyboard_player import KeyboardPlayer
from battlesnake_server.web.live_games import LiveGames
from battlesnake_server.web.roster import Roster

VISITOR_TOURNAMENT: dict[str, Any] = {"from": "the pages"}
"""Settings of the tournament that contains all games of visitors."""

MAX_GAMES, MAX_GAMES_PER_VISITOR = 6, 3
"""Maximum number of concurrent games, in total and per visitor address."""

_MAX_SNAKES_ON_PAGE = 8
MAX_PAGE_TURNS, DEFAULT_PAGE_TURNS = 2_000, 500
"""Maximum and default number of turns of a visitor's game."""

_DEFAULT_GAME: GameSpec[int] = GameSpec(max_turns=DEFAULT_PAGE_TURNS)
_LIMITS = {"width": (3, 25), "height": (3, 25), "max_turns": (1, MAX_PAGE_TURNS)}
"""Smallest and largest values in the requests of visitors."""

_MAX_GAME_S = 3600
"""Maximum duration of a visitor's game in seconds."""

_MAX_STORE_ATTEMPTS = 20
"""Maximum number of attempts to store a game under an unused game number."""

log = logging.getLogger(__name__)


class _GameStoppedError(Exception):
    """Exception that ends a game after a visitor has stopped the game."""


@dataclass(frozen=True, slots=True)
class GameRequest:
    """Game that a visitor requests.

    Attributes:
        keyboard_player: Name of the visitor in the first seat, or None if the visitor only watches.
        timeout: Timeout of a move request in milliseconds.
        turn_delay_s: Duration of a keyboard player's turn in seconds; at 0, the game waits for a
            key.
    """

    snakes: tuple[Entrant, ...]
    keyboard_player: str | None
    game_spec: GameSpec[int]
    timeout: int
    turn_delay_s: float
    seed: int

    @classmethod
    def from_json(cls, request: object, roster: Roster) -> GameRequest:
        """Parse and validate the JSON body of a request.

        Raises:
            ValueError: If a field is invalid; the message names the field.
        """
        root = json_fields.mapping(request, "")
        keyboard_player = _parse_keyboard_player(root, roster)
        chosen = json_fields.items(root, "snakes", "")
        seats = len(chosen) + (keyboard_player is not None)
        if not 1 <= seats <= _MAX_SNAKES_ON_PAGE:
            raise BoardError(f"snakes: a game has between 1 and {_MAX_SNAKES_ON_PAGE}, got {seats}")
        parsed = cls(
            snakes=tuple(roster.find(name, f"snakes[{i}]") for i, name in enumerate(chosen)),
            keyboard_player=keyboard_player,
            game_spec=parse_game_spec(
                {**root, "num_snakes": seats}, "", _DEFAULT_GAME, _LIMITS, ["view_radius"]
            ),
            timeout=bounded_integer(root, "timeout", "", 20, 5000, 200),
            turn_delay_s=bounded_integer(root, "turn_delay_ms", "", 0, 5000, 0) / 1000,
            seed=bounded_integer(
                root, "seed", "", 1, 2**63 - 1, default=1 + secrets.randbelow(2**31)
            ),
        )
        parsed.game_spec.start(parsed.seed)
        return parsed

    def build_game(self, game_id: str) -> Game:
        """Return the game's rules and settings."""
        game = self.game_spec.game
        return replace(game, seed=self.seed, id=game_id, timeout=self.timeout, source="arena")

    @property
    def labels(self) -> list[str]:
        """Names of the snakes in seat order.

        A number in parentheses distinguishes repeated names.
        """
        names = [] if self.keyboard_player is None else [self.keyboard_player]
        names += [entrant.label for entrant in self.snakes]
        return [
            f"{name} ({count + 1})" if (count := names[:seat].count(name)) else name
            for seat, name in enumerate(names)
        ]


def _parse_keyboard_player(root: Mapping[str, Any], roster: Roster) -> str | None:
    """Return the name of the keyboard player, or None if the visitor only watches."""
    name = root.get("keyboard_player")
    if name is None:
        return None
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= 24 or not name.isprintable():
        raise BoardError(
            f"keyboard_player must be a name of 1 to 24 characters, got {format_value(name)}"
        )
    if name.strip() in roster.descriptions:
        raise BoardError(
            f"keyboard_player: {format_value(name)} is the name of a snake; choose another"
        )
    return name.strip()


@dataclass(slots=True)
class _ManagedGame:
    """Game in progress.

    Attributes:
        keyboard_player: The visitor in the first seat, or None if the visitor only watches.
        visitor: Address of the visitor who started the game.
        deadline: Time at which the game is stopped, as a value of `time.monotonic`.
        key: Secret that authorizes the keyboard player's moves.
    """

    request: GameRequest
    keyboard_player: KeyboardPlayer | None
    visitor: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    deadline: float = field(default_factory=lambda: time.monotonic() + _MAX_GAME_S)
    stopped: bool = False


class Arena:
    """State that the pages of an arena share; plays visitors' games in threads.

    Args:
        database: Results database, which also stores the visitors' games.
        roster: Snakes that visitors may play against and query.
        replays: Directory of recorded games, including the visitors' games.
        league: League that the arena runs, or None.

    Attributes:
        broadcast: Live games, including the visitors' games.
    """

    def __init__(
        self, database: Database, roster: Roster, replays: Path, league: LeagueConfig | None = None
    ) -> None:
        self.database = database
        self.roster = roster
        self.broadcast = LiveGames()
        self.replays = replays
        self.league = league
        self._games: dict[str, _ManagedGame] = {}
        self._lock = threading.Lock()
        self._storing = threading.Lock()

    def start_game(self, request: GameRequest, visitor: str) -> _ManagedGame:
        """Start a game, and wait until the game's page exists.

        Args:
            request: Requested game.
            visitor: Address of the visitor.

        Raises:
            BusyError: If the maximum number of games, in total or per visitor, is reached.
        """
        keyboard_player = None
        if request.keyboard_player is not None:
            keyboard_player = KeyboardPlayer(request.turn_delay_s)
        game = _ManagedGame(request, keyboard_player, visitor)
        with self._lock:
            own = sum(other.visitor == visitor for other in self._games.values())
            for number, limit, whose in (
                (len(self._games), MAX_GAMES, "games"),
                (own, MAX_GAMES_PER_VISITOR, "of your games"),
            ):
                if number >= limit:
                    raise BusyError(f"{limit} {whose} are in progress; stop one or wait")
            self._games[game.id] = game
        threading.Thread(target=self._play_and_store, args=(game,), daemon=True).start()
        # The caller redirects the visitor to the game's page, which must exist at that time.
        while self.broadcast.find(game.id) is None and game.id in self._games:
            time.sleep(0.005)
        return game

    def is_running(self, game_id: str) -> bool:
        """Return whether a game is in progress."""
        return game_id in self._games

    def find_keyboard_player(self, game_id: str, key: str) -> KeyboardPlayer | None:
        """Return the keyboard player of a game, or None if ``key`` is not the game's key."""
        game = self._games.get(game_id)
        if game is None or not secrets.compare_digest(game.key.encode(), key.encode()):
            return None
        return game.keyboard_player

    def stop_game(self, game_id: str) -> bool:
        """Stop a game after the current turn, and discard the game.

        Returns:
            Whether the game was in progress.
        """
        game = self._games.get(game_id)
        if game is None:
            return False
        game.stopped = True
        if game.keyboard_player is not None:
            game.keyboard_player.stop_waiting()
        return True

    def _play_and_store(self, game: _ManagedGame) -> None:
        """Play and store a game, and report errors on the game's page."""
        try:
            self._store_game(game, asyncio.run(self._play_game(game)))
        except _GameStoppedError:
            pass  # The game's page shows the turns played so far.
        except (OSError, SQLAlchemyError) as error:  # For example, the disk is full.
            cause = getattr(error, "strerror", None) or getattr(error, "orig", None) or error
            reason = str(cause).splitlines()[0]
            log.error("game %s is not stored: %s", game.id, reason)
            self.broadcast.set_problem(game.id, f"This game is not stored: {reason}")
        except Exception:
            log.exception("game %s failed", game.id)
            self.broadcast.set_problem(game.id, "This game failed; the server's log has the reason")
        finally:
            self.broadcast.publish_event(game.id, None)
            with self._lock:
                del self._games[game.id]

    async def _play_game(self, game: _ManagedGame) -> GameRecord:
        """Play a game to the end."""
        request = game.request
        keyboard: list[Player] = [] if game.keyboard_player is None else [game.keyboard_player]
        async with open_players(request.snakes, request.timeout / 1000, request.seed) as players:
            return await play(
                request.build_game(game.id),
                request.game_spec,
                request.labels,
                keyboard + players,
                functools.partial(self._on_event, game),
            )

    def _on_event(self, game: _ManagedGame, event: Board | Turn) -> None:
        """Publish an event of a game; end a stopped or overdue game."""
        self.broadcast.publish_event(game.id, event)
        timeline = self.broadcast.find(game.id)
        if timeline and game.keyboard_player:
            last = timeline.replay.last
            if last.is_over() or last.turn == game.request.game_spec.max_turns:
                game.keyboard_player.stop_waiting()  # The referee ignores the next move.
        if game.stopped or time.monotonic() > game.deadline:
            raise _GameStoppedError

    def _store_game(self, game: _ManagedGame, record: GameRecord) -> None:
        """Store a game under the number after the highest stored number.

        If another process uses the number first, the method tries again.
        """

        def store(session: Session) -> None:
            tournament = Tournament.find(session, VISITOR_TOURNAMENT)
            if tournament is None:
                tournament = Tournament(settings=VISITOR_TOURNAMENT)
                session.add(tournament)
                session.flush()
            last = session.scalar(
                select(func.max(StoredGame.number)).where(StoredGame.tournament_id == tournament.id)
            )
            number = 0 if last is None else last + 1
            path = replay_path(self.replays / "started-here", number, game.id)
            scheduled = ScheduledGame(number, game.request.seed, tuple(range(len(record.seats))))
            result = GameResult.from_record(scheduled, record, path)
            session.add(StoredGame.from_result(result, tournament.id, game.request.labels))
            try:
                Replay(record.first, record.turns).save(path)
                session.commit()
            except BaseException:
                path.unlink(missing_ok=True)
                raise

        for attempt in range(1, _MAX_STORE_ATTEMPTS + 1):
            try:
                with self._storing:
                    self.database.transact(store)
                return
            except IntegrityError:
                if attempt == _MAX_STORE_ATTEMPTS:
                    raise


def current_arena() -> Arena:
    """Return the arena of the current application."""
    return cast(Arena, current_app.extensions["arena"])

"""Games that people start from the pages: read the wish, play it in a thread, keep the result."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from battlesnake_gym import rules
from battlesnake_gym.boards import json_fields
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules import Game
from battlesnake_server.arena.database import StoredGame as GameRow
from battlesnake_server.arena.database import Tournament, find_tournament
from battlesnake_server.arena.players import Player
from battlesnake_server.arena.referee import GameRecord, play
from battlesnake_server.arena.results import row
from battlesnake_server.arena.tournament import (
    Entrant,
    GameResult,
    ScheduledGame,
    open_players,
    replay_path,
)
from battlesnake_server.web.keyboard_player import KeyboardPlayer
from battlesnake_server.web.live_games import Broadcast
from battlesnake_server.web.roster import Roster

SETUP: dict[str, Any] = {"from": "the pages"}
"""How the database calls the games that people start: all of them are one tournament."""

MAX_GAMES, MAX_GAMES_PER_VISITOR = 6, 3
"""Games at a time: all together, and those that one address started."""

_MAX_SNAKES_ON_PAGE = 8
MAX_PAGE_TURNS, DEFAULT_PAGE_TURNS = 2_000, 500
"""Turns after which a game that people start is ended: at most, and where they do not say."""

_MAX_GAME_S = 3600
"""The same in time, since a turn may last as long as its slowest snake."""

log = logging.getLogger(__name__)


class TooManyGamesError(RuntimeError):
    """Too many games are being played already."""


class StoppedError(Exception):
    """The game was stopped by a visitor."""


@dataclass(frozen=True, slots=True)
class GameRequest:
    """A game that a visitor wants to play or to see.

    ``keyboard_player`` is the name of who plays by keyboard, in the first seat, or None. ``pace`` is the
    seconds between two turns, 0: the game waits for the key. ``timeout`` is in milliseconds;
    ``turns`` is when the game ends without a winner.
    """

    snakes: tuple[Entrant, ...]
    keyboard_player: str | None
    width: int
    height: int
    ruleset: str
    map: str
    timeout: int
    turn_delay_s: float
    max_turns: int
    seed: int

    @classmethod
    def read(cls, request: object, roster: Roster) -> GameRequest:
        """Read and check a request; raises ``ValueError`` naming the field."""
        root = json_fields.mapping(request, "")
        human = _human(root, roster)
        chosen = json_fields.items(root, "snakes", "")
        seats = len(chosen) + (human is not None)
        if not 1 <= seats <= _MAX_SNAKES_ON_PAGE:
            raise BoardError(f"snakes: between 1 and {_MAX_SNAKES_ON_PAGE} play, got {seats}")
        wish = cls(
            snakes=tuple(roster.find(name, f"snakes[{i}]") for i, name in enumerate(chosen)),
            keyboard_player=human,
            width=_between(root, "width", 3, 25, 11),
            height=_between(root, "height", 3, 25, 11),
            ruleset=_one_of(root, "ruleset", list(rules.RULESETS)),
            map=_one_of(root, "map", list(rules.known_maps())),
            timeout=_between(root, "timeout", 20, 5000, 200),
            turn_delay_s=_between(root, "pace", 0, 5000, 0) / 1000,
            max_turns=_between(root, "turns", 1, MAX_PAGE_TURNS, DEFAULT_PAGE_TURNS),
            seed=_between(root, "seed", 1, 2**63 - 1, 1 + secrets.randbelow(2**31)),
        )
        ids = [str(seat) for seat in range(seats)]
        rules.start(wish.game(""), wish.width, wish.height, ids)  # refuses what no map allows
        return wish

    def game(self, game_id: str) -> Game:
        """The game as the rules know it."""
        return Game(
            self.ruleset, self.map, seed=self.seed, id=game_id, timeout=self.timeout,
            source="arena",
        )  # fmt: skip

    @property
    def labels(self) -> list[str]:
        """What the snakes are called, in seat order; equal ones are numbered."""
        labels = [] if self.keyboard_player is None else [self.keyboard_player]
        for entrant in self.snakes:
            taken = sum(entrant.label == other for other in labels)
            labels.append(entrant.label if not taken else f"{entrant.label} ({taken + 1})")
        return labels


def _human(root: Mapping[str, Any], roster: Roster) -> str | None:
    name = root.get("human")
    if name is None:
        return None
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= 24 or not name.isprintable():
        raise BoardError(f"human must be a name of 1 to 24 characters, got {format_value(name)}")
    if any(name.strip() == guest.name for guest in roster.guests):
        raise BoardError(f"human: {format_value(name)} is the name of a snake; take another")
    return name.strip()


def _between(root: Mapping[str, Any], key: str, low: int, high: int, usual: int) -> int:
    value = json_fields.integer(root, key, "", usual)
    if not low <= value <= high:
        raise BoardError(f"{key} must be between {low} and {high}, got {format_value(value)}")
    return value


def _one_of(root: Mapping[str, Any], key: str, known: list[str]) -> str:
    value = json_fields.string(root, key, "", "standard")
    if value not in known:
        raise BoardError(f"{key} must be one of {', '.join(known)}, got {format_value(value)}")
    return value


@dataclass(slots=True)
class ManagedGame:
    """A game that is being played here, started from the address ``visitor``.

    ``key`` is what its human proves to sit at it. ``ends`` is when it is over in any case
    (`time.monotonic`).
    """

    id: str
    human: KeyboardPlayer | None
    visitor: str
    ends: float
    stopped: bool = False
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))


class GameManager:
    """Plays what people wish, each game in a thread of its own, and stores what came of it."""

    def __init__(self, engine: Engine, broadcast: Broadcast, replays: Path) -> None:
        self._engine = engine
        self._broadcast = broadcast
        self._replays = replays
        self._matches: dict[str, ManagedGame] = {}
        self._lock = threading.Lock()
        self._storing = threading.Lock()

    def start(self, wish: GameRequest, visitor: str) -> ManagedGame:
        """Begin a game for the visitor at an address; raises `TooManyGamesError` at too many."""
        human = (
            None
            if wish.keyboard_player is None
            else KeyboardPlayer(wish.turn_delay_s, alone=not wish.snakes)
        )
        match = ManagedGame(str(uuid.uuid4()), human, visitor, time.monotonic() + _MAX_GAME_S)
        with self._lock:
            if len(self._matches) >= MAX_GAMES:
                raise TooManyGamesError(f"{MAX_GAMES} games are being played; stop one or wait")
            if sum(on.visitor == visitor for on in self._matches.values()) >= MAX_GAMES_PER_VISITOR:
                raise TooManyGamesError(
                    f"{MAX_GAMES_PER_VISITOR} games that you started are being played; stop one or wait"
                )
            self._matches[match.id] = match
        threading.Thread(target=self._run, args=(match, wish), daemon=True).start()
        while self._broadcast.find(match.id) is None and match.id in self._matches:
            time.sleep(0.005)  # a page about the game can be asked for from now on
        return match

    def is_running(self, game_id: str) -> bool:
        """Whether a game is being played here."""
        return game_id in self._matches

    def human(self, game_id: str, key: str) -> KeyboardPlayer | None:
        """The game's player at the keyboard, for the client that has the key."""
        match = self._matches.get(game_id)
        if match is None or not secrets.compare_digest(match.key.encode(), key.encode()):
            return None
        return match.human

    def stop(self, game_id: str) -> bool:
        """End a game after the turn that it is at; whether it is played here. It is not kept."""
        match = self._matches.get(game_id)
        if match is None:
            return False
        match.stopped = True
        if match.human is not None:
            match.human.leave()
        return True

    def _run(self, match: ManagedGame, wish: GameRequest) -> None:
        try:
            record = asyncio.run(self._play(match, wish))
            self._store(match, wish, record)
        except StoppedError:
            pass  # the page shows how far the game came
        except Exception:  # logged; the page shows how far the game came
            log.exception("game %s broke off", match.id)
        finally:
            self._broadcast.announce(match.id, None)
            with self._lock:
                del self._matches[match.id]

    async def _play(self, match: ManagedGame, wish: GameRequest) -> GameRecord:
        human: list[Player] = [] if match.human is None else [match.human]
        async with open_players(wish.snakes, wish.timeout / 1000, wish.seed) as players:
            return await play(
                wish.game(match.id),
                wish.width,
                wish.height,
                wish.labels,
                human + players,
                wish.max_turns,
                functools.partial(self._tell, match),
            )

    def _tell(self, match: ManagedGame, news: Board | Turn) -> None:
        self._broadcast.announce(match.id, news)
        if match.stopped or time.monotonic() > match.ends:
            raise StoppedError

    def _store(self, match: ManagedGame, wish: GameRequest, record: GameRecord) -> None:
        with self._storing, Session(self._engine) as session:
            tournament = find_tournament(session, SETUP)
            if tournament is None:
                tournament = Tournament(setup=SETUP)
                session.add(tournament)
                session.flush()
            last = session.scalar(
                select(func.max(GameRow.number)).where(GameRow.tournament_id == tournament.id)
            )
            number = 0 if last is None else last + 1
            path = replay_path(self._replays / "started-here", number, match.id)
            path.parent.mkdir(parents=True, exist_ok=True)
            Replay(record.first, record.turns).save(path)
            fixture = ScheduledGame(number, wish.seed, tuple(range(len(record.seats))))
            result = GameResult.from_record(fixture, match.id, record, path)
            session.add(row(result, tournament.id, wish.labels))
            session.commit()

"""Pages of stored games, live games and single games."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

from flask import Blueprint, Response, abort, jsonify, render_template, request, url_for
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import selectinload

from battlesnake_gym.draw.customization import PALETTE
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_server import replay_json
from battlesnake_server.arena.database import Seat, StoredGame
from battlesnake_server.arena.results import SURVIVED_KEY
from battlesnake_server.file_cache import cache_by_file
from battlesnake_server.replay_viewer import frame_stream
from battlesnake_server.web import pages
from battlesnake_server.web.game_manager import current_arena
from battlesnake_server.web.leaderboard import (
    ENDING_LABELS,
    list_tournaments,
    requested_tournament,
)
from battlesnake_server.web.live_games import GameTimeline
from battlesnake_server.web.pages import query_integer

GAMES_PER_PAGE = 24
_LONG_POLL_TIMEOUT_S = 20.0
"""Maximum duration of a long poll for the next turn, in seconds."""

_MIN_FEATURED_TURNS, _FEATURED_CANDIDATES = 30, 8
"""Minimum number of turns of a featured game, and number of candidate games."""

_MAX_LONG_POLLS = 12
"""Maximum number of concurrent long polls.

Further requests return immediately.
"""

_waiting = threading.BoundedSemaphore(_MAX_LONG_POLLS)

blueprint = Blueprint("games", __name__)


_load_replay = cache_by_file(32)(Replay.load)


def load_game(game_id: str) -> Replay:
    """Return the live or recorded game with this id, which the caller must not change.

    Raises:
        FileNotFoundError: If no game has this id, or the game has no replay.
        ReplayError: If the replay is damaged.
    """
    timeline = current_arena().broadcast.find(game_id)
    return _load_replay(_find_stored_replay(game_id)) if timeline is None else timeline.replay


def _find_stored_replay(game_id: str) -> Path:
    """Return the replay file of a stored game.

    Raises:
        FileNotFoundError: If no game has this id, or the replay is missing or unreadable.
    """
    with current_arena().database.session() as session:
        row = session.scalar(select(StoredGame).where(StoredGame.uuid == game_id))
    if row is None:
        raise FileNotFoundError(f"there is no game {game_id!r} in this arena")
    if row.replay is None:
        raise FileNotFoundError(
            "this game was played without --replays, so only its result is stored"
        )
    try:
        with Path(row.replay).open():
            return Path(row.replay)
    except OSError as error:
        raise FileNotFoundError(
            f"the replay {row.replay} cannot be read: {error.strerror}"
        ) from error


_RESULT_LABELS = {"won": "won", "drawn": "draw"}
"""Labels of the endings that are not causes of elimination."""


@blueprint.get("/games")
def index() -> str:
    """Render the list of stored games that match the filters, newest game first."""
    tournament = requested_tournament()
    snake, ending = request.args.get("snake", ""), request.args.get("ending", "")
    conditions, error = _filter_conditions(tournament, snake, ending)
    ids = select(StoredGame.id).where(*conditions)
    with current_arena().database.session() as session:
        total = session.scalar(select(func.count()).select_from(ids.subquery())) or 0
        pages = max(1, -(-total // GAMES_PER_PAGE))
        page = query_integer("page", 1, minimum=1, maximum=pages)
        shown = (
            ids.order_by(StoredGame.id.desc())
            .offset((page - 1) * GAMES_PER_PAGE)
            .limit(GAMES_PER_PAGE)
        )
        query = select(StoredGame).where(StoredGame.id.in_(session.scalars(shown).all()))
        seats = selectinload(StoredGame.seats).defer(Seat.latencies)
        games = session.scalars(query.order_by(StoredGame.id.desc()).options(seats)).all()
        names = session.scalars(select(Seat.snake).distinct().order_by(Seat.snake)).all()
        names = [name for name in names if isinstance(name, str)]
    filters = {"tournament": tournament, "snake": snake or None, "ending": ending or None}
    filters |= {name: request.args.get(name) or None for name in ("from", "to")}
    return render_template(
        "arena_games.html",
        games=games, total=total, page=page, pages=pages, filters=filters, names=names,
        choices=list_tournaments(), endings=_RESULT_LABELS | ENDING_LABELS, error=error,
        filtered=bool(conditions), colors=PALETTE,
    )  # fmt: skip


def _filter_conditions(
    tournament: int | None, snake: str, ending: str
) -> tuple[list[ColumnElement[bool]], str]:
    """Return the SQL conditions of the query parameters, and an error message or ""."""
    conditions: list[ColumnElement[bool]] = []
    error = ""
    if tournament is not None:
        conditions.append(StoredGame.tournament_id == tournament)
    seat = [Seat.snake == snake] if snake else []
    if ending == "drawn":
        conditions += [_has_seat(Seat.seat == 1), ~_has_seat(Seat.won.is_(True))]
    elif ending == "won":
        seat.append(Seat.won.is_(True))
    elif ending in ENDING_LABELS:
        seat.append(Seat.cause == ("" if ending == SURVIVED_KEY else ending))
    elif ending:
        error = f"there is no ending {ending[:40]!r}"
    if seat:
        conditions.append(_has_seat(*seat))
    for name, days in (("from", 0), ("to", 1)):
        if not request.args.get(name):
            continue
        try:
            day = datetime.fromisoformat(request.args[name][:10]) + timedelta(days=days)
        except (ValueError, OverflowError):
            error = f"{name} must be a date like 2026-03-02"
            continue
        conditions.append(StoredGame.played < day if days else StoredGame.played >= day)
    return conditions, error


def _has_seat(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that at least one seat of a game meets all ``conditions``.

    The subquery does not depend on the game, so the database evaluates the subquery only once.
    """
    return StoredGame.id.in_(select(Seat.game_id).where(*conditions))


@blueprint.get("/live")
def live() -> str:
    """Render the live games, or a recent recorded game if no game is live."""
    with_replay = (
        select(StoredGame).where(StoredGame.replay.is_not(None)).limit(_FEATURED_CANDIDATES)
    )
    good = StoredGame.finished & (StoredGame.turns >= _MIN_FEATURED_TURNS)
    with current_arena().database.session() as session:
        games = session.scalars(with_replay.order_by(good.desc(), StoredGame.id.desc())).all()
        last = next((game.uuid for game in games if _has_replay(game)), None)
    is_live = bool(current_arena().broadcast.live_games())
    return render_template("arena_live.html", last=last, is_live=is_live)


def _has_replay(game: StoredGame) -> bool:
    """Return whether the replay of a game exists; the database may be damaged."""
    paths = game.uuid, game.replay
    return all(isinstance(text, str) for text in paths) and Path(str(game.replay)).is_file()


@blueprint.get("/live.json")
def live_json() -> Response:
    """Return the last position of every live game as JSON."""
    return jsonify(
        [
            {**timeline.last_position(), "page": url_for("games.show", game_id=game_id)}
            for game_id, timeline in current_arena().broadcast.live_games()
        ]
    )


@blueprint.get("/game/<game_id>")
def show(game_id: str) -> str:
    """Render the page of a live or recorded game.

    The parameter ``?key=`` authorizes the game's keyboard player.
    """
    try:
        load_game(game_id)
    except (FileNotFoundError, ReplayError) as error:
        abort(404, str(error))
    key = request.args.get("key", "")
    arena = current_arena()
    return render_template(
        "arena_game.html",
        game_id=game_id,
        key=key if arena.find_keyboard_player(game_id, key) else "",
        can_stop=arena.is_running(game_id),
    )


@blueprint.get("/game/<game_id>/data")
def data(game_id: str) -> Response:
    """Return the game's frames, starting at the index ``?since=``.

    With the parameter ``?wait``, the request waits for a new frame of a live game.
    """
    since = query_integer("since", 0)
    timeline = current_arena().broadcast.find(game_id)
    if timeline is None:
        path = _find_stored_replay(game_id)
        if (chunk := frame_stream.respond(path)) is not None:
            return chunk
        replay = _load_replay(path)
        timeline = GameTimeline(replay.first, replay.turns)
        timeline.end()
    if "wait" in request.args and _waiting.acquire(blocking=False):
        try:
            timeline.wait(since + 1, _LONG_POLL_TIMEOUT_S)
        finally:
            _waiting.release()
    return jsonify(timeline.to_dict(since))


@blueprint.get("/game/<game_id>/last")
def last(game_id: str) -> Response:
    """Return the last position of a game as JSON, for thumbnails."""
    return jsonify(replay_json.position(load_game(game_id).last))


pages.add_game_pages(
    blueprint, "/game/<key>/{}", load_game, lambda key: (_find_stored_replay(key), None)
)

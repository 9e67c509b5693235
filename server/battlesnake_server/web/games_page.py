"""Games: the list of those that were played, those that are on, and the page that shows one."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from flask import Blueprint, Response, jsonify, render_template, request, url_for
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, selectinload

from battlesnake_gym.draw.customization import PALETTE
from battlesnake_gym.replays.replay import ReplayError
from battlesnake_server import replay_json
from battlesnake_server.arena.database import Seat, StoredGame
from battlesnake_server.arena.results import SURVIVED
from battlesnake_server.replay_viewer import frame_stream, position_formats
from battlesnake_server.replay_viewer.what_if import WhatIfBusyError
from battlesnake_server.web import pages
from battlesnake_server.web.context import arena
from battlesnake_server.web.leaderboard import ENDINGS, asked_tournament, tournaments
from battlesnake_server.web.live_games import GameTimeline, recorded
from battlesnake_server.web.pages import error_response, missing, number

PER_PAGE = 24
_WAIT = 20.0
"""Seconds after which a page that waits for a turn is answered without one."""

_MIN_FEATURED_TURNS, _FEATURED_CANDIDATES = 30, 8
"""Turns of a game worth showing where none is on; games of which one may still have its replay."""

_MOST_WAITING = 12
"""Requests that wait for a turn at a time; others get the state of the game at once."""

_waiting = threading.BoundedSemaphore(_MOST_WAITING)

blueprint = Blueprint("games", __name__)


@dataclass(frozen=True, slots=True)
class CardPlayer:
    """One snake of a game in the list."""

    name: str
    color: str
    won: bool
    out: bool


@dataclass(frozen=True, slots=True)
class GameCard:
    """What the list shows of one game; ``kept`` says whether its replay is there.

    ``when`` is the day and time (UTC) when it was played.
    """

    uuid: str
    players: list[CardPlayer]
    turns: int
    draw: bool
    kept: bool
    when: str


class GameNotFoundError(LookupError):
    """There is no such game, or its replay was not kept."""


def load_timeline(game_id: str) -> GameTimeline:
    """A game by its id, live or recorded; raises `GameNotFoundError`, or `ReplayError` if damaged."""
    live = arena().broadcast.find(game_id)
    if live is not None:
        return live
    return recorded(stored_replay(game_id))


def stored_replay(game_id: str) -> Path:
    """The file of a game that was played; raises `GameNotFoundError`."""
    with Session(arena().database) as session:
        row = session.scalar(select(StoredGame).where(StoredGame.uuid == game_id))
    if row is None:
        raise GameNotFoundError(f"there is no game {game_id!r} in this arena")
    if row.replay is None:
        raise GameNotFoundError("this game was played without --replays; only its result is known")
    try:
        with Path(row.replay).open():
            return Path(row.replay)
    except OSError as error:
        raise GameNotFoundError(
            f"the replay {row.replay} cannot be read: {error.strerror}"
        ) from error


_RESULTS = {"won": "won", "drawn": "a draw"}
"""Endings of a game that are not causes of a death."""


@blueprint.get("/games")
def index() -> str:
    """The games that were played, the newest first; those alone that the filters leave."""
    tournament = asked_tournament()
    snake, ending = request.args.get("snake", ""), request.args.get("ending", "")
    wanted, wrong = _wanted(tournament, snake, ending)
    ids = select(StoredGame.id).where(*wanted)
    with Session(arena().database) as session:
        total = session.scalar(select(func.count()).select_from(ids.subquery())) or 0
        pages = max(1, -(-total // PER_PAGE))
        page = number("page", 1, least=1, most=pages)
        shown = ids.order_by(StoredGame.id.desc()).offset((page - 1) * PER_PAGE).limit(PER_PAGE)
        query = select(StoredGame).where(StoredGame.id.in_(session.scalars(shown).all()))
        seats = selectinload(StoredGame.seats).defer(Seat.latencies)
        games = session.scalars(query.order_by(StoredGame.id.desc()).options(seats))
        cards = [_card(game) for game in games]
        names = session.scalars(select(Seat.snake).distinct().order_by(Seat.snake)).all()
    asked = {"tournament": tournament, "snake": snake or None, "ending": ending or None}
    asked |= {name: request.args.get(name) or None for name in ("from", "to")}
    return render_template(
        "arena_games.html",
        cards=cards, total=total, page=page, pages=pages, asked=asked, choices=tournaments(),
        names=names, endings=_RESULTS | ENDINGS, wrong=wrong, narrowed=bool(wanted),
    )  # fmt: skip


def _wanted(
    tournament: int | None, snake: str, ending: str
) -> tuple[list[ColumnElement[bool]], str]:
    """The conditions that the request's filters make, and what was wrong with one of them."""
    wanted: list[ColumnElement[bool]] = []
    wrong = ""
    if tournament is not None:
        wanted.append(StoredGame.tournament_id == tournament)
    this = [Seat.snake == snake] if snake else []
    if ending == "drawn":
        wanted += [StoredGame.finished.is_(True), _with(Seat.seat == 1), ~_with(Seat.won.is_(True))]
        wanted += [_with(*this)] if this else []
    elif ending == "won":
        wanted.append(_with(Seat.won.is_(True), *this))
    elif ending in ENDINGS:
        wanted.append(_with(Seat.cause == ("" if ending == SURVIVED else ending), *this))
    else:
        wanted += [_with(*this)] if this else []
        wrong = f"there is no ending {ending[:40]!r}" if ending else ""
    for name, days in (("from", 0), ("to", 1)):
        if not request.args.get(name):
            continue
        try:
            day = datetime.fromisoformat(request.args[name][:10]) + timedelta(days=days)
        except (ValueError, OverflowError):
            wrong = f"{name} must be a day like 2026-03-02"
            continue
        wanted.append(StoredGame.played < day if days else StoredGame.played >= day)
    return wanted, wrong


def _with(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Games with a seat of which all this is true; found once, not for each game."""
    return StoredGame.id.in_(select(Seat.game_id).where(*conditions))


@blueprint.get("/live")
def live() -> str:
    """The games that are being played now; where none is, the last good one of those kept."""
    kept = select(StoredGame).where(StoredGame.replay.is_not(None)).limit(_FEATURED_CANDIDATES)
    good = StoredGame.finished & (StoredGame.turns >= _MIN_FEATURED_TURNS)
    with Session(arena().database) as session:
        games = session.scalars(kept.order_by(good.desc(), StoredGame.id.desc())).all()
        there = [game.uuid for game in games if game.replay and Path(game.replay).is_file()]
    on = bool(arena().broadcast.running())
    return render_template("arena_live.html", last=next(iter(there), None), on=on)


@blueprint.get("/live.json")
def live_json() -> Response:
    """The last position of every game that is on."""
    return jsonify(
        [
            {**replay_json.header(board), "frame": replay_json.frame(board),
             "page": url_for("games.show", game_id=game_id)}
            for game_id, course in arena().broadcast.running()
            for board in course.boards[-1:]
        ]
    )  # fmt: skip


@blueprint.get("/game/<game_id>")
def show(game_id: str) -> str | tuple[str, int]:
    """The page that plays one game, while it is on or afterwards; with ``?key=`` a seat in it."""
    try:
        load_timeline(game_id)
    except (GameNotFoundError, ReplayError) as error:
        return missing(str(error))
    key = request.args.get("key", "")
    hall = arena().hall
    return render_template(
        "arena_game.html",
        game_id=game_id,
        key=key if hall.human(game_id, key) else "",
        can_stop=hall.is_running(game_id),
    )


@blueprint.get("/game/<game_id>/data")
def data(game_id: str) -> Response:
    """The game's frames from the index ``?since=`` on; ``?wait`` waits until there are more."""
    since = number("since", 0)
    try:
        path = None if arena().broadcast.find(game_id) else stored_replay(game_id)
        if path is not None and (piece := frame_stream.answer(path)) is not None:
            return piece
        found = load_timeline(game_id)
    except GameNotFoundError as error:
        return error_response(error, 404)
    except ReplayError as error:
        return error_response(error, 422)
    if "wait" in request.args and _waiting.acquire(blocking=False):
        try:
            found.wait(since + 1, _WAIT)
        finally:
            _waiting.release()
    return jsonify(found.data(min(since, len(found.boards) - 1)))


@blueprint.get("/game/<game_id>/last")
def last(game_id: str) -> Response:
    """The position in which the game ended, for small pictures."""
    try:
        board = load_timeline(game_id).boards[-1]
    except (GameNotFoundError, ReplayError) as error:
        return error_response(error, 404)
    return jsonify({**replay_json.header(board), "frame": replay_json.frame(board)})


@blueprint.get("/game/<game_id>/turn/<int:turn>/<form>")
def position(game_id: str, turn: int, form: str) -> Response:
    """One position, in the forms of `battlesnake_server.replay_viewer.position_formats.answer`."""
    try:
        return position_formats.answer(load_timeline(game_id).at(turn), form)
    except (GameNotFoundError, ValueError) as error:
        return error_response(error, 404)
    except WhatIfBusyError as error:
        return error_response(error, 503)


@blueprint.get("/game/<game_id>/analysis")
def analysis(game_id: str) -> Response:
    """How far the game is analysed, and what was found from the ``?since=``-th turn on."""
    try:
        return pages.analysis(stored_replay(game_id))
    except GameNotFoundError as error:
        return jsonify(state="unkept", error=str(error), done=0, turns=[])


@blueprint.post("/game/<game_id>/analysis")
def analyse(game_id: str) -> Response:
    """Have the game analysed, in the background."""
    try:
        return pages.analyse(stored_replay(game_id))
    except GameNotFoundError as error:
        return error_response(error, 404)


def _card(game: StoredGame) -> GameCard:
    players = [
        CardPlayer(seat.snake, PALETTE[seat.seat % len(PALETTE)], seat.won,
               bool(seat.cause))
        for seat in game.seats
    ]  # fmt: skip
    drawn = game.finished and len(players) > 1 and not any(player.won for player in players)
    when = f"{game.played:%Y-%m-%d %H:%M}"
    return GameCard(game.uuid, players, game.turns, drawn, game.replay is not None, when)

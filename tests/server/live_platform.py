"""Stand-in for arena.battlesnake.com: its URLs and response formats.

It follows the platform's published source: 100 frames per page, eliminated snakes with their last
body, ``timeout`` for a late move, no rules in a game's description.
"""

import itertools
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, abort, jsonify, request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.replays.rule_inference import RULES_BY_MODE
from battlesnake_gym.rules import MOVES, Game, default_move
from battlesnake_gym.rules.state import Point, Snake

TOKEN = "a-token"


def played(
    mode: str, size: int, snakes: int, seed: int, *, least: int = 26, most: int = 400
) -> Replay:
    """Play a game of this mode by our rules, with at least ``least`` turns; some moves are late."""
    ruleset, board_map = RULES_BY_MODE[mode.lower()]
    for number in itertools.count(seed * 1000 + 1):
        draw = random.Random(number)
        game = Game(ruleset, board_map, seed=number, id=str(uuid.UUID(int=draw.getrandbits(128))))
        board = Board.new(size, size, snakes, game=game)
        for snake in board.snakes:
            snake.id = str(uuid.UUID(int=draw.getrandbits(128)))
            snake.name = f"Snake {snake.id[:4]}"
        replay = Replay(board)
        while not replay.last.is_over() and len(replay.turns) < most:
            _turn(replay, draw)
        if len(replay.turns) >= (
            6 if mode == "Constrictor" else least
        ):  # Constrictor games fill the board.
            return replay
    raise AssertionError


def _turn(replay: Replay, draw: random.Random) -> None:
    board = replay.last
    moves, latency, problems = {}, {}, {}
    for snake in board.living:
        safe = board.safe_moves(snake.id)
        spare = [move for move in safe if board.target(snake.head, move) not in board.hazards]
        moves[snake.id] = draw.choice(spare or safe or list(MOVES))
        latency[snake.id] = float(draw.randint(20, 480))
        if draw.random() < 0.02:
            moves[snake.id] = default_move(snake.body)
            problems[snake.id] = "timeout"
            del latency[snake.id]
    shouts = {board.living[0].id: f"turn {board.turn}"}
    replay.append(moves, latency=latency, shouts=shouts, problems=problems)


@dataclass
class Kept:
    """One game of the platform.

    Attributes:
        dead: Whether frames list eliminated snakes.
        says: Which of ``move-request`` and ``details`` exist.
        late: Latency of a move that came too late.
        status: The platform's status of the game.
        shown: Number of available frames of a running game.
    """

    replay: Replay
    mode: str
    dead: bool = True
    says: tuple[str, ...] = ("move-request", "details")
    late: str = "timeout"
    status: str = "finished"
    shown: int | None = None
    frames: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        answers = [None, *self.replay.turns]
        for board, turn in zip(self.replay.boards(), answers, strict=True):
            late = dict.fromkeys(turn.problems, self.late) if turn else {}
            times = {who: f"{time:g}" for who, time in turn.latency.items()} if turn else {}
            self.frames.append(self._frame(board, {**times, **late}))

    def _frame(self, board: Board, latency: dict[str, str]) -> dict[str, Any]:
        return {
            "Turn": board.turn,
            "Food": _cells(board.food),
            "Hazards": _cells([cell for cell in board.hazards if cell[1] < board.height]),
            "Snakes": [
                _snake(snake, latency.get(snake.id, "0"))
                for snake in board.snakes
                if self.dead or snake.alive
            ],
        }

    @property
    def now(self) -> list[dict[str, Any]]:
        """Return the available frames."""
        return self.frames[: self.shown]


def _snake(snake: Snake, latency: str) -> dict[str, Any]:
    death = {
        "Cause": snake.eliminated_cause,
        "Turn": snake.eliminated_on,
        "EliminatedBy": snake.eliminated_by,
    }
    return {
        "ID": snake.id, "Name": snake.name, "Body": _cells(snake.body), "Health": snake.health,
        "Color": "#00aa00", "HeadType": "default", "TailType": "default", "Latency": latency,
        "Shout": snake.shout, "Squad": "", "APIVersion": "1", "Author": "",
        "Death": None if snake.alive else death,
        "EliminatedCause": snake.eliminated_cause, "EliminatedBy": snake.eliminated_by,
    }  # fmt: skip


def _cells(cells: list[Point]) -> list[dict[str, int]]:
    return [{"X": x, "Y": y} for x, y in cells]


class Platform:
    """Games by id, snakes of the leaderboard by id, and the requested URLs."""

    def __init__(self, *games: Kept) -> None:
        self.games = {kept.replay.game.id: kept for kept in games}
        self.ladder: dict[str, str] = {}
        self.asked: list[str] = []
        self.app = Flask("platform")
        self.app.before_request(lambda: self.asked.append(request.full_path.rstrip("?")))
        routes: dict[str, Callable[..., Any]] = {
            "/games/<game_id>": self.page,
            "/api/games/<game_id>": self.describe,
            "/api/games/<game_id>/frames": self.frames,
            "/api/games/<game_id>/details": self.details,
            "/api/games/<game_id>/move-request": self.move_request,
            "/api/games": self.listed,
            "/api/leaderboards": self.ladders,
            "/api/leaderboards/<ladder>/rankings": self.rankings,
        }
        for route, view in routes.items():
            self.app.add_url_rule(route, route, view)

    def _find(self, game_id: str) -> Kept:
        return self.games.get(game_id) or abort(404)

    def page(self, game_id: str) -> str:
        self._find(game_id)
        return "<!doctype html><title>A game</title>"

    def describe(self, game_id: str) -> Response:
        kept = self._find(game_id)
        first = kept.replay.first
        if (
            kept.status == "running" and kept.shown is not None
        ):  # The game advances with every request.
            kept.shown += 10
            if kept.shown >= len(kept.frames):
                kept.status, kept.shown = "finished", None
        status = {"waiting": "pending", "running": "running"}.get(kept.status, "complete")
        return jsonify(
            Game={"ID": game_id, "Status": status, "Width": first.width, "Height": first.height}
        )

    def frames(self, game_id: str) -> Response:
        offset = max(0, request.args.get("offset", 0, int))
        limit = min(max(0, request.args.get("limit", 100, int)), 100)
        page = self._find(game_id).now[offset : offset + limit]
        if game_id.startswith(tuple("13579bdf")):  # The format of other engines.
            return jsonify(Count=len(page), Frames=page)
        return jsonify(count=len(page), frames=page)

    def details(self, game_id: str) -> Response:
        kept = self._find(game_id)
        self._authorise()
        if "details" not in kept.says:
            abort(404)
        return jsonify({**self._item(kept), "frames": kept.now})

    def _item(self, kept: Kept) -> dict[str, Any]:
        first, winner = kept.replay.first, kept.replay.last.winner
        ids = {name: snake_id for snake_id, name in self.ladder.items()}
        snakes = [{"id": ids.get(s.name, s.id), "name": s.name} for s in first.snakes]
        return {
            "id": first.game.id, "status": kept.status, "winner": winner and winner.id,
            "snakes": snakes, "board": f"{first.width}x{first.height}", "game_type": kept.mode,
            "created_at": "2026-11-01T12:00:00Z",
        }  # fmt: skip

    def move_request(self, game_id: str) -> Response | tuple[str, int]:
        kept = self._find(game_id)
        if "move-request" not in kept.says:
            abort(404)
        turn, you = request.args["turn"], request.args["you"]
        board = kept.replay.board(int(turn))
        if not any(snake.id == you for snake in board.living):
            return "That snake didn't play in this game.", 404
        body = board.to_api(you)
        body["game"]["map"] = "snail_mode" if kept.mode == "Snail Mode" else ""
        body["game"]["ruleset"]["version"] = "v1.0.0"
        return jsonify(body)

    def listed(self) -> Response:
        self._authorise()
        name = self.ladder[request.args["snake_id"]]
        with_it = [
            self._item(kept)
            for kept in self.games.values()
            if any(snake.name == name for snake in kept.replay.first.snakes)
        ]
        return jsonify(with_it[: request.args.get("limit", 20, int)])

    def _authorise(self) -> None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            abort(Response("Authentication required", 401))

    def ladders(self) -> Response:
        return jsonify([{"id": "standard", "name": "Standard", "game_type": "Standard",
                         "board_size": "11x11", "match_size": 4, "active": True}])  # fmt: skip

    def rankings(self, ladder: str) -> Response:
        rows = [
            {"rank": number, "battlesnake_id": snake_id, "snake_name": name, "owner": "jane"}
            for number, (snake_id, name) in enumerate(self.ladder.items(), 1)
        ]
        return jsonify(leaderboard_id=ladder, ranked=rows[:1], placement=rows[1:])

"""Limited view in the server: games of commands, requests, memory and pages."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flask.testing import FlaskClient
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.boards.limited_view import HIDDEN_CELL, limit_view
from battlesnake_gym.mdp import observations
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_gym.rules import Game, Settings
from battlesnake_heuristics.rule_based.preferences import known_food
from battlesnake_server.arena.database import Database, Tournament
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.commands import ladder_command
from battlesnake_server.live.app import create_app
from battlesnake_server.strategy_loader import _PolicySnake
from battlesnake_server.web.game_manager import GameRequest
from battlesnake_server.web.roster import Roster
from tests.processes import until


def test_ladder_games_have_the_view_radius(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'games.sqlite'}"
    call = ["hungry", "--view-radius=2", "--precision=400", "--jobs=1", f"--database={url}"]
    assert ladder_command.main(call) == 0
    assert "fixed without a view radius" in capsys.readouterr().err
    database = Database(url)
    with database.session() as session:
        played = session.query(Tournament).all()
        assert played
        assert all(one.settings["settings"]["view_radius"] == 2 for one in played)
    database.close()


def test_a_league_file_sets_the_view_radius() -> None:
    plan = {"name": "Night", "snakes": {"a": "hungry", "b": "cautious"}}
    league = LeagueConfig.parse({**plan, "boards": [{"view_radius": 5}]}, Path())
    assert league.boards[0].settings == Settings(view_radius=5)
    with pytest.raises(BoardError, match=r"boards\[0\]\.view_radius must be .* at least 0.*-1"):
        LeagueConfig.parse({**plan, "boards": [{"view_radius": -1}]}, Path())


def test_the_example_game_of_a_page_has_the_view_radius() -> None:
    client = create_app({"SNAKE": "hungry", "VIEW_RADIUS": 3}).test_client()
    until(lambda: client.get("/now").get_json()["game"]["over"] is True
          and client.get("/now").get_json()["game"].get("frames"))  # fmt: skip
    game = client.get("/now").get_json()["game"]
    assert game["view_radius"] == 3


@pytest.mark.parametrize("hidden", [None, HIDDEN_CELL])
@pytest.mark.parametrize("radius", ["far", None])
def test_an_assumed_radius_is_reported_once_per_game_in_log_and_page(
    hidden: dict[str, int] | None, radius: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    client = create_app({"SNAKE": "cautious"}).test_client()
    board = Board.new(11, 11, ["me", "it"], game=Game(seed=4, id="night"))
    for turn in range(3):
        body = limit_view(board.to_api("me"), 2, hidden)
        body["game"]["ruleset"]["settings"]["viewRadius"] = radius
        body["turn"] = "soon" if turn == 0 else turn  # Another unreadable field comes first.
        response = client.post("/move", json=body)
        assert response.status_code == 200
        board.step({"me": response.get_json()["move"], "it": board.safe_moves("it")[0]})
        note = client.get("/now").get_json()["game"]["note"]
        assert "viewRadius" in note
        assert "assumed: 5" in note
    assert caplog.text.count("viewRadius") == 1
    assert caplog.text.count("turn must be") == 1
    body = limit_view(board.to_api("me"), 2, hidden)
    body["game"]["id"] = "another"
    assert client.post("/move", json=body).status_code == 200
    assert caplog.text.count("viewRadius") == 1


class Policy:
    """A policy without preferences, which records its observations."""

    state_size, action_mask_kind = 0, "fatal"

    def __init__(self) -> None:
        self.observation = observations.get("planes")
        self.observation_shape = self.observation.shape
        self.seen: list[NDArray[np.uint8]] = []

    def check_board_size(self, width: int, height: int) -> None: ...

    def action_scores(self, batch: NDArray[np.uint8], seconds: float) -> NDArray[np.float32]:
        self.seen.extend(batch.copy())
        return np.zeros((1, 4), np.float32)


def test_a_policy_observes_what_it_observed_in_training() -> None:
    """The cells that complete a request are no observation."""
    board = Board.new(11, 11, ["me", "it"], game=Game(settings=Settings(view_radius=2)))
    board.snakes[0].body = [(5, 5), (5, 6), (5, 7)]
    board.snakes[1].body = [(8, 5), (7, 5), (6, 5), (6, 4), (6, 3), (6, 2)]
    policy = Policy()
    _PolicySnake(cast(OnnxPolicy, policy))(Board.from_api(limit_view(board.to_api("me"), 2)))
    assert (policy.seen[0] == policy.observation.encode(board, "me", view_radius=2)).all()


def test_the_rules_of_a_policy_remember_food() -> None:
    snake = _PolicySnake(cast(OnnxPolicy, Policy()), rules=[known_food])
    board = Board.from_text("view_radius=2\n> A . *\n. . . .\nA: you")
    assert snake(board.limited()).move == "right"
    board.step({"a": "down"})
    assert not board.limited().food
    assert snake(board.limited()).move == "right"


def test_interleaved_games_get_the_moves_of_each_game_alone() -> None:
    def start(number: int) -> Board:
        settings = Settings(view_radius=2, food_spawn_chance=30)
        game = Game(seed=number, id=f"night {number}", settings=settings)
        return Board.new(11, 11, ["me", "it"], game=game)

    def play_turn(client: FlaskClient, board: Board) -> str:
        hidden = HIDDEN_CELL if board.turn % 2 else None
        body = limit_view(board.to_api("me"), 2, hidden)
        move: str = client.post("/move", json=body).get_json()["move"]
        if board.turn % 3 == 0:  # A repeated request gets the same response.
            assert client.post("/move", json=body).get_json()["move"] == move
        board.step({"me": move, "it": (board.safe_moves("it") or ["up"])[board.turn % 2 - 1]})
        return move

    def play(boards: list[Board]) -> list[list[str]]:
        client = create_app({"SNAKE": "hungry-blackout"}).test_client()
        for board in boards[::2]:  # The other games begin without /start.
            client.post("/start", json=limit_view(board.to_api("me"), 2))
        moves: list[list[str]] = [[] for _ in boards]
        for _ in range(10):
            for played, board in zip(moves, boards, strict=True):
                if not board.is_over():
                    played.append(play_turn(client, board))
        return moves

    together = play([start(number) for number in range(1, 17)])
    assert together == [play([start(number)])[0] for number in range(1, 17)]


def test_visitors_play_with_a_view_radius() -> None:
    request = {"snakes": ["hungry"], "keyboard_player": "Ann", "view_radius": 5}
    game = GameRequest.from_json(request, Roster([])).build_game("night")
    assert game.settings.view_radius == 5
    unlimited = GameRequest.from_json({"snakes": ["hungry"]}, Roster([]))
    assert unlimited.game_spec.settings == Settings()
    with pytest.raises(BoardError, match=r"view_radius must be .* 'far'"):
        GameRequest.from_json({**request, "view_radius": "far"}, Roster([]))

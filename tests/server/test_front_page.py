"""The root URL of a served snake: JSON for engines, a page with the current game for browsers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import limit_view
from battlesnake_gym.rules import Game, Settings
from battlesnake_server.live import app, featured_game
from battlesnake_server.live.app import create_app
from tests.processes import until
from tests.server.browser import Browser, browser, quiet
from tests.server.web_site import serving

__all__ = ["browser", "quiet"]

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def played(client: FlaskClient, turns: int, game_id: str = "g", *, end: bool = False) -> Board:
    """Play a duel with the requests of an engine."""
    board = Board.new(11, 11, ["you", "it"], game=Game(seed=4, id=game_id, timeout=400))
    for _ in range(turns):
        move = client.post("/move", json=board.to_api("you")).get_json()["move"]
        board.step({"you": move, "it": board.safe_moves("it")[0]})
    if end:
        client.post("/end", json=board.to_api("you"))
    return board


def shown(client: FlaskClient, since: int = 0, version: int = -1) -> Any:
    return client.get(f"/now?since={since}&version={version}").get_json()


def test_engines_get_json_and_browsers_a_page() -> None:
    client = create_app().test_client()
    for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        answer = client.get("/", headers=accept)
        assert answer.get_json()["color"] == "#6f3fd1"
        assert answer.get_json()["author"] == "battlesnake-gym"
    page = client.get("/base/path", headers=HTML)
    assert page.mimetype == "text/html"
    for words in ("champion", "#6f3fd1", "evil", "arena.battlesnake.com", "http://localhost/"):
        assert words in page.text
    hostile = create_app({"SNAKE": "hungry", "AUTHOR": "<script>"}).test_client()
    assert "by &lt;script&gt;" in hostile.get("/", headers=HTML).text
    assert hostile.get("/").get_json()["color"] == "#888888"


def test_another_snake_than_the_champion_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a compiler, `serve` alone plays another snake."""
    notice = "lookahead plays instead of champion: the search is not compiled"
    monkeypatch.setattr(app, "DEFAULT_SNAKE_NOTICE", notice)
    client = create_app().test_client()
    assert notice in caplog.text
    assert client.get("/").get_json()["notice"] == notice
    assert notice in client.get("/", headers=HTML).text
    chosen = create_app({"SNAKE": "hungry"}).test_client()
    assert "notice" not in chosen.get("/").get_json()


@pytest.mark.parametrize("view_radius", [None, 2])
def test_a_game_is_shown_after_snakes_are_eliminated(view_radius: int | None) -> None:
    """Requests list only the living snakes; the snake ``it`` moves into the wall."""
    client = create_app({"SNAKE": "cautious"}).test_client()
    game = Game(seed=4, id="g", settings=Settings(view_radius=view_radius))
    board = Board.new(11, 11, ["it", "you", "other"], game=game)
    board.you_id = "you"
    for _ in range(15):
        move = client.post("/move", json=board.to_limited_api()).get_json()["move"]
        board.step({"it": "up", "you": move, "other": board.safe_moves("other")[0]})
    frames = shown(client)["game"]["frames"]
    assert [frame["turn"] for frame in frames] == list(range(15))
    assert frames[-1]["snakes"][0]["death"]["turn"] == board.snakes[0].eliminated_on
    assert [snake["death"] for snake in frames[-1]["snakes"][1:]] == [None, None]


@pytest.mark.parametrize("view_radius", [None, 2])
@pytest.mark.parametrize(("picture", "is_draw"), [("> A . B <", True), ("> A . B < < <", False)])
def test_a_lost_game_ends_with_the_eliminated_snake(
    picture: str, is_draw: bool, view_radius: int | None
) -> None:
    client = create_app({"SNAKE": "straight"}).test_client()
    board = Board.from_text(f"id=g\n{picture}")
    board.you_id = "a"
    client.post("/move", json=limit_view(board.to_api(), view_radius))
    board.step({"a": "right", "b": "left"})
    client.post("/end", json=limit_view(board.to_api(), view_radius))
    last = shown(client)["game"]["frames"][-1]["snakes"]
    assert [bool(snake["death"]) for snake in last] == [True, is_draw]
    assert last[0]["body"] == [[2, 0], [1, 0], [0, 0]]


def test_the_game_that_is_on_is_shown_and_its_thoughts_when_it_is_over() -> None:
    client = create_app({"SNAKE": "hungry"}).test_client()
    played(client, 3)
    told = shown(client)
    game, version = told["game"], told["game"]["version"]
    assert [frame["turn"] for frame in game["frames"]] == [0, 1, 2]
    assert not game["over"]
    assert all(snake["next"] is None for frame in game["frames"] for snake in frame["snakes"])
    assert told["moves"]["num_moves"] == 3
    assert told["moves"]["games"] == 1
    median, high = told["moves"]["latency_percentiles_ms"]
    assert 0 < median <= high
    assert [f["turn"] for f in shown(client, 2, version)["game"]["frames"]] == [2]
    played(client, 2, "other")  # A concurrent game.
    assert shown(client)["game"]["id"] == "g"
    board = played(client, 0, end=True)
    game = shown(client, 2, version)["game"]
    assert game["over"]
    assert game["from"] == 0
    assert game["frames"][1]["snakes"][game["you"]]["next"]["reasons"]
    assert game["frames"][-1]["turn"] == board.turn
    played(client, 1, "other")
    assert shown(client)["game"]["id"] == "other"


def test_the_last_position_of_a_lost_game_shows_the_elimination() -> None:
    client = create_app({"SNAKE": "hungry"}).test_client()
    board = played(client, 1)
    while board.snake("you").alive:
        board.step({"you": "up", "it": board.safe_moves("it")[0]})
    client.post("/end", json=board.to_api("you"))
    game = shown(client)["game"]
    assert game["frames"][-1]["snakes"][game["you"]]["death"]["cause"] == "wall-collision"


def test_another_game_with_the_same_id_replaces_the_game() -> None:
    client = create_app({"SNAKE": "hungry"}).test_client()
    for end in (True, False, True):
        played(client, 3, end=end)
        game = shown(client)["game"]
        assert game["over"] == end
        assert [frame["turn"] for frame in game["frames"]] == [0, 1, 2, 3][: 3 + end]


def test_a_repeated_request_replaces_the_frame() -> None:
    client = create_app({"SNAKE": "hungry"}).test_client()
    board = played(client, 2)
    late = Board.new(11, 11, ["you", "it"], game=board.game)
    late.turn = 1
    requests = [request.to_api("you") for request in (board, board, late)]
    moves = [client.post("/move", json=body).get_json()["move"] for body in requests]
    client.post("/end", json=board.to_api("you"))
    client.post("/move", json=board.to_api("you"))
    game = shown(client)["game"]
    assert [frame["turn"] for frame in game["frames"]] == [0, 1, 2, 2]
    assert game["frames"][2]["snakes"][game["you"]]["next"]["move"] == moves[1]


def test_a_page_keeps_so_much_and_no_larger_boards(monkeypatch: Any) -> None:
    monkeypatch.setattr(featured_game, "_MAX_FRAME_BYTES", 6000)
    client = create_app({"SNAKE": "hungry"}).test_client()
    played(client, 12)
    assert 1 <= len(shown(client)["game"]["frames"]) < 12
    huge = Board.new(11, 11, ["you", "it"], game=Game(id="huge")).to_api("you")
    dead = [{"id": str(i), "health": 0, "body": [{"x": 0, "y": 0}]} for i in range(20)]
    for more in ({"width": 60, "height": 60}, {"snakes": dead}):
        client = create_app({"SNAKE": "hungry"}).test_client()
        sent = huge | {"board": huge["board"] | more}
        assert client.post("/move", json=sent).status_code == 200
        assert shown(client)["game"].get("id") != "huge"


def test_a_browser_sees_it_play(quiet: Browser) -> None:
    app = create_app({"SNAKE": "hungry"})
    with serving(app) as address:
        quiet.open(address, "document.querySelectorAll('#board .snake').length === 2")
        assert quiet.text("#caption")
        assert quiet.run("document.querySelectorAll('#portrait .snake').length") == 1
        client = app.test_client()
        played(client, 2)
        quiet.wait("document.getElementById('caption').textContent === 'Live: turn 1'")
        assert quiet.text("#moves") == "2"
        assert quiet.text("#address") == f"{address}/"
        assert quiet.text("#share") == "100.0%"
        assert re.fullmatch("median at most .* ms, 95th percentile .*", quiet.text("#latency"))
        quiet.open(f"{address}/any/base/", "document.querySelectorAll('#board .snake').length")
        played(client, 0, end=True)
        quiet.wait("document.getElementById('caption').textContent.startsWith('Last game')")
        quiet.wait("document.querySelectorAll('#board .value').length > 0")
        assert quiet.run("document.documentElement.scrollWidth <= innerWidth")
        quiet.run("[window.fetch = () => Promise.reject()].length")
        quiet.wait("document.getElementById('note').textContent.includes('not respond')")


def test_a_rival_of_the_same_color_is_drawn_in_another_color(quiet: Browser) -> None:
    app = create_app({"SNAKE": "hungry"})
    board = Board.new(11, 11, ["it", "you"], game=Game(seed=4, id="g"))
    board.snake("it").customizations = {"color": "#888888"}
    app.test_client().post("/move", json=board.to_api("you"))
    with serving(app) as address:
        quiet.open(address, "document.querySelectorAll('#board .snake').length === 2")
        colors = quiet.each("#board .snake", "part.getAttribute('fill')")
        assert colors[0] == "#888888"
        assert len(set(colors)) == 2


def test_the_example_game_of_a_policy_has_its_board_size(make_policy: Callable[..., Path]) -> None:
    client = create_app({"POLICY": str(make_policy(sizes=[(7, 9)]))}).test_client()
    until(lambda: client.get("/now").get_json()["game"]["over"] and shown(client)["game"]["frames"])
    game = shown(client)["game"]
    assert (game["width"], game["height"]) == (7, 9)


def test_a_restarted_server_continues_its_example_game() -> None:
    """`serve --reload` restarts the server when a file is saved."""

    def example(snake: str, moves: str = "") -> Any:
        client = create_app({"SNAKE": snake}).test_client()
        until(lambda: client.get(f"/now?moves={moves}").get_json()["game"]["over"] is True
              and shown(client)["game"]["frames"])  # fmt: skip
        return shown(client)["game"]

    before = example("hungry")
    moves = "".join(frame["snakes"][0]["next"]["move"][0] for frame in before["frames"][:6])
    after = example("wall-hugger", moves)
    bodies = [
        [[s["body"] for s in f["snakes"]] for f in game["frames"]] for game in (before, after)
    ]
    assert bodies[0][:7] == bodies[1][:7]
    assert bodies[0] != bodies[1]
    assert after["version"] != before["version"]
    client = create_app({"SNAKE": "hungry"}).test_client()
    assert client.get("/now?moves=x").status_code == 400

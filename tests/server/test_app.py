"""The live snake's application without a network: responses and tolerated requests."""

import copy
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import HIDDEN_CELL, limit_view
from battlesnake_gym.rules import MOVES, Game
from battlesnake_server.live.app import create_app, from_environment
from battlesnake_server.live.log_rate_limit import RateLimitFilter
from tests.battlesnake_gym.test_elimination_tracker import request_of_the_arena
from tests.json_strategies import JUNK, Place, places, replaced

Body = dict[str, Any]

HTTP_API = (Path(__file__).parents[2] / "docs/reference/http-api.md").read_text()
(DOCUMENTED_ERROR,) = re.findall(r'^\{"error": "(.*)"\}$', HTTP_API, re.MULTILINE)


@pytest.fixture
def client() -> FlaskClient:
    return create_app({"SNAKE": "cautious"}).test_client()


def alive(client: FlaskClient) -> int:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("battlesnake_active_games "):
            return int(float(line.split()[1]))
    raise AssertionError("no gauge of games")


def test_two_snakes_of_one_game_and_two_games(client: FlaskClient, board: Board) -> None:
    for game, snake in [("g1", "snake_0"), ("g1", "snake_1"), ("g2", "snake_0")]:
        body = board.to_api(snake)
        body["game"]["id"] = game
        assert client.post("/move", json=body).status_code == 200
    assert alive(client) == 2
    body = board.to_api("snake_0")
    body["game"]["id"] = "g1"
    client.post("/end", json=body)
    assert alive(client) == 2, "the other snake of the game still plays"


@pytest.mark.parametrize("base", ["", "/snakes/mine", "/a//b", "/a/", "/move"])
@pytest.mark.parametrize("query", ["", "?token=x&y=%20"])
def test_any_base_path_and_query(client: FlaskClient, body: Body, base: str, query: str) -> None:
    told = client.get(f"{base or '/'}{query}").get_json()
    assert (told["apiversion"], told["version"]) == ("1", "1.0")
    for path in ("start", "move", "end", "move/"):
        answer = client.post(f"{base}/{path}{query}", json=body)
        assert answer.status_code == 200, (base, path)
    answer = client.post(f"{base}/move{query}", json=body).get_json()
    assert answer["move"] in MOVES
    assert isinstance(answer["shout"], str)


def list_a_dead_snake_without_body(body: Body) -> None:
    body["board"]["snakes"][3].update(health=0, body=[], head=None)


def leave_out_all_that_is_optional(body: Body) -> None:
    body["game"] = {"id": "bare"}
    for snake in [*body["board"]["snakes"], body["you"]]:
        for key in ("name", "latency", "head", "length", "shout", "squad", "customizations"):
            snake.pop(key, None)
    del body["board"]["hazards"], body["turn"]


def set_game(**changes: Any) -> Callable[[Body], None]:
    return lambda body: body["game"].update(changes)


TOLERATED = {
    "dead snakes without a body": list_a_dead_snake_without_body,
    "only what is needed": leave_out_all_that_is_optional,
    "unknown map and ruleset": set_game(map="atlantis", ruleset={"name": "chess", "version": "9"}),
    "no timeout": set_game(timeout=0),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_everything_engines_send_is_played(client: FlaskClient, body: Body, name: str) -> None:
    body = copy.deepcopy(body)
    TOLERATED[name](body)
    for path in ("/start", "/move", "/move", "/end"):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.get_json()
    assert client.post("/move", json=body).get_json()["move"] in MOVES


def test_the_largest_boards_are_answered_in_time(body: Body) -> None:
    """Boards of 100x100 with very many snakes are too large for any strategy."""
    row = [{"x": x, "y": y} for y in range(0, 100, 2) for x in range(100)]
    for lengths in ([2000, 2000], [50] * 64, [3] * 64):
        snakes, used = [], 0
        for i, length in enumerate(lengths):
            snakes.append({"id": f"s{i}", "health": 9, "body": row[used : used + length]})
            used += length
        body["board"] = {"width": 100, "height": 100, "snakes": snakes, "hazards": row[:900]}
        body["you"] = snakes[0]
        for name in ("cautious", "lookahead", "minimax"):
            client = create_app({"SNAKE": name}).test_client()
            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                assert client.post("/move", json=body).get_json()["move"] in MOVES
                seconds.append(time.perf_counter() - began)
            assert min(seconds) < 5, "no strategy is waited for"


def test_content_type_is_not_looked_at(client: FlaskClient, body: Body) -> None:
    for content_type in ("text/plain", "application/octet-stream", None):
        answer = client.post("/move", data=json.dumps(body), content_type=content_type)
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda b: b.pop("game"), r"game\.id"),
        (lambda b: b["game"].update(id=7), r"game\.id"),
        (lambda b: b.update(game="x"), r"game.* JSON"),
        (lambda b: b.pop("you"), r"you\.id"),
        (lambda b: b["you"].update(body=[]), r"you\.body"),
        (lambda b: b["you"]["body"][1].update(x="1"), r"you\.body\[1\]\.x"),
        (lambda b: b["you"]["body"][1].pop("x"), f"^{re.escape(DOCUMENTED_ERROR)}$"),
        (lambda b: b["you"].update(body=[{"x": 11, "y": 0}]), r"you\.body"),
        (lambda b: b.pop("board"), "board"),
        (lambda b: b["board"].update(width=0), r"board\.width"),
        (lambda b: b["board"].update(width=10**9), r"board\.width"),
        (lambda b: b["board"].update(width=10**400), r"board\.width"),
        (lambda b: b["board"].update(height=None), r"board\.height"),
    ],
)
def test_a_request_without_what_a_move_needs_names_the_field(
    client: FlaskClient, body: Body, change: Callable[[Body], Any], field: str
) -> None:
    change(body)
    answer = client.post("/move", json=body)
    assert answer.status_code == 400
    assert re.search(field, answer.get_json()["error"])


REQUEST = Board.new(11, 11, 4, game=Game(seed=5, id="junk")).to_api("snake_0")
NEEDED: set[Place] = {
    ("game",),
    ("game", "id"),
    ("you",),
    ("you", "id"),
    ("you", "body"),
    ("board",),
}
NEEDED |= {("board", "width"), ("board", "height")}


def limited_requests() -> list[Any]:
    """Requests with limited view and partly hidden opponents, in both forms."""
    board = Board.new(11, 11, 4, game=Game(seed=5, id="junk"))
    board.snakes[0].body = [(5, 5), (5, 6), (5, 7), (5, 8)]
    board.snakes[1].body = [(8, 5), (7, 5), (6, 5), (6, 4), (6, 3), (6, 2)]
    board.snakes[2].body = [(4, 4), (3, 4), (2, 4), (2, 5), (3, 5)]
    return [limit_view(board.to_api("snake_0"), 2, hidden) for hidden in (None, HIDDEN_CELL)]


FUZZED = [(body, way) for body in (REQUEST, *limited_requests()) for way in places(body)]


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@example(fuzzed=(limited_requests()[0], ("board", "snakes")), junk=False)
@example(fuzzed=(limited_requests()[0], ("you", "health")), junk=0)
@given(fuzzed=st.sampled_from(FUZZED), junk=JUNK)
def test_what_a_move_does_not_need_is_passed_over(
    client: FlaskClient, fuzzed: tuple[Any, Place], junk: Any
) -> None:
    request, way = fuzzed
    body = replaced(request, way, junk)
    answer = client.post("/move", json=body)
    if way in NEEDED or way[:2] == ("you", "body"):
        assert answer.status_code in (200, 400)
        assert answer.get_json().get("move", answer.get_json().get("error"))
        return
    assert answer.status_code == 200, answer.get_json()
    safe_moves = Board.from_api(body, errors=[]).safe_moves()
    is_starving = way == ("you", "health") and not safe_moves
    assert is_starving or answer.get_json()["move"] in safe_moves


def test_what_is_passed_over_is_counted(
    client: FlaskClient, body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [{"x": i % 11, "y": i // 11} for i in range(90)]
    body["board"]["snakes"] = [body["you"] | {"id": str(cell), "body": [cell]} for cell in cells]
    body["turn"] = "one"
    for _ in range(2):
        assert client.post("/move", json=body).status_code == 200
    (count,) = re.findall(
        r"^battlesnake_ignored_fields_total (\S+)", client.get("/metrics").text, re.M
    )
    assert float(count) >= 2
    assert caplog.text.count("unreadable fields") == 1, "once a game"


def test_ids_are_cut_in_the_log(
    client: FlaskClient, body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    body["game"]["id"] = body["you"]["id"] = "x" * 100_000
    body["game"]["timeout"] = "soon"
    assert client.post("/move", json=body).status_code == 200
    assert 0 < len(caplog.text) < 500


def test_errors_are_json(client: FlaskClient) -> None:
    for answer in (client.post("/"), client.post("/nowhere"), client.put("/move")):
        assert (answer.status_code, answer.mimetype) in [
            (s, "application/json") for s in (404, 405)
        ]
        assert answer.get_json()["error"]
    assert (answer.status_code, answer.allow) == (405, {"POST", "OPTIONS"})


def test_bodies_are_limited(client: FlaskClient) -> None:
    answer = client.post("/move", data=b" " * (1 << 18) + b"{}")
    assert answer.status_code == 413
    assert answer.is_json


def test_a_bug_of_ours_is_a_plain_500(
    client: FlaskClient, body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    from battlesnake_server.live import views

    monkeypatch.setattr(views, "_session_key", lambda body: 1 / 0)
    answer = client.post("/move", json=body)
    assert (answer.status_code, answer.get_json()) == (500, {"error": "internal error"})


def test_a_snake_and_a_policy_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="either"):
        create_app({"SNAKE": "random", "POLICY": "policy.onnx"})


def test_the_environment_configures_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNAKE", "POLICY", "FILTERS", "COLOR", "HEAD", "TAIL", "AUTHOR", "DEBUG"):
        monkeypatch.setenv(f"BATTLESNAKE_{name}", "")
    assert from_environment() == {}
    monkeypatch.setenv("BATTLESNAKE_POLICY", "/policy/policy.onnx")
    monkeypatch.setenv("BATTLESNAKE_FILTERS", "bodies dead_ends")
    monkeypatch.setenv("BATTLESNAKE_COLOR", "#102030")
    monkeypatch.setenv("BATTLESNAKE_DEBUG", "true")
    assert from_environment() == {
        "POLICY": "/policy/policy.onnx",
        "FILTERS": ["bodies", "dead_ends"],
        "COLOR": "#102030",
    }, "and nobody switches on debugging there"


def test_a_misspelled_variable_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("SNAK", "PORT", "SNAKE_PORT", "NAME", "THREADS", "SERVICE_HOST", "TOKEN"):
        monkeypatch.setenv(f"BATTLESNAKE_{name}", "hungry")
    assert from_environment() == {}
    (line,) = caplog.messages
    assert line == "BATTLESNAKE_SNAK has no effect; did you mean BATTLESNAKE_SNAKE?"


@pytest.mark.parametrize(("text", "ponders"), [("1", True), ("0", None), ("", None)])
def test_the_environment_says_whether_to_ponder(
    monkeypatch: pytest.MonkeyPatch, text: str, ponders: bool | None
) -> None:
    monkeypatch.setenv("BATTLESNAKE_PONDER", text)
    assert from_environment().get("PONDER") is ponders


def test_the_environment_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATTLESNAKE_PONDER", "yes")
    with pytest.raises(ValueError, match=r"BATTLESNAKE_PONDER.* 1.* 0.* 'yes'"):
        from_environment()


def test_metrics_count_moves_and_refusals(client: FlaskClient, body: Body) -> None:
    client.post("/move", json=body)
    client.post("/move", data="{")
    text = client.get("/metrics").text
    assert 'battlesnake_moves_total{chosen_by="strategy"} 1.0' in text
    assert "battlesnake_move_seconds_count 1.0" in text
    assert "battlesnake_bad_requests_total 1.0" in text
    assert "battlesnake_fallback_moves_on_timeout_total 0.0" in text
    assert "process_cpu_seconds_total" in text


@pytest.mark.parametrize("left", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [*range(900, 1000, 9), 977, 20_000])
def test_what_nests_is_played_or_refused(client: FlaskClient, left: str, depth: int) -> None:
    """Deep nesting must not fail in the JSON parser or in the error message."""
    nested = left * depth + "1" + {"[": "]"}.get(left, "}") * depth
    body = Board.new(7, 7, 2, game=Game(id=f"{left}{depth}")).to_api("snake_0")
    text = json.dumps(body | {"turn": "HERE"}).replace('"HERE"', nested)
    for sent in (text, nested, text.replace('"id"', f'"id": {nested}, "x"', 1)):
        assert client.post("/move", data=sent).status_code in (200, 400)


@pytest.mark.parametrize("large", [{"width": 26}, {"height": 40}, {"long": True}])
def test_boards_that_the_search_cannot_hold_are_played_by_another_snake(
    large: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    client = create_app({"SNAKE": "minimax"}).test_client()
    board = Board.new(11, 11, 2, game=Game(id="large", timeout=5000))
    if large.pop("long", False):
        snake = board.snake("snake_0")
        snake.body[1:] = [snake.body[-1]] * 700
    body = board.to_api("snake_0")
    body["board"] |= large
    for turn in range(3):
        answer = client.post("/move", json=body | {"turn": turn})
        assert answer.status_code == 200
        assert answer.get_json()["move"] in board.safe_moves("snake_0")
    metrics = client.get("/metrics").text
    assert 'battlesnake_moves_total{chosen_by="strategy"} 3.0' in metrics
    assert "battlesnake_strategy_errors_total 0.0" in metrics
    assert len(caplog.records) == 1
    assert "Traceback" not in caplog.text


def test_a_log_is_written_sparingly() -> None:
    now = 0.0
    spare = RateLimitFilter(lambda: now)

    def log(count: int) -> list[str]:
        records = [logging.makeLogRecord({"msg": "a line"}) for _ in range(count)]
        return [record.getMessage() for record in records if spare.filter(record)]

    assert log(300) == ["a line"] * 100
    now = 4.0
    told, plain = log(5)
    assert re.match(r"\(200 .*\) a line$", told)
    assert plain == "a line"
    now = 3600.0
    assert len(log(1000)) == 100


def test_listed_dead_snakes_change_no_move() -> None:
    """Play a game with and without dead snakes; one snake knows the game's earlier turns."""
    board = Board.new(11, 11, 4, game=Game(seed=3, id="both", timeout=10_000))
    me, listed = "snake_0", 0
    clients = [create_app({"POLICY": "shipped"}).test_client() for _ in range(2)]
    while board.turn < 60 and board.snake(me).alive and not board.is_over():
        you = board.snake(me)
        bodies = board.to_api(me), request_of_the_arena(board, you)
        one, other = (
            client.post("/move", json=body).get_json()["move"]
            for client, body in zip(clients, bodies, strict=True)
        )
        assert one == other, f"turn {board.turn}"
        listed += len(board.snakes) - len(board.living)
        # Two opponents soon collide with something.
        moves = {snake.id: (board.safe_moves(snake.id) or ["up"])[0] for snake in board.living}
        moves |= {name: "up" for name in ("snake_1", "snake_2") if board.snake(name).alive}
        board.step(moves | {me: one})
    assert listed > 20

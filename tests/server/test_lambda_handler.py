"""API Gateway's event formats, and the responses that it reads."""

import base64
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_server.live.fallback import FALLBACK_RULE
from battlesnake_server.live.lambda_handler import build_handler

Event = dict[str, Any]
Handler = Callable[[Event, object], Event]


def http_api(method: str, path: str, body: str | None = None) -> Event:
    """Build an event of payload format 2.0 (HTTP APIs and function URLs)."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "key=x",
        "headers": {
            "accept-encoding": "gzip",
            "content-length": str(len(body or "")),
            "content-type": "application/json",
            "host": "abc123.execute-api.us-west-2.amazonaws.com",
            "user-agent": "Go-http-client/2.0",
            "x-amzn-trace-id": "Root=1-5e6722a7-cc56xmpl46db7ae02d4da47e",
            "x-forwarded-for": "205.255.255.176",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
        },
        "queryStringParameters": {"key": "x"},
        "requestContext": {
            "accountId": "123456789012", "apiId": "abc123", "domainPrefix": "abc123",
            "domainName": "abc123.execute-api.us-west-2.amazonaws.com",
            "http": {
                "method": method, "path": path, "protocol": "HTTP/1.1",
                "sourceIp": "205.255.255.176", "userAgent": "Go-http-client/2.0",
            },
            "requestId": "JKJaXmPLvHcESHA=", "routeKey": "$default", "stage": "$default",
            "time": "10/Mar/2020:05:16:23 +0000", "timeEpoch": 1583817383220,
        },
        "isBase64Encoded": False,
    } | ({} if body is None else {"body": body})  # fmt: skip


@pytest.fixture
def handler() -> Handler:
    return build_handler({"SNAKE": "cautious", "AUTHOR": "somebody"})


def test_the_snake_introduces_itself(handler: Handler) -> None:
    answer = handler(http_api("GET", "/"), None)
    assert answer["statusCode"] == 200
    assert answer["isBase64Encoded"] is False
    assert json.loads(answer["body"])["author"] == "somebody"


def test_a_game_is_played(handler: Handler, board: Board) -> None:
    text = json.dumps(board.to_api("snake_0"))
    for path in ("/start", "/move", "/move", "/prod/move", "/end"):
        answer = handler(http_api("POST", path, text), None)
        assert answer["statusCode"] == 200, answer
        if path.endswith("/move"):
            assert json.loads(answer["body"])["move"] in board.safe_moves("snake_0")


def test_bodies_in_base64_are_read(handler: Handler, board: Board) -> None:
    data = base64.b64encode(json.dumps(board.to_api("snake_0")).encode()).decode()
    answer = handler(http_api("POST", "/move", data) | {"isBase64Encoded": True}, None)
    assert answer["statusCode"] == 200


def test_a_broken_request_is_refused(handler: Handler) -> None:
    answer = handler(http_api("POST", "/move", "{"), None)
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["error"]


def test_a_move_began_when_the_gateway_was_asked(board: Board) -> None:
    """Whether the snake or the fallback chooses shows how much of a minute was left."""
    handler = build_handler({"SNAKE": "cautious", "SEND_DECISIONS": True})
    board.game = replace(board.game, timeout=10_000)
    asked = http_api("POST", "/move", json.dumps(board.to_api("snake_0")))
    for waited, late in ((0.0, False), (9.5, True), (-3600, False), (3600, False)):
        asked["requestContext"]["timeEpoch"] = round(1000 * (time.time() - waited))
        answer = json.loads(handler(asked, None)["body"])
        first = answer["decision"]["reasons"][0]
        assert (first["rule"] == FALLBACK_RULE) == late, (waited, answer)


def test_a_move_is_in_time_for_the_function(board: Board) -> None:
    """Lambda ends a function after seconds, also in a game with a longer timeout."""
    handler = build_handler({"SNAKE": "champion"})
    board.game = replace(board.game, timeout=10_000)
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 300)
    began = time.monotonic()
    event = http_api("POST", "/move", json.dumps(board.to_api("snake_0")))
    event["requestContext"]["timeEpoch"] = round(1000 * time.time())
    assert handler(event, context)["statusCode"] == 200
    assert time.monotonic() - began < 5


def test_a_move_is_played_before_the_first_one_is_asked_for(handler: Handler) -> None:
    text = handler(http_api("GET", "/metrics"), None)["body"]
    assert 'battlesnake_moves_total{chosen_by="strategy"} 1.0' in text
    assert "battlesnake_active_games 0.0" in text
    shown = json.loads(handler(http_api("GET", "/now"), None)["body"])["game"]
    assert not shown.get("id"), "the page does not show the warm-up move"


def test_a_policy_of_another_size_plays_a_board_of_its_size_first(
    make_policy: Callable[..., Path],
) -> None:
    handler = build_handler({"POLICY": str(make_policy(sizes=[(7, 9)]))})
    text = handler(http_api("GET", "/metrics"), None)["body"]
    assert "battlesnake_strategy_errors_total 0.0" in text


def test_a_wrong_configuration_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATTLESNAKE_SNAKE", "nobody")
    monkeypatch.delitem(sys.modules, "battlesnake_server.live.lambda_handler", raising=False)
    with pytest.raises(ValueError, match="'nobody'"):
        importlib.import_module("battlesnake_server.live.lambda_handler")

"""The server as a SageMaker endpoint, and a live snake in front of it."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_server.live.app import create_app
from battlesnake_server.live.endpoint import EndpointSnake
from tests.processes import fetch, fetch_json


def test_an_endpoint_is_healthy_and_takes_the_body_of_a_move(
    cautious: str, body: dict[str, Any], board: Board
) -> None:
    with urllib.request.urlopen(f"{cautious}/ping") as answer:
        assert answer.status == 200
    assert fetch_json(f"{cautious}/invocations", body)["move"] in board.safe_moves("snake_0")


def test_a_live_snake_asks_an_endpoint(
    serve: Callable[..., str],
    policy_file: Path,
    body: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS' own client calls /endpoints/NAME/invocations, which our server takes for a base path."""
    pytest.importorskip("boto3", reason="needs the extra sagemaker-local")
    endpoint = serve("--policy", str(policy_file))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    live = serve("--snake", "cautious", "--endpoint", "policy-Endpoint-1")
    body["game"]["timeout"] = 20_000  # a busy machine must not bring in the fallback
    expected = fetch_json(f"{endpoint}/move", body)["move"]
    assert fetch_json(f"{live}/move", body)["move"] == expected
    for address, moves in ((live, "1.0"), (endpoint, "2.0")):
        told = f'battlesnake_moves_total{{chosen_by="strategy"}} {moves}'
        assert told in fetch(f"{address}/metrics")


def test_the_snake_steps_in_where_the_endpoint_does_not_answer(board: Board) -> None:
    class Nobody:
        def invoke_endpoint(self, **request: Any) -> dict[str, Any]:
            raise ConnectionError("nobody is there")

    class Odd:
        def invoke_endpoint(self, **request: Any) -> dict[str, Any]:
            return {"Body": io.BytesIO(b'{"move": "sideways"}')}

    board.you_id = "snake_0"
    expected = snakes.make("cautious", 1)(board).move
    for runtime in (Nobody(), Odd()):
        snake = EndpointSnake(runtime, "policy", snakes.make("cautious", 1))
        assert snake(board, 0.4).move == expected


def test_an_endpoint_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3", reason="needs the extra sagemaker-local")
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ValueError, match="'policy' cannot be asked: You must specify a region"):
        create_app({"SNAKE": "cautious", "ENDPOINT": "policy"})

"""The server as a SageMaker endpoint, and the live snake of docs/aws.md in front of it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.board import Board

PAGE = Path(__file__).parents[2] / "docs/aws.md"


def post(address: str, body: dict[str, Any]) -> Any:
    with urllib.request.urlopen(address, json.dumps(body).encode()) as answer:
        return json.load(answer)


def test_an_endpoint_is_healthy_and_takes_the_body_of_a_move(
    cautious: str, body: dict[str, Any], board: Board
) -> None:
    with urllib.request.urlopen(f"{cautious}/ping") as answer:
        assert answer.status == 200
    assert post(f"{cautious}/invocations", body)["move"] in board.safe_moves("snake_0")


def test_a_live_snake_asks_an_endpoint(
    serve: Callable[..., str],
    policy_file: Path,
    body: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS' own client calls /endpoints/NAME/invocations, which our server takes for a base path."""
    pytest.importorskip("boto3", reason="needs the extra sagemaker-local")
    endpoint = serve("--policy", str(policy_file))
    (snake,) = re.findall(r"^```python remote.py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    file = tmp_path / "remote.py"
    file.write_text(snake)
    monkeypatch.setenv("BATTLESNAKE_GYM_FILES", str(file))
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    live = serve("--snake", "remote")
    body["game"]["timeout"] = 20_000  # a busy machine must not bring in the fallback
    expected = post(f"{endpoint}/move", body)["move"]
    assert post(f"{live}/move", body)["move"] == expected
    with urllib.request.urlopen(f"{live}/metrics") as answer:
        assert b'battlesnake_moves_total{chosen_by="strategy"} 1.0' in answer.read()
    with urllib.request.urlopen(f"{endpoint}/metrics") as answer:
        assert b'battlesnake_moves_total{chosen_by="strategy"} 2.0' in answer.read()

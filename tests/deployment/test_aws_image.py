"""The image for AWS, without a container engine: what Lambda starts in it, started."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_server.commands import pack
from tests.deployment.containers import ROOT
from tests.processes import PATIENCE
from tests.server.test_lambda_handler import http_api

pytest.importorskip("cfnlint", reason="needs the extra dev")

from tests.deployment import templates

DOCKERFILE = (ROOT / "deployment/server/aws.Dockerfile").read_text()


@pytest.fixture
def board() -> Board:
    return Board.new(11, 11, 2, game=Game(seed=1, id="image"))


def test_the_image_runs_without_root_on_pinned_packages() -> None:
    assert re.findall(r"^USER (\d+)$", DOCKERFILE, re.MULTILINE)[-1] == "10001"
    assert (
        "pip install --no-cache-dir --require-hashes -r /snake/requirements-aws.txt" in DOCKERFILE
    )
    pinned = (ROOT / "deployment/server/requirements-aws.txt").read_text()
    (pin,) = re.findall(r"^awslambdaric==\S+", pinned, re.MULTILINE)
    assert pin in (ROOT / "constraints.txt").read_text().splitlines()


def test_the_image_s_folder_is_where_the_templates_look() -> None:
    (folder,) = re.findall(r"^COPY \. (\S+)$", DOCKERFILE, re.MULTILINE)
    for name in ("lambda", "container"):
        assert f"{folder}policy.onnx" in templates.text(name)


RULES = """
from battlesnake_gym import snakes
from battlesnake_heuristics import SAFE, Pipeline, Preference


@Preference
def low(view, move):
    return -view.targets[move][1]


snakes.register("mine", lambda seed: Pipeline(*SAFE, low, seed=seed))
"""


@pytest.fixture(params=["cautious", "snake.zip"])
def snake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A named snake, and a bundle of rules as it is in the image's folder."""
    if request.param == "cautious":
        return "cautious"
    rules, path = tmp_path / "my_rules.py", tmp_path / request.param
    rules.write_text(RULES)
    assert pack.main([str(rules), "--color", "#123456", "-o", str(path)]) == 0
    rules.unlink()
    return str(path)


def expected(snake: str, board: Board) -> str:
    """What it plays in this process."""
    you = board.copy()
    you.you_id = "snake_0"
    return snakes.make(snake)(you).move


class Lambda(ThreadingHTTPServer):
    """Lambda's side of the runtime API: hands out events, takes answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), LambdaRequest)
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.answers: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()


class LambdaRequest(BaseHTTPRequestHandler):
    server: Lambda
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert self.path == "/2018-06-01/runtime/invocation/next"
        event = json.dumps(self.server.events.get()).encode()
        self.send_response(200)
        self.send_header("Lambda-Runtime-Aws-Request-Id", "request-1")
        self.send_header("Lambda-Runtime-Deadline-Ms", "4102444800000")
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:::function:snake")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(event)))
        self.end_headers()
        self.wfile.write(event)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.answers.put((self.path, body))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Lambda]:
    with Lambda() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_lambda_s_entry_point_answers_events(
    service: Lambda, board: Board, tmp_path: Path, snake: str
) -> None:
    pytest.importorskip("awslambdaric", reason="needs the extra dev")
    (function,) = templates.resources("lambda", "AWS::Lambda::Function")
    python, *options = function["ImageConfig"]["EntryPoint"]
    assert python == "/snake/bin/python"
    environment = os.environ | {
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{service.server_address[1]}",
        "BATTLESNAKE_SNAKE": snake,
        "BATTLESNAKE_POLICY": "",
    }
    client = subprocess.Popen(
        [sys.executable, *options, *function["ImageConfig"]["Command"]],
        env=environment,
        cwd=tmp_path,
    )
    try:
        service.events.put(http_api("POST", "/move", json.dumps(board.to_api("snake_0"))))
        path, answer = service.answers.get(timeout=PATIENCE)
        assert path == "/2018-06-01/runtime/invocation/request-1/response", answer
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["move"] == expected(snake, board)
    finally:
        client.kill()
        client.wait(PATIENCE)

"""The environments for OpenEnv and verifiers, installed, pass those projects' own checks."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from tests.processes import free_port, run, served
from tests.wheel.conftest import ROOT, Built, Environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PLAY = """
import sys
from battlesnake_env.client import SnakeClient
from battlesnake_env.models import SnakeAction
from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board

def play(seed, name):
    with SnakeClient(base_url=sys.argv[1]).sync() as game:
        seen = game.reset(seed=seed, opponent="random")
        mine, boards = snakes.make(name, 1), [seen.observation.board]
        while not seen.done:
            seen = game.step(SnakeAction(move=mine(Board.from_text(boards[-1])).move))
            boards.append(seen.observation.board)
        assert game.state().step_count == len(boards) - 1
        return boards, seen.reward

assert play(1, "hunter") == play(1, "hunter")
assert play(1, "hunter")[1] == 1.0
assert play(2, "random")[0] != play(1, "random")[0]
"""


def installed(built: Built, folder: Path, name: str) -> Environment:
    """A new environment with the wheel and the package in ``docs/trainers``."""
    run(sys.executable, "-m", "venv", folder, check=True)
    one = Environment(folder)
    package = shutil.copytree(ROOT / "docs" / "trainers" / name, folder.with_name("package"))
    done = run(one.python, "-m", "pip", "install", "-q", built.wheel, package)
    assert done.returncode == 0, done.stderr[-3000:]
    return one


def test_openenv(built: Built, tmp_path: Path) -> None:
    one = installed(built, tmp_path / "venv", "openenv")
    checker, port = tmp_path / "venv" / "bin" / "openenv", free_port()
    stated = run(checker, "validate", ROOT / "docs" / "trainers" / "openenv", cwd=tmp_path)
    assert "PASS  static.manifest" in stated.stdout
    assert "FAIL" not in stated.stdout
    server = "import uvicorn; from battlesnake_env.server.app import app; uvicorn.run(app, port=%d)"
    words = [one.python, "-c", server % port]
    with served(words, port, "/health", cwd=tmp_path, env=one.variables) as address:
        checked = run(checker, "validate", "--url", address, "--timeout", "60")
        assert checked.stdout.count("PASS ") == 6, checked.stdout
        assert "Verdict: PASS" in checked.stdout
        played = run(one.python, "-c", PLAY, address, cwd=tmp_path, env=one.variables)
        assert played.returncode == 0, played.stderr[-3000:]


@contextmanager
def model(name: str) -> Iterator[str]:
    """A snake that answers as a language model does, where OpenAI's client finds it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            move = snakes.make(name, 1)(Board.from_text(asked["messages"][-1]["content"])).move
            said = [{"role": "assistant", "content": f"The way is {move.upper()}."}, {}]
            text = ""
            for delta in said:
                choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
                chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1}
                text += f"data: {json.dumps(chunk | {'model': name, 'choices': [choice]})}\n\n"
            data = f"{text}data: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_verifiers(built: Built, tmp_path: Path) -> None:
    one = installed(built, tmp_path / "venv", "verifiers")
    programs, options = tmp_path / "venv" / "bin", {"cwd": tmp_path, "env": one.variables}
    words = (
        "battlesnake-v1",
        "--taskset.games",
        3,
        "--runtime.type",
        "subprocess",
        "-o",
        "checked",
    )
    run(programs / "vf-validate", *words, **options)
    (summary,) = (tmp_path / "checked").glob("*/summary.json")
    checks = json.loads(summary.read_text())["checks"]
    assert [checks[name]["valid"] for name in ("gold", "noop")] == [3, 3]
    with model("hunter") as address:
        duel = ("battlesnake-v1", "-m", "hunter", "-n", 1, "--env.taskset.opponent", "random")
        where = ("--client.base-url", address, "--client.api-key-var", "NAME", "-o", "played")
        options["env"] = one.variables | {"NAME": "none"}
        done = run(programs / "vf-eval", *duel, *where, "--push", "False", **options)
    (traces,) = (tmp_path / "played").glob("*/traces.jsonl")
    (trace,) = json.loads(traces.read_text())["traces"]
    assert trace["rewards"]["points"]["score"] == 1.0, done.stdout[-2000:]
    assert trace["metrics"]["turns"] >= 1

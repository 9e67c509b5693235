import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from battlesnake_heuristics.judge.scenarios import SHIPPED, load
from battlesnake_server.commands.scenarios_command import main

TWO = """\
scenario: corner
note: One way.
allowed: up
. . .
. . .
A < <

scenario: other corner
note: Wrong on purpose.
allowed: left
. . .
. . .
> > A
"""


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.txt"
    path.write_text(TWO)
    return str(path)


class Snake(http.server.BaseHTTPRequestHandler):
    """Goes up, and remembers what it was asked."""

    answer = b'{"move": "up"}'
    delay = 0.0
    asked: list[tuple[str, str]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body["game"]["id"]))
        time.sleep(self.delay)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def snake() -> Iterator[tuple[type[Snake], str]]:
    class Handler(Snake):
        asked = []  # noqa: RUF012  (one list a test)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Handler, f"http://127.0.0.1:{server.server_port}/base"
        server.shutdown()
        thread.join()


def test_a_failure_is_shown_with_board_and_reasons(
    two: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([two]) == 1  # the second scenario is mistaken
    failure = capsys.readouterr().out.partition("FAIL")[2]
    assert "other corner" in failure
    assert "up, not left" in failure
    assert "> > A" in failure
    assert "not down, not right" in failure


def test_the_shipped_scenarios_are_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    count = sum(len(load(path)) for path in SHIPPED)
    assert f"{count} of {count} scenarios passed" in capsys.readouterr().out


def test_a_url_is_asked_in_games_of_their_own(
    two: str, snake: tuple[type[Snake], str], capsys: pytest.CaptureFixture[str]
) -> None:
    handler, url = snake
    assert main([two, "--url", url]) == 1
    assert "1 of 2 scenarios passed" in capsys.readouterr().out
    assert handler.asked == [
        (f"/base/{what}", f"scenario-{number}")
        for number in (0, 1)
        for what in ("start", "move", "end")
    ]


def test_no_answer_in_time_fails(
    tmp_path: Path, snake: tuple[type[Snake], str], capsys: pytest.CaptureFixture[str]
) -> None:
    handler, url = snake
    handler.delay = 0.3
    path = tmp_path / "quick.txt"
    path.write_text(TWO.replace("allowed: up\n", "allowed: up\ntimeout=100\n"))
    assert main([str(path), "--url", url]) == 1
    out = capsys.readouterr().out
    assert "no move, not up" in out
    assert "timeout" in out


def test_a_broken_answer_fails(
    two: str, snake: tuple[type[Snake], str], capsys: pytest.CaptureFixture[str]
) -> None:
    handler, url = snake
    handler.answer = b'{"move": "north"}'
    assert main([two, "--url", url]) == 1
    assert "0 of 2 scenarios passed" in capsys.readouterr().out


def test_a_served_snake_passes_what_it_passes_here(
    serve: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", serve("--snake", "territory")]) == 0
    assert "FAIL" not in capsys.readouterr().out


def test_a_policy_is_asked_and_may_refuse_a_board(
    tmp_path: Path, policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["A < < " + ". " * 8] + [". " * 11] * 10
    path = tmp_path / "large.txt"
    path.write_text("scenario: large\nallowed: down\n" + "\n".join(rows) + "\n" + TWO)
    assert main([str(path), "--policy", str(policy_file)]) == 1
    out = capsys.readouterr().out
    assert "pass  large" in out
    assert out.count("no move, not") == 2
    assert "refused" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.txt"], "nowhere.txt"),
        (["--snake", "nobody"], "unknown snake 'nobody'"),
        (["--policy", "nowhere.onnx"], "give the path of a policy.onnx"),
    ],
)
def test_a_wrong_call_is_told(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err

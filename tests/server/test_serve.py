"""A real gunicorn server: broken requests, many games, slow strategies."""

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game
from battlesnake_server.commands import serve_command as module
from tests.processes import COMMAND, PATIENCE, fetch, free_port, until, wait_for


class Engine(http.client.HTTPConnection):
    """A keep-alive connection to a snake."""

    def __init__(self, address: str) -> None:
        super().__init__(urlsplit(address).netloc, timeout=PATIENCE)

    def post(self, path: str, body: object) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.request("POST", path, data)
        answer = self.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture
def engine(cautious: str) -> Iterator[Engine]:
    with contextlib.closing(Engine(cautious)) as engine:
        yield engine


def metric(address: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", fetch(f"{address}/metrics"), re.MULTILINE)
    return float(value)


GOOD = Board.new(11, 11, 4, game=Game(seed=5, id="broken")).to_api("snake_0")
TEXT = json.dumps(GOOD).encode()

BROKEN_BODIES = {
    "empty": b"",
    "white space": b" \n ",
    "cut off": TEXT[: len(TEXT) // 2],
    "trailing text": TEXT + b"}",
    "not JSON": b"move please",
    "form": b"game=1&turn=2",
    "binary": bytes(range(256)),
    "not UTF-8": b'{"game": "\xff\xfe"}',
    "UTF-16": TEXT.decode().encode("utf-16")[:-3],
    "list": b"[]",
    "null": b"null",
    "number": b"1e999",
    "text": b'"game"',
    "deep list": b"[" * 100_000,
    "deep object": b'{"game":' * 20_000,
    "deep and closed": b"[" * 50_000 + b"]" * 50_000,
    "long number": b'{"turn": ' + b"9" * 100_000 + b"}",
    "NaN": TEXT.replace(b'"turn": 0', b'"turn": NaN'),
    "infinity": TEXT.replace(b'"turn": 0', b'"turn": -Infinity'),
    "lone surrogate": TEXT.replace(b"snake_0", b"\\ud800", 1),
    "nul": TEXT.replace(b'"turn": 0', b'"turn": "\\u0000"'),
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94.",
}


@pytest.mark.parametrize("name", BROKEN_BODIES)
@pytest.mark.parametrize("path", ["/start", "/move", "/end"])
def test_broken_bodies_are_refused(engine: Engine, path: str, name: str) -> None:
    status, answer = engine.post(path, BROKEN_BODIES[name])
    accepted = name in ("lone surrogate", "NaN", "infinity", "nul")
    assert status == (200 if accepted else 400), answer
    assert accepted or answer["error"]
    assert engine.post("/move", GOOD)[0] == 200, "the next request on the connection"


def raw(address: str, data: bytes, timeout: float = PATIENCE, *, last: bool = False) -> bytes:
    """Send bytes; return the response until the server closes or pauses.

    ``last`` shuts down the sending side of the connection.
    """
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout) as connection:
        received = b""
        with contextlib.suppress(OSError):  # The server may have closed the connection already.
            connection.sendall(data)
            if last:
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        return received


HEAD = b"POST /move HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"

BROKEN_HTTP = {
    "no HTTP": b"hello\r\n\r\n",
    "endless header": HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": HEAD + b"".join(b"X%d: 1\r\n" % i for i in range(1000)) + b"\r\n",
    "long path": b"POST /" + b"a" * 10_000 + b"/move HTTP/1.1\r\nHost: x\r\n"
    b"Connection: close\r\n\r\n",
    "odd path": b"POST /%00/%ff/../move HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\n{}",
    "too large": HEAD + b"Content-Length: 99999999\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN_HTTP)
def test_broken_http_is_refused(cautious: str, engine: Engine, name: str) -> None:
    answer = raw(cautious, BROKEN_HTTP[name])
    assert not answer or answer.split()[1].startswith(b"4"), answer[:200]
    assert engine.post("/move", GOOD)[0] == 200


def test_chunked_bodies_are_read_and_limited(cautious: str) -> None:
    def chunked(data: bytes) -> bytes:
        return (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"
        )

    assert raw(cautious, chunked(TEXT)).startswith(b"HTTP/1.1 200")
    assert raw(cautious, chunked(b" " * 2_000_000)).split()[1] in (b"400", b"413")


STALLED = {
    "silent": b"",
    "half a line": b"POST /mo",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\n{",
}


def test_clients_that_stop_midway_lose_their_connections(cautious: str) -> None:
    began = time.monotonic()
    with ThreadPoolExecutor(len(STALLED)) as clients:
        answers = list(clients.map(lambda sent: raw(cautious, sent), STALLED.values()))
    assert all(not answer or answer.split()[1].startswith(b"4") for answer in answers), answers
    assert time.monotonic() - began < PATIENCE, "the server closes them, not our own patience"


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_are_answered_or_dropped(cautious: str, data: st.DataObject) -> None:
    """Send valid requests with some bytes removed, duplicated or replaced."""
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(TEXT) + TEXT
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        # Half of the mutations change the headers, which are much shorter than the body.
        last = data.draw(st.sampled_from([len(HEAD) + 30, len(request)]), "where")
        start = data.draw(st.integers(0, last), "from")
        end = data.draw(st.integers(start, start + 20), "to")
        request = request[:start] + data.draw(st.binary(max_size=20), "by") + request[end:]
    began = time.monotonic()
    answer = raw(cautious, request, last=True)
    assert time.monotonic() - began < PATIENCE, "the server closes it, not our own patience"
    assert not answer or answer.split()[1][:1] in b"24", answer[:300]


def test_broken_requests_do_not_disturb_a_game(cautious: str) -> None:
    """The same game during many broken requests has the same moves."""
    alone = play(cautious, 77, 60)
    going_on = threading.Event()
    going_on.set()

    # The id of the game, sent by a snake that is not in it.
    end_of_a_stranger = GOOD | {"game": {"id": "game-77"}, "you": {"id": "x"}}

    def storm(first: int) -> int:
        sent = 0
        engine = Engine(cautious)
        for body in itertools.islice(itertools.cycle(BROKEN_BODIES.values()), first, None):
            for path in ("/start", "/move", "/end"):
                assert engine.post(path, body)[0] in (200, 400)
                sent += 1
            assert engine.post("/end", end_of_a_stranger)[0] == 200
            for broken in BROKEN_HTTP.values():
                raw(cautious, broken, timeout=0.001)
            if not going_on.is_set():
                break
        engine.close()
        return sent

    with ThreadPoolExecutor(4) as troublemakers:
        storms = [troublemakers.submit(storm, 5 * i) for i in range(4)]
        try:
            beside = play(cautious, 77, 60)
        finally:
            going_on.clear()
        assert sum(storm.result() for storm in storms) > 20
    assert beside == alone


def play(address: str, number: int, turns: int, timeout: int = 60_000) -> list[str]:
    """Play one game against a snake that moves straight ahead; return the moves.

    ``timeout`` in ms is sufficient for a strategy on a busy machine.
    """
    game = Game(seed=1000 * number + 1, id=f"game-{number}", timeout=timeout)
    board, answers = Board.new(11, 11, 2, game=game), []
    with contextlib.closing(Engine(address)) as engine:
        assert engine.post("/start", board.to_api("snake_0"))[0] == 200
        for _ in range(turns):
            if board.is_over():
                break
            began = time.perf_counter()
            status, answer = engine.post("/move", board.to_api("snake_0"))
            assert status == 200
            board.snake("snake_0").latency = str(round(1000 * (time.perf_counter() - began)))
            answers.append(answer["move"])
            other = (board.safe_moves("snake_1") or ["up"])[0]
            board.step({"snake_0": answer["move"], "snake_1": other})
        assert engine.post("/end", board.to_api("snake_0"))[0] == 200
    return answers


def test_many_games_at_once(serve: Callable[..., str], policy_file: Path) -> None:
    address = serve("--policy", str(policy_file), "--filters", "head_to_heads", "dead_ends")
    with ThreadPoolExecutor(40) as engines:
        games = list(engines.map(lambda number: play(address, number, 30), range(40)))
    assert sum(map(len, games)) > 300
    moves = metric(address, "battlesnake_move_seconds_count")
    assert moves == sum(map(len, games))
    assert metric(address, 'battlesnake_moves_total{chosen_by="strategy"}') == moves
    assert metric(address, "battlesnake_active_games") == 0


def test_more_searches_than_there_is_time_for_are_all_answered(serve: Callable[..., str]) -> None:
    address = serve("--snake", "minimax")
    with ThreadPoolExecutor(60) as engines:
        games = list(engines.map(lambda number: play(address, number, 4, 1000), range(60)))
    moves = metric(address, "battlesnake_move_seconds_count")
    assert moves == sum(map(len, games)) > 120
    # By the server's own clock, because sixty engines on this machine would be late themselves.
    # With 0.75 s for each and one core for eight games, the mean would be 3 s.
    assert metric(address, "battlesnake_move_seconds_sum") < 2 * moves
    assert metric(address, 'battlesnake_moves_total{chosen_by="strategy"}') > 20


SLOW_RULE = """
import sys, time
from battlesnake_gym import snakes
from battlesnake_heuristics.rule_based.pipeline import Pipeline, Preference
from battlesnake_server.commands import serve_command

@Preference
def slow(view, move):
    time.sleep(1)
    return 0

serve_command._NUM_THREADS = 1
snakes.register("slow", lambda seed: Pipeline(slow))
sys.exit(serve_command.main(sys.argv[1:]))
"""


def test_what_waited_for_a_thread_is_answered_quickly(tmp_path: Path) -> None:
    """There is one thread, and ten games of a slow snake: late requests get fallback moves."""
    program = (sys.executable, "-c", SLOW_RULE, "--snake=slow")
    with started(tmp_path, *program) as (_, address, _):
        with ThreadPoolExecutor(10) as engines:
            games = list(engines.map(lambda number: play(address, number, 1, 500), range(10)))
        assert sum(map(len, games)) == 10
        # Nine, unless the engines themselves are late.
        assert metric(address, "battlesnake_fallback_moves_on_timeout_total") >= 5


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Start a separate server; yield its process (leader of a group), its URL and its log.

    Its home is empty, and no variable of continuous integration is set, because some libraries
    log less there.
    """
    home = folder / "home"
    home.mkdir()
    kept_from = {"CI", "GITHUB_ACTIONS", "TF_BUILD", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in kept_from}
    environment |= {"HOME": str(home), "TMPDIR": str(home)}
    with started(folder, *COMMAND, "serve", *arguments, env=environment) as server:
        yield server


@contextlib.contextmanager
def started(
    folder: Path, *command: str, env: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Start a server on a free port; yield its process (leader of a group), its URL and its log.

    The group is killed at the end.
    """
    port, log = free_port(), folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, f"--port={port}"], env=env, stderr=file, start_new_session=True
        )
    address = f"http://{host}:{port}"
    try:
        wait_for(address, process)
        yield process, address, log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("host", ["::1", "::", "[::1]"])
def test_ipv6_addresses_are_served(tmp_path: Path, host: str) -> None:
    command = (*COMMAND, "serve", "--snake=hungry", f"--host={host}")
    with started(tmp_path, *command, host="[::1]") as (_, address, _):
        assert json.loads(fetch(address))["apiversion"] == "1"


def workers(log: Path, words: str = "Booting worker") -> list[int]:
    """Return the process ids in the matching lines of the log, in order."""
    return [int(pid) for pid in re.findall(rf"{words}.*pid: (\d+)", log.read_text())]


def move(address: str, timeout: int = 60_000) -> str:
    """Return the move of a request on a new connection."""
    board = Board.new(11, 11, 4, game=Game(seed=5, id="a-game", timeout=timeout))
    with contextlib.closing(Engine(address)) as engine:
        status, answer = engine.post("/move", board.to_api("snake_0"))
    assert status == 200
    return str(answer["move"])


ABNORMAL = re.compile("terminate called|Traceback|SIG(ABRT|SEGV|KILL|QUIT)|exited with code")
"""Log texts of a crash or of a killed worker."""


@pytest.mark.parametrize("snake", ["policy", "cautious"])
def test_a_stopped_server_ends_cleanly(tmp_path: Path, policy_file: Path, snake: str) -> None:
    chosen = ["--policy", str(policy_file)] if snake == "policy" else ["--snake", snake]
    with served(tmp_path, *chosen) as (process, address, log):
        assert move(address) in MOVES
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert not ABNORMAL.search(log.read_text()), log.read_text()
    assert not list((tmp_path / "home").iterdir()), "a server writes nothing"


def test_an_interrupted_server_ends_cleanly(tmp_path: Path, policy_file: Path) -> None:
    """Ctrl-C signals master and worker; the master signals the worker again, possibly late."""
    with served(tmp_path, "--policy", str(policy_file)) as (process, address, log):
        assert move(address) in MOVES
        (worker,) = workers(log)

        def is_gone() -> bool:
            try:
                os.kill(worker, signal.SIGQUIT)
            except ProcessLookupError:
                return True
            return False

        os.killpg(process.pid, signal.SIGINT)
        until(lambda: workers(log, "Worker exiting") == [worker])
        until(is_gone)
        assert process.wait(PATIENCE) == 0
    assert not ABNORMAL.search(log.read_text()), log.read_text()


def test_a_stopped_server_answers_what_it_was_asked(tmp_path: Path) -> None:
    """A search is running when the signal arrives; another client is connected and silent."""
    with served(tmp_path, "--snake", "minimax") as (process, address, log):
        parts = urlsplit(address)
        with (
            socket.create_connection((parts.hostname, parts.port)),
            ThreadPoolExecutor(1) as engine,
        ):
            asked = engine.submit(move, address, 2000)
            until(lambda: metric(address, "battlesnake_active_games") == 1)
            process.terminate()
            assert asked.result(PATIENCE) in MOVES
            assert process.wait(PATIENCE) == 0
    assert not ABNORMAL.search(log.read_text()), log.read_text()


def test_a_worker_is_replaced_without_missing_a_move(
    tmp_path: Path, make_policy: Callable[..., Path]
) -> None:
    """Reload the policy by SIGHUP, and recover from the worker's death, with a full disk."""
    path = make_policy([4.0, 3.0, 2.0, 1.0])
    with served(tmp_path, "--policy", str(path)) as (process, address, log):
        first = move(address)
        make_policy([1.0, 2.0, 3.0, 4.0])
        shutil.rmtree(tmp_path / "home")  # No file can be written there, as on a full disk.
        process.send_signal(signal.SIGHUP)
        until(lambda: move(address) in MOVES and workers(log, "Worker exiting") == workers(log)[:1])
        assert move(address) != first
        assert not ABNORMAL.search(log.read_text()), log.read_text()

        os.kill(workers(log)[-1], signal.SIGKILL)
        assert move(address) != first
        assert len(workers(log)) == 3
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_reload_that_fails_keeps_the_old_snake(
    tmp_path: Path, make_policy: Callable[..., Path]
) -> None:
    path = make_policy([4.0, 3.0, 2.0, 1.0])
    with served(tmp_path, "--policy", str(path)) as (process, address, log):
        first, good = move(address), path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        process.send_signal(signal.SIGHUP)
        until(lambda: "not reloaded" in log.read_text())
        assert "policy.json: sha256 is" in log.read_text()
        assert move(address) == first
        make_policy([1.0, 2.0, 3.0, 4.0])
        process.send_signal(signal.SIGHUP)
        until(lambda: len(workers(log, "Worker exiting")) == 1)
        assert move(address) != first, "the next reload succeeds"


def test_a_reload_runs_the_changed_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def move(state):\n    return 'up'\n")
    with served(tmp_path, "--snake", str(path)) as (process, address, log):
        assert move(address) == "up"
        path.write_text("def move(state):\n    return 'left'\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: len(workers(log, "Worker exiting")) == 1)
        assert move(address) == "left"


ASGI = """
class App:
    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"move": "left"}'})

app = App()
"""


def test_a_served_asgi_application_moves_in_time(tmp_path: Path) -> None:
    """The thread of its event loop must start in the process that serves it."""
    path = tmp_path / "mine.py"
    path.write_text(ASGI)
    with served(tmp_path, "--snake", str(path)) as (_, address, _):
        assert move(address) == "left"
        assert metric(address, "battlesnake_fallback_moves_on_timeout_total") == 0


def test_development_reloads_and_waits_after_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def move(state):\n    return 'up'\n")
    with started(tmp_path, *COMMAND, "serve", str(path), "--reload") as (_, address, log):
        assert move(address) == "up"
        path.write_text("def move(state:\n")
        until(lambda: "line 1: SyntaxError" in log.read_text())
        path.write_text("def move(state):\n    return 'left'\n")
        assert move(address) == "left"


def test_what_was_typed_weighs_more_than_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATTLESNAKE_POLICY", "nowhere.onnx")
    monkeypatch.setenv("BATTLESNAKE_FILTERS", "dead_ends")
    assert module.main([]) == 2
    assert "nowhere.onnx" in capsys.readouterr().err
    assert module.main(["--snake", "nobody"]) == 2
    assert "'nobody'" in capsys.readouterr().err
    assert module.main(["--filters", "nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
    monkeypatch.setenv("PORT", "70000")
    assert module.main(["hungry"]) == 2
    assert "serve: PORT must be a whole number between 0 and 65535" in capsys.readouterr().err


def test_a_snake_that_ends_its_process_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("import os\nos._exit(0)\n")
    assert module.main([str(tmp_path / "mine.py")]) == 2
    assert "serve: loading the snake ended its process" in capsys.readouterr().err

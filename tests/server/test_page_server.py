"""The pages' server under strangers: half-open and slow connections, foreign hosts, no token."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlesnake_server.http import page_server
from battlesnake_server.web import games_page
from tests.processes import COMMAND, running
from tests.server import training_runs, web_site
from tests.server.web_site import Pages

MANY = 900
"""Connections that say half a request."""


@contextlib.contextmanager
def showing(
    folder: Path, *command: str, lines: int = 1
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A command that shows pages on a free port, and the lines that it says at its start."""
    call = (*COMMAND, *command, "--port=0")
    with running(*call, cwd=folder, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        yield process, [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def port_of(line: str) -> int:
    found = re.search(r"http://[^/]+:(\d+)/", line)
    assert found is not None, line
    return int(found[1])


def ask(
    port: int, method: str = "GET", path: str = "/", body: object = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = None if body is None else json.dumps(body)
    if sent is not None:
        headers["Content-Type"] = "application/json"
    connection.request(method, path, sent, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def ask_until_answered(port: int, path: str = "/") -> str:
    """The answer to who asks again where even honest requests are cut off for being slow."""
    while True:
        with contextlib.suppress(http.client.RemoteDisconnected, ConnectionError):
            status, text, _ = ask(port, path=path)
            assert status in (200, 503)
            if status == 200:
                return text


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into Linux's /proc")
def test_half_open_connections_take_no_threads_and_make_room(tmp_path: Path) -> None:
    half_open = contextlib.ExitStack()
    with showing(tmp_path, "arena", "--web") as (process, lines), half_open:
        port = port_of(lines[0])

        def threads() -> int:
            status = Path(f"/proc/{process.pid}/status").read_text()
            return int(status.partition("Threads:")[2].split()[0])

        assert ask(port)[0] == 200
        before = threads()
        for number in range(MANY):
            half = half_open.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX" * (number % 2))
            if number % 300 == 0:
                assert ask(port)[0] == 200
        assert ask(port)[0] == 200
        assert threads() <= before + 1
        files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        assert files < page_server.MAX_CONNECTIONS + 60


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /play HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
        b"GET /live.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /live.json HTTP/1.1\r\nHo",
    ],
)
def test_who_drips_is_cut_off(empty: Pages, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a connection: the whole request has one deadline."""
    monkeypatch.setattr(page_server, "_PAGE_REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(page_server, "_PAGE_SEND_TIMEOUT_S", 0.3)
    with web_site.serving(empty.app) as address:
        port = port_of(address + "/")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as dripping:
            dripping.sendall(sent)
            with contextlib.suppress(OSError):
                while True:
                    dripping.sendall(b"a")
                    dripping.settimeout(0.05)
                    with contextlib.suppress(TimeoutError):
                        if not dripping.recv(1 << 16):
                            break
        assert ask_until_answered(port)


def test_who_waits_for_turns_leaves_threads_for_others(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(games_page, "_waiting", threading.BoundedSemaphore(2))
    web_site.announce(empty.broadcast, "on", 1)
    with web_site.serving(empty.app) as address, contextlib.ExitStack() as waiting:
        port = port_of(address + "/")
        for _ in range(20):
            one = waiting.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(b"GET /game/on/data?since=1&wait HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert ask(port)[0] == 200
        empty.broadcast.publish_event("on", None)


# --- who asks -------------------------------------------------------------------------------------


def test_hosts(tmp_path: Path, empty: Pages) -> None:
    known = "localhost:8791 LOCALHOST 127.0.0.1 [::1]:80 192.168.1.7:8791 arena.lan arena.lan.:80"
    unknown = (
        "rebound.example 127.0.0.1.rebound.example localhost.rebound.example notlocalhost "
        "arena.lan@rebound.example [rebound.example] 127.0.0.1:80:80"
    )
    with web_site.serving(empty.app, names=("arena.lan",)) as address:
        port = port_of(address + "/")
        found = {host: ask(port, Host=host)[0] for host in f"{known} {unknown}".split()}
        found[""] = ask(port, Host="")[0]
        # A known host learns what is missing.
        for host, status in (("rebound.example", 421), ("arena.lan", 400)):
            assert ask(port, "POST", "/play/preview", {}, Host=host)[0] == status
        for number, answer in enumerate((b"421", b"200", b"421")):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                hosts = b"Host: 127.0.0.1\r\n" * number
                connection.sendall(b"GET / HTTP/1.%d\r\n%s\r\n" % (min(number, 1), hosts))
                assert connection.recv(12)[9:] == answer, f"{number} times named"
    assert found == dict.fromkeys(known.split(), 200) | dict.fromkeys(["", *unknown.split()], 421)
    with showing(tmp_path, "game", "watch", ".", "--no-browser") as (_, lines):
        assert ask(port_of(lines[0]), Host="rebound.example")[0] == 421


GAME_REQUEST = {"snakes": ["hungry"], "width": 7, "height": 7, "max_turns": 5}


def test_beyond_loopback_only_the_token_does_more_than_look(tmp_path: Path) -> None:
    with showing(tmp_path, "arena", "--web", "--host=0.0.0.0", lines=2) as (_, lines):
        port = port_of(lines[0])
        link = re.search(r"(/\?token=\S+) ", lines[1])
        assert link is not None
        for path in ("/", "/games", "/replays/", "/live", "/live.json", "/leaderboard.json"):
            assert ask(port, path=path)[0] == 200
        for path in ("/play", "/play/preview", "/lab/ask", "/lab/read", "/game/x/press",
                     "/game/x/stop", "/replays/analysis/x.jsonl"):  # fmt: skip
            for cookie in ("", f"arena-{port}=", f"arena-{port}=guess"):
                assert ask(port, "POST", path, GAME_REQUEST, Cookie=cookie)[0] == 403
        for path, button in (("/play", "start"), ("/lab", "query")):
            page = ask(port, path=path)[1]
            assert f'id="{button}" disabled' in page
        assert ask(port, path="/?token=guess")[2]["Set-Cookie"] is None
        status, _, headers = ask(port, path=link[1])
        assert (status, headers["Location"]) == (302, "./")
        cookie = headers["Set-Cookie"]
        assert cookie.startswith(f"arena-{port}="), "servers of one host share their cookies"
        assert "HttpOnly" in cookie
        assert "Max-Age=2592000" in cookie
        assert "SameSite=Strict" in cookie
        mine = {"Cookie": cookie.partition(";")[0]}
        page = ask(port, path="/play", **mine)[1]
        assert 'id="start">' in page
        assert ask(port, "POST", "/play", GAME_REQUEST, **mine)[0] == 201


def test_runs_behind_a_proxy_need_its_name_and_a_token(tmp_path: Path) -> None:
    training_runs.make(tmp_path / "runs", "done", games=(6,))
    command = ("runs", "--web", "--no-browser", "--allow-host=hub.example")
    with showing(tmp_path, *command, lines=2) as (_, lines):
        port = port_of(lines[0])
        assert "/?token=" in lines[1]
        assert ask(port, Host="hub.example")[0] == 200
        assert ask(port, Host="rebound.example")[0] == 421
        status, _, headers = ask(port, path="/" + lines[1].split()[1].rpartition("/")[2])
        assert status == 302
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        for path in ("/replays/fetch", "/replays/analysis/done/games/x.jsonl"):
            assert ask(port, "POST", path, {})[0] == 403
            assert ask(port, "POST", path, {}, **mine)[0] in (400, 404)


def test_a_name_for_the_pages_needs_a_token_too(tmp_path: Path) -> None:
    with showing(tmp_path, "arena", "--web", "--allow-host=arena.lan") as (_, lines):
        port = port_of(lines[0])
        assert ask(port, Host="arena.lan")[0] == 200
        assert ask(port, "POST", "/play", GAME_REQUEST)[0] == 403

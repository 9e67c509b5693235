"""Snake URLs that lead into the operator's network: no request is ever sent there."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.cli.main import COMMANDS
from battlesnake_server.address_policy import (
    LINK_LOCAL,
    LOOPBACK,
    PRIVATE,
    PUBLIC,
    RESERVED,
    AddressPolicy,
    _classify,
    add_page_options,
    open_listener,
)
from battlesnake_server.arena.players import HttpPlayer, MoveResponse
from battlesnake_server.commands import arena_command
from tests.parsers import parser_of
from tests.server import misbehaving_snakes

ROOT = Path(__file__).parents[2]
BODY = {"game": {"id": "a"}, "turn": 0}

ADDRESSES = {
    LOOPBACK: "127.0.0.1 127.9.9.9 0.0.0.0 ::1 :: ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 "
    "2002:7f00:1::1",
    PRIVATE: "10.1.2.3 172.31.0.1 192.168.1.1 100.100.100.200 fd00:ec2::254 fec0::1 "
    "::ffff:10.0.0.1 64:ff9b::a01:203 2002:c0a8:101::",
    LINK_LOCAL: "169.254.169.254 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe",
    PUBLIC: "1.1.1.1 172.32.0.1 100.128.0.1 2606:4700::1111 64:ff9b::101:101 ::ffff:1.1.1.1",
    RESERVED: "0.0.0.1 224.0.0.1 240.0.0.1 255.255.255.255 192.0.2.1 198.18.0.1 ff02::1 "
    "2001:db8::1 64:ff9b:1::1 4000::1 ::ffff:0:7f00:1",
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_every_address_has_its_class(name: str) -> None:
    assert {address: _classify(address) for address in ADDRESSES[name].split()} == dict.fromkeys(
        ADDRESSES[name].split(), name
    )


def test_the_operator_names_a_class_by_typing_an_address_and_not_by_a_name() -> None:
    nobody = AddressPolicy()
    assert nobody.with_typed_address("http://10.0.0.5:8000/x").classes == {PUBLIC, PRIVATE}
    for url in ("http://localhost:8000", "http://[::ffff:127.0.0.1]:80/"):
        assert nobody.with_typed_address(url).classes == {PUBLIC, LOOPBACK}
    for url in ("http://snake.example:8000", "http://2130706433/", "http://[", "hungry"):
        assert nobody.with_typed_address(url) == nobody


@contextlib.contextmanager
def inner() -> Iterator[tuple[int, list[Any]]]:
    """Run a service without authentication; yield its port and its visitors."""
    came: list[Any] = []
    listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    listener.settimeout(20)
    with listener:
        yield listener.getsockname()[1], came
        listener.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:  # An open connection is in the queue.
                came.append(listener.accept())


def ask(
    url: str,
    policy: AddressPolicy = AddressPolicy(),  # noqa: B008
    *,
    redirects: bool = False,
) -> MoveResponse:
    async def talk() -> MoveResponse:
        async with HttpPlayer(url, 2.0, replace(policy, redirects=redirects)) as player:
            await player.fetch_customization()
            await player.start(BODY)
            answer = await player.move(BODY)
            await player.end(BODY)
            return answer

    return asyncio.run(talk())


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "0.0.0.0", "127.1", "2130706433", "0x7f000001", "[::1]", "[::]",
     "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"],
)  # fmt: skip
def test_no_spelling_of_this_machine_reaches_it(host: str) -> None:
    with inner() as (port, came):
        # Some are neither addresses for our HTTP client nor host names for the system.
        assert ask(f"http://{host}:{port}").problem in ("address", "connection")
    assert not came


def test_a_name_is_judged_by_the_address_that_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name resolves to a public address for the check, and to this machine afterwards."""
    answers = ["1.1.1.1", "127.0.0.1"]

    async def resolve(self: Any, host: str, port: int, family: Any = 0) -> list[Any]:
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [{"hostname": host, "host": address, "port": port, "family": socket.AF_INET,
                 "proto": 0, "flags": socket.AI_NUMERICHOST}]  # fmt: skip

    opened: list[str] = []
    real = AddressPolicy.open_socket

    def note(self: AddressPolicy, found: Any) -> socket.socket:
        opened.append(found[4][0])
        made = real(self, found)
        made.close()  # Tests must not connect to the public address.
        return made

    monkeypatch.setattr("aiohttp.resolver.ThreadedResolver.resolve", resolve)
    monkeypatch.setattr(AddressPolicy, "open_socket", note)
    with inner() as (port, came):
        url = f"http://rebound.example:{port}"
        assert ask(url).problem in ("address", "connection")
        assert ask(url).problem == "address"
    assert opened[0] == "1.1.1.1"
    assert "127.0.0.1" in opened
    assert not came


def test_allowed_classes_are_reached() -> None:
    with misbehaving_snakes.snake(misbehaving_snakes.Recorder()) as url:
        port = url.rpartition(":")[2]
        assert ask(url).problem == "address"
        assert ask(url, AddressPolicy(frozenset({PUBLIC, PRIVATE}))).problem == "address"
        assert ask(url, AddressPolicy(frozenset({PUBLIC, LOOPBACK}))).move == "left"
        named = AddressPolicy().with_typed_address("http://localhost")
        assert ask(f"http://localhost:{port}", named).move == "left"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary",
                                    "308 Permanent"])  # fmt: skip
@pytest.mark.parametrize("redirects", [False, True])
def test_no_redirect_leads_to_another_host_or_port(status: str, redirects: bool) -> None:
    with inner() as (port, came):
        there = f"Location: http://127.0.0.1:{port}/admin"
        with misbehaving_snakes.snake(
            misbehaving_snakes.answers(misbehaving_snakes.GOOD, status, there)
        ) as url:
            answer = ask(url, AddressPolicy().with_typed_address(url), redirects=redirects)
        assert (answer.move, answer.problem) == (None, "redirect")
    assert not came


def arena(folder: Path, *arguments: str) -> int:
    small = ("--games=1", "--jobs=1", "--max-turns=3", "--board-size=7")
    database = f"--database=sqlite:///{folder / 'arena.sqlite'}"
    return arena_command.main([*arguments, *small, database])


def test_a_tournament_sends_nothing_inwards_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One snake redirects once the game has started; another uses a host name of this machine."""
    seen: list[bytes] = []

    def turns(connection: Any, head: bytes, body: bytes) -> bool:
        seen.append(head.split(b"\r\n")[0])
        there = f"Location: http://127.0.0.1:{port}/"
        moved = misbehaving_snakes.http(b"", "307 Temporary Redirect", there)
        connection.sendall(moved if len(seen) > 1 else misbehaving_snakes.http(b"{}"))
        return True

    with inner() as (port, came), misbehaving_snakes.snake(turns) as url:
        assert arena(tmp_path, f"stranger={url}", "hungry", "--json", "--follow-redirects") == 0
        problems = {line["snake"]: line["problems"] for line in json.loads(capsys.readouterr().out)}
        assert problems["stranger"]["redirect"] >= 3
        here = socket.gethostname()
        if classify_name(here) not in (None, PUBLIC):
            assert arena(tmp_path, f"http://{here}:{port}", "hungry") == 2
            assert "--allow-networks" in capsys.readouterr().err
    assert not came


def classify_name(name: str) -> str | None:
    try:
        return _classify(socket.gethostbyname(name))
    except OSError:
        return None


def test_a_wrong_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arena(tmp_path, "hungry", "cautious", "--allow-networks=private,everything")
    assert re.search("everything.* loopback, private, link-local", capsys.readouterr().err)


def test_pages_listen_where_they_can_and_name_the_remedy_where_not() -> None:
    parser = argparse.ArgumentParser()
    add_page_options(parser, 8791)
    assert vars(parser.parse_args([])) == {"host": "127.0.0.1", "allow_host": [], "port": 8791}
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port {port}\b"):
            open_listener("127.0.0.1", port)
    assert not AddressPolicy().redirects


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_listen_on_this_machine_alone(command: str) -> None:
    assert parser_of(command).get_default("host") in (None, "127.0.0.1")


def test_programs_without_options_listen_on_this_machine_alone() -> None:
    folders = ("battlesnake_gym", "heuristics", "server", "rllib_src", "rllib_common", "docs")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 200
    for path in found:
        assert not re.search(r"""(\(\(|host=)["']0\.0\.0\.0["']""", path.read_text("utf-8")), path

"""Damaged requests over sockets, each followed by a valid request on the same connection."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game
from tests.json_strategies import JUNK, places, replaced
from tests.processes import PATIENCE

BOARD = Board.new(11, 11, 4, game=Game(seed=5, id="damaged"))
REQUEST = BOARD.to_api("snake_0")
TEXT = json.dumps(REQUEST, separators=(",", ":")).encode()

REPLACEMENTS = st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"]", b",", b"9" * 5000])
DAMAGED = st.one_of(
    st.builds(
        lambda place, junk: json.dumps(replaced(REQUEST, place, junk)).encode(),
        st.sampled_from([*places(REQUEST)]),
        JUNK,
    ),
    st.builds(
        lambda start, length, bytes_: TEXT[:start] + bytes_ + TEXT[start + length :],
        st.integers(0, len(TEXT)),
        st.integers(0, 20),
        REPLACEMENTS,
    ),
    st.sampled_from(["utf-16", "utf-32", "utf-8-sig", "utf-7"]).map(TEXT.decode().encode),
)
"""Bodies with another value at one place, with changed bytes, or in another encoding."""


def head(body: bytes) -> bytes:
    return b"POST /move HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)


def read_response(stream: Any) -> tuple[int, Any]:
    """Read one response; return the status and the decoded JSON."""
    status = int(stream.readline().split()[1])
    length = 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        assert value, "the response is incomplete"
        if name.lower() == b"content-length":
            length = int(value)
    return status, json.loads(stream.read(length))


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(damaged=DAMAGED)
def test_a_damaged_request_gets_a_move_or_is_rejected_and_the_next_is_played(
    cautious: str, damaged: bytes
) -> None:
    address = urlsplit(cautious)
    with socket.create_connection((address.hostname, address.port), PATIENCE) as connection:
        connection.sendall(head(damaged) + damaged + head(TEXT) + TEXT)
        with connection.makefile("rb") as stream:
            status, answer = read_response(stream)
            assert answer["move"] in MOVES if status == 200 else 400 <= status < 500
            status, answer = read_response(stream)
    assert status == 200
    assert answer["move"] in BOARD.safe_moves("snake_0")

from __future__ import annotations

import pytest

from server.worker import is_whole

POST = b"POST /move HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 3\r\n\r\nabc",
        POST + b"content-length:3\r\n\r\nabc",
        POST + b"CONTENT-LENGTH: 3 \r\nX: y\r\n\r\nabcd",
        POST + b"Content-Length: 0\r\n\r\n",
    ],
)
def test_a_request_that_is_there(sent: bytes) -> None:
    assert is_whole(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        POST + b"Content-Length: 3\r\n\r\nab",
        POST + b"Content-Length: 3\r\n",
        POST + b"\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
    ],
)
def test_a_request_that_may_not_be_there(sent: bytes) -> None:
    assert not is_whole(sent)

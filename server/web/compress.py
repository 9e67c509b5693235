"""Answers as few bytes, for who understands gzip."""

from __future__ import annotations

import gzip

from flask import Response, request

LEAST = 1024
"""Bytes below which it is not worth it."""

KINDS = ("text/", "application/json", "application/javascript", "image/svg+xml")


def compressed(response: Response) -> Response:
    """The response, compressed where its kind, its size and its receiver allow that."""
    if (
        response.status_code != 200
        or not (response.mimetype or "").startswith(KINDS)
        or "Content-Encoding" in response.headers
        or request.accept_encodings["gzip"] <= 0
    ):
        return response
    response.direct_passthrough = False
    content = response.get_data()
    if len(content) >= LEAST:
        response.set_data(gzip.compress(content, 6, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    return response

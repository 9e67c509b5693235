"""Who may do more than look: where others can reach the pages, those who have the token.

Anyone who opens an address with ``?token=`` is given it as a cookie that no script reads and no
other site's page can send. Everything that is not only looked at (games, presses, asking a snake)
needs it then.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection

from flask import Flask, Response, current_app, jsonify, redirect, request

_COOKIE = "arena"
_COOKIE_MAX_AGE_S = 30 * 24 * 3600
_MORE = "start or fetch games, steer, ask snakes and have games analysed"
_WITHOUT_TOKEN = (
    "looking is free, but only who opened the address with the token that was printed at the start "
    f"may {_MORE}"
)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("::")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token_for(host: str, names: Collection[str] = ()) -> str | None:
    """A new token where others can reach the pages, by ``host`` or by a name, and else None."""
    return None if is_loopback(host) and not names else secrets.token_urlsafe(16)


def access_hint(address: str, token: str) -> str:
    """The line that shows the operator what to pass on."""
    return f"who opens {address}?token={token} may {_MORE}; everyone else may look\n"


def require_token(app: Flask, token: str | None) -> None:
    """Let only those with ``token`` do more than look; None: everyone."""
    app.config["TOKEN"] = token
    app.before_request(_check_request)
    app.context_processor(lambda: {"may_act": is_authorized()})


def is_authorized() -> bool:
    """Whether who sent the current request may do more than look."""
    token = current_app.config["TOKEN"]
    return token is None or _same(request.cookies.get(_COOKIE, ""), token)


def _check_request() -> Response | tuple[Response, int] | None:
    token = current_app.config["TOKEN"]
    if token is None:
        return None
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return _set_token_cookie(token) if _same(request.args.get("token", ""), token) else None
    return None if is_authorized() else (jsonify(error=_WITHOUT_TOKEN), 403)


def _set_token_cookie(token: str) -> Response:
    """The page without the token in its address, and the token as a cookie."""
    response: Response = redirect(request.path)  # type: ignore[assignment]
    response.set_cookie(
        _COOKIE, token, max_age=_COOKIE_MAX_AGE_S, httponly=True, samesite="Strict", path="/"
    )
    return response


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())

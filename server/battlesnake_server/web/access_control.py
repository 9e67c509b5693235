"""Access control for pages that other machines can reach.

Only visitors with the access token may start games, steer snakes and query snakes. A request with
``?token=`` sets a cookie that scripts cannot read and that pages of other sites cannot send. Every
request other than GET, HEAD and OPTIONS requires this cookie.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection

from flask import Flask, Response, current_app, jsonify, redirect, request

_COOKIE_MAX_AGE_S = 30 * 24 * 3600
ACTION_DESCRIPTION = "start, fetch and analyze games, play in them, and query snakes"
_FORBIDDEN_MESSAGE = (
    "this action needs the access token; open the address with ?token= that the server printed"
)


def _is_loopback_host(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on ``host``.

    >>> [_is_loopback_host(host) for host in ("127.0.0.1", "::1", "localhost", "::")]
    [True, True, True, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def create_token(host: str, names: Collection[str] = ()) -> str | None:
    """Create an access token if other machines can reach the server.

    Args:
        host: Address that the server listens on.
        names: Host names under which other machines reach the server.

    Returns:
        A new token, or None if only this machine can reach the server.
    """
    return None if _is_loopback_host(host) and not names else secrets.token_urlsafe(16)


def require_token(app: Flask) -> None:
    """Require ``app.config["TOKEN"]`` for all requests other than GET, HEAD and OPTIONS.

    If the token is None, which is the default, all requests are allowed.
    """
    app.config["TOKEN"] = None
    app.before_request(_reject_unauthorized_request)
    app.context_processor(lambda: {"may_act": _is_authorized()})


def _is_authorized() -> bool:
    """Return whether the sender of the current request may perform actions."""
    token = current_app.config["TOKEN"]
    return token is None or _is_equal_token(request.cookies.get(_cookie_name(), ""), token)


def _reject_unauthorized_request() -> Response | tuple[Response, int] | None:
    """Return an error, or a redirect that sets the cookie, or None to continue."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        return None if _is_authorized() else (jsonify(error=_FORBIDDEN_MESSAGE), 403)
    token = current_app.config["TOKEN"]
    if token is None or not _is_equal_token(request.args.get("token", ""), token):
        return None
    # Redirect to the address without the token, and set the token in a cookie.
    response: Response = redirect(request.path)  # type: ignore[assignment]
    response.set_cookie(
        _cookie_name(), token, max_age=_COOKIE_MAX_AGE_S, httponly=True, samesite="Strict"
    )
    return response


def _cookie_name() -> str:
    """Return the name of the cookie, which differs between the servers of one machine.

    Browsers send a cookie to all ports of a host.
    """
    return f"arena-{request.environ['SERVER_PORT']}"


def _is_equal_token(given: str, token: str) -> bool:
    """Compare two tokens in constant time."""
    return secrets.compare_digest(given.encode(), token.encode())

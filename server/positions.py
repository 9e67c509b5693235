"""One position, in the forms that people take away from a page."""

from __future__ import annotations

import io

from flask import Response, abort, jsonify

from battlesnake_gym import drawing
from battlesnake_gym.board import Board


def render(board: Board, form: str) -> Response:
    """``text`` for `Board.from_text`, ``json`` as a snake is sent it, ``png``; else 404."""
    if form == "text":
        return Response(f"{board}\n", mimetype="text/plain")
    if form == "json":
        return jsonify(board.to_api())
    if form != "png":
        abort(404)
    buffer = io.BytesIO()
    drawing.image(board).save(buffer, "PNG")
    return Response(buffer.getvalue(), mimetype="image/png")

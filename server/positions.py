"""One position, in the forms that people take away from a page."""

from __future__ import annotations

import io

from flask import Response, abort, jsonify

from battlesnake_gym import drawing
from battlesnake_gym.board import Board

LARGEST_PICTURE = 1400
"""Pixels of a picture's longer side, about; small boards have cells of 28 pixels."""


def render(board: Board, form: str) -> Response:
    """``text`` for `Board.from_text`, ``json`` as a snake is sent it, ``png``; else 404."""
    if form == "text":
        return Response(f"{board}\n", mimetype="text/plain")
    if form == "json":
        return jsonify(board.to_api())
    if form != "png":
        abort(404)
    buffer = io.BytesIO()
    cell = min(28, max(4, LARGEST_PICTURE // max(board.width, board.height, len(board.snakes))))
    drawing.image(board, cell).save(buffer, "PNG")
    return Response(buffer.getvalue(), mimetype="image/png")

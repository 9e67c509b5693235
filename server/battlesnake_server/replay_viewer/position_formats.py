"""Formats in which a page offers one position for download."""

from __future__ import annotations

import io
from collections.abc import Sequence

from flask import Response, abort, jsonify, request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import drawing
from battlesnake_server.replay_viewer import what_if

_MAX_IMAGE_PIXELS = 1400
"""Approximate maximum width or height of an image in pixels.

A cell has at most 28 pixels.
"""


def respond(boards: Sequence[Board], form: str) -> Response:
    """Return the response that contains a position in a format.

    The query parameter ``?if=`` selects turns to play from the position (see `what_if`). The query
    parameter ``?you=`` selects the snake ``you`` of the position.

    Args:
        boards: Consecutive positions of the game; the last is the requested position.
        form: Format of `_render_position`, ``frame`` for the viewer, or ``scenario`` for a text
            file.

    Raises:
        ValueError: If a turn is invalid or the snake does not exist.
    """
    groups = request.args.get("if", "")
    if form == "frame":
        return jsonify(what_if.describe_branch(boards, groups))
    if groups:
        boards, _ = what_if.play_branch(boards, groups)
    board = boards[-1].copy()
    you = request.args.get("you")
    if you is None and form == "scenario":  # A scenario needs a snake that moves.
        you = next((snake.id for snake in board.living), None)
    if you is not None:
        board.you_id = board.snake(you).id
    if form == "scenario":
        text = what_if.build_scenario([*boards[:-1], board]).to_text()
        name = f"attachment; filename=turn-{board.turn}.txt"
        headers = {"Content-Disposition": name}
        return Response(text, mimetype="text/plain", headers=headers)
    return _render_position(board, form)


def _render_position(board: Board, form: str) -> Response:
    """Return the position as ``text``, ``json`` or ``png``.

    `Board.from_text` parses ``text``; ``json`` is the body of a move request. Other formats return
    status 404.
    """
    if form == "text":
        return Response(f"{board}\n", mimetype="text/plain")
    if form == "json":
        return jsonify(board.to_api())
    if form != "png":
        abort(404)
    buffer = io.BytesIO()
    cell = min(28, max(4, _MAX_IMAGE_PIXELS // max(board.width, board.height, len(board.snakes))))
    drawing.image(board, cell).save(buffer, "PNG")
    return Response(buffer.getvalue(), mimetype="image/png")

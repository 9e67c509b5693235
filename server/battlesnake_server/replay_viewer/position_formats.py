"""One position, in the forms that people take away from a page."""

from __future__ import annotations

import io

from flask import Response, abort, jsonify, request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import drawing
from battlesnake_server.replay_viewer import what_if

_MAX_IMAGE_PIXELS = 1400
"""Pixels of a picture's longer side, about; small boards have cells of 28 pixels."""


def answer(board: Board, form: str) -> Response:
    """The position in a form, after the turns of ``?if=`` (`what_if`) and as ``?you=`` sees it.

    The form is one of `render`, ``frame`` for the viewer, or ``scenario``, a text file. Raises
    ``ValueError`` for turns or a snake that there are not.
    """
    groups = request.args.get("if", "")
    if form == "frame":
        return jsonify(what_if.describe(board, groups))
    board, _ = what_if.branch(board, groups) if groups else (board.copy(), "")
    you = request.args.get("you")
    if you is not None:
        board.you_id = board.snake(you).id
    if form == "scenario":
        text = what_if.scenario(board).to_text()
        name = f"attachment; filename=turn-{board.turn}.txt"
        headers = {"Content-Disposition": name}
        return Response(text, mimetype="text/plain", headers=headers)
    return render(board, form)


def render(board: Board, form: str) -> Response:
    """``text`` for `Board.from_text`, ``json`` as a snake is sent it, ``png``; else 404."""
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

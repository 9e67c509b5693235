"""Recorded games for the viewer, a piece at a time, so that a long game is shown at once.

A `FrameStream` plays the game as far as it was asked for, and keeps its pieces compressed: only
one position and what is sent are in memory. Pieces are written as `battlesnake_server.replay_json` says.
"""

from __future__ import annotations

import functools
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

from flask import Response, request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_server import replay_json

_FIRST_CHUNK_BYTES, _CHUNK_BYTES = 128 << 10, 1 << 20
"""Bytes of the frames in the first piece and in the others, before they are compressed."""


class FrameStream:
    """The frames of one file; raises `ReplayError` or ``OSError`` where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._replay, turns = Replay.stream(path)
        self._frames = self._play(self._replay.last, turns)
        self._pieces: dict[int, bytes] = {}
        self._next: int | None = 0
        self._lock = threading.Lock()

    def chunk(self, since: int) -> bytes | None:
        """The compressed piece that begins with the frame ``since``, None where none begins there.

        It is ``{**header, "info", "deaths", "from", "frames", "over", "more"}``: ``deaths`` are
        those that are known so far, and where there is ``more`` the next piece begins behind it.
        """
        with self._lock:
            while since not in self._pieces and self._next is not None and self._next <= since:
                start = self._next
                self._pieces[start] = self._cut(start)
            return self._pieces.get(since)

    def _cut(self, start: int) -> bytes:
        texts: list[str] = []
        size, most, more = 0, _CHUNK_BYTES if start else _FIRST_CHUNK_BYTES, True
        while size < most:
            text = next(self._frames, None)
            if text is None:
                more = False
                break
            texts.append(text)
            size += len(text)
        replay = self._replay
        head = {
            **replay_json.header(replay.first),
            "info": {key: str(value) for key, value in replay.info.items()},
            "deaths": [{"turn": on, "id": who, "cause": why} for on, who, why in replay.deaths()],
            "from": start,
            "over": True,
            "more": more,
        }
        self._next = start + len(texts) if more else None
        text = f'{_dumps(head)[:-1]}, "frames": [{", ".join(texts)}]}}'
        return gzip.compress(text.encode(), 6, mtime=0)

    def _play(self, board: Board, turns: Iterator[Turn]) -> Iterator[str]:
        """All frames as JSON."""
        for turn in turns:
            yield _dumps(replay_json.frame(board, turn))
            turn.play(board)
        yield _dumps(replay_json.frame(board))


_dumps = functools.partial(json.dumps, allow_nan=False)


def opened(path: Path) -> FrameStream:
    """The film of a file, the same one for all who look at it now."""
    status = path.stat()
    return _opened(path, status.st_mtime, status.st_size)


@functools.lru_cache(maxsize=16)
def _opened(path: Path, modified: float, size: int) -> FrameStream:
    """``modified`` and ``size`` let a changed file be read again."""
    return FrameStream(path)


def answer(path: Path) -> Response | None:
    """The piece of a file that begins with the frame ``?since=`` of the current request.

    None where no piece begins there. Errors are those of `FrameStream`.
    """
    piece = opened(path).chunk(max(0, request.args.get("since", 0, int)))
    if piece is None:
        return None
    if request.accept_encodings["gzip"] > 0:
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(piece, mimetype="application/json", headers=headers)
    return Response(gzip.decompress(piece), mimetype="application/json")

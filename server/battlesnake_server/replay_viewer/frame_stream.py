"""Recorded games in chunks, so that the viewer shows the first turns immediately.

A `_FrameStream` plays the game up to the requested frame. Only one position and the compressed
chunks are in memory. `battlesnake_server.replay_json` defines the format of the frames.
"""

from __future__ import annotations

import gzip
import threading
from pathlib import Path

from flask import Response, request

from battlesnake_gym.replays.replay import Replay
from battlesnake_server import replay_json
from battlesnake_server.file_cache import cache_by_file

_FIRST_CHUNK_BYTES, _CHUNK_BYTES = 128 << 10, 1 << 20
"""Sizes in bytes of the first chunk and of later chunks, before compression."""


class _FrameStream:
    """Frames of one replay file, as compressed chunks of JSON.

    Raises:
        ReplayError: If the file is damaged.
        OSError: If the file cannot be read.
    """

    def __init__(self, path: Path, view_radius: int | None) -> None:
        self._replay, turns = Replay.stream(path)
        self._replay.set_default_view_radius(view_radius)
        self._frames = replay_json.iter_frames(self._replay.last, turns)
        self._chunks: dict[int, bytes] = {}
        self._next: int | None = 0
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def chunk(self, since: int) -> bytes | None:
        """Return the compressed chunk that starts at the frame ``since``, or None.

        A chunk is a JSON object. The keys are ``info``, ``deaths``, ``from``, ``frames``, ``over``
        and ``more``, and the keys of `replay_json.header`. ``deaths`` lists the eliminations known
        so far. If ``more`` is true, another chunk follows. After an error, every request of a
        later chunk raises the error again.
        """
        with self._lock:
            while since not in self._chunks and self._next is not None and self._next <= since:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                start = self._next
                try:
                    self._chunks[start] = self._build_chunk(start)
                except Exception as error:  # The error ended the iterator of the frames.
                    self._error = error
                    raise
            return self._chunks.get(since)

    def _build_chunk(self, start: int) -> bytes:
        """Build the compressed chunk that starts at the frame ``start``."""
        texts: list[str] = []
        size, limit, more = 0, _CHUNK_BYTES if start else _FIRST_CHUNK_BYTES, True
        while size < limit:
            text = next(self._frames, None)
            if text is None:
                more = False
                break
            texts.append(text)
            size += len(text)
        head = replay_json.replay_header(self._replay)
        head |= {"from": start, "over": True, "more": more}
        self._next = start + len(texts) if more else None
        text = replay_json.chunk_to_json(head, texts)
        return gzip.compress(text.encode(), 6, mtime=0)


@cache_by_file(16)
def _open_stream(path: Path, view_radius: int | None) -> _FrameStream:
    """Return the frame stream of a replay file.

    Concurrent requests share the stream.
    """
    return _FrameStream(path, view_radius)


def respond(path: Path, view_radius: int | None = None) -> Response | None:
    """Return the chunk that starts at the frame ``?since=`` of the current request.

    Args:
        path: Replay file.
        view_radius: View radius if the game's settings have none; None for no limit.

    Returns:
        The response, or None if no chunk starts at that frame.

    Raises:
        ReplayError: If the file is damaged.
        OSError: If the file cannot be read.
    """
    chunk = _open_stream(path, view_radius=view_radius).chunk(
        max(0, request.args.get("since", 0, int))
    )
    if chunk is None:
        return None
    if request.accept_encodings["gzip"] > 0:
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(chunk, mimetype="application/json", headers=headers)
    return Response(gzip.decompress(chunk), mimetype="application/json")

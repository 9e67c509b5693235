"""Who asked: whether it is still there to hear the answer."""

from __future__ import annotations

from collections.abc import Callable


class Client:
    """The other side of one request: it leaves at most once, and any thread may ask or tell."""

    __slots__ = ("_tell", "gone")

    def __init__(self) -> None:
        self.gone = False
        self._tell: Callable[[], object] | None = None

    def leave(self) -> None:
        """The connection was closed."""
        self.gone = True
        if self._tell is not None:
            self._tell()

    def on_leaving(self, tell: Callable[[], object] | None) -> None:
        """Have ``tell`` called when the client leaves, at once where it has."""
        self._tell = tell
        if self.gone and tell is not None:
            tell()

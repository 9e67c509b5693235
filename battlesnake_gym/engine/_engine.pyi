"""The compiled engine; `engine.FastGames` is its only user."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

def observe_by(vectors: str, /) -> None:
    """Choose the code that makes observations: "plain", "avx2", "avx512", or the "best" there is.

    All make the same bytes; tests compare them. Raises ``ValueError`` for others, and for those
    that this processor does not have.
    """

def observes_by() -> str:
    """The name of the code that makes observations: "plain", "avx2" or "avx512"."""

SOURCES: str
"""The hash of the C files that it was compiled from (`build_check.hash_of_sources`)."""

class Batch:
    def __new__(
        cls, num_games: int, sizes: NDArray[np.int32], rules: tuple[Any, ...], map_id: str, /
    ) -> Self: ...
    def step(self, actions: NDArray[np.uint8], which: NDArray[np.bool_] | None = None) -> None:
        """Play one turn of the games that are not over, or only of those in ``which`` bool [N].

        ``actions``: uint8 [N, S], indices into `rules.MOVES`, or 4 for no valid move; those of
        dead snakes and games that are over are not looked at. Raises ``ValueError`` for another
        dtype, shape or value, and `RulesError` where a map cannot go on.
        """
    def reset(self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None) -> None: ...
    def export_words(self, game: int) -> bytes: ...
    def import_words(self, game: int, seed: int, words: bytes) -> None: ...
    def layout(self) -> dict[str, int]: ...
    def observe_into(
        self,
        place: int,
        values: int,
        view: int,
        frames: int,
        rows: int,
        columns: int,
        out: NDArray[np.uint8],
    ) -> None: ...
    def action_mask_into(self, parts: bytes, out: NDArray[np.bool_]) -> None: ...
    def named_choices(self, kinds: NDArray[np.uint8], out: NDArray[np.uint8], /) -> None:
        """Write the best moves of named snakes into ``out`` uint8 [N, S]: bit i is ``MOVES[i]``.

        ``kinds`` uint8 [N, S] says which snake plays each seat (`snakes.engine_code`, 0 for none).
        Seats with none, of dead snakes and of games that are over keep what is in ``out``.
        """
    def named_moves(self, kinds: NDArray[np.uint8], out: NDArray[np.uint8], /) -> None:
        """As `named_choices`, with one of the best moves drawn: its index into `rules.MOVES`.

        The draw follows from the game's seed, its turn and the seat.
        """
    def dump(self) -> bytes:
        """All games, as they lie in memory; for a batch made in the same way by the same code."""
    def restore(self, dump: bytes, /) -> None: ...

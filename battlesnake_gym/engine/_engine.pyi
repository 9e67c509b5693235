"""The compiled engine; only `engine.EngineGames` uses it."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

def set_observation_isa(isa: str, /) -> None:
    """Select the instruction set that encodes observations: "plain", "avx2", "avx512" or "best".

    All produce the same bytes.

    Raises:
        ValueError: If ``isa`` is unknown or the processor does not have it.
    """

def get_observation_isa() -> str:
    """Return the instruction set that encodes observations: "plain", "avx2" or "avx512"."""

SOURCES_HASH: str
"""Hash of the C files from which the module was compiled (`build_check.sources_hash`)."""

class Batch:
    def __new__(
        cls, num_games: int, sizes: NDArray[np.int32], rules: tuple[Any, ...], map_id: str, /
    ) -> Self: ...
    def step(self, actions: NDArray[np.uint8], which: NDArray[np.bool_] | None = None) -> None:
        """Play one turn of the games that are not over, or only of those in ``which`` bool [N].

        ``actions``: uint8 [N, S], indices into `rules.MOVES`, or 4 for no valid move; those of
        eliminated snakes and of finished games are ignored. Raises ``ValueError`` for a wrong
        dtype, shape or value, and `RulesError` if a map cannot continue.
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
        frame_stack: int,
        rows: int,
        columns: int,
        complete: bool,
        out: NDArray[np.uint8],
    ) -> None: ...
    def action_mask_into(self, parts: bytes, out: NDArray[np.bool_]) -> None: ...
    def builtin_choices(self, kinds: NDArray[np.uint8], out: NDArray[np.uint8], /) -> None:
        """Write the best moves of built-in snakes to ``out`` uint8 [N, S]: bit i is ``MOVES[i]``.

        ``kinds`` uint8 [N, S] names the snake of each seat (`snakes.engine_code`, 0 for none).
        Seats without a built-in snake, of eliminated snakes and of finished games are unchanged.
        """
    def builtin_moves(self, kinds: NDArray[np.uint8], out: NDArray[np.uint8], /) -> None:
        """Write one of the best moves of built-in snakes to ``out``, as an index of `rules.MOVES`.

        The random choice depends only on the game's seed, its turn and the seat.
        """
    def dump(self) -> bytes:
        """Return the memory of all games; `restore` needs a batch made with the same arguments."""
    def restore(self, dump: bytes, /) -> None: ...

"""Random number generator of Go's ``math/rand``, which the official engine uses.

Output k of the generator is ``o[k] = o[k - 273] + o[k - 607]`` modulo 2**64. The 607 words of the
seeded state count as the outputs -606 to 0. A word is computed only when an output depends on the
word, because a turn needs few outputs. Each word combines three steps of a small multiplicative
generator with a constant.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from pathlib import Path
from typing import TypeVar

_NUM_STATE_WORDS = 607
_TAP = 273
_FEED = _NUM_STATE_WORDS - _TAP
_LCG_MODULUS = 2**31 - 1
_LCG_FACTOR = 48271
_NUM_SKIPPED_LCG_STEPS = 20
_ZERO_SEED = 89482311
_UINT64_MASK = 2**64 - 1
SEED_TABLE = tuple(
    int(word, 16) for word in Path(__file__).with_name("gorand_table.txt").read_text().split()
)
"""Constant table of Go's ``math/rand``: the state after 7.8e12 outputs.

The table was computed once by repeated squaring modulo ``x**607 - x**334 - 1``. The initial state
was seeded with 1 by the small generator alone: three steps per word, shifted by 20, 10 and 0 bits.
"""

_T = TypeVar("_T")


def _lcg_powers() -> list[int]:
    power = pow(_LCG_FACTOR, _NUM_SKIPPED_LCG_STEPS, _LCG_MODULUS)
    powers = []
    for _ in range(3 * _NUM_STATE_WORDS):
        power = power * _LCG_FACTOR % _LCG_MODULUS
        powers.append(power)
    return powers


_LCG_POWERS = _lcg_powers()


class GoRand:
    """Random number generator with the outputs of Go's ``math/rand``.

    The numbers equal the outputs of ``rand.New(rand.NewSource(seed))``.

    Args:
        seed: Any integer, which is reduced to a signed 64-bit number as in Go.

    >>> rand = GoRand(1)
    >>> [rand.intn(100) for _ in range(5)]
    [81, 87, 47, 59, 81]
    """

    __slots__ = ("_outputs", "_seed")

    def __init__(self, seed: int) -> None:
        signed = (seed + 2**63) % 2**64 - 2**63
        self._seed = signed % _LCG_MODULUS or _ZERO_SEED
        self._outputs: list[int] = []

    def _seeded_word(self, index: int) -> int:
        seed = self._seed
        a, b, c = _LCG_POWERS[3 * index : 3 * index + 3]
        low = seed * b % _LCG_MODULUS << 20 ^ seed * c % _LCG_MODULUS
        return (seed * a % _LCG_MODULUS << 40 ^ low ^ SEED_TABLE[index]) & _UINT64_MASK

    @property
    def drawn(self) -> int:
        """Number of outputs that were drawn since the seeding."""
        return len(self._outputs)

    def skip(self, outputs: int) -> None:
        """Draw and discard ``outputs`` outputs."""
        for _ in range(outputs):
            self.uint64()

    def uint64(self) -> int:
        """Draw the next output, an integer in [0, 2**64 - 1]."""
        outputs = self._outputs
        k = len(outputs) + 1
        older = (
            outputs[k - _NUM_STATE_WORDS - 1]
            if k > _NUM_STATE_WORDS
            else self._seeded_word((_FEED - k) % _NUM_STATE_WORDS)
        )
        newer = outputs[k - _TAP - 1] if k > _TAP else self._seeded_word(_NUM_STATE_WORDS - k)
        output = (older + newer) & _UINT64_MASK
        outputs.append(output)
        return output

    def int63(self) -> int:
        """Draw an integer in [0, 2**63 - 1]: the next output without its highest bit."""
        return self.uint64() & (_UINT64_MASK >> 1)

    def uint32(self) -> int:
        """Draw an integer in [0, 2**32 - 1]."""
        return self.int63() >> 31

    def int31(self) -> int:
        """Draw an integer in [0, 2**31 - 1]."""
        return self.int63() >> 32

    def intn(self, n: int) -> int:
        """Draw an integer in [0, n - 1], like Go's ``Intn``.

        Args:
            n: Number of possible values, in [1, 2**31 - 1].

        Raises:
            ValueError: If ``n`` is out of range.
        """
        if not 0 < n < 2**31:
            raise ValueError(f"n must be between 1 and 2**31 - 1, got {n}")
        if n & (n - 1) == 0:
            return self.int31() & (n - 1)
        largest = 2**31 - 1 - 2**31 % n
        while (drawn := self.int31()) > largest:
            pass
        return drawn % n

    def between(self, low: int, high: int) -> int:
        """Draw an integer in [low, high], like the official engine's ``Range``."""
        return self.intn(high - low + 1) + low

    def _bounded_uint32(self, n: int) -> int:
        """Draw an integer in [0, n - 1] for `shuffle`.

        The method `intn` uses another algorithm, as in Go.
        """
        product = self.uint32() * n
        if product & 0xFFFFFFFF < n:
            threshold = (2**32 - n) % n
            while product & 0xFFFFFFFF < threshold:
                product = self.uint32() * n
        return product >> 32

    def shuffle(self, items: MutableSequence[_T]) -> None:
        """Shuffle ``items`` in place, like Go's ``Shuffle``."""
        for i in range(len(items) - 1, 0, -1):
            j = self._bounded_uint32(i + 1)
            items[i], items[j] = items[j], items[i]

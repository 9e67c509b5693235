"""Computes the constant table of Go's ``math/rand`` and writes it.

Go seeds its generator with 607 words, each mixed with a word of a fixed table. That table is the
state of the same generator, seeded with 1 in a simpler way, after 7.8e12 outputs. An output is the
sum of the outputs 273 and 607 before it (modulo 2**64), so instead of running so long the step
``x -> x**7.8e12`` is taken by repeated squaring modulo ``x**607 - x**334 - 1``: half a second.

Run ``python tools/make_gorand_table.py`` after changing this file. It rewrites
``battlesnake_gym/rules/gorand_table.txt``, which the rules read and hand to the compiled engine.
"""

from __future__ import annotations

from pathlib import Path

WORDS = 607
TAP = 273
FEED = WORDS - TAP
OUTPUTS = 7_800_000_000_000
LCG_MODULUS = 2**31 - 1
LCG_FACTOR = 48271
MASK = 2**64 - 1
SLOT = 144  # bits a coefficient gets in the big number: two 64-bit factors, 607 summands, a margin

PACKAGE = Path(__file__).resolve().parent.parent / "battlesnake_gym"

Polynomial = list[int]
"""607 coefficients modulo 2**64, lowest first."""


def first_state() -> list[int]:
    """The 607 words of the simpler seeding with 1."""
    x = 1
    for _ in range(20):
        x = x * LCG_FACTOR % LCG_MODULUS
    words = []
    for _ in range(WORDS):
        a = x = x * LCG_FACTOR % LCG_MODULUS
        b = x = x * LCG_FACTOR % LCG_MODULUS
        c = x = x * LCG_FACTOR % LCG_MODULUS
        words.append(a << 20 ^ b << 10 ^ c)
    return words


def square(polynomial: Polynomial) -> Polynomial:
    """``polynomial ** 2`` modulo ``x**607 - x**334 - 1``, multiplied as one big number."""
    packed = int.from_bytes(
        b"".join(word.to_bytes(SLOT // 8, "little") for word in polynomial), "little"
    )
    size = 2 * WORDS - 1
    digits = (packed * packed).to_bytes(size * SLOT // 8, "little")
    product = [
        int.from_bytes(digits[i * SLOT // 8 : (i + 1) * SLOT // 8], "little") & MASK
        for i in range(size)
    ]
    return reduce(product)


def reduce(product: Polynomial) -> Polynomial:
    """Replace every ``x**(607 + i)`` by ``x**(334 + i) + x**i``, highest first."""
    for power in range(len(product) - 1, WORDS - 1, -1):
        product[power - TAP] += product[power]
        product[power - WORDS] += product[power]
    return [word & MASK for word in product[:WORDS]]


def times_x(polynomial: Polynomial) -> Polynomial:
    """``polynomial * x`` modulo ``x**607 - x**334 - 1``."""
    return reduce([0, *polynomial])


def power_of_x(exponent: int) -> Polynomial:
    """``x ** exponent`` modulo ``x**607 - x**334 - 1``."""
    result = [1] + [0] * (WORDS - 1)
    for bit in bin(exponent)[2:]:
        result = square(result)
        if bit == "1":
            result = times_x(result)
    return result


def table() -> list[int]:
    """The state by array index after ``OUTPUTS`` outputs.

    Output k is written to index ``(334 - k) mod 607``, and the seeded words count as the outputs
    -606 to 0. So output m is the sum of ``c[j] * output[j - 606]`` where c are the coefficients of
    ``x**(m + 606)``.
    """
    seeded = first_state()
    early = [seeded[(FEED - k) % WORDS] for k in range(-WORDS + 1, 1)]
    words = [0] * WORDS
    coefficients = power_of_x(OUTPUTS)
    for k in range(OUTPUTS - WORDS + 1, OUTPUTS + 1):
        total = sum(c * word for c, word in zip(coefficients, early, strict=True))
        words[(FEED - k) % WORDS] = total & MASK
        coefficients = times_x(coefficients)
    return words


def main() -> None:
    """Write the table, four words a line in hexadecimal."""
    words = [f"{word:016X}" for word in table()]
    lines = [" ".join(words[i : i + 4]) + "\n" for i in range(0, WORDS, 4)]
    (PACKAGE / "rules" / "gorand_table.txt").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()

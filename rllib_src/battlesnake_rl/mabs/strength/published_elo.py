"""Elo that the documentation gives for the default experiment, by class of processors."""

from __future__ import annotations

import torch

from battlesnake_rl.mabs.policy.q_network import has_native_bfloat16

PUBLISHED_ELO = {True: ("with bfloat16", 1581), False: ("without bfloat16", 1432)}
"""Class of processors and Elo after three CPU minutes, by support of bfloat16.

Each Elo is the median of three runs: Zen 4, and Zen 1 (AVX2). Keep the README and docs equal.
"""


def published_elo_line() -> str:
    """Return the published Elo for the class of this processor as one line of text."""
    kind, elo = PUBLISHED_ELO[has_native_bfloat16(torch.device("cpu"))]
    return (
        f"published: {elo} Elo after 3 CPU minutes of the default experiment on processors "
        f"{kind}, such as this one"
    )

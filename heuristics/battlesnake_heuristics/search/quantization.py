"""The weights of an evaluation as arrays, and the quantization of trained weights.

This is a separate module, because bundles load `evaluation` without NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_heuristics.search.evaluation import (
    HIDDEN1,
    HIDDEN2,
    INPUT_UNIT,
    MAX_WEIGHT,
    NUM_INPUTS,
    STACKS,
    WEIGHT_UNIT,
)


def layers_dtype(inputs: int, hidden: int, second: int) -> np.dtype[np.void]:
    """Return the dtype of one weight stack with the given layer sizes."""
    return np.dtype(
        [
            ("first", np.int16, (inputs // 2, hidden, 2)),
            ("first_bias", np.int32, hidden),
            ("second", np.int16, (hidden // 2, second, 2)),
            ("second_bias", np.int32, second),
            ("last", np.int16, second),
            ("last_bias", np.int32),
        ]
    )


LAYERS = layers_dtype(NUM_INPUTS, HIDDEN1, HIDDEN2)
"""Dtype of one weight stack in C layout, with weights in pairs of inputs."""

FloatLayers = Mapping[str, NDArray[np.floating[Any]]]
"""One stack of float weights.

``first`` is (HIDDEN1, NUM_INPUTS), ``second`` (HIDDEN2, HIDDEN1), ``last`` (HIDDEN2,); the biases
are ``first_bias``, ``second_bias`` and ``last_bias``.
"""


def quantize(stacks: Sequence[FloatLayers]) -> bytes:
    """Quantize the weights of all stacks to bytes.

    Weights are clamped to the ranges of the C code.
    """
    layers = np.zeros(STACKS, LAYERS)
    for stack, weights in zip(layers, stacks, strict=True):
        stack["first"] = _paired(weights["first"])
        stack["second"] = _paired(weights["second"])
        stack["last"] = _rounded(weights["last"])
        for name in ("first_bias", "second_bias", "last_bias"):
            limit = 1 << 29
            bias = np.rint(np.asarray(weights[name], np.float64) * INPUT_UNIT * WEIGHT_UNIT)
            stack[name] = np.clip(bias, -limit, limit).astype(np.int32)
    return layers.tobytes()


def _rounded(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    whole = np.rint(np.asarray(weights, np.float64) * WEIGHT_UNIT)
    return np.clip(whole, -MAX_WEIGHT, MAX_WEIGHT).astype(np.int16)


def _paired(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Reorder weights (out, in) to int16 (in / 2, out, 2)."""
    outputs, inputs = weights.shape
    return _rounded(weights).reshape(outputs, inputs // 2, 2).transpose(1, 0, 2)

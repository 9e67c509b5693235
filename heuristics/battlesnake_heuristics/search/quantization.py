"""Array layout of the weights of an evaluation, and quantization of float weights.

This module imports NumPy. The module `evaluation` does not import NumPy, because bundles load it.
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


def _make_layers_dtype(inputs: int, hidden: int, second: int) -> np.dtype[np.void]:
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


LAYERS_DTYPE = _make_layers_dtype(NUM_INPUTS, HIDDEN1, HIDDEN2)
"""Dtype of one weight stack of full shape, in the layout of the C code."""

FloatLayers = Mapping[str, NDArray[np.floating[Any]]]
"""One weight stack as float arrays.

The weights are ``first`` (HIDDEN1, NUM_INPUTS), ``second`` (HIDDEN2, HIDDEN1) and ``last``
(HIDDEN2,). The biases are ``first_bias`` (HIDDEN1,), ``second_bias`` (HIDDEN2,) and the scalar
``last_bias``.
"""


def quantize(stacks: Sequence[FloatLayers]) -> bytes:
    """Quantize float weight stacks to the bytes of a network.

    Weights and biases are clamped to the ranges of the C code.
    """
    layers = np.zeros(STACKS, LAYERS_DTYPE)
    for stack, weights in zip(layers, stacks, strict=True):
        stack["first"] = _quantize_pairs(weights["first"])
        stack["second"] = _quantize_pairs(weights["second"])
        stack["last"] = _quantize_weights(weights["last"])
        for name in ("first_bias", "second_bias", "last_bias"):
            limit = 1 << 29
            bias = np.rint(np.asarray(weights[name], np.float64) * INPUT_UNIT * WEIGHT_UNIT)
            stack[name] = np.clip(bias, -limit, limit).astype(np.int32)
    return layers.tobytes()


def _quantize_weights(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Quantize float weights (outputs, inputs) to int16 (inputs / 2, outputs, 2)."""
    whole = np.rint(np.asarray(weights, np.float64) * WEIGHT_UNIT)
    return np.clip(whole, -MAX_WEIGHT, MAX_WEIGHT).astype(np.int16)


def _quantize_pairs(weights: NDArray[np.floating[Any]]) -> NDArray[np.int16]:
    """Reorder weights (out, in) to int16 (in / 2, out, 2)."""
    outputs, inputs = weights.shape
    return _quantize_weights(weights).reshape(outputs, inputs // 2, 2).transpose(1, 0, 2)

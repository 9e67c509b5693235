"""Attention network of the starter pack in MXNet Gluon, and its conversion to ONNX.

The network maps the planes of two turns to the values of the four moves. Convolutions process the
planes of each turn. Health, length and turn select learned query vectors. The products of the
queries with a key of every place of the board show which places matter in this state. A GRU (Cho
et al. 2014, https://arxiv.org/abs/1406.1078) reads the two turns one after the other.

Importing this module requires the package mxnet, version 1.9.1 of 2022. While it is imported, it
refers to names that numpy 2 has removed, and its converter imports ``onnx.mapping``, which onnx
1.19 has removed. This module provides the names for that time only.

Axes of the arrays: ``B`` batch, ``T`` two turns,
``C`` planes or channels, ``H`` height, ``W`` width, ``P`` places.
"""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from battlesnake_gym.common.temporary_dirs import temporary_dir
from battlesnake_gym.rules import MOVES
from battlesnake_rl.onnx_export import replace_input_and_output


def _removed_function(*_: Any, **__: Any) -> Any:
    """Stand for a function that MXNet refers to and the baseline does not call."""
    raise NotImplementedError("numpy 2 has removed this function")


_REMOVED_NUMPY_NAMES: dict[str, Any] = {
    "PZERO": 0.0,
    "NZERO": -0.0,
    "PINF": np.inf,
    "Inf": np.inf,
    "NINF": -np.inf,
    "NaN": np.nan,
    "NAN": np.nan,
    "bool": np.bool_,
    **dict.fromkeys(("alltrue", "sometrue", "product", "round_", "in1d"), _removed_function),
    **dict.fromkeys(("msort", "trapz", "row_stack"), _removed_function),
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), _removed_function),
}
"""Values of numpy's removed names, keyed by name."""


def _import_mxnet() -> Any:
    """Import and return MXNet, which then uses one thread per operator.

    Raises:
        ImportError: If MXNet is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns about the names that it will remove.
        missing = [name for name in _REMOVED_NUMPY_NAMES if not hasattr(np, name)]
        for name in missing:
            setattr(np, name, _REMOVED_NUMPY_NAMES[name])
        try:
            import mxnet
            import mxnet.onnx
        finally:
            for name in missing:
                delattr(np, name)
    mxnet.base.check_call(mxnet.base._LIB.MXSetNumOMPThreads(1))
    return mxnet


@contextmanager
def _removed_onnx_names(opset: int) -> Iterator[None]:
    """Provide ``onnx.mapping``, and make onnx check graphs by version ``opset`` of the operators.

    MXNet lets onnx check its graph without the version of the operators that it wrote.
    """
    import onnx
    from onnx import helper

    mapping: Any = types.ModuleType("onnx.mapping")
    mapping.TENSOR_TYPE_TO_NP_TYPE = {
        kind: helper.tensor_dtype_to_np_dtype(kind) for kind in helper.get_all_tensor_dtypes()
    }
    mapping.NP_TYPE_TO_TENSOR_TYPE = {
        kind: number for number, kind in mapping.TENSOR_TYPE_TO_NP_TYPE.items()
    }
    context: Any = onnx.checker.DEFAULT_CONTEXT
    versions, context.opset_imports = context.opset_imports, {"": opset}
    sys.modules[mapping.__name__] = onnx.mapping = mapping  # type: ignore[attr-defined]
    try:
        yield
    finally:
        context.opset_imports = versions
        del sys.modules[mapping.__name__], onnx.mapping  # type: ignore[attr-defined]


mx = _import_mxnet()
nn = mx.gluon.nn

_NUM_CHANNELS = 6
_PIXELS_PER_CELL = 3
"""Width and height of a cell in pixels, so that four convolutions with stride 2 fit the board."""
_GRU_UNITS = 128
_NUM_PLANES = 7
"""Planes of one turn: food, own snake, other snakes, hazards, health, length and turn."""
_NUM_PICTURE_PLANES = 3
"""Number of the first planes, which are convolved; the starter pack had no hazards."""

_HEALTH, _LENGTH, _TURN = (101, 200), (51, 10), (10, 200)
"""For each number, the number of its values and the number of query vectors of each value."""

_OPSET, _IR_VERSION = 13, 8
"""Version of ONNX's operators that MXNet 1.9.1 writes, and the file format that introduced it."""


class _Attention(nn.HybridBlock):  # type: ignore[misc, name-defined]
    """Products of query vectors with the places of the board.

    The block maps features (B, C, H, W) and numbers (B,) to products (B, ``queries``, P).
    """

    def __init__(self, values: int, queries: int) -> None:
        super().__init__()
        self.queries = queries
        with self.name_scope():
            self.key = _convolution(_NUM_CHANNELS)
            self.key_norm = nn.LayerNorm(in_channels=_NUM_CHANNELS)
            self.query = nn.Embedding(values, queries * _NUM_CHANNELS)
            self.query_norm = nn.LayerNorm(in_channels=_NUM_CHANNELS)

    def hybrid_forward(self, F: Any, features: Any, numbers: Any) -> Any:  # noqa: N803
        """Return the product of every query with every key."""
        keys = self.key(features).reshape((0, 0, -1)).transpose((0, 2, 1))
        queries = self.query(numbers).reshape((0, self.queries, _NUM_CHANNELS))
        products = F.batch_dot(self.query_norm(queries), self.key_norm(keys), transpose_b=True)
        return products / math.sqrt(self.queries)


class AttentionNetwork(nn.HybridBlock):  # type: ignore[misc, name-defined]
    """Network from float planes (B, 2 * C, H, W), the latest turn first, to values (B, 4)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.size = height, width
        pixels = height * _PIXELS_PER_CELL, width * _PIXELS_PER_CELL
        self.attention_size = _halve(pixels, 2)
        self.features = _NUM_CHANNELS * math.prod(_halve(pixels, 3))
        with self.name_scope():
            self.first = _convolution(_NUM_PICTURE_PLANES, "softrelu")
            self.second = _convolution(_NUM_CHANNELS, "softrelu")
            self.by_health = _Attention(*_HEALTH)
            self.by_length = _Attention(*_LENGTH)
            self.by_turn = _Attention(*_TURN)
            self.combine = _convolution(_NUM_CHANNELS + _HEALTH[1] + _LENGTH[1] + _TURN[1])
            self.gru = mx.gluon.rnn.GRU(_GRU_UNITS, layout="NTC", input_size=self.features)
            self.values = nn.Dense(len(MOVES), in_units=2 * _GRU_UNITS)

    def hybrid_forward(self, F: Any, planes: Any) -> Any:  # noqa: N803
        """Return the values of the moves."""
        latest, previous = (
            planes.slice_axis(axis=1, begin=begin, end=begin + _NUM_PLANES)
            for begin in (0, _NUM_PLANES)
        )
        turns = F.concat(previous, latest, dim=1).reshape((-1, _NUM_PLANES, math.prod(self.size)))
        pictures = turns.slice_axis(axis=1, begin=0, end=_NUM_PICTURE_PLANES)
        # The observation has 250 for a head, 50 for a body and 255 outside of the board. The
        # starter pack had 5, 1 and -1.
        pictures = pictures / 50 - (pictures - 250).clip(0, 5) * 1.22
        pictures = pictures.reshape((-1, _NUM_PICTURE_PLANES, *self.size))
        for axis in (2, 3):
            pictures = pictures.repeat(axis=axis, repeats=_PIXELS_PER_CELL)
        features = self.first(pictures)

        # Each of these planes has the same number in all cells.
        numbers = turns.slice_axis(axis=2, begin=0, end=1).reshape((0, -1))
        health, length, turn = (
            numbers.slice_axis(axis=1, begin=plane, end=plane + 1).reshape((-1,))
            for plane in range(_NUM_PLANES - 3, _NUM_PLANES)
        )
        attention = F.concat(
            self.by_health(features, (health * (100 / 255) + 0.5).floor()),
            self.by_length(features, length / 5),
            self.by_turn(features, turn.clip(0, _TURN[0] - 1)),
            dim=1,
        ).reshape((0, 0, *self.attention_size))
        combined = self.combine(F.concat(self.second(features), attention, dim=1))
        return self.values(self.gru(combined.reshape((-1, 2, self.features))))

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> AttentionNetwork:
        """Return a network with random weights for observations of ``shape``, (2 * C, H, W)."""
        network = cls(*shape[1:])
        network.initialize(mx.init.Xavier())
        network.hybridize(static_alloc=True)
        network(mx.nd.zeros((1, *shape)))  # The first call compiles the network.
        return network

    def get_parameters(self) -> dict[str, Any]:
        """Return MXNet's parameters, keyed by name."""
        return dict(self._collect_params_with_prefix())

    def get_weights(self) -> dict[str, NDArray[np.float32]]:
        """Return copies of the weights, keyed by name."""
        return {name: one.data().asnumpy() for name, one in self.get_parameters().items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Set the weights to the arrays that `get_weights` returned."""
        for name, one in self.get_parameters().items():
            one.set_data(mx.nd.array(weights[name]))

    def write_onnx(self, shape: tuple[int, ...], path: Path) -> None:
        """Write the network as ONNX with the inputs and outputs of every policy.

        MXNet's own graph has float planes as input, an output that is named after a layer, and the
        weights among its inputs.
        """
        with temporary_dir("mxnet") as folder, _removed_onnx_names(_OPSET):
            self.export(f"{folder}/network", epoch=0)
            mx.onnx.export_model(
                f"{folder}/network-symbol.json",
                f"{folder}/network-0000.params",
                [(1, *shape)],
                [np.float32],
                f"{folder}/network.onnx",
                dynamic=True,
                dynamic_input_shapes=[("batch", *shape)],
            )
            model = onnx.load(f"{folder}/network.onnx")
        replace_input_and_output(model.graph)
        used = {name for node in model.graph.node for name in node.input}
        constants = [one for one in model.graph.initializer if one.name in used]
        del model.graph.initializer[:]
        model.graph.initializer.extend(constants)
        model.producer_name, model.producer_version = "mxnet", mx.__version__
        model.opset_import[0].version, model.ir_version = _OPSET, _IR_VERSION
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def _convolution(channels_in: int, activation: str | None = None) -> Any:
    """Return a 3x3 convolution that halves height and width."""
    return nn.Conv2D(
        _NUM_CHANNELS, kernel_size=3, strides=2, in_channels=channels_in, activation=activation
    )


def _halve(size: tuple[int, int], times: int) -> tuple[int, int]:
    """Return height and width after ``times`` convolutions of `_convolution`."""
    height, width = size
    for _ in range(times):
        height, width = (height - 3) // 2 + 1, (width - 3) // 2 + 1
    return height, width

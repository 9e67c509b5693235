"""From a checkpoint of the baseline to ONNX: ``python -m battlesnake_rl.mxnet_baseline.mxnet_export ...``.

MXNet writes a graph of its own taste: float planes in, an output named after a layer, weights among
the inputs, in the operators of ONNX's version 13 but marked as the newest. Here it gets the inputs
and outputs that every policy has.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from mxnet import nd
from onnx import TensorProto, helper

from battlesnake_rl.mabs.policy.policies import read_best
from battlesnake_rl.mxnet_baseline.mxnet_network import MOVES, make_network, set_weights

OPSET = 13
"""The version of ONNX's operators that MXNet 1.9.1 writes."""
IR_VERSION = 8


def export_network(
    checkpoint: Path, shape: tuple[int, int, int], target: Path, last: bool = False
) -> None:
    """Write the network of ``checkpoint`` for any number of observations of ``shape``.

    It is the strongest that was measured, if one was, and it is not to be the ``last``.
    """
    network = make_network(*shape[1:])
    network.load_parameters(str(checkpoint / "network.params"))
    network(nd.zeros((1, *shape)))
    best = None if last else read_best(checkpoint)
    if best is not None:
        set_weights(network, best)
    with tempfile.TemporaryDirectory() as folder:
        network.export(f"{folder}/network", epoch=0)
        # MXNet has its graph checked without saying which version of the operators it wrote.
        onnx.checker.DEFAULT_CONTEXT.opset_imports = {"": OPSET}
        written = mx.onnx.export_model(
            f"{folder}/network-symbol.json",
            f"{folder}/network-0000.params",
            [(1, *shape)],
            [np.float32],
            f"{folder}/network.onnx",
            dynamic=True,
            dynamic_input_shapes=[("batch", *shape)],
        )
        graph = onnx.load(written).graph
    onnx.save(as_policy(graph, shape), str(target))


def as_policy(graph: Any, shape: tuple[int, int, int]) -> Any:
    """The same network from uint8 ``observations`` to float32 ``q_values``."""
    used = {name for node in graph.node for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in used]
    names = {tensor.name for tensor in graph.initializer}
    (planes,) = (value.name for value in graph.input if value.name not in names)
    (values,) = (value.name for value in graph.output)
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Cast", ["observations"], [planes], to=TensorProto.FLOAT),
                *graph.node,
                helper.make_node("Identity", [values], ["q_values"]),
            ],
            "mxnet_baseline",
            [helper.make_tensor_value_info("observations", TensorProto.UINT8, ["batch", *shape])],
            [helper.make_tensor_value_info("q_values", TensorProto.FLOAT, ["batch", MOVES])],
            weights,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Export; prints the versions that made the file, as JSON."""
    parser = argparse.ArgumentParser(description="Export a checkpoint of the MXNet baseline.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("target", type=Path, help="the .onnx file to write")
    parser.add_argument("--shape", type=int, nargs=3, required=True, metavar=("C", "H", "W"))
    parser.add_argument("--last", action="store_true", help="not the strongest: the last update's")
    arguments = parser.parse_args()
    shape = tuple(arguments.shape)
    export_network(arguments.checkpoint, shape, arguments.target, arguments.last)
    versions = {"mxnet": mx.__version__, "numpy": np.__version__, "onnx": onnx.__version__}
    sys.stdout.write(json.dumps(versions) + "\n")


if __name__ == "__main__":
    main()

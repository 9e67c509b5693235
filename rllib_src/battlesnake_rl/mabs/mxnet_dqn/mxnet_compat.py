"""Import of MXNet 1.9.1 beside the versions of numpy and onnx of this project.

MXNet was last released in 2022. While it is imported, it refers to names that numpy 2 has removed,
and its converter imports ``onnx.mapping``, which onnx 1.19 has removed. This module provides the
names for that time only.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


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


def import_mxnet() -> Any:
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
def removed_onnx_names(opset: int) -> Iterator[None]:
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

"""A trained policy, exported or in a checkpoint, as a function from observations to values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sagemaker_rl import checkpoints

Values = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""A policy: (B, C, H, W) uint8 observations to (B, 4) float32 values, higher is better."""


def load(path: Path) -> tuple[Values, dict[str, Any]]:
    """The policy in ``path`` (a ``.onnx`` file, a checkpoint or a run) and its ``env_config``.

    Raises:
        ValueError: there is none, or its metadata is missing.
    """
    if path.suffix == ".onnx":
        # Else importing it starts a thread that reports to its maker.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        # Not everybody who trains has it: it comes with the extra "server".
        import onnxruntime

        for file in (path, path.with_suffix(".json")):
            if not file.is_file():
                raise ValueError(f"{file} is not there; give a policy with its JSON file beside it")
        metadata = json.loads(path.with_suffix(".json").read_text())
        env_config = metadata.get("training", {}).get("env_config")
        if env_config is None:
            raise ValueError(f"{path.stem}.json has no training.env_config; export it again")
        options = onnxruntime.SessionOptions()
        # More would wait for each other in a loop, beside runners that have the other processors.
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        return lambda frames: session.run(None, {"observations": frames})[0], env_config

    import torch

    from mabs.export import load_network

    checkpoint = checkpoints.find(path)
    network = load_network(checkpoint)

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            answer: NDArray[np.float32] = network(torch.from_numpy(frames)).numpy()
        return answer

    return values, checkpoints.read_facts(checkpoint)["env_config"]

"""A trained policy, exported or in a checkpoint, as a function from observations to values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sagemaker_rl import checkpoints

if TYPE_CHECKING:
    from torch import nn

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

    checkpoint = checkpoints.find(path)
    network = load_network(checkpoint)

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            answer: NDArray[np.float32] = network(torch.from_numpy(frames)).numpy()
        return answer

    return values, checkpoints.read_facts(checkpoint)["env_config"]


def load_network(checkpoint: Path) -> nn.Module:
    """A checkpoint's network: (B, C, H, W) uint8 to (B, 4) float32, higher is better.

    DQN's and APEX's is the mean of what it was in training (`mabs.network.SnakeQModule`).
    """
    from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE
    from ray.rllib.core.rl_module.rl_module import RLModule

    from mabs.network import SnakeQModule

    modules = checkpoint / COMPONENT_LEARNER_GROUP / COMPONENT_LEARNER / COMPONENT_RL_MODULE
    if not modules.is_dir():
        raise ValueError(
            f"{checkpoint} has no torch network; export it and use the policy.onnx that comes of it"
        )
    (folder,) = (path for path in modules.iterdir() if path.is_dir())
    module = RLModule.from_checkpoint(str(folder.absolute()))
    averaged = isinstance(module, SnakeQModule) and module.mean.n_averaged > 0
    network: nn.Module = module.mean.module if averaged else module.network
    return network.eval()

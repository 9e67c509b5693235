"""Networks of policies from other trainers, as torch modules that can be written as ONNX.

Each network maps ``observations`` uint8 (B, C, H, W) to scores (B, 4); higher scores are better.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.policy_file import PolicyError

_MAX_BYTE = np.iinfo(np.uint8).max

MoveFn = Callable[[NDArray[np.uint8]], NDArray[np.integer[Any]]]
"""Function from observations to the moves of the original policy.

The moves are action indices.
"""


def network_from_policy(
    policy: Any, shape: tuple[int, int, int], scale: float | None
) -> tuple[str, Any, MoveFn | None]:
    """Convert a policy to a torch module on the CPU.

    Args:
        policy: Torch module, Stable-Baselines3 model, `RLModule` or path of an RLlib checkpoint.
        shape: Shape (C, H, W) of an observation.
        scale: Factor of the input (see `onnx_export.export`).

    Returns:
        The type of the policy as text, the module, and the function that returns the moves of the
        original policy (None if the module itself defines the moves).

    Raises:
        PolicyError: If the policy is of an unsupported kind, does not fit the observation, or is on
            another device.
    """
    if isinstance(policy, str | Path):
        source = Path(policy)
        if not source.exists():
            raise PolicyError(f"{source}: no such file or folder")
        policy = _load_rllib_module(source)
    try:
        import torch
    except ModuleNotFoundError as error:
        raise PolicyError(
            f"{type(policy).__name__} needs torch, which is missing; pip install torch"
        ) from error
    moves: MoveFn | None = None
    if hasattr(policy, "policy") and hasattr(policy.policy, "obs_to_tensor"):
        kind = f"Stable-Baselines3 {type(policy).__name__}"
        module, moves = _network_from_sb3(policy, kind, shape, scale)
    elif hasattr(policy, "forward_inference") and hasattr(policy, "observation_space"):
        kind = f"RLlib {type(policy).__name__}"
        module, moves = _network_from_rllib(policy, kind, scale)
    elif isinstance(policy, torch.nn.Module):
        kind, module = f"torch {type(policy).__name__}", _scale_input(policy, scale)
    else:
        raise PolicyError(
            f"{type(policy).__name__} is not a policy; use a torch module, a model of "
            "Stable-Baselines3, an RLModule or a checkpoint of RLlib, or an ONNX file"
        )
    device = next(iter(module.parameters()), torch.zeros(0)).device
    if device.type != "cpu":
        raise PolicyError(
            f"the policy is on {device}; move the policy to the CPU with module.cpu()"
        )
    return kind, module, moves


def _load_rllib_module(folder: Path) -> Any:
    """Load the module of an RLlib checkpoint.

    If the checkpoint contains several policies, the function loads the first policy in alphabetical
    order.
    """
    from ray.rllib.core.rl_module.rl_module import RLModule

    modules = folder / "learner_group" / "learner" / "rl_module"
    folders = sorted(path for path in modules.glob("*") if path.is_dir()) or [folder]
    if not list(folders[0].glob("class_and_ctor_args.pkl")):
        raise PolicyError(
            f"{folder} is not an RLlib checkpoint; pass the directory of a checkpoint"
        )
    # For a class that cannot be loaded, RLlib would return an RLModule without a network.
    try:
        with (folders[0] / "class_and_ctor_args.pkl").open("rb") as file:
            _ClassUnpickler(file).load()
    except Exception as error:  # Unpickling may raise any exception.
        raise PolicyError(
            f"{folder}: the module's class cannot be loaded: {error}; add the training code to "
            "PYTHONPATH, and use the Python version of the training"
        ) from error
    return RLModule.from_checkpoint(str(folders[0].absolute()))


class _ClassUnpickler(pickle.Unpickler):
    """Unpickler that names the class in its errors."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return the object with this name in the module."""
        try:
            return super().find_class(module_name, global_name)
        except (AttributeError, ImportError) as error:
            raise PolicyError(f"{module_name}.{global_name}: {error}") from error


def _scale_input(network: Any, scale: float | None) -> Any:
    """Wrap ``network`` in a module with uint8 input.

    The module multiplies its input by ``scale``, unless ``scale`` is None.
    """
    import torch

    def score(network: Any, planes: Any) -> Any:
        answer = network(planes if scale is None else planes.float() * scale)
        return answer.float() if isinstance(answer, torch.Tensor) else answer

    return _wrap(network, score)


def _wrap(module: Any, score: Callable[[Any, Any], Any]) -> Any:
    """Return a torch module with the parameters of ``module``.

    Args:
        module: A torch module.
        score: Function of the module and observations that returns scores, float32 (B, 4).
    """
    import torch

    class Network(torch.nn.Module):
        """Network that scores observations."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, planes: Any) -> Any:
            """Return the scores of observations, float32 (B, 4)."""
            return score(self.module, planes)

    return Network()


def _check_observation_range(kind: str, space: Any, scale: float | None) -> None:
    """Check that a policy was trained on bytes, or on bytes times ``scale``.

    Raises:
        PolicyError: If the observation space has another range.
    """
    if space.dtype == np.uint8 and scale is not None:
        raise PolicyError(f"{kind} was trained on bytes, which scale would change; omit scale")
    low, high = float(space.low.min()), float(space.high.max())
    highest = _MAX_BYTE * (1.0 if scale is None else scale)
    in_range = low == 0 and np.isclose(high, highest)
    if space.dtype != np.uint8 and not in_range:
        raise PolicyError(
            f"{kind} was trained on {space.dtype} in [{low:g}, {high:g}], but the file would pass "
            f"[0, {highest:g}]; set scale (1 / 255 for 0 to 1) if the environment scaled bytes; "
            "after VecNormalize, use model.set_env(VecNormalize.load(statistics, env)); after "
            "another normalization (MeanStdFilter, NormalizeObservation), export a torch module "
            "that contains the normalization"
        )


def _network_from_sb3(
    model: Any, kind: str, shape: tuple[int, int, int], scale: float | None
) -> tuple[Any, MoveFn]:
    """Convert a Stable-Baselines3 model to its actor or Q-network.

    The function also returns the move function of the model. The network has uint8 input and
    contains the normalization of the model's environment.
    """
    from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage

    _check_sb3_policy(model.policy, kind)
    wrappers = _list_sb3_wrappers(model.env, kind)
    normalizations: list[Any] = [
        one for one in wrappers if isinstance(one, VecNormalize) and one.norm_obs
    ]
    wanted = tuple(model.observation_space.shape or ())
    # If the board is narrower than the number of planes, Stable-Baselines3 mistakes the rows for
    # channels.
    transposed = wanted != shape and wanted == (shape[2], shape[0], shape[1])
    if wanted != shape and not transposed:
        raise PolicyError(
            f"the model's input is {wanted}, but the observation is {shape} on these boards; "
            "use the observation and the boards of the model's training"
        )
    space = normalizations[0].venv.observation_space if normalizations else model.observation_space
    _check_observation_range(kind, space, scale)

    def score(policy: Any, planes: Any) -> Any:
        """Apply the environment's normalization, then the actor or the Q-network."""
        if transposed:
            planes = planes.permute(0, 3, 1, 2)
        if scale is not None:
            planes = planes.float() * scale
        for one in normalizations:
            planes = _normalize(planes, one)
        if hasattr(policy, "q_net"):
            return policy.q_net(planes)
        features = policy.extract_features(planes, policy.pi_features_extractor)
        return policy.action_net(policy.mlp_extractor.forward_actor(features))

    def moves(frames: NDArray[np.uint8]) -> NDArray[np.integer[Any]]:
        """Return the moves of the model for observations, as action indices."""
        seen: Any = frames if scale is None else frames.astype(np.float32) * np.float32(scale)
        for wrapper in wrappers:
            if isinstance(wrapper, VecTransposeImage):
                seen = wrapper.transpose_observations(seen)
            elif isinstance(wrapper, VecNormalize):
                seen = wrapper.normalize_obs(seen)
        return np.asarray(model.predict(seen, deterministic=True)[0])

    return _wrap(model.policy, score), moves


def _check_sb3_policy(policy: Any, kind: str) -> None:
    """Check that a Stable-Baselines3 policy has a Q-network or an actor without a state.

    Raises:
        PolicyError: If the policy is recurrent or of another kind.
    """
    if getattr(policy, "lstm_actor", None) is not None:
        raise PolicyError(
            f"{kind} is recurrent, but only RECURRENT_PPO exports states; use an observation with "
            "frame_stack and a non-recurrent algorithm"
        )
    if not hasattr(policy, "q_net") and not (
        hasattr(policy, "action_net") and hasattr(policy, "mlp_extractor")
    ):
        raise PolicyError(
            f"{kind} is not supported: {type(policy).__name__} has neither action_net with "
            "mlp_extractor nor q_net; export a torch module that returns the values of the four "
            "moves"
        )


def _list_sb3_wrappers(env: Any, kind: str) -> list[Any]:
    """Return the wrappers of a model's environment; the innermost wrapper is first.

    Raises:
        PolicyError: If a wrapper stacks turns.
    """
    from stable_baselines3.common.vec_env import VecEnvWrapper, VecFrameStack

    wrappers: list[Any] = []
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecFrameStack):
            raise PolicyError(
                f"{kind} was trained under VecFrameStack, whose order of turns differs; use an "
                "observation with frame_stack instead"
            )
        wrappers.insert(0, env)
        env = env.venv
    return wrappers


def _normalize(planes: Any, normalization: Any) -> Any:
    """Return planes as `VecNormalize` normalizes them.

    VecNormalize also computes in double precision. Single precision would change the result visibly
    for inputs with little variance.
    """
    import torch

    deviation = torch.from_numpy(np.sqrt(normalization.obs_rms.var + normalization.epsilon))
    planes = (planes.double() - torch.from_numpy(normalization.obs_rms.mean)) / deviation
    return planes.clamp(-normalization.clip_obs, normalization.clip_obs).float()


def _network_from_rllib(module: Any, kind: str, scale: float | None) -> tuple[Any, MoveFn | None]:
    """Convert an `RLModule` to a network that returns Q-values or logits.

    The function also returns the move function of the module. The move function is None for this
    project's modules.
    """
    import torch
    from ray.rllib.core.columns import Columns

    if module.is_stateful():
        raise PolicyError(
            f"{kind} is recurrent, but only RECURRENT_PPO exports states; use an observation with "
            "frame_stack and a non-recurrent module"
        )
    _check_observation_range(kind, module.observation_space, scale)
    if isinstance(played := getattr(module, "inference_network", None), torch.nn.Module):
        # This project's networks return the scores directly.
        return _scale_input(played, scale), None

    def to_batch(planes: Any) -> dict[str, Any]:
        """Return RLlib's batch for observations, which are scaled if ``scale`` is set."""
        return {Columns.OBS: planes if scale is None else planes.float() * scale}

    def score(module: Any, planes: Any) -> Any:
        """Return the Q-values or the logits of the module."""
        if hasattr(module, "compute_q_values"):
            return module.compute_q_values(to_batch(planes))["qf_preds"].float()
        answer = module._forward_inference(to_batch(planes))
        return answer[Columns.ACTION_DIST_INPUTS].float()

    def moves(frames: NDArray[np.uint8]) -> NDArray[np.integer[Any]]:
        """Return the moves of the module for observations, as action indices."""
        answer = module.forward_inference(to_batch(torch.from_numpy(frames)))
        if Columns.ACTIONS not in answer:
            answer = {Columns.ACTIONS: answer[Columns.ACTION_DIST_INPUTS].argmax(dim=-1)}
        return np.asarray(answer[Columns.ACTIONS].numpy())

    return _wrap(module, score), moves

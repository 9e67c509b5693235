"""Export of policies from other trainers as ``policy.onnx`` and ``policy.json``.

A policy is a torch module, a Stable-Baselines3 model, an RLlib `RLModule` or checkpoint, an ONNX
file or an onnxruntime session. The exported network maps ``observations`` uint8 ``[batch, planes,
rows, columns]`` to ``q_values`` float32 ``[batch, 4]``; higher values are better. The export checks
the written file on several hundred positions of real games. The file must return the values of the
original policy and prefer the original policy's moves.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import observations
from battlesnake_gym.policy_file import PolicyError
from battlesnake_gym.rules import MOVES

_INPUT, _OUTPUT = "observations", "q_values"
"""Names of the input and the output of ``policy.onnx``."""

NUM_CHECK_GAMES, _NUM_TURNS = 16, 40
"""Number of parallel games and minimum number of turns in the check of an export."""

_MIN_POSITIONS = 500
"""Minimum number of positions in the check of an export."""

_TOLERANCE = 1e-3
"""Maximum relative difference between the file's values and the policy's values.

The difference is relative to the largest absolute value, or to 1 if this value is smaller.
"""

_MAX_BYTE = np.iinfo(np.uint8).max

ScoreFn = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Function from observations uint8 (B, C, H, W) to action scores float32 (B, 4)."""

_MoveFn = Callable[[NDArray[np.uint8]], NDArray[np.integer[Any]]]
"""Function from observations to the moves of the original policy.

The moves are action indices.
"""


def export(
    policy: Any,
    observation: str | Mapping[str, Any] | observations.Observation,
    boards: tuple[int, int] | Sequence[tuple[int, int]],
    path: str | Path = "policy.onnx",
    *,
    scale: float | None = None,
    ruleset: str | Sequence[str] = EnvConfig.ruleset,
    map: str = EnvConfig.map,
    action_mask: str = EnvConfig.action_mask,
    num_snakes: int = 2,
) -> Path:
    """Write a policy as ONNX and its metadata as JSON.

    The JSON file is in the same directory.

    Args:
        policy: A ``torch.nn.Module`` that returns four values per observation; a model of
            Stable-Baselines3 or sb3-contrib; an `RLModule`; the directory of an RLlib checkpoint;
            the path of an ONNX file; or an onnxruntime session. An RLlib checkpoint must come from
            a trusted source, because the export unpickles it.
        observation: Observation type of the policy's training.
        boards: (width, height) of one or several boards; the observation has the size of the
            largest board.
        path: Output file, ``.onnx``.
        scale: Factor that converts the bytes of an observation to the floats that the network
            expects, such as ``1 / 255``; None passes bytes. Stable-Baselines3 scales observations
            itself unless its environment returns floats. The file contains the normalization of a
            `VecNormalize` around the model's environment.
        ruleset: Rulesets of the policy's training, one or several. The check uses the first
            ruleset, which is also the default for evaluation.
        map: Map of the policy's training.
        action_mask: Action mask of the policy's training.
        num_snakes: Number of snakes per game in the policy's training.

    Returns:
        ``path``.

    Raises:
        PolicyError: If the export fails for one of these reasons; no file is written.

            * The policy is of an unsupported kind, or does not fit the observation.
            * The policy was trained under a normalization that the file would lack.
            * The exported file returns other values or prefers other moves.
    """
    sizes = _check_board_sizes(boards)
    rulesets = [ruleset] if isinstance(ruleset, str) else list(ruleset)
    width, height = (max(side) for side in zip(*sizes, strict=True))
    config = EnvConfig(
        num_snakes=num_snakes,
        width=width,
        height=height,
        ruleset=rulesets[0],
        map=map,
        observation=observation,
        action_mask=action_mask,
        max_turns=_NUM_TURNS,
    )
    encoder, shape = config.observation_encoder, config.observation_encoder.shape(width, height)
    path = Path(path)
    if path.suffix != ".onnx":
        raise PolicyError(f"path must end in .onnx, got {path}")

    def write(draft: Path) -> dict[str, Any]:
        """Write and check the ONNX file; return the metadata of the policy."""

        def check(expected: ScoreFn) -> None:
            """Compare the written file with the original policy's score function."""
            check_in_games(draft, expected, VectorBattlesnake.from_config(config, NUM_CHECK_GAMES))

        kind = _write_policy(policy, shape, scale, draft, check)
        return {
            "observation": encoder.to_dict(),
            "board_sizes": [list(size) for size in sorted(sizes)],
            "rulesets": rulesets,
            "training": {
                "algorithm": kind,
                "env_config": {
                    "num_snakes": num_snakes,
                    "width": width,
                    "height": height,
                    "ruleset": rulesets[0],
                    "map": map,
                    "settings": {},
                    "observation": encoder.to_dict(),
                    "action_mask": action_mask,
                },
            },
            "strength": None,
            "versions": _package_versions("battlesnake-gym", "torch", "onnx"),
        }

    policy_file.save(path, write)
    return path


def _check_board_sizes(boards: Any) -> list[tuple[int, int]]:
    """Return the board sizes as a list of (width, height).

    Raises:
        PolicyError: If ``boards`` has another format.
    """
    pairs = [boards] if np.ndim(boards) == 1 else list(boards)
    try:
        sizes = [(int(width), int(height)) for width, height in pairs]
    except (TypeError, ValueError):
        sizes = []
    if not sizes or any(side < 1 for size in sizes for side in size):
        raise PolicyError(
            f"boards must be (width, height) or a list of (width, height), got {boards!r}"
        )
    return sizes


def _package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of the installed packages among ``packages``."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _write_policy(
    policy: Any,
    shape: tuple[int, int, int],
    scale: float | None,
    path: Path,
    check: Callable[[ScoreFn], None],
) -> str:
    """Write the ONNX file and return the type of the policy as text.

    Args:
        policy: Policy to export (see `export`).
        shape: Shape (C, H, W) of an observation.
        scale: Factor of the input (see `export`).
        path: Output file.
        check: Function that compares the written file with the score function of the original
            policy.
    """
    if hasattr(policy, "get_inputs") and hasattr(policy, "run"):
        policy = getattr(policy, "_model_bytes", None) or getattr(policy, "_model_path", None)
        if policy is None:
            raise PolicyError("the session does not name its model; pass the path of the ONNX file")
    if isinstance(policy, bytes) or (isinstance(policy, str | Path) and Path(policy).is_file()):
        check(_rewrite_onnx(policy, scale, path))
        return "ONNX"
    if isinstance(policy, str | Path):
        source = Path(policy)
        if not source.exists():
            raise PolicyError(f"{source}: no such file or folder")
        policy = _load_rllib_module(source)
    moves: _MoveFn | None = None
    try:
        import torch
    except ModuleNotFoundError as error:
        raise PolicyError(
            f"{type(policy).__name__} needs torch, which is missing; pip install torch"
        ) from error
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
    # The exporter needs evaluation mode. Afterwards, each part returns to its original mode,
    # because training may continue.
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            try:
                answer = module(torch.zeros((3, *shape), dtype=torch.uint8))
            except Exception as error:
                raise PolicyError(
                    f"{kind} does not accept uint8 of shape (3, {', '.join(map(str, shape))}): "
                    f"{error}; for float inputs, set scale (1 / 255 for 0 to 1)"
                ) from error
            if not isinstance(answer, torch.Tensor) or answer.shape != (3, len(MOVES)):
                got = getattr(answer, "shape", type(answer).__name__)
                raise PolicyError(
                    f"{kind} must return [batch, 4] for {', '.join(MOVES)}, "
                    f"got {got} for a batch of 3"
                )
        write_onnx(module, shape, path)

        def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
            """Return the scores of the original policy, float32 (B, 4), and check its moves."""
            with torch.no_grad():
                said: NDArray[np.float32] = module(torch.from_numpy(frames)).float().numpy()
            if moves is not None:
                _check_moves(kind, said, moves(frames))
            return said

        check(values)
    finally:
        for part, mode in modes:
            part.training = mode
    return kind


def write_onnx(network: Any, shape: Sequence[int], path: Path) -> None:
    """Write a torch module as ONNX.

    Args:
        network: Module that maps uint8 (B, C, H, W) to float32 (B, 4).
        shape: Shape (C, H, W) of an observation.
        path: Output file.
    """
    import onnx
    import torch

    example = torch.zeros((2, *shape), dtype=torch.uint8)
    # Without this level, the exporter would log every missing optional package.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            (example,),
            input_names=[_INPUT],
            output_names=[_OUTPUT],
            dynamic_shapes=({0: torch.export.Dim.AUTO},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    # Source locations of operators depend on the machine and have no use in the file.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(model, str(path))


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
    return RLModule.from_checkpoint(str(folders[0].absolute()))


def _scale_input(network: Any, scale: float | None) -> Any:
    """Wrap ``network`` in a module with uint8 input.

    The module multiplies its input by ``scale``, unless ``scale`` is None.
    """
    import torch

    class ScaledNetwork(torch.nn.Module):
        """Network with uint8 input that multiplies its input by ``scale``."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, planes: Any) -> Any:
            """Return the scores of observations, float32 (B, 4)."""
            seen = planes if scale is None else planes.float() * scale
            answer = self.network(seen)
            return answer.float() if isinstance(answer, torch.Tensor) else answer

    return ScaledNetwork()


def _check_observation_range(kind: str, space: Any, scale: float | None) -> None:
    """Check that a policy was trained on bytes, or on bytes times ``scale``.

    Raises:
        PolicyError: If the observation space has another range.
    """
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


def _check_moves(kind: str, values: NDArray[np.float32], moves: NDArray[np.integer[Any]]) -> None:
    """Check that the moves of the original policy have the highest values.

    Args:
        kind: Type of the policy, for the error message.
        values: float32 (B, 4), values of the network.
        moves: int (B,), moves of the original policy.

    Raises:
        PolicyError: If another move has a higher value.
    """
    chosen = np.take_along_axis(values, moves.reshape(-1, 1), axis=1)[:, 0]
    tolerance = _TOLERANCE * max(1.0, float(np.abs(values).max()))
    if num_other := int((chosen < values.max(axis=1) - tolerance).sum()):
        raise PolicyError(
            f"{kind} plays other moves than its network prefers, in {num_other} of {len(values)} "
            "positions; export a torch module that returns the values of the four moves"
        )


def _network_from_sb3(
    model: Any, kind: str, shape: tuple[int, int, int], scale: float | None
) -> tuple[Any, _MoveFn]:
    """Convert a Stable-Baselines3 model to its actor or Q-network.

    The function also returns the move function of the model. The network has uint8 input and
    contains the normalization of the model's environment.
    """
    import torch
    from stable_baselines3.common.vec_env import (
        VecEnvWrapper,
        VecFrameStack,
        VecNormalize,
        VecTransposeImage,
    )

    policy = model.policy
    if getattr(policy, "lstm_actor", None) is not None:
        raise PolicyError(
            f"{kind} is recurrent, but the file keeps no recurrent state; use an observation with "
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
    wrappers: list[Any] = []
    env = model.env
    while isinstance(env, VecEnvWrapper):
        wrappers.insert(0, env)
        env = env.venv
    if any(isinstance(wrapper, VecFrameStack) for wrapper in wrappers):
        raise PolicyError(
            f"{kind} was trained under VecFrameStack, whose order of turns differs; use an "
            "observation with frame_stack instead"
        )
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
    factor = None if space.dtype == np.uint8 else scale

    class SB3Network(torch.nn.Module):
        """Actor or Q-network of the model, with the normalization of its environment."""

        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, planes: Any) -> Any:
            """Return the scores of observations, float32 (B, 4)."""
            if transposed:
                planes = planes.permute(0, 3, 1, 2)
            if factor is not None:
                planes = planes.float() * factor
            for one in normalizations:
                # VecNormalize also computes in double precision. Single precision would change the
                # result visibly for inputs with little variance.
                deviation = torch.from_numpy(np.sqrt(one.obs_rms.var + one.epsilon))
                planes = (planes.double() - torch.from_numpy(one.obs_rms.mean)) / deviation
                planes = planes.clamp(-one.clip_obs, one.clip_obs).float()
            if hasattr(self.policy, "q_net"):
                return self.policy.q_net(planes)
            features = self.policy.extract_features(planes, self.policy.pi_features_extractor)
            return self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))

    def moves(frames: NDArray[np.uint8]) -> NDArray[np.integer[Any]]:
        """Return the moves of the model for observations, as action indices."""
        seen: Any = frames if factor is None else frames.astype(np.float32) * np.float32(factor)
        for wrapper in wrappers:
            if isinstance(wrapper, VecTransposeImage):
                seen = wrapper.transpose_observations(seen)
            elif isinstance(wrapper, VecNormalize):
                seen = wrapper.normalize_obs(seen)
        predicted: NDArray[np.integer[Any]] = model.predict(seen, deterministic=True)[0]
        return predicted

    return SB3Network(), moves


def _network_from_rllib(module: Any, kind: str, scale: float | None) -> tuple[Any, _MoveFn | None]:
    """Convert an `RLModule` to a network that returns Q-values or logits.

    The function also returns the move function of the module. The move function is None for this
    project's modules.
    """
    import torch
    from ray.rllib.core.columns import Columns

    if module.is_stateful():
        raise PolicyError(
            f"{kind} is recurrent, but the file keeps no recurrent state; use an observation with "
            "frame_stack and a non-recurrent module"
        )
    _check_observation_range(kind, module.observation_space, scale)
    if isinstance(played := getattr(module, "inference_network", None), torch.nn.Module):
        return _scale_input(
            played, scale
        ), None  # This project's networks return the scores directly.

    def to_batch(planes: Any) -> dict[str, Any]:
        """Return RLlib's batch for observations, which are scaled if ``scale`` is set."""
        return {Columns.OBS: planes if scale is None else planes.float() * scale}

    class RLlibNetwork(torch.nn.Module):
        """Network that returns the Q-values or the logits of the module."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, planes: Any) -> Any:
            """Return the scores of observations, float32 (B, 4)."""
            if hasattr(self.module, "compute_q_values"):
                return self.module.compute_q_values(to_batch(planes))["qf_preds"].float()
            answer = self.module._forward_inference(to_batch(planes))
            return answer[Columns.ACTION_DIST_INPUTS].float()

    def moves(frames: NDArray[np.uint8]) -> NDArray[np.integer[Any]]:
        """Return the moves of the module for observations, as action indices."""
        answer = module.forward_inference(to_batch(torch.from_numpy(frames)))
        if Columns.ACTIONS not in answer:
            answer = {Columns.ACTIONS: answer[Columns.ACTION_DIST_INPUTS].argmax(dim=-1)}
        chosen: NDArray[np.integer[Any]] = answer[Columns.ACTIONS].numpy()
        return chosen

    return RLlibNetwork(), moves


def _rewrite_onnx(given_model: bytes | str | Path, scale: float | None, path: Path) -> ScoreFn:
    """Rewrite an ONNX model with the input and output of ``policy.onnx``.

    The names and types of input and output change.

    Returns:
        The score function of the given model.
    """
    try:
        import onnx
        from onnx import TensorProto, helper
    except ModuleNotFoundError as error:
        raise PolicyError("onnx is missing; pip install onnx") from error

    try:
        if isinstance(given_model, bytes):
            model = onnx.load_from_string(given_model)
        else:
            model = onnx.load(str(given_model))  # onnx.load also loads weights from separate files.
    except Exception as error:  # protobuf may raise any exception.
        raise PolicyError(f"not an ONNX model: {error}") from error
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in weights]
    if len(inputs) != 1:
        named = ", ".join(one.name for one in inputs)
        raise PolicyError(f"the model must have one input, the observation, but has {named}")
    (given,) = inputs
    if not graph.output:
        raise PolicyError("the model has no output")
    result = next((one for one in graph.output if one.name == _OUTPUT), graph.output[0])
    kind = given.type.tensor_type.elem_type
    if kind not in (TensorProto.UINT8, TensorProto.FLOAT) or (
        kind == TensorProto.FLOAT and scale is None
    ):
        wanted = TensorProto.DataType.Name(kind)
        raise PolicyError(
            f"the model's input is {wanted}; set scale (1 / 255 for floats from 0 to 1, 1 for 0 "
            "to 255), which converts the bytes of an observation to floats"
        )
    dims = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    original = _score_fn_from_onnx(model.SerializeToString(), given.name, result.name)

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the scores of the given ONNX model, float32 (B, 4)."""
        seen: NDArray[Any] = frames
        if kind == TensorProto.FLOAT:
            seen = frames.astype(np.float32) * np.float32(scale)
        size = dims[0] if dims and dims[0] else len(frames)
        batches = [
            original(np.resize(batch, (size, *batch.shape[1:])))
            for batch in np.split(seen, range(size, len(seen), size))
        ]
        return np.concatenate(batches)[: len(frames)]

    inner, outer = f"{_INPUT}_given", f"{_OUTPUT}_given"
    for node in graph.node:
        node.input[:] = [inner if name == given.name else name for name in node.input]
        node.input[:] = [outer if name == result.name else name for name in node.input]
        node.output[:] = [outer if name == result.name else name for name in node.output]
    before = [helper.make_node("Identity", [_INPUT], [inner])]
    if kind == TensorProto.FLOAT:
        assert scale is not None
        factor = helper.make_tensor("battlesnake_scale", TensorProto.FLOAT, [], [scale])
        graph.initializer.append(factor)
        before = [
            helper.make_node("Cast", [_INPUT], ["battlesnake_floats"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["battlesnake_floats", "battlesnake_scale"], [inner]),
        ]
    after = helper.make_node("Cast", [outer], [_OUTPUT], to=TensorProto.FLOAT)
    nodes = [*before, *graph.node, after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    sides = [side or None for side in dims[1:]]
    graph.input.append(helper.make_tensor_value_info(_INPUT, TensorProto.UINT8, ["batch", *sides]))
    graph.output.append(
        helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, ["batch", len(MOVES)])
    )
    # The inferred shapes are valid only for batch size 1.
    del graph.value_info[:]
    onnx.save(model, str(path))
    return values


def _score_fn_from_onnx(
    content: bytes, input_name: str = _INPUT, output_name: str = _OUTPUT
) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
    """Return the score function of an ONNX model.

    Args:
        content: Bytes of the ONNX file.
        input_name: Name of the model's input.
        output_name: Name of the model's output.
    """
    session = policy_file.open_session(content, "the network")

    def values(frames: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of the ONNX model, float32 (B, 4)."""
        try:
            (found,) = policy_file.run_session(session, [output_name], {input_name: frames})
            return np.asarray(found, np.float32)
        except PolicyError:
            raise
        except Exception as error:
            raise PolicyError(
                f"the network does not accept observations {frames.shape}: {error}"
            ) from error

    return values


def check_in_games(path: Path, expected: ScoreFn, games: VectorBattlesnake) -> None:
    """Compare the policy file ``path`` with the original policy in several hundred positions.

    The policy in the file plays ``games``.

    Args:
        path: ONNX file.
        expected: Score function of the original policy.
        games: New vector environment.

    Raises:
        PolicyError: If the file's values have the wrong shape, are not finite, or differ from the
            values of the original policy.
    """
    values, shape = _score_fn_from_onnx(path.read_bytes()), games.single_observation_space.shape
    seen, infos = games.reset(seed=1)
    num_positions = 0
    for turn in itertools.count():
        if turn >= _NUM_TURNS and num_positions >= _MIN_POSITIONS:
            return
        alive = infos["alive"]
        actions = np.zeros(alive.shape, np.uint8)
        if alive.any():  # All games may end in the same turn.
            said = _compute_checked_scores(values, expected, seen[alive], shape)
            num_positions += len(said)
            actions[alive] = np.where(infos["action_mask"][alive], said, -np.inf).argmax(-1)
        seen, _, _, _, infos = games.step(actions)


def _compute_checked_scores(
    values: ScoreFn, expected: ScoreFn, frames: NDArray[np.uint8], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Return the network's values for ``frames``, float32 (B, 4).

    Raises:
        PolicyError: If the values have the wrong shape, are not finite, or differ from the values
            of the original policy.
    """
    # A server evaluates single positions. The check therefore includes batch size 1.
    parts = [part for part in (frames[:1], frames[1:]) if len(part)]
    said = np.concatenate([values(part) for part in parts])
    if said.shape != (len(frames), len(MOVES)) or not np.isfinite(said).all():
        raise PolicyError(
            f"the network must return four finite numbers for each of {len(frames)} "
            f"observations {shape}, got {said.shape} with {np.isnan(said).sum()} NaN"
        )
    wanted = expected(frames)
    off = float(np.abs(said - wanted).max())
    if off > _TOLERANCE * max(1.0, float(np.abs(wanted).max())):
        raise PolicyError(
            f"the file differs by {off:g} from the original policy in {len(frames)} positions of "
            "test games; the export changes the policy's operators"
        )
    return said

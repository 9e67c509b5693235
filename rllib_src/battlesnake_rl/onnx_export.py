"""Export of policies from other trainers as ``policy.onnx`` and ``policy.json``.

A policy is a torch module, a Stable-Baselines3 model, an RLlib `RLModule` or checkpoint, an ONNX
file or an onnxruntime session. The exported network maps ``observations`` uint8 ``[batch, planes,
rows, columns]`` to ``q_values`` float32 ``[batch, 4]``; higher values are better. The export checks
the written file on several hundred positions of real games. The file must return the values of the
original policy and prefer the original policy's moves.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import policy_file
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import RecurrentPolicy, ScoreFn, SeatMemory, onnx_score_fn
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import observations
from battlesnake_gym.policy_file import INPUT, OUTPUT, STATE_INPUT, STATE_OUTPUT, PolicyError
from battlesnake_gym.rules import MOVES
from battlesnake_rl.onnx_networks import network_from_policy
from sagemaker_rl.job.process_environment import installed_versions

NUM_CHECK_GAMES, _NUM_TURNS = 16, 40
"""Number of parallel games and minimum number of turns in the check of an export."""

_MIN_POSITIONS = 500
"""Minimum number of positions in the check of an export."""

_RECORDED_OPTIONS = ("num_snakes", "width", "height", "ruleset", "map", "action_mask")
"""Options of the games that the metadata contain."""

_TOLERANCE = 1e-3
"""Maximum relative difference between the file's values and the policy's values.

The difference is relative to the largest absolute value, or to 1 if this value is smaller.
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
                    **{name: getattr(config, name) for name in _RECORDED_OPTIONS},
                    "settings": {},
                    "observation": encoder.to_dict(),
                },
            },
            "strength": None,
            "versions": installed_versions("battlesnake-gym", "torch", "onnx"),
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
    if (model := _find_onnx(policy)) is not None:
        check(_rewrite_onnx(model, scale, path))
        return "ONNX"
    kind, module, moves = network_from_policy(policy, shape, scale)
    import torch

    with _evaluation_mode(module):
        _check_output(kind, module, shape)
        write_onnx(module, shape, path)

        def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
            """Return the scores of the original policy, float32 (B, 4), and check its moves."""
            with torch.no_grad():
                scores: NDArray[np.float32] = module(torch.from_numpy(frames)).float().numpy()
            if moves is not None:
                _check_moves(kind, scores, moves(frames))
            return scores

        check(values)
    return kind


def _find_onnx(policy: Any) -> bytes | str | Path | None:
    """Return the bytes or the path of an ONNX file or session, or None for another policy."""
    if hasattr(policy, "get_inputs") and hasattr(policy, "run"):
        policy = getattr(policy, "_model_bytes", None) or getattr(policy, "_model_path", None)
        if policy is None:
            raise PolicyError("the session does not name its model; pass the path of the ONNX file")
    if isinstance(policy, bytes) or (isinstance(policy, str | Path) and Path(policy).is_file()):
        return policy
    return None


@contextlib.contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """Set a torch module to evaluation mode, which the exporter needs.

    Afterwards, each part returns to its original mode, because training may continue.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _check_output(kind: str, module: Any, shape: tuple[int, int, int]) -> None:
    """Check that a network maps three observations to float (3, 4).

    Raises:
        PolicyError: If the network rejects uint8 observations or returns another shape.
    """
    import torch

    try:
        with torch.no_grad():
            answer = module(torch.zeros((3, *shape), dtype=torch.uint8))
    except Exception as error:
        raise PolicyError(
            f"{kind} does not accept uint8 of shape (3, {', '.join(map(str, shape))}): "
            f"{error}; for float inputs, set scale (1 / 255 for 0 to 1)"
        ) from error
    if not isinstance(answer, torch.Tensor) or answer.shape != (3, len(MOVES)):
        got = getattr(answer, "shape", type(answer).__name__)
        raise PolicyError(
            f"{kind} must return [batch, 4] for {', '.join(MOVES)}, got {got} for a batch of 3"
        )


def write_onnx(network: Any, shape: Sequence[int], path: Path) -> None:
    """Write a torch module as ONNX.

    Args:
        network: Module that maps uint8 (B, C, H, W) to float32 (B, 4). A module with the attribute
            ``state_size`` also receives and returns states, float32 (B, state_size). With
            ``global_pool``, H and W of the model's input are variable.
        shape: Shape (C, H, W) of an observation.
        path: Output file.
    """
    import onnx
    import torch

    examples = [torch.zeros((2, *shape), dtype=torch.uint8)]
    names = [INPUT], [OUTPUT]
    if state_size := getattr(network, "state_size", 0):
        examples.append(torch.zeros((2, state_size)))
        names = [INPUT, STATE_INPUT], [OUTPUT, STATE_OUTPUT]
    variable = torch.export.Dim.AUTO
    dynamic_shapes = [{0: variable} for _ in examples]
    if getattr(getattr(network, "trunk", None), "global_pool", False):
        dynamic_shapes[0] |= {2: variable, 3: variable}
    # Without this level, the exporter would log every missing optional package.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            tuple(examples),
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=tuple(dynamic_shapes),
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


def _rewrite_onnx(given_model: bytes | str | Path, scale: float | None, path: Path) -> ScoreFn:
    """Rewrite an ONNX model with the input and output of ``policy.onnx``.

    Returns:
        The score function of the given model.
    """
    try:
        import onnx
        from onnx import TensorProto
    except ModuleNotFoundError as error:
        raise PolicyError("onnx is missing; pip install onnx") from error

    try:
        if isinstance(given_model, bytes):
            model = onnx.load_from_string(given_model)
        else:
            model = onnx.load(str(given_model))  # onnx.load also loads weights from separate files.
    except Exception as error:  # protobuf may raise any exception.
        raise PolicyError(f"not an ONNX model: {error}") from error
    given, result = _find_input_and_output(model.graph)
    kind = given.type.tensor_type.elem_type
    if kind != (TensorProto.UINT8 if scale is None else TensorProto.FLOAT):
        raise PolicyError(
            f"the model's input is {TensorProto.DataType.Name(kind)}, and scale is {scale}; use a "
            "model of FLOAT with scale (1 / 255 for floats from 0 to 1, 1 for 0 to 255), or a "
            "model of UINT8 without scale"
        )
    dims = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    session = policy_file.open_session(model.SerializeToString(), "the network")

    def run(frames: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scores of one batch of the size that the model accepts."""
        try:
            (found,) = policy_file.run_session(session, [result.name], {given.name: frames})
            return np.asarray(found, np.float32)
        except PolicyError:
            raise
        except Exception as error:
            raise PolicyError(
                f"the network does not accept observations {frames.shape}: {error}"
            ) from error

    def values(frames: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the scores of the given ONNX model, float32 (B, 4)."""
        seen: NDArray[Any] = frames
        if scale is not None:
            seen = frames.astype(np.float32) * np.float32(scale)
        size = dims[0] if dims and dims[0] else len(frames)
        batches = [
            run(np.resize(batch, (size, *batch.shape[1:])))
            for batch in np.split(seen, range(size, len(seen), size))
        ]
        return np.concatenate(batches)[: len(frames)]

    replace_input_and_output(model.graph, scale)
    onnx.save(model, str(path))
    return values


def _find_input_and_output(graph: Any) -> tuple[Any, Any]:
    """Return the input and the output of an ONNX graph.

    Raises:
        PolicyError: If the graph has no output, or not exactly one input.
    """
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [one for one in graph.input if one.name not in weights]
    if len(inputs) != 1:
        named = ", ".join(one.name for one in inputs)
        raise PolicyError(f"the model must have one input, the observation, but has {named}")
    if not graph.output:
        raise PolicyError("the model has no output")
    return inputs[0], next((one for one in graph.output if one.name == OUTPUT), graph.output[0])


def replace_input_and_output(graph: Any, scale: float | None = None) -> None:
    """Replace the input and the output of an ONNX graph by those of ``policy.onnx``.

    Args:
        graph: ONNX graph, which is modified.
        scale: Factor of a float input, or None to convert bytes without scaling.
    """
    from onnx import TensorProto, helper

    given, result = _find_input_and_output(graph)
    inner, outer = f"{INPUT}_given", f"{OUTPUT}_given"
    for node in graph.node:
        node.input[:] = [inner if name == given.name else name for name in node.input]
        node.input[:] = [outer if name == result.name else name for name in node.input]
        node.output[:] = [outer if name == result.name else name for name in node.output]
    given_type = given.type.tensor_type
    converted = inner if scale is None else "battlesnake_floats"
    before = [helper.make_node("Cast", [INPUT], [converted], to=given_type.elem_type)]
    if scale is not None:
        factor = helper.make_tensor("battlesnake_scale", TensorProto.FLOAT, [], [scale])
        graph.initializer.append(factor)
        before.append(helper.make_node("Mul", [converted, "battlesnake_scale"], [inner]))
    after = helper.make_node("Cast", [outer], [OUTPUT], to=TensorProto.FLOAT)
    nodes = [*before, *graph.node, after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    sides = [dim.dim_value or None for dim in given_type.shape.dim[1:]]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.UINT8, ["batch", *sides]))
    graph.output.append(
        helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", len(MOVES)])
    )
    # The inferred shapes are valid only for batch size 1.
    del graph.value_info[:]


def check_in_games(path: Path, expected: ScoreFn, games: VectorBattlesnake) -> None:
    """Compare the policy file ``path`` with the original policy in several hundred positions.

    The policy in the file plays ``games``. A recurrent policy is compared over whole games; each
    side keeps its own states.

    Args:
        path: ONNX file.
        expected: Score function of the original policy.
        games: New vector environment.

    Raises:
        PolicyError: If the file's values have the wrong shape, are not finite, or differ from the
            values of the original policy.
    """
    memory, expected_memory = SeatMemory(games), SeatMemory(games)
    values = _first_alone(onnx_score_fn(path.read_bytes(), "the network"))
    seen, infos = games.reset(seed=1)
    num_positions = 0
    for turn in itertools.count():
        if turn >= _NUM_TURNS and num_positions >= _MIN_POSITIONS:
            return
        alive = infos["alive"]
        actions = np.zeros(alive.shape, np.uint8)
        if alive.any():  # All games may end in the same turn.
            wanted = expected_memory.call(expected, alive, seen[alive])
            said = memory.call(values, alive, seen[alive])
            _check_scores(said, wanted)
            num_positions += len(said)
            actions[alive] = np.where(infos["action_mask"][alive], said, -np.inf).argmax(-1)
        seen, _, _, _, infos = games.step(actions)


def _first_alone(values: ScoreFn) -> ScoreFn:
    """Return ``values`` as a function that evaluates the first position alone.

    A server evaluates single positions.
    """

    def evaluate(*inputs: NDArray[Any]) -> Any:
        parts = [[one[:1] for one in inputs], [one[1:] for one in inputs]]
        answers = [values(*part) for part in parts if len(part[0])]
        if len(inputs) == 1:
            return np.concatenate(answers)
        return tuple(map(np.concatenate, zip(*answers, strict=True)))

    if isinstance(values, RecurrentPolicy):
        return RecurrentPolicy(evaluate, values.state_size)
    return evaluate


def _check_scores(said: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    """Compare the scores of a file, float32 (B, 4), with the scores of the original policy.

    Raises:
        PolicyError: If the scores have the wrong shape, are not finite, or differ.
    """
    if said.shape != (len(wanted), len(MOVES)) or not np.isfinite(said).all():
        raise PolicyError(
            f"the network must return four finite numbers for each of {len(wanted)} "
            f"observations, got {said.shape} with {np.isnan(said).sum()} NaN"
        )
    off = float(np.abs(said - wanted).max())
    if off > _TOLERANCE * max(1.0, float(np.abs(wanted).max())):
        raise PolicyError(
            f"the file differs by {off:g} from the original policy in {len(said)} positions of "
            "test games; the export changes the policy's operators"
        )

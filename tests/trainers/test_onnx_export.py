"""Policies of others' trainers become policy.onnx: the same answers, evaluated and served."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from onnx import TensorProto, helper, numpy_helper, save
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

import battlesnake_gym
from battlesnake_gym.policy_file import OnnxPolicy, PolicyError
from battlesnake_rl import onnx_export
from battlesnake_rl.commands import evaluate_command
from battlesnake_rl.mabs.policy.q_network import TRUNK_DEFAULTS, DuelingQNetwork, SnakeQModule
from battlesnake_rl.onnx_export import export
from battlesnake_server.strategy_loader import strategy_factory

pytestmark = pytest.mark.filterwarnings("default")

SHAPE = 10, 7, 7


def torch_network(scaled: bool = True) -> Any:
    class ToFloat(nn.Module):
        def forward(self, planes: Any) -> Any:
            return planes.float() / 255 if scaled else planes

    return nn.Sequential(
        ToFloat(), nn.Conv2d(10, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(100, 4)
    )


def planes(side: int = 7, count: int = 5) -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 10, side, side), dtype=torch.uint8, generator=generator)


def exported(policy: Any, path: Path, side: int = 7, **options: Any) -> OnnxPolicy:
    written = export(policy, "planes", (side, side), path / "policy.onnx", **options)
    return OnnxPolicy.load(written)


def test_a_torch_module(tmp_path: Path) -> None:
    network = torch_network()
    policy = exported(network, tmp_path)
    assert network.training, "it is left as it was"
    with torch.no_grad():
        wanted = network.eval()(planes()).numpy()
    np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, atol=1e-4)
    assert policy.metadata["training"]["algorithm"] == "torch Sequential"
    floats = exported(torch_network(scaled=False), tmp_path, scale=1 / 255)
    assert floats.board_sizes == {(7, 7)}


def test_it_is_evaluated_served_and_sent_to_the_arena(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_server.commands import arena_command as command

    rules = tmp_path / "my_rules.py"
    rules.write_text(
        "from battlesnake_heuristics.rule_based.filters import dead_ends\nrules = [dead_ends]\n"
    )
    path = export(torch_network(), "planes", (7, 7), tmp_path / "policy.onnx")
    for more in ([], ["--policy-rules", str(rules)]):
        against = ["--opponents", "safe-random", "--games", "4", "--json"]
        assert evaluate_command.main([str(path), *against, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["wins"] + told["draws"] + told["losses"] == 4
    board = battlesnake_gym.Board.new(7, 7, 2)
    board.you_id = board.snakes[0].id
    assert strategy_factory(path)(0)(board).move in ("up", "down", "left", "right")
    games = ["--games", "2", "--board-size", "7", "--jobs", "1", "--max-turns", "30"]
    database = ["--database", f"sqlite:///{tmp_path}/arena.db"]
    assert command.main([f"{path}+{rules}", "safe-random", *games, *database, "--json"]) == 0
    assert "my_rules.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["PPO", "DQN", "MaskablePPO"])
def test_a_model_of_stable_baselines(name: str, tmp_path: Path) -> None:
    import sb3_contrib
    import stable_baselines3

    # Stable-Baselines3 takes seven rows for the channels where there are ten planes.
    side = 11 if name == "PPO" else 7
    env = gymnasium.make("battlesnake_gym:Battlesnake-v0", width=side, height=side)
    kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    small = {"buffer_size": 100} if name == "DQN" else {"n_steps": 8, "batch_size": 8}
    model = kind("MlpPolicy", env, **small, seed=1)
    policy = exported(model, tmp_path, side)
    seen = planes(side)
    pictures = seen if name == "PPO" else seen.permute(0, 3, 1, 2)
    with torch.no_grad():
        if name == "DQN":
            wanted = model.policy.q_net(pictures)
        else:
            wanted = model.policy.get_distribution(pictures).distribution.logits
    wanted = wanted.numpy()
    got = policy.action_scores(seen.numpy())
    if name != "DQN":  # logits are known but for a constant
        wanted, got = (x - x.mean(1, keepdims=True) for x in (wanted, got))
    np.testing.assert_allclose(got, wanted, atol=1e-4)
    with pytest.raises(PolicyError, match=r"observation.* boards"):
        export(model, "planes", (9, 9), tmp_path / "other.onnx")


SMALL_PPO: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 1}


def sb3_env(*wrappers: Any) -> Any:
    """Make two games of 7 x 7 cells as an environment of Stable-Baselines3."""
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env("battlesnake_gym:Battlesnake-v0", 2, env_kwargs={"width": 7, "height": 7})
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def as_floats(env: Any) -> Any:
    space = gymnasium.spaces.Box(0, 1, SHAPE, np.float32)
    return gymnasium.wrappers.TransformObservation(
        env, lambda seen: seen.astype(np.float32) / 255, space
    )


@pytest.mark.parametrize(
    ("name", "transposed"), [("PPO", True), ("DQN", False), ("MaskablePPO", False)]
)
def test_the_file_contains_the_normalization_of_stable_baselines(
    name: str, transposed: bool, tmp_path: Path
) -> None:
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage

    env = sb3_env(*([VecTransposeImage] if transposed else []), VecNormalize)
    kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    small = {"buffer_size": 100, "learning_starts": 10} if name == "DQN" else SMALL_PPO
    model = kind("MlpPolicy", env, **small).learn(64)
    policy = exported(model, tmp_path)
    seen = planes(count=300)
    given = seen.permute(0, 3, 1, 2) if transposed else seen
    moves, _ = model.predict(env.normalize_obs(given.numpy()), deterministic=True)
    assert (policy.action_scores(seen.numpy()).argmax(1) == moves).all()


def test_a_model_trained_on_floats(tmp_path: Path) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(
        "battlesnake_gym:Battlesnake-v0",
        env_kwargs={"width": 7, "height": 7},
        wrapper_class=as_floats,
    )
    model = PPO("MlpPolicy", env, **SMALL_PPO)
    with pytest.raises(PolicyError, match=r"float32.* \[0, 1\]"):
        exported(model, tmp_path)
    policy = exported(model, tmp_path, scale=1 / 255)
    seen = planes(count=300).numpy()
    moves, _ = model.predict(seen.astype(np.float32) / 255, deterministic=True)
    assert (policy.action_scores(seen).argmax(1) == moves).all()


def test_models_of_stable_baselines_that_the_file_would_not_equal(tmp_path: Path) -> None:
    from sb3_contrib import QRDQN, RecurrentPPO
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

    class OtherMoves(PPO):
        def predict(self, *given: Any, **named: Any) -> Any:
            moves, state = super().predict(*given, **named)
            return (moves + 1) % 4, state

    memory = RecurrentPPO(
        "MlpLstmPolicy", sb3_env(), **SMALL_PPO, policy_kwargs={"lstm_hidden_size": 490}
    )
    stacked = PPO("MlpPolicy", sb3_env(lambda env: VecFrameStack(env, 2)), **SMALL_PPO)
    PPO("MlpPolicy", sb3_env(VecNormalize), **SMALL_PPO).save(tmp_path / "model.zip")
    for model, frame_stack, message in (
        (memory, 1, "RecurrentPPO"),
        (stacked, 2, "PPO .*VecFrameStack"),
        (PPO.load(tmp_path / "model.zip"), 1, "use model.set_env"),
        (QRDQN("MlpPolicy", sb3_env(), buffer_size=100), 1, "QRDQN"),
        (OtherMoves("MlpPolicy", sb3_env(), **SMALL_PPO), 1, "OtherMoves"),
    ):
        with pytest.raises(PolicyError, match=message):
            export(
                model,
                {"name": "planes", "frame_stack": frame_stack},
                (7, 7),
                tmp_path / "policy.onnx",
            )
    assert not list(tmp_path.glob("*policy*"))


def rllib_module(space: Any, stateful: bool = False) -> Any:
    """Make a linear module of RLlib; a stateful module has a state that it does not use."""

    class Linear(TorchRLModule):  # type: ignore[misc]
        def setup(self) -> None:
            self.line = torch.nn.Linear(490, 4)

        def get_initial_state(self) -> Any:
            return {"memory": np.zeros(1)} if stateful else {}

        def _forward(self, batch: Any, **options: Any) -> Any:
            return {Columns.ACTION_DIST_INPUTS: self.line(batch[Columns.OBS].float().flatten(1))}

    return RLModuleSpec(
        module_class=Linear, observation_space=space, action_space=Discrete(4)
    ).build()


def test_modules_of_rllib_that_the_file_would_not_equal(tmp_path: Path) -> None:
    floats = Box(0, 255, SHAPE, np.float32)
    filtered = MeanStdFilter().recompute_output_observation_space(floats, Discrete(4))
    for module, message in (
        (rllib_module(filtered), r"Linear .*float32 .*\[-10, 10\].*MeanStdFilter"),
        (rllib_module(floats, stateful=True), "Linear .*recurrent"),
    ):
        with pytest.raises(PolicyError, match=message):
            exported(module, tmp_path)
    module = rllib_module(floats)
    policy = exported(module, tmp_path)
    wanted = module.line(planes().float().flatten(1)).detach().numpy()
    np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, rtol=1e-4, atol=1e-3)


def test_a_module_and_a_checkpoint_of_rllib(tmp_path: Path) -> None:

    spec = RLModuleSpec(
        module_class=SnakeQModule,
        observation_space=Box(0, 255, SHAPE, np.uint8),
        action_space=Discrete(4),
        model_config={**TRUNK_DEFAULTS, "channels": (8,), "strides": (2,), "hidden_size": 16},
    )
    module = spec.build()
    module.update_average()
    with torch.no_grad():
        module.network.advantage.bias += 1.0  # the last weights are not the mean
        wanted = module.mean.module(planes()).numpy()
    policy = exported(module, tmp_path)
    np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, atol=1e-4)
    with pytest.raises(PolicyError, match=r"SnakeQModule .*omit scale"):
        exported(module, tmp_path, scale=1 / 255)
    folder = tmp_path / "checkpoint"
    module.save_to_path(str(folder))
    policy = exported(folder, tmp_path)
    np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, atol=1e-4)
    constructor = folder / "class_and_ctor_args.pkl"
    constructor.write_bytes(constructor.read_bytes().replace(b"SnakeQModule", b"MovedQModule"))
    with pytest.raises(PolicyError, match=r"checkpoint.*q_network\.MovedQModule: .*PYTHONPATH"):
        exported(folder, tmp_path)


def test_an_onnx_file_and_a_session(tmp_path: Path) -> None:
    network = torch_network(scaled=False).eval()
    foreign = tmp_path / "foreign.onnx"
    torch.onnx.export(
        network,
        (torch.zeros((2, *SHAPE)),),
        str(foreign),
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("n")},),
        dynamo=True,
        verbose=False,
    )
    with torch.no_grad():
        wanted = network(planes().float() / 255).numpy()
    session = onnxruntime.InferenceSession(str(foreign), providers=["CPUExecutionProvider"])
    for given in (foreign, session):
        policy = exported(given, tmp_path, scale=1 / 255)
        np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, atol=1e-4)
    for given, scale in ((foreign, None), (tmp_path / "policy.onnx", 1 / 255)):
        with pytest.raises(PolicyError, match=rf"input is .*scale is {scale}"):
            exported(given, tmp_path, scale=scale)


@pytest.mark.parametrize("centered", [False, True])
def test_an_onnx_file_is_compared_with_its_original(centered: bool, tmp_path: Path) -> None:
    # The values of the second network depend on the other positions of the batch.
    weights = np.random.default_rng(1).normal(size=(490, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["values"]),
    ]
    if centered:
        nodes += [
            helper.make_node("ReduceMean", ["values", "axes"], ["mean"]),
            helper.make_node("Sub", ["values", "mean"], ["centered"]),
        ]
    batch = "batch" if centered else 1
    graph = helper.make_graph(
        nodes,
        "foreign",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *SHAPE])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [batch, 4])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.array([0]), "axes"),
        ],
    )
    foreign = tmp_path / "foreign.onnx"
    opset = helper.make_opsetid("", 18)
    save(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(foreign))
    if centered:
        with pytest.raises(PolicyError, match="original"):
            exported(foreign, tmp_path, scale=1 / 255)
        return
    wanted = (planes().numpy().reshape(5, -1) / 255) @ weights
    policy = exported(foreign, tmp_path, scale=1 / 255)
    np.testing.assert_allclose(policy.action_scores(planes().numpy()), wanted, rtol=1e-3, atol=1e-3)


def counting_network(moody: bool = False) -> Any:
    """Make a network that counts positions; the values of a moody one change with each call."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(490, 4)
            self.positions = self.mood = 0

        def forward(self, seen: Any) -> Any:
            self.positions += len(seen)
            self.mood += moody
            return self.line(seen.float().flatten(1)) + float(self.mood)

    return Counts()


def test_several_hundred_positions_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_export, "NUM_CHECK_GAMES", 1)
    network = counting_network()
    exported(network, tmp_path)
    assert network.positions > 500


def test_what_is_no_policy_is_refused_and_nothing_written(tmp_path: Path) -> None:
    for policy, message in (
        (nn.Flatten(), r"must return \[batch, 4\]"),
        (torch_network(scaled=False), "uint8"),
        (object(), "object"),
        (tmp_path / "none.onnx", r"none\.onnx"),
        (counting_network(moody=True), "from the original policy"),
    ):
        with pytest.raises(PolicyError, match=message):
            exported(policy, tmp_path)
    assert not (tmp_path / "policy.onnx").exists()
    with pytest.raises(PolicyError, match="boards"):
        export(nn.Flatten(), "planes", (0, 7))


def test_playing_needs_no_torch() -> None:
    code = (
        "import sys, battlesnake_server.live.app, battlesnake_heuristics.rule_based.policy_rules;"
        "import battlesnake_rl.onnx_export;"
        "sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_with_global_pool_one_file_fits_every_board_size(tmp_path: Path) -> None:
    torch.manual_seed(1)
    settings: dict[str, Any] = {**TRUNK_DEFAULTS, "head_plane": 6, "global_pool": True}
    network = DuelingQNetwork((16, 11, 11), **settings)
    onnx_export.write_onnx(network, (16, 11, 11), tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    for height, width in ((3, 3), (7, 9), (19, 19)):
        frames = np.random.default_rng(1).integers(255, size=(5, 16, height, width), dtype=np.uint8)
        frames[:, 6, height // 2, 0] = 255
        with torch.no_grad():
            wanted = network(torch.from_numpy(frames)).numpy()
        (values,) = session.run(None, {"observations": frames})
        np.testing.assert_allclose(values, wanted, atol=1e-4)

"""Users' files: found by name, and rejected if they are missing or invalid."""

import sys
from pathlib import Path

import pytest
import torch
from ray import cloudpickle

from battlesnake_rl.procgen.kit import plugins
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_launcher import NETWORK_CLASSES

pytestmark = pytest.mark.filterwarnings("default")

MODEL = """
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
class Mine(TorchRLModule):
    pass
"""


KIT_MODEL = """
from ray.rllib.models import ModelCatalog
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from ray.rllib.utils import try_import_torch

torch, nn = try_import_torch()

class Small(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        width = model_config["custom_options"]["width"]
        assert model_config["max_seq_len"] > 0  # as all of RLlib's former settings
        self.conv = nn.Conv2d(obs_space.shape[-1], width, 8, 8)
        self.logits, self.value = nn.Linear(64 * width, num_outputs), nn.Linear(64 * width, 1)

    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs"].float().permute(0, 3, 1, 2) / 255
        x = torch.relu(self.conv(x)).flatten(1)
        self._value = self.value(x).squeeze(1)
        return self.logits(x), state

    def value_function(self):
        return self._value

ModelCatalog.register_custom_model("small", Small)
"""
"""A network in the form of the starter kit's ``models/impala_cnn_torch.py``."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a user's directory."""
    monkeypatch.chdir(tmp_path)
    for kind in ("models", "algorithms", "callbacks"):
        (tmp_path / kind).mkdir()
    return tmp_path


def test_what_is_there() -> None:
    assert plugins.find_class("models", "impala_cnn", NETWORK_CLASSES).__name__ == "ImpalaModule"
    assert plugins.find_class("models", "my_vision_network").__name__ == "MyVisionNetwork"
    assert plugins.find_class("algorithms", "PPO").__name__ == "PPO"
    assert plugins.find_class("algorithms", "random_agent").__name__ == "RandomAgent"
    assert plugins.find_class("callbacks", "level_counter").__name__ == "LevelCounter"


def test_ones_own_file_goes_before_the_example(folder: Path) -> None:
    (folder / "models" / "my_vision_network.py").write_text(MODEL)
    assert plugins.find_class("models", "my_vision_network").__name__ == "Mine"


def test_a_class_travels_without_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "models" / "mine.py").write_text(MODEL)
    model = plugins.find_class("models", "mine")
    pickled = cloudpickle.dumps(model)
    # As in an env runner on another machine, which has not read the file.
    monkeypatch.delitem(sys.modules, model.__module__)
    assert cloudpickle.loads(pickled).__name__ == "Mine"


def test_a_torch_network_of_the_kit_becomes_a_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    (folder / "models" / "small.py").write_text(KIT_MODEL)
    found = plugins.find_class("models", "small")
    pickled = cloudpickle.dumps(found)
    monkeypatch.delitem(sys.modules, found.__module__)
    games = VectorProcgen(1)
    module = cloudpickle.loads(pickled)(
        observation_space=games.single_observation_space,
        action_space=games.single_action_space,
        model_config={"width": 3},
    )
    batch = {"obs": torch.randint(256, (5, 64, 64, 3), dtype=torch.uint8)}
    outputs = module.forward_train(batch)
    assert outputs["action_dist_inputs"].shape == (5, 15)
    values = module.compute_values(batch, embeddings=outputs["embeddings"])
    torch.testing.assert_close(values, module.compute_values(batch))
    values.sum().backward()
    assert module.network.value.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("shared", [True, False])
def test_the_port_of_the_kits_vision_network(shared: bool) -> None:

    games = VectorProcgen(1)
    module = plugins.find_class("models", "my_vision_network")(
        observation_space=games.single_observation_space,
        action_space=games.single_action_space,
        model_config={
            "conv_filters": [[16, [3, 3], 3], [4, [5, 3], 1]],
            "fcnet_hiddens": [128, 64],
            "fcnet_activation": "tanh",
            "vf_share_layers": shared,
        },
    )
    # As with TensorFlow's padding "same", 64 pixels become 22 = ceil(64 / 3), and stay 22.
    dense = [one for one in module.trunk if isinstance(one, torch.nn.Linear)]
    assert [(one.in_features, one.out_features) for one in dense] == [(22 * 22 * 4, 128), (128, 64)]
    assert sum(isinstance(one, torch.nn.Tanh) for one in module.trunk) == 2
    batch = {"obs": torch.randint(256, (2, 64, 64, 3), dtype=torch.uint8)}
    outputs = module.forward_train(batch)
    assert outputs["action_dist_inputs"].shape == (2, 15)
    module.compute_values(batch, embeddings=outputs["embeddings"]).sum().backward()
    assert (next(module.trunk.parameters()).grad is not None) == shared


def test_missing_names() -> None:
    with pytest.raises(ValueError, match=r"'mine'.* impala_cnn.* my_vision_network"):
        plugins.find_class("models", "mine", NETWORK_CLASSES)
    with pytest.raises(ValueError, match=r"'ppo'.* APPO.*PPO"):
        plugins.find_class("algorithms", "ppo")
    with pytest.raises(ValueError, match=r"'mine'.* level_counter"):
        plugins.find_class("callbacks", "mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "RLModule"),
        (MODEL + "class Other(Mine):\n    pass\n", "Mine, Other"),
        ("import nothing_of_that_name\n", r".*nothing_of_that_name"),
    ],
)
def test_files_that_are_no_models(folder: Path, text: str, message: str) -> None:
    (folder / "models" / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        plugins.find_class("models", "mine")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "models/impala_cnn_tf",
            "from ray.rllib.models.tf.tf_modelv2 import TFModelV2\n",
            "use custom_model: impala_cnn",
        ),
        (
            "models/my_vision_network",
            "from ray.rllib.models.tf.tf_modelv2 import TFModelV2\n",
            "models/",
        ),
        ("models/mine", "import tensorflow as tf\n", r"RLModule.* models/my_v.* TorchModelV2"),
        (
            "callbacks/mine",
            "from ray.rllib.agents.callbacks import DefaultCallbacks\n",
            r".*RLlibCallback.* callbacks/level_counter.py",
        ),
        (
            "algorithms/mine",
            "from ray.rllib.agents.trainer import Trainer\n",
            r"Trainer.* ray\.rllib\.algorithms\.",
        ),
    ],
)
def test_files_of_the_old_api_are_refused_with_the_remedy(
    folder: Path, file: str, text: str, message: str
) -> None:
    (folder / f"{file}.py").write_text(text)
    kind, name = file.split("/")
    with pytest.raises(ValueError, match=rf"{file}\.py .*{message}"):
        plugins.find_class(kind, name)

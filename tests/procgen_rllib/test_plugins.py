"""Users' files: found by name, and rejected if they are missing or invalid."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

plugins = pytest.importorskip("battlesnake_rl.procgen.kit.plugins", reason="needs the extra rllib")

MODEL = """
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
class Mine(TorchRLModule):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a user's directory."""
    monkeypatch.chdir(tmp_path)
    for kind in ("models", "algorithms", "callbacks"):
        (tmp_path / kind).mkdir()
    return tmp_path


def test_what_is_there() -> None:
    from battlesnake_rl.procgen.procgen_launcher import NETWORK_CLASSES

    assert plugins.find_class("models", "impala_cnn", NETWORK_CLASSES).__name__ == "ImpalaModule"
    assert plugins.find_class("models", "my_vision_network").__name__ == "MyVisionNetwork"
    assert plugins.find_class("algorithms", "PPO").__name__ == "PPO"
    assert plugins.find_class("algorithms", "random_agent").__name__ == "RandomAgent"
    assert plugins.find_class("callbacks", "level_counter").__name__ == "LevelCounter"


def test_ones_own_file_goes_before_the_example(folder: Path) -> None:
    (folder / "models" / "my_vision_network.py").write_text(MODEL)
    assert plugins.find_class("models", "my_vision_network").__name__ == "Mine"


def test_a_class_travels_without_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import cloudpickle

    (folder / "models" / "mine.py").write_text(MODEL)
    model = plugins.find_class("models", "mine")
    pickled = cloudpickle.dumps(model)
    # As in an env runner on another machine, which has not read the file.
    monkeypatch.delitem(sys.modules, model.__module__)
    assert cloudpickle.loads(pickled).__name__ == "Mine"


def test_missing_names() -> None:
    from battlesnake_rl.procgen.procgen_launcher import NETWORK_CLASSES

    with pytest.raises(
        ValueError,
        match=r"'mine'.* impala_cnn.* my_vision_network",
    ):
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
            "models/impala_cnn_torch",
            "from ray.rllib.models.torch.torch_modelv2 import TorchModelV2\n",
            "use custom_model: impala_cnn",
        ),
        (
            "models/my_vision_network",
            "from ray.rllib.models.tf.tf_modelv2 import TFModelV2\n",
            "models/",
        ),
        ("models/mine", "import tensorflow as tf\n", r"RLModule.* models/my_v"),
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
    with pytest.raises(ValueError, match=rf"{file}\.py .*{message}"):
        plugins.find_class(*file.split("/"))

"""Python files as the competition's starter kit has them: they run, or are told what to change."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.progress import rows

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

plugins = pytest.importorskip("battlesnake_rl.procgen.kit.plugins", reason="needs the extra rllib")

MODEL = """
from ray.rllib.models import ModelCatalog
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from ray.rllib.utils import try_import_torch
from ray.rllib.utils.annotations import override

torch, nn = try_import_torch()

class Small(TorchModelV2, nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        height, width, colours = obs_space.shape
        self.convolution = nn.Conv2d(colours, model_config["custom_options"].get("depth", 2), 8, 8)
        self.hidden = nn.LazyLinear(8)
        self.logits = nn.Linear(8, num_outputs)
        self.value = nn.Linear(8, 1)
        self._value = None
        self.forward({"obs": torch.zeros(1, *obs_space.shape)}, [], None)

    @override(TorchModelV2)
    def forward(self, input_dict, state, seq_lens):
        x = input_dict["obs"].float().permute(0, 3, 1, 2) / 255
        x = torch.tanh(self.hidden(torch.tanh(self.convolution(x)).flatten(1)))
        self._value = self.value(x).squeeze(1)
        return self.logits(x), state

    @override(TorchModelV2)
    def value_function(self):
        return self._value

ModelCatalog.register_custom_model("small", Small)
"""

PREPROCESSOR = """
from ray.rllib.models.preprocessors import Preprocessor

class Halved(Preprocessor):
    def _init_shape(self, obs_space, options):
        height, width, colours = obs_space.shape
        return (height // 2, width // 2, colours)

    def transform(self, observation):
        return observation[::2, ::2]
"""

REGISTER = """
from .halving import Halved

CUSTOM_PREPROCESSORS = {"MyPreprocessor": Halved}
"""

CALLBACKS = """
from typing import Dict

from ray.rllib.env import BaseEnv
from ray.rllib.policy import Policy, PolicyID, AgentID
from ray.rllib.policy.sample_batch import SampleBatch
from ray.rllib.evaluation import MultiAgentEpisode, RolloutWorker
from ray.rllib.agents.callbacks import DefaultCallbacks

class CustomCallbacks(DefaultCallbacks):
    def on_episode_start(self, worker: RolloutWorker, base_env: BaseEnv,
                         policies: Dict[PolicyID, Policy], episode: MultiAgentEpisode, **kwargs):
        episode.user_data["steps"] = 0

    def on_episode_step(self, worker, base_env, episode: MultiAgentEpisode, **kwargs):
        episode.user_data["steps"] += 1

    def on_episode_end(self, worker, base_env, policies, episode, **kwargs):
        assert episode.user_data["steps"] == episode.length > 0
        assert episode.last_info_for()["timestep_throughput"] > 0
        assert episode.total_reward >= 0
        episode.custom_metrics["steps_counted"] = episode.user_data["steps"]
        episode.hist_data["steps_counted"] = [episode.user_data["steps"]]

    def on_train_result(self, trainer, result: dict, **kwargs):
        result["told_by_callbacks"] = trainer.iteration
"""

EXPERIMENT = """
kit:
  env: procgen_env_wrapper
  run: PPO
  stop: {timesteps_total: 200}
  checkpoint_freq: 1
  config:
    env_config: {env_name: bossfight, num_levels: 3, distribution_mode: easy}
    num_sgd_iter: 1
    sgd_minibatch_size: 64
    train_batch_size: 128
    vf_clip_param: 0.2
    kl_coeff: 0.0
    num_workers: 0
    num_envs_per_worker: 8
    num_gpus: 0
    callbacks: callbacks.py
    model:
      custom_model: small
      custom_options: {depth: 3}
      custom_preprocessor: MyPreprocessor
"""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a participant."""
    for name, text in {
        "models/small.py": MODEL,
        "preprocessors/halving.py": PREPROCESSOR,
        "preprocessors/__init__.py": REGISTER,
        "callbacks.py": CALLBACKS,
        "kit.yaml": EXPERIMENT,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build(network: Any, **options: Any) -> Any:
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from battlesnake_rl.procgen.procgen_environment import VectorProcgen

    games = VectorProcgen(1)
    return RLModuleSpec(
        module_class=network,
        observation_space=games.single_observation_space,
        action_space=games.single_action_space,
        model_config=options,
    ).build()


def test_a_model_of_then_gives_what_it_gave(kit: Path) -> None:
    import torch

    module = build(plugins.find("models", "small"), depth=4)
    assert module.model.convolution.out_channels == 4
    pictures = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8)
    out = module.forward_train({"obs": pictures})
    logits, _ = module.model({"obs": pictures}, [], None)
    torch.testing.assert_close(out["action_dist_inputs"], logits)
    values = module.compute_values({"obs": pictures}, out["embeddings"])
    torch.testing.assert_close(values, module.model.value_function())
    torch.testing.assert_close(module.compute_values({"obs": pictures}), values.detach())
    (logits.sum() + values.sum()).backward()
    assert all(one.grad is not None for one in module.parameters())


def test_a_preprocessor_of_then_stands_before_any_network(kit: Path) -> None:
    import torch

    from battlesnake_rl.procgen.kit.kit_files import preprocessed
    from battlesnake_rl.procgen.train_procgen import MODELS

    halved = plugins.find("preprocessors", "MyPreprocessor")
    assert plugins.find("preprocessors", "halving") is halved
    pictures = torch.randint(0, 256, (5, 64, 64, 3), dtype=torch.uint8)
    for name in ("small", "impala_cnn"):
        module = build(preprocessed(plugins.find("models", name, MODELS), halved))
        assert module.network.observation_space.shape == (32, 32, 3)
        out = module.forward_train({"obs": pictures})
        # What it leaves out is not seen.
        changed = pictures.clone()
        changed[:, 1::2] = 0
        again = module.forward_train({"obs": changed})
        torch.testing.assert_close(out["action_dist_inputs"], again["action_dist_inputs"])
        values = module.compute_values({"obs": pictures})
        seen = module.compute_values({"obs": pictures}, out["embeddings"])
        torch.testing.assert_close(values, seen.detach())


def test_callbacks_of_then_are_imported_and_nothing_stays(kit: Path) -> None:
    import ray.rllib.evaluation
    import ray.rllib.policy

    assert plugins.find("callbacks", "callbacks.py").__name__ == "CustomCallbacks"
    assert "ray.rllib.agents" not in sys.modules
    assert not hasattr(ray.rllib.policy, "PolicyID")
    assert not hasattr(ray.rllib.evaluation, "MultiAgentEpisode")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "my_vision_network",
            "from ray.rllib.models.tf.tf_modelv2 import TFModelV2\n",
            "of TensorFlow, .*: take the file out of models/, and custom_model: my_vision_network",
        ),
        (
            "impala_cnn_tf",
            "from ray.rllib.models.tf.tf_modelv2 import TFModelV2\n",
            "write custom_model: impala_cnn, the same network in PyTorch",
        ),
        ("mine", "import tensorflow as tf\n", "write the network as a TorchModelV2, or as an"),
    ],
)
def test_models_of_tensorflow_are_told_what_to_change(
    kit: Path, name: str, text: str, message: str
) -> None:
    (kit / "models" / f"{name}.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        plugins.find("models", name)


def test_algorithms_of_then_are_told_what_to_change(kit: Path) -> None:
    (kit / "algorithms").mkdir()
    (kit / "algorithms" / "mine.py").write_text(
        "from ray.rllib.agents.trainer import Trainer\nclass Mine(Trainer):\n    pass\n"
    )
    with pytest.raises(ValueError, match=r"Trainer any more: subclass ray\.rllib\.algorithms\."):
        plugins.find("algorithms", "mine")


def test_a_preprocessor_needs_a_network_behind_it(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_rl.procgen.train_procgen import ProcgenLauncher

    command = ["--custom-model", "null", "--custom-preprocessor", "halving"]
    assert ProcgenLauncher.train_main(command) == 2
    assert "but custom_model is null: it goes before a network" in capsys.readouterr().err


def test_a_participants_folder_trains_as_it_is(
    kit: Path, ray_session: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from battlesnake_rl.procgen.rollout import load_policy
    from battlesnake_rl.procgen.train_procgen import ProcgenLauncher

    assert ProcgenLauncher.train_main(["-f", "kit.yaml", "--runs", str(kit / "runs")]) == 0
    (run,) = (kit / "runs").iterdir()
    assert len(rows(run)) == 2
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert "rllib/env_runners/steps_counted" in tags
    assert "rllib/told_by_callbacks" in tags
    last = sorted((run / "checkpoints").glob("checkpoint_*"))[-1]
    assert load_policy(last)(np.zeros((3, 64, 64, 3), np.uint8)).shape == (3,)

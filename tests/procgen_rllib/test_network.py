"""IMPALA network: size, precision, and split batches."""

from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from battlesnake_rl.procgen.impala_network import ImpalaModule
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_episodes import make_policy

pytestmark = pytest.mark.filterwarnings("default")


def build(**model_config: Any) -> Any:

    torch.manual_seed(1)
    games = VectorProcgen(1)
    return RLModuleSpec(
        module_class=ImpalaModule,
        observation_space=games.single_observation_space,
        action_space=games.single_action_space,
        model_config=model_config,
    ).build()


@pytest.fixture(scope="module")
def batch() -> Any:
    games = VectorProcgen(300)
    observations, _ = games.reset(seed=1)
    return {"obs": torch.from_numpy(observations)}


def test_parameters() -> None:
    assert sum(parameter.numel() for parameter in build().parameters()) == 626_256


def test_outputs(batch: Any) -> None:
    module = build(bfloat16=False)
    outputs = module.forward_train(batch)
    logits = outputs["action_dist_inputs"]
    assert logits.shape == (300, 15)
    assert logits.dtype == torch.float32
    # The initial policy explores all actions.
    assert torch.softmax(logits, -1).max() < 0.1
    values = module.compute_values(batch, outputs["embeddings"])
    assert values.shape == (300,)
    assert values.requires_grad
    again = module.compute_values(batch)
    assert not again.requires_grad
    torch.testing.assert_close(again, values.detach())
    # The batch is split into chunks, which does not change an image's features.
    alone = module.forward_train({"obs": batch["obs"][250:251]})
    torch.testing.assert_close(alone["embeddings"][0], outputs["embeddings"][250])


def test_a_policy_on_a_gpu_receives_frames_on_the_gpu(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = build().to("meta")  # a stand-in that computes nothing

    def forward(inputs: Any) -> Any:
        assert inputs["obs"].device.type == "meta"
        return {"actions": torch.arange(len(inputs["obs"]))}

    monkeypatch.setattr(module, "forward_inference", forward)
    assert make_policy(module)(batch["obs"][:3].numpy()).tolist() == [0, 1, 2]


def test_half_precision_is_close(batch: Any) -> None:
    full, half = build(bfloat16=False), build(bfloat16=True)
    exact, rough = (
        one.forward_inference(batch)["embeddings"].detach().numpy() for one in (full, half)
    )
    assert not np.array_equal(exact, rough)
    assert np.corrcoef(exact.ravel(), rough.ravel())[0, 1] > 0.999
    assert half.forward_inference(batch)["action_dist_inputs"].dtype == torch.float32


def test_gradients_reach_everything(batch: Any) -> None:
    module = build()
    outputs = module.forward_train(batch)
    values = module.compute_values(batch, outputs["embeddings"])
    (outputs["action_dist_inputs"].square().mean() + values.mean()).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name

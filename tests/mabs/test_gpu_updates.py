"""Updates as a GPU sees them, on a stand-in: torch's ``meta`` device, which computes nothing.

Whatever would wait for a GPU's answer (``item``, ``bool``, ``cpu``, ``numpy``) raises there.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch import torch_learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from torch.utils import _foreach_utils

from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.distil import distil
from battlesnake_rl.mabs.dqn import dqn
from battlesnake_rl.mabs.envs.multi_agent_env import BattlesnakeMultiAgentEnv
from battlesnake_rl.mabs.policy.actor_critic import _split_observation
from battlesnake_rl.mabs.ppo.ppo import Rollout
from tests.mabs.conftest import SMALL, TINY
from tests.mabs.test_dqn_learner import made_up

pytestmark = pytest.mark.filterwarnings("default")

STEPS = {"num_env_steps_sampled_lifetime": 10_000}
COUNT = 64


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Learners are on the stand-in, which takes what torch has for GPUs; the copies to and from."""
    copies: list[str] = []

    def coming(errors: Any) -> Any:
        copies.append("begun")
        assert errors.device.type == "meta"

        def arrived() -> Any:
            copies.append("waited for")
            return np.ones(errors.shape, np.float32)

        return arrived

    def pin_memory(one: Any) -> Any:
        copies.append("pinned")
        return one

    plain = torch.Tensor.to

    def to(one: Any, *arguments: Any, **options: Any) -> Any:
        moved = plain(one, *arguments, **options)
        if one.device.type != moved.device.type and not options.get("non_blocking"):
            copies.append("waited for")
        return moved

    kernels = "_get_fused_kernels_supported_devices"
    for patched, name, instead in (
        (torch_learner, "get_device", lambda *_: torch.device("meta")),
        (dqn, "copy_to_cpu_async", coming),
        (distil, "copy_to_cpu_async", coming),
        (torch.Tensor, "pin_memory", pin_memory),
        (torch.Tensor, "to", to),
        (torch, "autocast", lambda *_, **__: contextlib.nullcontext()),
        (torch, "is_autocast_enabled", lambda *_: False),
        (_foreach_utils, "_get_foreach_kernels_supported_devices", lambda: ["meta"]),
        (import_module("torch.optim.optimizer"), kernels, lambda: ["meta"]),
        (torch, "_fused_adam_", lambda *_, **__: copies.append("stepped")),
    ):
        monkeypatch.setattr(patched, name, instead)
    return copies


def learner_of(name: str, **settings: Any) -> Any:
    """The learner of an algorithm, by itself."""
    games = {key: value for key, value in SMALL.items() if key != "rewards"}
    config = algorithms.configure(name, games | {"observation": "territory"})
    # A schedule's value is put where it is by a way that the stand-in does not know.
    config.training(grad_clip=0.5, lr=5e-4, **settings)
    config.rl_module(model_config=TINY)
    env = BattlesnakeMultiAgentEnv(dict(config.env_config))
    (agent, *_) = env.possible_agents
    seen = _split_observation(env.get_observation_space(agent))[0]
    return config.build_learner(spaces={DEFAULT_MODULE_ID: (seen, env.get_action_space(agent))})


def frames_for(learner: Any) -> Any:
    (module,) = learner.module.values()
    return np.zeros((COUNT, *module.observation_space.shape), np.uint8)


def test_dqn_waits_for_its_errors_alone(copied: list[str]) -> None:
    learner = learner_of("DQN")
    columns = made_up(COUNT, frames_for(learner).shape[1:])
    batch = MultiAgentBatch({"default_policy": SampleBatch(columns)}, env_steps=COUNT)
    for _ in range(2):
        copied.clear()
        learner.update(training_data=TrainingData(batch=batch), timesteps=STEPS)
        # What comes back is asked for before the gradients and waited for after the last step.
        assert copied == ["pinned"] * len(columns) + ["begun", "stepped", "waited for"]


def test_ppo_waits_for_nothing(copied: list[str]) -> None:
    learner = learner_of("PPO", minibatch_size=32, min_train_probability=1)
    shape = 4, 8, 2
    made = np.ones(shape, np.bool_)
    rollout = Rollout(
        columns={
            "obs": frames_for(learner),
            "action_mask": np.ones((COUNT, 4), np.bool_),
            "actions": np.zeros(COUNT, np.int64),
            "old_log_probs": np.zeros(COUNT, np.float32),
        },
        acted=made,
        values=np.zeros((5, 8, 2), np.float32),
        rewards=np.ones(shape, np.float32),
        terminateds=~made,
        truncateds=~made,
        weights_seq_no=0,
    )
    copied.clear()
    learner.learn([rollout], 0)
    assert len(learner._pending_metrics) == 2 * learner.config.num_epochs
    assert set(copied) == {"pinned", "stepped"}


def test_distil_waits_for_its_priorities_alone(copied: list[str]) -> None:
    learner = learner_of("DISTIL", minibatch_size=32)
    labels = Fragment(
        columns={
            "obs": frames_for(learner),
            "action_mask": np.ones((COUNT, 4), np.bool_),
            "regrets": np.zeros((COUNT, 4), np.float16),
            "value_targets": np.zeros(COUNT, np.float32),
        },
        num_env_steps=0,
        num_agent_steps=COUNT,
    )
    copied.clear()
    learner.learn([labels], 0)
    assert len(learner._pending_metrics) == 2 * learner.config.max_replay_ratio
    # The priorities are asked for before the gradients and waited for after the last step.
    update = ["pinned"] * (len(labels.columns) + 1) + ["begun", "stepped", "waited for"]
    assert copied == update * len(learner._pending_metrics)

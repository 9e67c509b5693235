"""The learner: RLlib's loss, and all that RLlib's learner reports."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from battlesnake_rl.mabs.base.torch_learner import copy_to_cpu_async
from battlesnake_rl.mabs.dqn.dqn import DQNConfig, DQNLearner
from tests.algorithms import built

pytestmark = pytest.mark.filterwarnings("default")

COUNT = 64


def test_what_a_gpu_computes_is_read_once_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = MagicMock()
    gpu.tensor.device.type = "cuda"
    monkeypatch.setattr("torch.cuda.Event", gpu.event)
    arrived = copy_to_cpu_async(gpu.tensor)
    done = [name.replace("()", "") for name, *_ in gpu.mock_calls]
    assert done == ["tensor.to", "event", "event.record"]
    arrived()
    done = [name.replace("()", "") for name, *_ in gpu.mock_calls[3:]]
    assert done == ["event.synchronize", "tensor.to.numpy"]


def batch_and_outputs() -> tuple[dict[str, Any], dict[str, Any]]:
    """Transitions, and what networks may have said of them; dead snakes have no move left."""
    torch.manual_seed(0)
    terminateds = torch.rand(COUNT) < 0.2
    q_next, q_target_next = torch.randn(2, COUNT, 4)
    forbidden = (torch.rand(COUNT, 4) < 0.3) | terminateds[:, None]
    batch = {
        "actions": torch.randint(4, (COUNT,)),
        "rewards": torch.randn(COUNT),
        "terminateds": terminateds,
        "n_step": torch.randint(1, 4, (COUNT,)).float(),
        "weights": torch.rand(COUNT),
    }
    outputs = {
        "qf_preds": torch.randn(COUNT, 4, requires_grad=True),
        "qf_next_preds": q_next.masked_fill(forbidden, -torch.inf),
        "qf_target_next_preds": q_target_next.masked_fill(forbidden, -torch.inf),
    }
    return batch, outputs


@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_the_loss_is_rllibs(double_q: bool, loss: str) -> None:
    config = SimpleNamespace(double_q=double_q, td_error_loss_fn=loss, gamma=0.9, num_atoms=1)
    batch, outputs = batch_and_outputs()
    found = []
    for kind in (DQNTorchLearner, DQNLearner):
        learner = MagicMock(_pending_metrics=[])
        value = kind.compute_loss_for_module(
            learner, module_id="default_policy", config=config, batch=batch, fwd_out=outputs
        )
        (gradient,) = torch.autograd.grad(value, outputs["qf_preds"])
        found.append((value, gradient, learner))
    (theirs, their_gradient, logged), (ours, our_gradient, learner) = found
    assert torch.isfinite(ours)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)
    td_errors = logged.metrics.log_value.call_args.kwargs["value"]
    torch.testing.assert_close(learner._pending_metrics[0][2], td_errors)


def made_up(count: int, observation: tuple[int, ...]) -> dict[str, Any]:
    """The columns of so many transitions."""
    random = np.random.default_rng(0)
    shape = (count, *observation)
    return {
        "obs": random.integers(0, 256, shape, dtype=np.uint8),
        "new_obs": random.integers(0, 256, shape, dtype=np.uint8),
        "new_action_mask": np.ones((count, 4), dtype=np.bool_),
        "actions": random.integers(0, 4, count),
        "rewards": random.normal(size=count).astype(np.float32),
        "terminateds": random.random(count) < 0.2,
        "n_step": np.full(count, 3, dtype=np.float32),
        "weights": np.ones(count, dtype=np.float32),
    }


def replayed(learner_group: Any, count: int) -> Any:
    """A batch of ``count`` transitions that cannot be written to, as those that come from Ray."""
    module = learner_group._learner.module["default_policy"]
    columns = made_up(count, module.observation_space.shape)
    for column in columns.values():
        column.setflags(write=False)
    return MultiAgentBatch({"default_policy": SampleBatch(columns)}, env_steps=count)


def test_a_report_has_all_that_rllibs_learner_tells(
    small_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody may train with RLlib's in our loop, but here it says what an update tells.
    monkeypatch.setattr(DQNConfig, "_check_classes", lambda config: None)
    told: dict[Any, Any] = {}
    for kind in (DQNTorchLearner, DQNLearner):
        algorithm = small_config("DQN").training(learner_class=kind).build_algo()
        group = algorithm.learner_group
        steps = {"num_env_steps_sampled_lifetime": 10_000}
        for _ in range(2):
            (told[kind],) = group.update(batch=replayed(group, 32), timesteps=steps)
        if kind is DQNLearner:
            errors, told[kind] = told[kind], group._learner.report()
        algorithm.stop()
    assert errors.shape == (32,)
    assert (errors >= 0).all()
    theirs, ours = told.values()
    del theirs["default_policy"]["td_error"]  # which is what `update` returns

    def how(report: Any) -> dict[tuple[str, str], tuple[object, ...]]:
        """How each of its values is reduced."""
        return {
            (module, key): (type(value), getattr(value, "_window", None), value.has_throughputs)
            for module, values in report.items()
            for key, value in values.items()
        }

    assert how(ours) == how(theirs)
    figures = {key: value.peek() for key, value in ours["default_policy"].items()}
    assert figures["num_module_steps_trained"] == 64
    assert figures["module_train_batch_size_mean"] == 32
    assert figures["weights_seq_no"] == 2
    assert figures["qf_min"] < figures["qf_mean"] < figures["qf_max"]


@pytest.mark.parametrize("how", ["global_norm", "norm", "value"])
def test_gradients_are_clipped(small_config: Any, how: str) -> None:
    config = small_config("DQN").training(grad_clip=1e-3, grad_clip_by=how)
    with built(config) as algorithm:
        learner = algorithm.learner_group._learner
        algorithm.learner_group.update(
            batch=replayed(algorithm.learner_group, 32),
            timesteps={"num_env_steps_sampled_lifetime": 0},
        )
        gradients = [p.grad for p in learner._params.values() if p.grad is not None]
        norms = torch.stack([gradient.norm() for gradient in gradients])
        found = {
            "global_norm": norms.norm(),
            "norm": norms.max(),
            "value": max(gradient.abs().max() for gradient in gradients),
        }
        assert float(found[how]) == pytest.approx(1e-3, rel=1e-3)
        told = "gradients_default_optimizer_global_norm" in learner.report()["default_policy"]
        assert told == (how == "global_norm")


@pytest.mark.slow
def test_two_learners_learn_as_one(small_config: Any) -> None:
    """Gradients are averaged: a batch moves the weights as far, and errors keep their order."""

    def made(learners: int) -> Any:
        config = small_config("DQN").learners(num_learners=learners)
        config.training(grad_clip=None)
        return config.rl_module(model_config=config.model_config | {"bfloat16": False}).build_algo()

    def gradients(algorithm: Any) -> list[list[Any]]:
        answers = algorithm.learner_group.foreach_learner(
            lambda learner: [p.grad.numpy() for p in learner._params.values() if p.grad is not None]
        )
        return [answer.get() for answer in answers]

    one, two = made(0), made(2)
    try:
        two.learner_group.set_state(one.learner_group.get_state())
        shape = one.env_runner.env.single_observation_space.shape
        columns = made_up(48, shape)
        errors = [algorithm._run_update(columns) for algorithm in (one, two)]
        assert errors[0].shape == (48,)
        np.testing.assert_allclose(errors[1], errors[0], rtol=1e-4)
        (alone,) = gradients(one)
        assert any(gradient.any() for gradient in alone)
        for each in gradients(two):
            for theirs, expected in zip(each, alone, strict=True):
                np.testing.assert_allclose(theirs, expected, rtol=1e-3, atol=1e-6)
        both = gradients(two)
        for first, second in zip(*both, strict=True):
            np.testing.assert_array_equal(first, second)
    finally:
        one.stop()
        two.stop()

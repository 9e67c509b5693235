"""What DQN, APEX and PPO take of RLlib's configuration works; what they do not take is refused."""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray import tune
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.tune import result
from torch import nn

from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.base.supported_settings import (
    INTERNAL_FIELDS,
    SUPPORTED_FIELDS,
    _get_public_fields,
    _public_name,
    _supported_fields,
)
from battlesnake_rl.mabs.dqn.dqn import DQNConfig
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.policy.actor_critic import SnakeActorCritic
from battlesnake_rl.mabs.policy.q_network import DuelingQNetwork, SnakeQModule, network_settings
from tests.algorithms import built
from tests.mabs.conftest import small

pytestmark = pytest.mark.filterwarnings("default")

ELSEWHERE = {
    # Read by RLlib inside of the configuration, under Tune, of learners in processes of their own,
    # after a failure, and by its other way to restore.
    *("train_batch_size_per_learner", "evaluation_config", "rl_module_spec", "log_sys_usage"),
    *("num_cpus_for_main_process", "custom_resources_for_main_process", "placement_strategy"),
    *("num_cpus_per_learner", "custom_resources_per_learner", "local_gpu_idx", "torch_ddp_kwargs"),
    *("delay_between_env_runner_restarts_s", "env_runner_restore_timeout_s"),
    *("callbacks_on_env_runners_recreated", "callbacks_on_checkpoint_loaded"),
    # Of evaluation in processes of its own.
    *("evaluation_sample_timeout_s", "evaluation_error_after_n_consecutive_skips"),
    "evaluation_auto_duration_min_env_steps_per_sample",
    "evaluation_auto_duration_max_env_steps_per_sample",
    "evaluation_force_reset_envs_before_iteration",
}
"""Honoured fields that the training of this test does not come to read."""

OWN = {"DQN": 5, "APEX": 7, "PPO": 11, "RECURRENT_PPO": 10, "DISTIL": 9}
"""How many fields are ours."""


@pytest.mark.parametrize("name", list(OWN))
def test_every_field_is_honoured_or_refused(name: str) -> None:
    counts = dict.fromkeys(("honoured", "refused", "kept by RLlib", "ours"), 0)
    plain = algorithms.configure(name, {})
    names = {_public_name(plain, raw): raw for raw in vars(plain)}
    honoured = _supported_fields(plain.settings_class) & {
        *SUPPORTED_FIELDS,
        *_get_public_fields(plain.rllib_config_class()),
    }
    assert names.keys() >= honoured | INTERNAL_FIELDS - {"class"}
    ours = _get_public_fields(plain).keys() - _get_public_fields(plain.rllib_config_class()).keys()
    for public, raw in names.items():
        config = algorithms.configure(name, {})
        vars(config)[raw] = {"own": 1} if public == "policies" else object()
        if public in honoured:
            counts["honoured"] += 1
        elif public in INTERNAL_FIELDS:
            counts["kept by RLlib"] += 1
        elif public in ours:
            counts["ours"] += 1
        else:
            with pytest.raises(ValueError, match=rf"^{config.algo_class.__name__}\b.* {public}\b"):
                config.validate()
            counts["refused"] += 1
    sys.stdout.write(f"{name}: {len(names)} fields: {counts}\n")
    assert counts["honoured"] == len(honoured)
    assert counts["ours"] == OWN[name]
    assert sum(counts.values()) == len(vars(plain))


TURNED = {"symmetry_augmentation": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.environment("CartPole-v1"), r"Battlesnake.*rllib.algor"),
        (lambda c: c.environment(_Other), "Battlesnake"),
        (lambda c: c.multi_agent(policies={"a", "b"}), r"policies.* RLLIB_PPO"),
        (lambda c: c.env_runners(env_to_module_connector=print), "env_to_module_connector"),
        (lambda c: c.training(learner_connector=print), "learner_connector"),
        (
            lambda c: c.rl_module(model_config=c.model_config | {"channel": (8,)}),
            "model_config setting 'channel'.* channels",
        ),
        (
            lambda c: c.rl_module(
                model_config=c.model_config | {"network": "x.py:X", "hidden_size": 8}
            ),
            "model_config's hidden_size has no effect on a custom network",
        ),
        (lambda c: c.training(hiddens=[64]), r"hiddens.* model_config.* hidden_size"),
        (lambda c: c.training(train_batch_size=64), "set train_batch_size_per_learner"),
        (lambda c: c.env_runners(batch_mode="complete_episodes"), "batch_mode"),
        (lambda c: c.evaluation(evaluation_config={"clip_rewards": 1}), "config's clip_rewards"),
        (
            lambda c: c.evaluation(evaluation_interval=1, evaluation_config={"explore": "no"}),
            "evaluation_config: explore must be one of True, False, got 'no'",
        ),
        (lambda c: c.env_runners(env_runner_cls=_Other), "env_runner_cls"),
        (lambda c: c.learners(learner_class=_Other), "learner_class"),
        (lambda c: _with(c, "epsilom"), r"'epsilom'.* eps"),
        (lambda c: _games(c, 2, num_snakes=[2, 3, 4]), "num_envs_per_env_runner is 2.* 3"),
        (lambda c: _games(c, 1, curriculum=[[0, 7]]), "num_envs_per_env_runner is 1.* 2"),
        (
            lambda c: _games(c, 2, map="solo_maze", num_snakes=1),
            r"ladder_cpu_fraction is 0.05.* duels.* 'solo_maze'.* ladder_cpu_fraction to 0",
        ),
        (lambda c: _games(c, 2, map="arcade_maze"), "^map 'arcade_maze' .*19x21.*, or the map$"),
        (lambda c: _games(c, 2, curriculum=[[0, 7], [9, 1]]), "curriculum.* 1x1.* larger board"),
        (
            lambda c: _games(c, 3, num_snakes=[2, 8], curriculum=[[0, 3], [9, 11]]),
            "curriculum.* 3x3.* got 8",
        ),
    ],
)
def test_what_is_refused_says_what_to_do(change: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(algorithms.configure("DQN", {})).validate()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("DQN", {"training_intensity": -1}, r"training_intensity.* -1"),
        ("DQN", {"reward_scale": 0.0}, "reward_scale"),
        ("DQN", {"epsilon_per_game": [0.4]}, r"_per_game .*\[base, exponent\].* \[0\.4\]"),
        ("DQN", {"epsilon_per_game": [40, 7.0]}, r"_per_game .* base in \[0, 1\].* \[40, 7"),
        ("DQN", {"epsilon_per_game": [0.4, -7]}, r"_per_game .* at least 0.* -7"),
        ("DQN", {"replay_buffer_config": {"capacitty": 5}}, "capacitty"),
        ("APEX", {"num_env_runners": 0}, "env runner"),
        ("PPO", {"train_batch_size_per_learner": 64}, "set minibatch_size"),
        ("PPO", {"minibatch_size": 0}, "minibatch_size"),
        ("PPO", {"num_epochs": 1.5}, "num_epochs"),
        ("PPO", {"lambda_": 1.5}, r"lambda_.* 0.* 1"),
        ("PPO", {"clip_param": "x"}, r"clip_param.* float.* 'x'"),
        ("PPO", {"async_sampling": True}, "async_sampling"),
        ("PPO", {"kickstart_coeff": 0.7}, r"kickstart_coeff is 0\.7.* without start_from; omit it"),
        ("PPO", {"entropy_coeff": [[5, 0.1], [9, 0.2]]}, "entropy"),
        ("PPO", {"num_learners": 2}, r"PPO.* num_learners=2"),
        ("PPO", {"num_cpus_per_env_runner": -1}, "num_cpus_per_env_runner .* at least 0, got -1"),
        ("DQN", {"num_gpus_per_learner": -1}, "num_gpus_per_learner .* at least 0, got -1"),
        ("PPO", TURNED | {"env_config": {"width": 7, "height": 9}}, "symmetry_augmentation"),
        ("PPO", TURNED | {"env_config": {"observation": "facing"}}, "symmetry_augmentation"),
        ("RECURRENT_PPO", {"async_sampling": True}, "async_sampling"),
        ("RECURRENT_PPO", {"kickstart_coeff": 0.1}, "kickstart_coeff"),
        ("RECURRENT_PPO", {"gru_size": 0}, "gru_size must be at least 1"),
        ("DISTIL", {"expert_nodes": 99}, r"expert_nodes.* 100, got 99"),
        ("DISTIL", {"expert_action_fraction": 2}, r"expert_action_fraction.* 0.* 1.* 2"),
        ("DISTIL", {"max_replay_ratio": "x"}, r"max_replay_ratio must be float, got 'x'"),
        ("DISTIL", {"gamma": 0.9}, "gamma"),
        ("DISTIL", {"env_config": {"rewards": "survival"}}, r"rewards.* 'survival'"),
        ("DISTIL", {"env_config": {"width": 26, "height": 26}}, r"board_size.* 26"),
        ("DISTIL", {"env_config": {"width": 7, "height": 9}}, "symmetry_augmentation"),
        ("DISTIL", {"num_learners": 2}, r"DISTIL.* num_learners=2"),
        ("DISTIL", {"explore": False}, r"explore is False.* leave it out"),
    ],
)
def test_settings_that_an_algorithm_cannot_honour_are_refused(
    name: str, settings: dict[str, Any], message: str
) -> None:
    config = algorithms.configure(name, {})
    with pytest.raises((ValueError, TypeError), match=message):
        _changed(config, settings).validate()


def test_games_that_need_a_setting_are_checked_with_that_setting() -> None:
    config = algorithms.configure("DISTIL", {"observation": "facing"})
    config.training(symmetry_augmentation=False).validate()


def _changed(config: Any, settings: dict[str, Any]) -> Any:
    """Set each of the settings by the method of the configuration that takes it."""
    rest = dict(settings)
    for part in (config.environment, config.learners, config.env_runners):
        known = set(rest) & set(inspect.signature(part).parameters)
        part(**{name: rest.pop(name) for name in known})
    return config.training(**rest)


def test_the_check_of_duels_accepts_search_spaces_and_leaves_unknown_maps_to_the_games() -> None:
    for name in (tune.choice(["standard", "royale"]), "foo"):
        config = _games(algorithms.configure("DQN", {}), 2, map=name)
        config.validate()
    with pytest.raises(ValueError, match="unknown map 'foo'"):
        make_vector_env(2, config.env_config)


def test_what_ray_tune_notes_in_a_configuration_is_passed_over() -> None:
    config = algorithms.configure("DQN", {})
    for name in (result.STDOUT_FILE, result.STDERR_FILE, result.TRIAL_INFO):
        config[name] = "a file of the trial's"
    config.validate()


def test_search_spaces_of_ray_tune_are_stored_and_their_values_checked() -> None:
    space = tune.grid_search([1e-4, 1e-3])
    config = algorithms.configure("DQN", {}).training(lr=space, gamma=tune.uniform(0.9, 1))
    assert config.training(n_step=3).lr == space
    assert config.training(lr=1e-3).lr == 1e-3
    with pytest.raises(ValueError, match="lr must be"):
        config.training(lr={"grid": [1]})


@pytest.mark.slow
def test_ray_tune_trains_each_of_the_settings_that_it_draws(
    small_config: Any, run_folder: Path
) -> None:
    config = small_config("DQN").training(lr=tune.grid_search([1e-4, 1e-3]))
    results = tune.Tuner(
        config.algo_class,
        param_space=config,
        run_config=tune.RunConfig(storage_path=str(run_folder), stop={"training_iteration": 2}),
    ).fit()
    assert [result.error for result in results] == [None, None]
    assert sorted(result.config["lr"] for result in results) == [1e-4, 1e-3]


class _Other:
    pass


def _games(config: Any, count: int, **options: Any) -> Any:
    config.environment(env_config=options)
    return config.env_runners(num_envs_per_env_runner=count)


def _with(config: Any, name: str) -> Any:
    setattr(config, name, 1)
    return config


def test_a_module_without_the_interfaces_is_refused() -> None:
    config = algorithms.configure("DQN", {})
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=SnakeActorCritic))
    with pytest.raises(ValueError, match=r"SnakeActorCritic.* QNetAPI.* TargetNetworkAPI"):
        config.validate()


class ToFloat(nn.Module):
    def forward(self, planes: Any) -> Any:
        return planes.float() / 255


class Narrow(SnakeQModule):
    """One's own network: a layer and no more."""

    def build_network(self, shape: tuple[int, int, int], num_actions: int) -> nn.Module:
        return nn.Sequential(ToFloat(), nn.Flatten(), nn.Linear(int(np.prod(shape)), 4))


class Line(TorchRLModule, QNetAPI, TargetNetworkAPI):  # type: ignore[misc]
    """RLlib's interfaces, and nothing of ours."""

    def setup(self) -> None:
        self.line = nn.Linear(int(np.prod(self.observation_space.shape)), 4)

    def _values(self, planes: Any, line: Any) -> Any:
        return line(planes.float().flatten(1) / 255)

    def make_target_networks(self) -> None:
        self.target = make_target_network(self.line)

    def get_target_network_pairs(self) -> Any:
        return [(self.line, self.target)]

    def forward_target(self, batch: Any) -> Any:
        return {QF_PREDS: self._values(batch[Columns.OBS], self.target)}

    def compute_q_values(self, batch: Any) -> Any:
        return {QF_PREDS: self._values(batch[Columns.OBS], self.line)}

    def _forward_train(self, batch: Any, **_: Any) -> Any:
        after = batch[Columns.NEXT_OBS]
        with torch.no_grad():
            following = self._values(after, self.line), self._values(after, self.target)
        names = QF_NEXT_PREDS, QF_TARGET_NEXT_PREDS
        return self.compute_q_values(batch) | dict(zip(names, following, strict=True))


@dataclass
class Heard:
    """What callbacks were told, and which fields of the configuration were read."""

    names: list[str] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    read: set[str] = field(default_factory=set)


@dataclass
class Trained:
    """An algorithm that was trained, its last results and what was heard meanwhile."""

    algorithm: Any
    results: dict[str, Any]
    heard: Heard
    checkpoint: Path


@pytest.fixture(scope="module")
def trained(ray_with_games: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    heard = Heard()

    class Listener(RLlibCallback):  # type: ignore[misc]
        def on_environment_created(self, *, env: Any, env_context: Any, **_: Any) -> None:
            assert env.num_games == 4
            assert env_context["width"] == 5
            heard.names.append("environment_created")

        def on_episode_start(self, *, episode: Any, **_: Any) -> None:
            assert len(episode) == 0
            assert set(episode.agent_ids) == {"snake_0", "snake_1"}

        def on_episode_step(self, *, episode: Any, env_index: int, **_: Any) -> None:
            assert len(episode) > 0
            assert 0 <= env_index < 4

        def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
            assert episode.is_done
            heard.returns.append(episode.get_return())
            heard.lengths.append(len(episode))
            metrics_logger.log_value("longest_game", len(episode), reduce="max")

        def on_sample_end(self, *, samples: Any, **_: Any) -> None:
            assert samples[0].num_env_steps > 0
            heard.names.append("sample_end")

        def on_evaluate_end(self, *, evaluation_metrics: Any, **_: Any) -> None:
            heard.names.append("evaluate_end")

        def on_train_result(self, *, result: Any, **_: Any) -> None:
            heard.names.append("train_result")

    def spy(config: Any, name: str) -> Any:
        if not sys._getframe(1).f_code.co_filename.endswith(
            ("algorithm_config.py", "supported_settings.py")
        ):
            heard.read.add(name)
        return object.__getattribute__(config, name)

    config = small("DQN").training(
        adam_epsilon=0.25, dueling=False, lr=[[0, 1e-3], [100_000, 1e-4]]
    )
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Narrow))
    config.fault_tolerance(restart_failed_env_runners=True)
    config.evaluation(evaluation_interval=1, evaluation_duration=7)
    config.callbacks(Listener, on_episode_created=lambda **_: heard.names.append("episode_created"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DQNConfig, "__getattribute__", spy)
        with built(config) as algorithm:
            results = [algorithm.train() for _ in range(2)][-1]
            folder = tmp_path_factory.mktemp("rllib") / "checkpoint"
            algorithm.save_to_path(str(folder))
            yield Trained(algorithm, results, heard, folder)


def test_every_honoured_field_is_read(trained: Trained) -> None:
    unread = SUPPORTED_FIELDS - trained.heard.read
    assert unread <= ELSEWHERE, unread - ELSEWHERE


def test_callbacks_hear_of_games(trained: Trained) -> None:
    heard = trained.heard
    assert {"environment_created", "sample_end", "evaluate_end", "train_result"} <= set(heard.names)
    assert heard.names.count("episode_created") >= len(heard.lengths) > 10
    assert all(0 < length <= 30 for length in heard.lengths)
    # Two snakes, one point a turn each as long as it lives.
    assert all(0 <= total <= 60 for total in heard.returns)
    runners = trained.results["env_runners"]
    assert runners["longest_game"] == max(heard.lengths) or runners["longest_game"] <= 30
    assert runners["num_episodes"] > 0


def test_evaluation_plays_as_many_games_as_it_says(trained: Trained) -> None:
    evaluation = trained.results["evaluation"]["env_runners"]
    assert evaluation["num_episodes"] == 7
    assert evaluation["episode_len_mean"] > 0


def test_an_evaluation_of_ones_own_needs_no_games(small_config: Any) -> None:
    config = small_config("DQN").evaluation(
        evaluation_interval=1, custom_evaluation_function=lambda algorithm, runners: ({}, 1, 1)
    )
    with built(config) as algorithm:
        assert "env_runners" not in algorithm.train()["evaluation"]


def test_the_optimizer_has_the_wanted_epsilon_and_schedule(trained: Trained) -> None:
    def seen(learner: Any) -> tuple[float, float]:
        (group,) = learner.get_optimizer("default_policy").param_groups
        return group["eps"], group["lr"]

    ((eps, lr),) = [one.get() for one in trained.algorithm.learner_group.foreach_learner(seen)]
    assert eps == 0.25
    assert 1e-4 < lr < 1e-3


def test_the_module_is_what_is_exported(trained: Trained) -> None:
    """And so is the one in a checkpoint: the mean of the weights, not the last."""
    algorithm = trained.algorithm
    exported = algorithm._get_export_weights()
    module = algorithm.get_module()
    last = algorithm.env_runner.module["default_policy"].network.state_dict()
    for name, array in module.network.state_dict().items():
        np.testing.assert_array_equal(array, exported[name])
        assert not torch.equal(array, last[name])
    assert algorithm.get_module("nobody") is None

    paths = [path.parent for path in trained.checkpoint.rglob("class_and_ctor_args.pkl")]
    folders = [path for path in paths if path.name == "default_policy"]
    assert folders == [trained.checkpoint / "learner_group/learner/rl_module/default_policy"]
    loaded = RLModule.from_checkpoint(str(folders[0]))
    planes = torch.randint(0, 256, (64, 10, 5, 5), dtype=torch.uint8)
    moves = loaded.forward_inference({Columns.OBS: planes})[Columns.ACTIONS]
    assert torch.equal(moves, module.network(planes).argmax(-1))


def test_a_network_without_dueling_has_one_head(small_config: Any) -> None:
    config = small_config("DQN").training(dueling=False)
    settings = network_settings(config.model_config)
    assert settings["dueling"] is False
    assert "dueling" not in network_settings(small_config("DQN").model_config)
    network = DuelingQNetwork((10, 5, 5), **settings)
    assert not [name for name in network.state_dict() if name.startswith("value")]


def test_a_module_of_ones_own_needs_nothing_of_ours(small_config: Any) -> None:
    """RLlib's interfaces are enough: it is trained, measured and given back."""
    config = small_config("DQN").rl_module(rl_module_spec=RLModuleSpec(module_class=Line))
    with built(config) as algorithm:
        before = algorithm.get_module().state_dict()["line.weight"].clone()
        results = algorithm.train()
        assert results["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
        after = algorithm.get_module().state_dict()["line.weight"]
        assert (before != after).any()
        values = algorithm._policy_from_weights(algorithm._get_export_weights())
        assert values(np.zeros((3, 10, 5, 5), np.uint8)).shape == (3, 4)

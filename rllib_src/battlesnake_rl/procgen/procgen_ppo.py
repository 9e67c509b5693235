"""PPO for Procgen on arrays instead of episode objects: ``run: ProcgenPPO``.

The algorithm is this project's PPO (`battlesnake_rl.mabs.ppo`) for games with one seat. OpenAI's
published changes for Procgen are included (`baselines.ppo2` in the configuration of the repository
openai/train-procgen, Cobbe et al. 2020):

* Rewards are normalized.
* The change of a value is clipped.
* Advantages are normalized in each minibatch.

An iteration plays 256 env steps of 64 games, for any number of env runners.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from torch import Tensor

from battlesnake_rl.mabs.base.batched_algorithm import TrainingLoop
from battlesnake_rl.mabs.base.batched_env_runner import make_callbacks
from battlesnake_rl.mabs.ppo.ppo import (
    ADVANTAGES,
    VALUE_TARGETS,
    PPOConfig,
    PPOEnvRunner,
    PPOLearner,
    Rollout,
)
from battlesnake_rl.mabs.settings.algorithm_settings import PPOSettings
from battlesnake_rl.procgen.impala_network import ImpalaModule
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from sagemaker_rl.job.hyperparameters import setting
from sagemaker_rl.runs.progress import progress

_STATE_KEY = "reward_normalization"
"""Key of the reward normalizer's moments in a learner's state."""

_UNUSED_SETTINGS = {
    "symmetry_augmentation": False,
    "start_from": None,
    "ladder_cpu_fraction": PPOSettings.ladder_cpu_fraction,
    "async_sampling": False,
}
"""Settings of this project's PPO without an effect, with their defaults."""


_EPSILON = 1e-8
"""Constant that is added to the variance before the square root."""

_MOMENTS = {"mean": "mean", "variance": "var", "count": "count"}
"""Attributes of `RunningMeanStd`, keyed by their names in a checkpoint."""


class _RewardNormalizer:
    """Normalizer that divides rewards by the standard deviation of discounted returns.

    The standard deviation is a running estimate. The return of a game is its previous return times
    ``gamma`` plus the reward; each episode starts with the return 0. The running variance already
    includes the returns of a step when the rewards of this step are divided. The divided rewards
    are clipped.
    """

    def __init__(self, gamma: float, clip: float) -> None:
        self._gamma, self._clip = gamma, clip
        self._moments = RunningMeanStd()  # type: ignore[no-untyped-call]
        self._returns: NDArray[np.float64] = np.zeros(0)

    def normalize_rollouts(self, rollouts: Sequence[Rollout]) -> None:
        """Normalize the rewards of rollouts in place.

        All rollouts have the same number of turns and one seat per game. The rollouts must continue
        the previous rollouts, with the games in the same order.
        """
        rewards, acted, out, cut = (
            np.concatenate([getattr(one, name)[..., 0] for one in rollouts], axis=1)
            for name in ("rewards", "acted", "terminateds", "truncateds")
        )
        scaled = np.array(
            [self.normalize_turn(*turn) for turn in zip(rewards, acted, out | cut, strict=True)]
        )
        ends = np.cumsum([one.rewards.shape[1] for one in rollouts])[:-1]
        for one, part in zip(rollouts, np.split(scaled, ends, axis=1), strict=True):
            one.rewards = part[..., None]

    def normalize_turn(
        self, rewards: NDArray[np.floating], played: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return the normalized rewards of the next step of N games, float32 (N,).

        Args:
            rewards: float (N,), rewards of the step.
            played: bool (N,), whether the step counts; other steps have no effect on the returns.
            ended: bool (N,), whether the episode ended.
        """
        if len(self._returns) != len(rewards):
            self._returns = np.zeros(len(rewards))
        self._returns[played] = self._returns[played] * self._gamma + rewards[played]
        if played.any():
            self._moments.update(self._returns[played])  # type: ignore[no-untyped-call]
        self._returns[ended] = 0.0
        scaled = rewards / np.sqrt(self._moments.var + _EPSILON)
        clipped: NDArray[np.float32] = np.clip(scaled, -self._clip, self._clip).astype(np.float32)
        return clipped

    def get_moments(self) -> dict[str, float]:
        """Return the running mean, variance and count of the returns.

        The returns of running games are not included.
        """
        return {name: float(getattr(self._moments, key)) for name, key in _MOMENTS.items()}

    def set_moments(self, state: Mapping[str, float]) -> None:
        """Set the running moments to a result of `get_moments`."""
        for name, key in _MOMENTS.items():
            setattr(self._moments, key, state[name])


class ProcgenRunner(PPOEnvRunner):
    """Env runner that samples actions and returns a `Rollout` with one seat per game.

    ``acted`` is False for a step that only returns the next level's first frame. The rewards are
    the game's original rewards. An env runner in the learner's process uses all CPUs for its games,
    and the learner's GPU for its network.
    """

    def make_env(self) -> None:
        """Create the games; the next call of `sample` starts new episodes."""
        config = self.config
        cpus = len(os.sched_getaffinity(0)) if config.num_env_runners == 0 else 1
        games: Any = VectorProcgen(
            config.num_envs_per_env_runner, config.env_config, num_threads=cpus
        )
        self.env, self._board_size = games, None
        self._needs_reset = True

    def make_module(self) -> None:
        """Build the network on the learner's GPU, or on the CPU."""
        super().make_module()
        alone = self.config.num_env_runners == 0 and self.config.num_learners == 0
        gpu = alone and self.config.num_gpus_per_learner > 0 and torch.cuda.is_available()
        self._device = torch.device("cuda" if gpu else "cpu")
        self.module[DEFAULT_MODULE_ID].to(self._device)

    def _current_board_size(self) -> None:
        """Return None, because Procgen's frames have a fixed size."""

    def _reset(self) -> None:
        """Start new episodes in all games and reset all counters."""
        frames, _ = self.env.reset(seed=int(self._random.integers(1, 2**31)))
        self._frames, self._ended = frames, np.zeros(len(frames), np.bool_)
        self._totals, self._lengths = np.zeros((2, len(frames)))
        self._needs_reset = False

    def _sample_actions(
        self, values: NDArray[np.float32], symmetries: NDArray[np.int64], explore: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], ...]:
        """Compute the values of the observations, and sample the actions of one step.

        Procgen masks no action.

        Args:
            values: float32 (N, 1), array to fill with the values.
            symmetries: Ignored.
            explore: bool (N,), whether to sample actions; if False, actions are greedy.
        """
        with torch.inference_mode():
            frames = torch.from_numpy(self._frames).to(self._device)
            found = _compute_logits_and_values(self.module[DEFAULT_MODULE_ID], frames)
        logits, values[:, 0] = (one.cpu().numpy() for one in found)
        luck = self._random.gumbel(size=logits.shape).astype(np.float32)
        moves = (logits + luck * explore[:, None]).argmax(-1)
        chances = logits[np.arange(len(moves)), moves] - np.logaddexp.reduce(logits, axis=-1)
        acts = ~self._ended
        allowed = np.ones((int(acts.sum()), logits.shape[1]), np.bool_)
        columns = self._frames[acts], allowed, moves[acts], chances[acts]
        return *columns, moves[:, None]

    def _step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Play one env step of all games and return the results of the step."""
        acted = ~self._ended
        self._frames, rewards, out, cut, _ = self.env.step(actions[:, 0])
        self._ended = out | cut
        self._totals += rewards
        self._lengths += acted
        self._log_ended_episodes()
        return acted[:, None], rewards[:, None], out[:, None], cut[:, None]

    def _log_ended_episodes(self) -> None:
        """Log the return and length of each episode that has just ended.

        The method resets the counters of these episodes.
        """
        recent = self.config.metrics_num_episodes_for_smoothing
        for name, column in (("return", self._totals), ("len", self._lengths)):
            for one in column[self._ended].tolist():
                for how in ("mean", "min", "max"):
                    self.metrics.log_value(f"episode_{name}_{how}", one, reduce=how, window=recent)
            column[self._ended] = 0.0
        self.metrics.log_value("num_episodes", int(self._ended.sum()), reduce="sum")

    def get_metrics(self) -> Any:
        """Return step counters, and the returns and lengths of finished episodes."""
        return self.metrics.reduce()


def _compute_logits_and_values(module: Any, frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits, float32 (B, 15), and values, float32 (B,), of a module.

    Any module that RLlib's PPO can train is valid.
    """
    batch = {Columns.OBS: frames}
    learning = torch.is_grad_enabled()
    found = (module.forward_train if learning else module.forward_inference)(batch)
    values = module.compute_values(batch, embeddings=found.get(Columns.EMBEDDINGS))
    return found[Columns.ACTION_DIST_INPUTS], values


class _ProcgenLearner(PPOLearner):
    """PPO's learner with normalized rewards and the published loss."""

    def build(self) -> None:
        """Build the module, the optimizer and the reward normalizer."""
        super().build()
        self._normalizer = _RewardNormalizer(self.config.gamma, self.config.reward_clip)

    def learn(self, rollouts: list[Rollout], env_steps: int) -> None:
        """Normalize the rewards of all games and train on the rollouts."""
        self._normalizer.normalize_rollouts(rollouts)
        self._num_minibatches = 0
        super().learn(rollouts, env_steps)

    def _to_batch(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the batch of a rollout, with the values at the time of sampling."""
        old = self._to_device(rollout.values[:-1][rollout.acted])
        return super()._to_batch(rollout) | {Columns.VF_PREDS: old}

    def _forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits and the values of a minibatch."""
        logits, values = _compute_logits_and_values(
            self.module[DEFAULT_MODULE_ID].unwrapped(), batch[Columns.OBS]
        )
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.VF_PREDS: values}

    def compute_loss_for_module(self, *, batch: dict[str, Tensor], **kwargs: Any) -> Tensor:
        """Return the PPO loss of a minibatch, with advantages normalized in the minibatch."""
        self._num_minibatches += 1
        progress.set_detail(f"learned from {self._num_minibatches} minibatches")
        advantages = batch[ADVANTAGES]
        deviation = advantages.std(unbiased=False) + 1e-8
        normalized = (advantages - advantages.mean()) / deviation
        return super().compute_loss_for_module(batch=batch | {ADVANTAGES: normalized}, **kwargs)

    def vf_losses(self, values: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """Return the clipped value losses of a minibatch (see `_clipped_value_losses`)."""
        clip = self.config.vf_clip_param
        return _clipped_value_losses(values, batch[Columns.VF_PREDS], batch[VALUE_TARGETS], clip)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the state of RLlib's learner, with the moments of the reward normalizer."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return state | {_STATE_KEY: self._normalizer.get_moments()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `get_state`."""
        super().set_state(state)
        if _STATE_KEY in state:
            self._normalizer.set_moments(state[_STATE_KEY])


def _clipped_value_losses(values: Tensor, old: Tensor, targets: Tensor, clip: float) -> Tensor:
    """Return PPO's clipped value losses, float32 (B,), as in OpenAI baselines.

    For each value, the loss is the larger of the squared errors with and without clipping.

    Args:
        values: float32 (B,), current values.
        old: float32 (B,), values at the time of sampling.
        targets: float32 (B,), value targets.
        clip: Maximum difference between a clipped value and its value in ``old``.
    """
    clipped = old + (values - old).clamp(-clip, clip)
    return torch.maximum((values - targets) ** 2, (clipped - targets) ** 2)


@dataclass(frozen=True)
class ProcgenPPOSettings(PPOSettings):
    """Settings of PPO with OpenAI's published values for Procgen."""

    config_class = "battlesnake_rl.procgen.procgen_ppo:ProcgenPPOConfig"

    gamma: float = setting(0.999, "discount factor per frame", minimum=0, maximum=1)
    lr: float | list[Any] = setting(5e-4, "learning rate of Adam, or a schedule", above=0)
    batch_size: int = setting(
        2048, "frames per update", "minibatch_size", aliases=("minibatch_size",), minimum=1
    )
    num_epochs: int = setting(3, "passes over each batch of rollouts", minimum=1)
    entropy_coeff: float | list[Any] = setting(0.01, "weight of the entropy bonus", minimum=0)
    kickstart_coeff: float | list[Any] = setting(0.0, "not used", maximum=0)
    min_train_probability: float = setting(1.0, "not used", minimum=1, maximum=1)
    games: int | None = setting(
        64,
        "games that the env runners share evenly; null: --num-envs-per-env-runner per env runner",
        minimum=1,
    )
    reward_clip: float = setting(10.0, "maximum absolute value of a normalized reward", above=0)
    vf_clip_param: float = setting(0.2, "maximum change of a value since sampling", above=0)
    num_envs_per_env_runner: int = setting(1, "games per env runner", minimum=1)
    rollout_fragment_length: int = setting(256, "frames of each game in one rollout", minimum=1)


class ProcgenPPOConfig(PPOConfig):
    """Configuration of this project's PPO with OpenAI's published values for Procgen.

    The value loss is the mean squared error. `baselines` uses half of this loss; the published
    coefficient of 0.5 therefore corresponds to 0.25 here.
    """

    settings_class = ProcgenPPOSettings
    env_runner_class = ProcgenRunner
    learner_class_base = _ProcgenLearner
    rl_module_class = ImpalaModule
    module_apis = (ValueFunctionAPI,)
    num_envs_per_env_runner: int  # mypy skips the modules of Ray.

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ProcgenPPO)
        self.rl_module(model_config={})
        self._shared = self.num_envs_per_env_runner

    def _configure_environment(self) -> None:
        """Distribute the games evenly among the env runners.

        The method also rejects settings without an effect.
        """
        if not self.in_evaluation:
            self._distribute_games()
        for name, default in _UNUSED_SETTINGS.items():
            if getattr(self, name) != default:
                raise ValueError(f"ProcgenPPO: {name} has no effect; omit {name}")
        if make_callbacks(self)[1]:
            raise ValueError(
                "callbacks: ProcgenPPO has no episode objects; leave callbacks out, or use RLlib's "
                "PPO (run: PPO)"
            )

    def _distribute_games(self) -> None:
        """Set the number of games per env runner.

        All env runners have the same number of games.

        Raises:
            ValueError: If the number of env runners does not divide the number of games.
        """
        if self.games is None:
            return
        runners = max(self.num_env_runners, 1)
        if self.num_envs_per_env_runner not in (1, self._shared):
            raise ValueError(
                f"num_envs_per_env_runner is {self.num_envs_per_env_runner}, but the env runners "
                f"share {self.games} games in total; leave it out or set games to null"
            )
        if self.games % runners:
            divisors = ", ".join(str(n) for n in range(1, self.games + 1) if self.games % n == 0)
            raise ValueError(
                f"num_env_runners {runners} cannot share {self.games} games evenly; give one of "
                f"{divisors}, or another number of games"
            )
        self._shared = self.num_envs_per_env_runner = self.games // runners


class ProcgenPPO(TrainingLoop):
    """PPO that alternates between sampling rollouts and training on the rollouts."""

    config: ProcgenPPOConfig
    config_class = ProcgenPPOConfig

    def training_step(self) -> None:
        """Sample rollouts and train on the sampled rollouts."""
        if rollouts := self._sample_fragments():
            self._update_learner(rollouts)
            self._sync_weights()

"""PPO as OpenAI published it for these games, on RLlib: ``run: ProcgenPPO``.

It is `baselines.ppo2` as the repository openai/train-procgen calls it (Cobbe et al. 2020): 64
games of 256 turns an iteration, however many runners share them; rewards normalized
(`reward_scale`); a value that moves by at most the clip; advantages normalized in each minibatch.
RLlib's own PPO has none of these four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.ppo import LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets
from ray.rllib.utils.torch_utils import explained_variance
from torch import Tensor

from battlesnake_rl.procgen.reward_scale import Part, RewardNormalizer

_STATE = "reward_normalization"
"""Under this key a checkpoint's learner has the state of the `RewardNormalizer`."""


class ProcgenPPOConfig(PPOConfig):  # type: ignore[misc]
    """RLlib's settings of PPO with the published values, and some more.

    ``games``: how many there are in all; runners share them evenly (None: each runner has
    ``num_envs_per_env_runner``). ``reward_normalization`` and ``reward_clip``: see `reward_scale`.
    ``adam_epsilon``: of the optimizer. ``vf_clip_param`` is how far the value may move from what it
    was when the turn was played; RLlib's PPO cuts the loss there instead. The value's loss is the
    mean square: `baselines` halves it, so that its coefficient of 0.5 is 0.25 here.
    """

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ProcgenPPO)
        self.games: int | None = 64
        self.reward_normalization = True
        self.reward_clip = 10.0
        self.adam_epsilon = 1e-5
        self._shared = 1
        self.training(
            gamma=0.999,
            lambda_=0.95,
            lr=5e-4,
            num_epochs=3,
            minibatch_size=2048,
            train_batch_size_per_learner=16384,
            clip_param=0.2,
            vf_clip_param=0.2,
            vf_loss_coeff=0.25,
            entropy_coeff=0.01,
            grad_clip=0.5,
            use_kl_loss=False,
        )

    def validate(self) -> None:
        """Share the games among the runners; refuse what is not honoured, by name."""
        if not self.in_evaluation:
            self._share_games()
        if self.use_kl_loss:
            raise ValueError("use_kl_loss must be false: ProcgenPPO has no such loss; PPO has")
        if self.reward_normalization and self.num_learners > 1:
            raise ValueError(
                f"num_learners is {self.num_learners}, but reward_normalization needs all games in "
                "one learner; give num_learners 0 or 1, or reward_normalization false"
            )
        batch, minibatch = self.train_batch_size_per_learner, self.minibatch_size
        if batch % minibatch:
            raise ValueError(
                f"train_batch_size_per_learner {batch} must be a multiple of minibatch_size "
                f"{minibatch}"
            )
        super().validate()

    def _share_games(self) -> None:
        if self.games is None:
            return
        runners = max(self.num_env_runners, 1)
        if self.num_envs_per_env_runner not in (1, self._shared):
            raise ValueError(
                f"num_envs_per_env_runner is {self.num_envs_per_env_runner}, but the runners share "
                f"games, {self.games} in all; leave out the one or set games to null"
            )
        if self.games % runners:
            fitting = ", ".join(str(n) for n in range(1, self.games + 1) if self.games % n == 0)
            raise ValueError(
                f"num_workers {runners} cannot share {self.games} games evenly; give one of "
                f"{fitting}, or another number of games"
            )
        self._shared = self.games // runners
        self.env_runners(num_envs_per_env_runner=self._shared)

    def get_default_learner_class(self) -> type[ProcgenPPOLearner]:
        """What learns."""
        return ProcgenPPOLearner


class ProcgenPPO(PPO):  # type: ignore[misc]
    """PPO with the settings of `ProcgenPPOConfig`."""

    @classmethod
    def get_default_config(cls) -> ProcgenPPOConfig:
        """The configuration to start from."""
        return ProcgenPPOConfig()


class ProcgenPPOLearner(PPOTorchLearner):  # type: ignore[misc]
    """RLlib's learner of PPO with the published loss, optimizer and treatment of the batch."""

    def build(self) -> None:
        """Put our advantages in the place of RLlib's."""
        super().build()
        config = self.config
        self._normalizer = (
            RewardNormalizer(config.gamma, config.reward_clip)
            if config.reward_normalization
            else None
        )
        self._learner_connector.remove(GeneralAdvantageEstimation.__name__)
        self._learner_connector.append(
            Advantages(gamma=config.gamma, lambda_=config.lambda_, normalizer=self._normalizer)
        )
        self._learner_connector.append(PlayedFrames(config.train_batch_size_per_learner))

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam with the published epsilon; RLlib sets its learning rate."""
        parameters = self.get_parameters(self._module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(parameters, eps=config.adam_epsilon),
            params=parameters,
            lr_or_lr_schedule=config.lr,
        )

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of one minibatch."""
        module = self.module[module_id].unwrapped()
        actions = module.get_train_action_dist_cls().from_logits(
            fwd_out[Columns.ACTION_DIST_INPUTS]
        )
        values = module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        targets = batch[Postprocessing.VALUE_TARGETS]
        policy = policy_loss(
            actions.logp(batch[Columns.ACTIONS]),
            batch[Columns.ACTION_LOGP],
            batch[Postprocessing.ADVANTAGES],
            config.clip_param,
        )
        value = value_loss(values, batch[Columns.VF_PREDS], targets, config.vf_clip_param)
        entropy = actions.entropy().mean()
        coefficient = self.entropy_coeff_schedulers_per_module[module_id].get_current_value()
        self.metrics.log_dict(
            {
                POLICY_LOSS_KEY: policy,
                VF_LOSS_KEY: value,
                ENTROPY_KEY: entropy,
                LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY: explained_variance(targets, values),
            },
            key=module_id,
            window=1,
        )
        loss: Tensor = policy + config.vf_loss_coeff * value - coefficient * entropy
        return loss

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's, with what rewards are divided by."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return state | ({_STATE: self._normalizer.state()} if self._normalizer else {})

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave."""
        super().set_state(state)
        if self._normalizer and _STATE in state:
            self._normalizer.restore(state[_STATE])


class Advantages(ConnectorV2):  # type: ignore[misc]
    """Adds advantages, value targets and values to a batch.

    In the learner's pipeline each part of an episode has got one turn more by now, for the value of
    what follows it. Those turns are False in the column ``LOSS_MASK``; `PlayedFrames` drops them.
    """

    def __init__(
        self, *, gamma: float, lambda_: float, normalizer: RewardNormalizer | None
    ) -> None:
        super().__init__()
        self._gamma, self._lambda = gamma, lambda_
        self._normalizer = normalizer

    def __call__(
        self, *, rl_module: Any, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        """``batch`` with the new columns; there is one module, and so one table of columns."""
        ((module_id, columns),) = batch.items()
        values = convert_to_numpy(rl_module[module_id].compute_values(columns))
        real = convert_to_numpy(columns[Columns.LOSS_MASK]).astype(bool)
        rewards = convert_to_numpy(columns[Columns.REWARDS]).astype(np.float32)
        if self._normalizer is not None:
            rewards[real] = np.concatenate(self._normalizer([_part(one) for one in episodes]))
        targets = compute_value_targets(
            values=values,
            rewards=rewards,
            terminateds=convert_to_numpy(columns[Columns.TERMINATEDS]),
            truncateds=convert_to_numpy(columns[Columns.TRUNCATEDS]),
            gamma=self._gamma,
            lambda_=self._lambda,
        )
        added = {
            Postprocessing.ADVANTAGES: targets - values,
            Postprocessing.VALUE_TARGETS: targets,
            Columns.VF_PREDS: values,
            Columns.REWARDS: rewards,
        }
        device = columns[Columns.OBS].device
        columns |= {name: torch.from_numpy(one).to(device) for name, one in added.items()}
        return batch


class PlayedFrames(ConnectorV2):  # type: ignore[misc]
    """Leaves exactly ``size`` turns that were played, in a random order; comes last.

    The few that the games have played beyond ``size`` in their last step go, spread evenly. RLlib
    shuffles a batch only after it went through it once, game by game.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """``batch`` with those rows."""
        ((module_id, columns),) = batch.items()
        real = convert_to_numpy(columns.pop(Columns.LOSS_MASK)).astype(bool)
        kept = torch.from_numpy(spread(np.flatnonzero(real), self._size))
        kept = kept[torch.randperm(len(kept))].to(columns[Columns.OBS].device)
        return {module_id: {name: column[kept] for name, column in columns.items()}}


def _part(episode: Any) -> Part:
    """An episode of RLlib's, which has got one turn more, and its place among others in its id."""
    turns = len(episode) - 1
    infos = episode.get_infos(slice(1, turns + 1))
    return Part(
        episode=episode.id_.rpartition("_")[0],
        clocks=np.array([info["clock"] for info in infos], dtype=np.int64),
        rewards=np.asarray(episode.get_rewards(slice(0, turns))),
    )


def spread(rows: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """``size`` of ``rows``, with what is left out taken evenly from all of them; or all, if fewer.

    >>> spread(np.arange(10), 8).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8]
    """
    surplus = max(len(rows) - size, 0)
    return np.delete(rows, np.linspace(0, len(rows) - 1, surplus).astype(np.int64))


def policy_loss(logp: Tensor, old_logp: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """PPO's clipped loss of the policy, with the advantages of this minibatch normalized; all (B,).

    ``logp`` of the actions now and when they were played.
    """
    advantages = (advantages - advantages.mean()) / (advantages.std(unbiased=False) + 1e-8)
    ratio = torch.exp(logp - old_logp)
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return torch.maximum(-advantages * ratio, -advantages * clipped).mean()


def value_loss(values: Tensor, old: Tensor, targets: Tensor, clip: float) -> Tensor:
    """The mean square error of the values, or of values that moved by at most ``clip``, if larger.

    All are (B,); ``old`` are the values when the turns were played.
    """
    moved = old + (values - old).clamp(-clip, clip)
    return torch.maximum((values - targets) ** 2, (moved - targets) ** 2).mean()

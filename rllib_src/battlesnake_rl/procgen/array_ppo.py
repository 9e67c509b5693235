"""PPO on arrays, for processors: ``run: ArrayPPO``.

It is the PPO that trains Battlesnake (`battlesnake_rl.mabs.ppo`) with a runner for Procgen's games:
they are games of one seat, whose rewards are normalized (`reward_scale`). There are no episode
objects. All games are in one process and share one forward pass a turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID

from battlesnake_rl.mabs.dqn.batched import Loop
from battlesnake_rl.mabs.dqn.runner import Stepped
from battlesnake_rl.mabs.measure.strength import SHARE
from battlesnake_rl.mabs.play.episodes import CREATED, END, START, STEP, Callbacks
from battlesnake_rl.mabs.policy.actor_critic import judged
from battlesnake_rl.mabs.ppo.ppo import PPOConfig, PPORunner
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.reward_scale import RewardNormalizer
from battlesnake_rl.procgen.small_network import SmallModule

_STATE = "reward_normalization"
"""Under this key a runner's state has that of its `RewardNormalizer`."""

NOT_HERE = {"symmetries": False, "start_from": None, "ladder_share": SHARE, "lag": False}
"""Settings of the PPO for Battlesnake that mean nothing here, with their defaults."""


class OneSeat(VectorProcgen):
    """Procgen's games under the words for games of several players."""

    num_snakes = 1

    @property
    def num_games(self) -> int:
        """How many are played at once."""
        return self.num_envs


class ArrayRunner(PPORunner):
    """Plays Procgen by chance, as the policy says, and returns a `Rollout` of one seat a game.

    The step that only shows the next level's first frame has not ``acted``.
    """

    def make_env(self) -> None:
        """Build the games; the next `sample` starts them anew."""
        games: Any = OneSeat(self.config.num_envs_per_env_runner, self.config.env_config)
        self.env, self._side = games, None
        self._scale = RewardNormalizer(self.config.gamma, self.config.reward_clip)
        self._needs_reset = True

    def _curriculum_side(self) -> None:
        """Procgen's frames have one size."""

    def _reset(self) -> None:
        games: Any = self.env
        frames, _ = games.reset(seed=int(self._random.integers(1, 2**31)))
        self._frames, self._ended = frames, np.zeros(len(frames), np.bool_)
        self._totals, self._lengths = np.zeros((2, len(frames)))
        self._needs_reset = False

    def _decide(
        self, values: NDArray[np.float32], ways: NDArray[np.int64], by_chance: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], ...]:
        """Fill in ``values`` (N, 1); as `PPORunner`'s, with every action allowed."""
        logits, values[:, 0] = judged(self.module[DEFAULT_MODULE_ID], self._frames)
        luck = self._random.gumbel(size=logits.shape).astype(np.float32)
        moves = (logits + luck * by_chance[:, None]).argmax(-1)
        chances = logits[np.arange(len(moves)), moves] - np.logaddexp.reduce(logits, axis=-1)
        acts = ~self._ended
        allowed = np.ones((int(acts.sum()), logits.shape[1]), np.bool_)
        return (
            self._frames[acts],
            allowed,
            moves[acts],
            chances[acts],
            moves[:, None],
            acts[:, None],
        )

    def _step(self, actions: NDArray[Any]) -> Stepped:
        games: Any = self.env
        acted = ~self._ended
        self._frames, rewards, out, cut, _ = games.step(actions[:, 0])
        self._ended = out | cut
        self._totals += rewards
        self._lengths += acted
        self._report_ended()
        scaled = self._scale.of_turn(rewards, acted, self._ended)
        return Stepped(acted[:, None], scaled[:, None], out[:, None], cut[:, None])

    def _report_ended(self) -> None:
        """Log the episodes that have just ended, and begin to count the next ones."""
        recent = self.config.metrics_num_episodes_for_smoothing
        for name, column in (("return", self._totals), ("len", self._lengths)):
            for one in column[self._ended].tolist():
                for how in ("mean", "min", "max"):
                    self.metrics.log_value(f"episode_{name}_{how}", one, reduce=how, window=recent)
            column[self._ended] = 0.0
        self.metrics.log_value("num_episodes", int(self._ended.sum()), reduce="sum")

    def get_metrics(self) -> Any:
        """Counters, and the rewards and lengths of episodes, as RLlib's runners have them."""
        return self.metrics.reduce()

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """With what rewards are divided by."""
        return super().get_state(*args, **kwargs) | {_STATE: self._scale.state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_state` gave; the games begin anew."""
        super().set_state(state)
        if _STATE in state:
            self._scale.restore(state[_STATE])


class ArrayPPOConfig(PPOConfig):
    """The settings of Battlesnake's PPO, with values for these games on a processor.

    ``reward_clip``: see `reward_scale`.
    """

    runner_base = ArrayRunner
    module_base = SmallModule
    module_apis = (SmallModule,)
    own = (*PPOConfig.own, "reward_clip")

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ArrayPPO)
        self.rl_module(model_config={})
        self.num_envs_per_env_runner = 64
        self.rollout_fragment_length = 64
        self.gamma = 0.99
        self.lr = 7e-4
        self.vf_loss_coeff = 0.25
        self.entropy_coeff = 0.01
        self.num_epochs = 1
        self.minibatch_size = 512
        self.reward_clip = 10.0
        self.start_coeff = 0.0

    def _check_environment(self) -> None:
        """Refuse what would do nothing here."""
        for name, default in NOT_HERE.items():
            if getattr(self, name) != default:
                raise ValueError(f"ArrayPPO: {name} is not used (leave it out)")
        if self.num_env_runners and not self.in_evaluation:
            raise ValueError(
                f"num_workers is {self.num_env_runners}, but ArrayPPO plays all games in one "
                "process; give 0, or take ProcgenPPO"
            )
        if Callbacks(self).wanted(CREATED, START, STEP, END):
            raise ValueError(
                "callbacks: ArrayPPO has no episode objects to look at; leave callbacks out, or "
                "take ProcgenPPO"
            )


class ArrayPPO(Loop, Algorithm):  # type: ignore[misc]
    """The games play a rollout, then the learner learns from it."""

    config: ArrayPPOConfig

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """The configuration to start from."""
        return ArrayPPOConfig()

    def training_step(self) -> None:
        """Play and learn."""
        self._learn_from(self._sample())

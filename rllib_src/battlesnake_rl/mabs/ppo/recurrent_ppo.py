"""PPO with a recurrent policy, for games with limited view.

The update is the update of PPO (`ppo`). Gradients flow through all moves of a snake in one fragment
(truncated backpropagation through time). A sequence is such a run of moves: it starts with the
state that the env runner had, which is zero at the start of a game. A batch contains whole
sequences. The critic may see the complete board (asymmetric actor-critic, Pinto et al. 2018,
https://arxiv.org/abs/1710.06542); the exported policy does not contain the critic.

Axes: ``N`` games, ``S`` seats, ``M`` moves, ``K`` floats of a recurrent state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from torch import Tensor

from battlesnake_gym.env.seat_memory import ScoreFn, SeatMemory
from battlesnake_rl.mabs.policy import symmetry_transforms
from battlesnake_rl.mabs.policy.actor_critic import (
    COMPLETE_OBS,
    SEQUENCES_BY_STEP,
    RecurrentActor,
)
from battlesnake_rl.mabs.policy.policy_loader import as_score_fn
from battlesnake_rl.mabs.ppo.ppo import PPO, PPOConfig, PPOEnvRunner, PPOLearner
from battlesnake_rl.mabs.settings.algorithm_settings import RecurrentPPOSettings

_SEQUENCE = "sequence"
"""Name of a batch column, int64 (M,): number of the sequence of each move."""


class _RecurrentPPOEnvRunner(PPOEnvRunner):
    """Env runner that keeps the recurrent state of each seat and records it with each move."""

    def make_env(self) -> None:
        """Build the games, the states and the observations of the complete board."""
        super().make_env()
        self._memory = SeatMemory(self.env)
        self._complete = self.env.observe_as(
            self.env.observation,
            self.env.single_observation_space.shape,  # type: ignore[arg-type]
            complete=self.config.full_board_critic,
        )

    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Any:
        """Play ``num_turns`` turns; game i is greedy if ``epsilon[i]`` is 0."""
        self._extra: list[tuple[NDArray[Any], ...]] = []
        rollout = super()._play(num_turns, epsilon)
        columns = map(np.concatenate, zip(*self._extra[:num_turns], strict=True))
        rollout.columns |= zip((_SEQUENCE, Columns.STATE_IN, COMPLETE_OBS), columns, strict=True)
        return rollout

    def _draw_symmetries(self) -> NDArray[np.int64]:
        """Return the number of each game, int64 (N,)."""
        return np.arange(self.env.num_games)

    def _sample_actions(
        self, values: NDArray[np.float32], symmetries: NDArray[np.int64], explore: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], ...]:
        """Sample moves; a symmetry changes only between games, because states depend on it."""
        if self.config.symmetry_augmentation:
            symmetries = (symmetries + self.env.episodes) % symmetry_transforms.NUM_SYMMETRIES
        return super()._sample_actions(values, symmetries, explore)

    def _evaluate(
        self, frames: NDArray[np.uint8], seen: NDArray[np.bool_], symmetry: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], ...]:
        """Return logits and values; the states change when the turn is played."""
        module = self.module[DEFAULT_MODULE_ID]
        before = self._memory.states(self.config.gru_size)[seen]
        complete = self._complete[seen]
        self._transform(complete, symmetry)
        with torch.inference_mode():
            inputs = map(torch.from_numpy, (frames, before, complete))
            logits, values, after = (one.numpy() for one in module.step(*inputs))
        self._after = seen, after
        acts = self._position[2][seen]
        game, seat = np.nonzero(seen & self._position[2])
        episode = self.env.episodes[game] + (self.worker_index << 32)
        sequence = (episode * self.env.num_games + game) * self.env.num_snakes + seat
        self._extra.append((sequence, before[acts], complete[acts]))
        return logits, values

    def _step(self, actions: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
        """Play one turn with the states after the moves."""
        seen, after = self._after
        self._memory.states(self.config.gru_size)[seen] = after
        return super()._step(actions)

    def score_fn(self, module: Any) -> ScoreFn:
        """Return the recurrent score function of a module."""
        return as_score_fn(module.network)


class _RecurrentPPOLearner(PPOLearner):
    """Learner that trains on whole sequences."""

    def _minibatches(self, columns: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Yield batches of whole sequences with nearly equal numbers of moves.

        The moves of a batch are ordered by step, and the longest sequence comes first.
        """
        numbers = columns[_SEQUENCE].cpu().numpy()
        _, sequence, lengths = np.unique(numbers, return_inverse=True, return_counts=True)
        moves, by_sequence = len(sequence), np.argsort(sequence, kind="stable")
        first = np.repeat(np.cumsum(lengths) - lengths, lengths)
        step, batch = np.empty(moves, np.int64), np.empty(len(lengths), np.int64)
        step[by_sequence] = np.arange(moves) - first
        order = self._random.permutation(len(lengths))
        batch[order] = (np.cumsum(lengths[order]) - 1) * self._num_updates(moves) // moves
        rows = np.lexsort((sequence, -lengths[sequence], step, batch[sequence]))
        for part in np.split(rows, np.cumsum(np.bincount(batch[sequence]))[:-1]):
            if len(part):
                chosen = self._to_device(part)
                by_step = torch.from_numpy(np.bincount(step[part]))
                taken = {name: one[chosen] for name, one in columns.items() if name != _SEQUENCE}
                yield taken | {SEQUENCES_BY_STEP: by_step}


class RecurrentPPOConfig(PPOConfig):
    """Configuration of RECURRENT_PPO; `RecurrentPPOSettings` has the settings."""

    settings_class = RecurrentPPOSettings  # type: ignore[assignment]
    env_runner_class = _RecurrentPPOEnvRunner
    learner_class_base = _RecurrentPPOLearner
    rl_module_class = RecurrentActor
    # States of an older policy would need more than a new importance ratio.
    async_sampling = False
    kickstart_coeff = 0.0
    min_train_probability = 1.0  # A batch contains whole sequences.

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or RecurrentPPO)

    @property
    def model_config(self) -> dict[str, Any]:
        """Settings of the network, with the settings of this algorithm."""
        own = {"gru_size": self.gru_size, "full_board_critic": self.full_board_critic}
        return super().model_config | own  # type: ignore[no-any-return]


class RecurrentPPO(PPO):
    """PPO with a recurrent policy, in the same loop as PPO."""

    config: RecurrentPPOConfig
    config_class = RecurrentPPOConfig

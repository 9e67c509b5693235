"""DISTIL: a policy imitates the search in the positions that the policy reaches.

The policy plays its own games. The expert is alpha-beta search with the evaluation of ``champion``.
The expert labels every position with the values of all moves (DAgger: Ross, Gordon and Bagnell
2011, https://arxiv.org/abs/1011.0686). In a fraction of the games, the expert selects the moves, so
the labels include strong play. The policy head fits the softmax of the expert's values by
cross-entropy. The value head fits the expert's win probability. PPO uses the same network and can
start from a DISTIL policy (``start_from``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.rules import MOVES
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import COMPILED, NOT_COMPILED_MESSAGE, Search
from battlesnake_rl.mabs.base.batched_algorithm import BatchedAlgorithm, BatchedAlgorithmConfig
from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.base.torch_learner import BatchedLearner, copy_to_cpu_async
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.actor_critic import SnakeActor
from battlesnake_rl.mabs.policy.q_network import ACTION_MASK, TRUNK_DEFAULTS
from battlesnake_rl.mabs.ppo.ppo import PPOEnvRunner
from battlesnake_rl.mabs.settings.algorithm_settings import DISTILSettings
from sagemaker_rl.job.resources import BufferSize

_TEMPERATURE_CELLS = 1.0
"""Temperature of the expert's policy, in cells of territory.

One cell of territory changes the logit of the win probability by 0.1.
"""

MAX_REGRET = 60.0
"""Maximum regret of a move, in cells of territory."""

_MIN_PRIORITY, _NEW_PRIORITY, _MAX_PRIORITY = 0.1, 1.0, 20.0
"""Minimum and maximum priority of trained labels, and the priority of new labels, in cells.

The priority of a trained label is the policy's expected regret in the label's position.
"""

_CANDIDATES_PER_LABEL = 4
"""Number of labels that are drawn uniformly for each label of a batch."""

_RESUME_SAMPLING_TURNS = 100
"""Turns per game after a resume in which labels are only collected.

Checkpoints do not include the label buffer. At first, the new buffer contains mostly openings. If
the resumed training had fewer turns per game, the same number of turns is collected again.
"""

_REGRETS, _VALUE_TARGETS = "regrets", "value_targets"
"""Names of batch columns."""

_WEIGHTS = "weights"
"""Name of the batch column with the weights of the labels in metrics."""

_COLUMN_NAMES = (Columns.OBS, ACTION_MASK, _REGRETS, _VALUE_TARGETS)
"""Names of all columns of a fragment with M labels.

The columns are observations, uint8 (M, C, H, W), action masks, bool (M, 4), regrets in cells,
float16 (M, 4), in [0, `MAX_REGRET`], and value targets, 2 * win probability - 1, float32 (M,), in
[-1, 1]. The regret of a move is the best value minus the value of the move. Masked moves have
`MAX_REGRET`.
"""

_LABEL_BYTES = 4 + 8 + 4 + 4
"""Bytes of a label without its observation: mask, regrets, value target and priority."""


class _DistilEnvRunner(PPOEnvRunner):
    """Env runner that samples moves and labels positions with the expert's search."""

    def make_env(self) -> None:
        """Build the games and the expert's search."""
        super().make_env()
        self._search = Search(evaluation=load_builtin(), nodes=self.config.expert_nodes, exact=True)

    def _play(self, num_turns: int, epsilon: NDArray[np.float64]) -> Any:
        """Play ``num_turns`` turns of all games and label the positions.

        If no game explores, no position is labeled, and the fragment has no columns.
        """
        module, query_expert = self.module[DEFAULT_MODULE_ID], bool(epsilon.any())
        expert_plays = (
            np.arange(self.env.num_games) < self.config.expert_action_fraction * self.env.num_games
        )
        parts: list[tuple[NDArray[Any], ...]] = []
        steps = 0
        for _ in range(num_turns):
            observations, action_mask, alive, _ = self._position
            acts = alive & ~self._opponents.occupied
            frames, mask = observations[acts], action_mask[acts]
            preferred = np.where(mask, self.action_scores(module, frames), -np.inf)
            if query_expert:
                preferred += self._random.gumbel(size=preferred.shape)
            moves = preferred.argmax(-1)
            if query_expert:
                regrets, value_targets, known = self._query_expert(np.argwhere(acts), mask)
                moves = np.where(
                    expert_plays[np.nonzero(acts)[0]] & known, regrets.argmin(-1), moves
                )
                parts.append((frames[known], mask[known], regrets[known], value_targets[known]))
            actions = np.zeros(alive.shape, np.uint8)
            actions[acts] = moves
            steps += int(self._step(actions)[0].any(-1).sum())
        columns = map(np.concatenate, zip(*parts, strict=True))
        num_labels = sum(len(part[0]) for part in parts)
        labels = Fragment(dict(zip(_COLUMN_NAMES, columns, strict=False)), steps, num_labels)
        self._log_steps(labels)
        return labels

    def _query_expert(
        self, seats: NDArray[np.int64], action_mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float16], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the expert's regrets, value targets and a mask of labeled positions.

        Args:
            seats: int64 (M, 2), game and seat of each position.
            action_mask: bool (M, 4), action masks. A position with all moves masked has no label.

        Returns:
            Three arrays: regrets, float16 (M, 4); value targets, float32 (M,); mask, bool (M,).
        """
        rules = replace(self.env.game, seed=UNKNOWN_SEED)
        regrets = np.full(action_mask.shape, MAX_REGRET, np.float16)
        value_targets, known = np.zeros(len(seats), np.float32), np.zeros(len(seats), np.bool_)
        board, of_game = None, -1
        for row, (game, seat) in enumerate(seats.tolist()):
            if of_game != game:
                board, of_game = Board.from_state(self.env.games.state(game), rules), game
            assert board is not None
            board.you_id = board.snakes[seat].id
            scores = self._search.move_scores(board)
            facing = np.full(len(MOVES), self.env.games.facing[game, seat])
            moves = self.env.observation.absolute_actions(np.arange(len(MOVES)), facing)
            values = np.array([scores.get(MOVES[move], -math.inf) for move in moves])
            values[~action_mask[row]] = -math.inf
            best = values.max()
            known[row] = np.isfinite(best)
            if known[row]:
                regrets[row] = np.minimum(best - values, MAX_REGRET)
                value_targets[row] = 2 * score_to_probability(best) - 1
        return regrets, value_targets, known


class _DistilLearner(BatchedLearner):
    """Learner that draws labels from a buffer of the latest labels, by priority."""

    metric_names = "total_loss", "policy_loss", "vf_loss", "expert_agreement"
    """Names of the reported metrics.

    All metrics are estimates for uniform batches: importance weights (`_WEIGHTS`) correct for the
    draws. ``expert_agreement`` is the fraction of positions in which policy and expert prefer the
    same move.
    """
    per_move_columns = _REGRETS, ACTION_MASK

    def build(self) -> None:
        """Build the module, the optimizer and an empty label buffer.

        Checkpoints do not include the label buffer.
        """
        super().build()
        self._label_buffer: dict[str, NDArray[Any]] = {}
        self._priorities = np.zeros(self.config.label_buffer_size, np.float32)
        self._num_added = self._num_added_at_report = 0
        self._updates_due = 0.0

    def learn(self, labels: list[Fragment], env_steps: int) -> None:
        """Add ``labels`` to the buffer and train on the buffer.

        The number of trained labels is ``max_replay_ratio`` times the number of labels in one
        fragment. This number does not depend on the number of fragments that arrive. With more env
        runners, the labels are therefore fresher, and the learner does not fall behind.

        Args:
            labels: Fragments of the env runners.
            env_steps: Total number of env steps sampled, for a schedule of ``lr``.
        """
        self.add(labels)
        new = sum(one.num_agent_steps for one in labels) / len(labels)
        self._updates_due += self.config.max_replay_ratio * new / self.config.minibatch_size
        known = min(self._num_added, self.config.label_buffer_size)
        while self._updates_due >= 1 or not self._pending_metrics:
            self._updates_due -= 1
            rows, weights = self._draw_labels(known)
            batch = {name: column[rows] for name, column in self._label_buffer.items()}
            self._train_on(batch | {_WEIGHTS: weights})
            self._priorities[rows] = self._expected_regrets()
        self._weights_seq_no += 1
        self.after_gradient_based_update(timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: env_steps})

    def add(self, labels: list[Fragment]) -> None:
        """Overwrite the oldest labels of the buffer with ``labels``, without training."""
        size = self.config.label_buffer_size
        for fragment in labels:
            columns = fragment.columns
            if not self._label_buffer:
                self._label_buffer = {
                    name: np.empty((size, *one.shape[1:]), one.dtype)
                    for name, one in columns.items()
                }
            rows = (self._num_added + np.arange(len(columns[_REGRETS]))) % size
            for name, one in columns.items():
                self._label_buffer[name][rows] = one
            self._priorities[rows] = _NEW_PRIORITY
            self._num_added += len(rows)

    def _draw_labels(self, num_labels: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows of a batch from the first ``num_labels`` rows of the buffer.

        The rows with the smallest exponential variables, whose rates are the priorities, are a
        weighted sample of the candidates (Efraimidis and Spirakis 2006,
        https://doi.org/10.1016/j.ipl.2005.11.003).

        Returns:
            Two arrays: rows, int64 (B,); weights of the rows in metrics, float32 (B,), the inverse
            probabilities of being drawn, with a mean of about 1.
        """
        size = self.config.minibatch_size
        rows = self._random.integers(num_labels, size=_CANDIDATES_PER_LABEL * size)
        keys = self._random.exponential(size=len(rows)) / self._priorities[rows]
        order = np.argpartition(keys, size)
        rows, limit = rows[order[:size]], keys[order[size]]
        probabilities = -np.expm1(-limit * self._priorities[rows])
        return rows, (1 / (_CANDIDATES_PER_LABEL * probabilities)).astype(np.float32)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Tensor], fwd_out: dict[str, Tensor]
    ) -> Tensor:
        """Return the cross-entropy to the expert's policy plus the weighted value loss."""
        logits = fwd_out[Columns.ACTION_DIST_INPUTS]
        log_probs = logits.log_softmax(-1).masked_fill(~batch[ACTION_MASK], 0.0)
        policy_losses = -(_expert_policy(batch[_REGRETS]) * log_probs).sum(-1)
        vf_losses = (fwd_out[Columns.VF_PREDS] - batch[_VALUE_TARGETS]).square()
        losses: Tensor = policy_losses + config.vf_loss_coeff * vf_losses
        with torch.no_grad():
            expected = (logits.softmax(-1) * batch[_REGRETS]).sum(-1)
            # The copy overlaps with the backward pass.
            expected = expected.clamp(_MIN_PRIORITY, _MAX_PRIORITY)
            self._expected_regrets = copy_to_cpu_async(expected)
            agrees = batch[_REGRETS].gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1) == 0
            rows = torch.stack((losses, policy_losses, vf_losses, agrees))
            self._pending_metrics.append((rows * batch[_WEIGHTS]).mean(-1))
        return losses.mean()

    def _mean_metrics(self) -> dict[str, Any]:
        """Return the mean metrics, and the number of trained labels per new label."""
        added = self._num_added - self._num_added_at_report
        self._num_added_at_report = self._num_added
        return super()._mean_metrics() | {"replay_ratio": self._num_rows_trained / max(added, 1)}


def _expert_policy(regrets: Tensor) -> Tensor:
    """Return the expert's move probabilities, float32 (B, 4), from the regrets.

    >>> _expert_policy(torch.tensor([[0.0, 1.0, 60.0, 60.0]])).round(decimals=2).tolist()
    [[0.7300000190734863, 0.27000001072883606, 0.0, 0.0]]
    """
    return torch.softmax(-regrets.float() / _TEMPERATURE_CELLS, -1)


class DISTILConfig(BatchedAlgorithmConfig):
    """Configuration of DISTIL with this project's env runner, learner and network.

    `DISTILSettings` has the settings. Each label needs one search of the expert. If env runners
    saturate the learner, the ratio of trained to new labels (metric ``replay_ratio``) is below
    ``max_replay_ratio``.
    """

    settings_class = DISTILSettings
    env_runner_class = _DistilEnvRunner
    learner_class_base = _DistilLearner
    rl_module_class = SnakeActor
    trunk = TRUNK_DEFAULTS | {"channels": (32, 32, 32)}

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DISTIL)
        # With several requests in flight, env runners search continuously while the learner trains.
        self.max_requests_in_flight_per_env_runner = 4

    def full_buffer(self) -> BufferSize:
        """Return the size of a full label buffer."""
        label_bytes = env_options(self.env_config).observation_bytes + _LABEL_BYTES
        size = self.label_buffer_size
        return BufferSize("label_buffer_size", size, size * label_bytes)

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid or has no effect."""
        super().validate()
        if not COMPILED:
            raise ValueError(f"DISTIL: {NOT_COMPILED_MESSAGE}, or choose another algorithm")
        if not self.explore and not self.in_evaluation:
            raise ValueError("explore is False, but only exploring games get labels; leave it out")
        self._check_one_learner("DISTIL")


class DISTIL(BatchedAlgorithm):
    """Asynchronous DISTIL: env runners label positions while the learner trains."""

    config: DISTILConfig
    config_class = DISTILConfig
    _learning_starts = 0

    def training_step(self) -> None:
        """Train on the labels that have arrived from the env runners.

        After a resume, labels are only collected until the env step `_learning_starts`.
        """
        alone = self.config.num_env_runners == 0
        labels = self._sample_fragments() if alone else self._collect_fragments()
        if self.num_env_steps_sampled < self._learning_starts:
            self._foreach_learner(lambda learner: learner.add(labels))
        elif labels:
            self._update_learner(labels)
            self._sync_weights()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned; the state has no label buffer."""
        super().set_state(state)
        config, trained = self.config, self.num_env_steps_sampled
        games = config.num_envs_per_env_runner * max(config.num_env_runners, 1)
        self._learning_starts = trained + min(trained, _RESUME_SAMPLING_TURNS * games)

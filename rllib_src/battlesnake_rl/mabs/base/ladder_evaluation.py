"""Ladder evaluation during training, for RLlib's and this project's algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE

from battlesnake_gym.boards.board import Board
from battlesnake_gym.env.seat_memory import ScoreFn, SeatMemory
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.policy import warm_start
from battlesnake_rl.mabs.policy.policy_loader import (
    Weights,
    as_score_fn,
    build_network,
    inference_weights,
)
from battlesnake_rl.mabs.policy.q_network import network_settings
from battlesnake_rl.mabs.strength.ladder_evaluator import LadderEvaluator
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.runs import divergence

MAX_SAMPLE_GAME_TURNS = 150
"""Maximum length of a sample game, in turns."""


class LadderPlayer:
    """Algorithm whose policy plays ladder games and sample games.

    Subclasses set ``config``, call `create_ladder_evaluator`, and define `_get_export_weights` and
    `_policy_from_weights`.
    """

    config: Any
    training_iteration: Any

    def create_ladder_evaluator(self, fraction: float) -> None:
        """Create the ladder evaluator, which may use a fraction of the CPU time."""
        self.ladder_evaluator = LadderEvaluator(self.config.env_config, fraction, self.config.seed)

    def evaluate_on_ladder(self, *, at_end: bool = False) -> dict[str, Any]:
        """Play ladder games if an evaluation is due, and return the ladder metrics."""
        return self.ladder_evaluator.after_iteration(
            self._get_export_weights, self._policy_from_weights, at_end=at_end
        )

    def conclude(self, results: dict[str, Any]) -> None:
        """Evaluate the final weights after the last iteration, and update ``results``."""
        results |= self.evaluate_on_ladder(at_end=True)

    def play_sample_game(self) -> Replay:
        """Play one game in which the exported policy has all seats.

        The policy plays greedily; the games' action mask applies.
        """
        values = self._policy_from_weights(self._get_export_weights())
        games = {**self.config.env_config, "max_turns": MAX_SAMPLE_GAME_TURNS}
        vector = make_vector_env(1, games)
        seed = (self.config.seed or 0) + self.training_iteration
        observations, infos = vector.reset(seed=seed)
        replay = Replay(Board.from_state(vector.games.state(0), vector.game))
        memory = SeatMemory(vector)
        while (alive := infos["alive"]).any():
            said = memory.call(values, alive, observations[alive])
            actions = np.zeros(alive.shape, dtype=np.uint8)
            actions[alive] = np.where(infos["action_mask"][alive], said, -np.inf).argmax(-1)
            facing = vector.games.facing[0]
            chosen = vector.observation.absolute_actions(actions[0].astype(np.int64), facing)
            moves = {
                snake.id: MOVES[action]
                for snake, action in zip(replay.first.snakes, chosen, strict=True)
            }
            observations, _, _, _, infos = vector.step(actions)
            replay.append(moves, after=vector.games.state(0))
        return replay

    def _get_export_weights(self) -> Weights:
        """Return the weights to evaluate and export."""
        raise NotImplementedError

    def _policy_from_weights(self, weights: Weights) -> ScoreFn:
        """Return the policy with the given weights."""
        raise NotImplementedError


class LadderEvaluationMixin(LadderPlayer, Algorithm):  # type: ignore[misc]
    """Algorithm of RLlib with ladder evaluation.

    In a list of base classes, this class must precede other algorithms. Each iteration
    reports the metrics of `ladder_evaluator.StrengthHistory`. Checkpoints include the measurements
    and the strongest weights. If there are several policies, the policy with the alphabetically
    first name is evaluated.

    The configuration needs ``ladder_cpu_fraction`` (maximum fraction of the CPU time) and
    ``start_from`` (policy whose weights initialize the network, or None).
    """

    def setup(self, config: Any) -> None:
        """Build the algorithm and its ladder evaluator, and load the starting weights."""
        limit_torch_threads()
        super().setup(config)
        self.create_ladder_evaluator(self.config.ladder_cpu_fraction)
        if self.config.start_from is not None:
            self._load_starting_weights(Path(self.config.start_from))

    def _load_starting_weights(self, path: Path) -> None:
        """Load the weights of the policy at ``path`` into the learners and env runners."""
        warm_start.load_into_learners(self.learner_group, path)
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True
        )

    def step(self) -> dict[str, Any]:
        """Run one iteration, and play ladder games if an evaluation is due.

        Raises:
            DivergedError: If the weights are no longer finite.
        """
        results: dict[str, Any] = super().step()
        divergence.check_weights(self)  # NaN weights must not become the strongest weights.
        return results | self.evaluate_on_ladder()

    def _get_export_weights(self) -> Weights:
        """Return the inference weights of the alphabetically first policy."""
        state = self.learner_group.get_state(
            components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}"
        )
        modules = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE]
        return inference_weights(modules[min(modules)])

    def _policy_from_weights(self, weights: Weights) -> ScoreFn:
        """Return the policy with the given inference weights."""
        shape = make_vector_env(1, self.config.env_config).single_observation_space.shape
        settings = network_settings(self.config.model_config)
        return as_score_fn(build_network(weights, shape, len(MOVES), settings))

    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Save a checkpoint with the ladder measurements into a local directory."""
        written: str = super().save_to_path(path, **kwargs)
        self.ladder_evaluator.save(Path(written))
        return written

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restore a checkpoint with its ladder measurements."""
        super().restore_from_path(path, *args, **kwargs)
        if "component" not in kwargs:
            self.ladder_evaluator.restore(Path(path))

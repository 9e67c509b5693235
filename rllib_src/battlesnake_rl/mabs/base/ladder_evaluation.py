"""Ladder evaluation during training, for RLlib's and this project's algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE

from battlesnake_gym.env.seat_memory import ScoreFn
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
from battlesnake_rl.mabs.strength.ladder_evaluator import LadderPlayer
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.runs.divergence import Learners


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
        self.start_ladder(self.config.ladder_cpu_fraction)
        if self.config.start_from is not None:
            self._load_starting_weights(Path(self.config.start_from))

    def _load_starting_weights(self, path: Path) -> None:
        """Load the weights of the policy at ``path`` into the learners and env runners."""
        warm_start.load_into_learners(self, path)
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True
        )

    def step(self) -> dict[str, Any]:
        """Run one iteration, and play ladder games if an evaluation is due.

        Raises:
            DivergedError: If the weights are no longer finite.
        """
        results: dict[str, Any] = super().step()
        Learners(self).check_weights()  # NaN weights must not become the strongest weights.
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
        self.save_ladder(Path(written))
        return written

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restore a checkpoint with its ladder measurements."""
        super().restore_from_path(path, *args, **kwargs)
        if "component" not in kwargs:
            self.restore_ladder(Path(path))

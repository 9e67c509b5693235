"""Deep Q-learning as the SageMaker starter pack published it.

Several snakes play one game at a time, on one core. They share one network, and each snake has a
replay buffer of its own (Mnih et al. 2015, https://doi.org/10.1038/nature14236). After every 20 of
its moves, a snake trains the network on 64 random transitions of its buffer. The target of a move's
value is the reward plus the discounted value of the best next move, by a target network that
slowly follows the trained network. All moves are random at first. After every game, the
probability of a random move decreases.

Differences from the published program:

* The network receives the length of a snake instead of the number of its seat, because a live snake
  has no seat.
* One optimizer trains the network; the starter pack had one optimizer per snake.
* All snakes choose their moves in one call of the network.
* Random moves are uniform among the moves that the action mask allows. The starter pack excluded
  the opposite of the last move, which the mask ``neck`` excludes.
* The number of the turn is counted in fours and limited to 9, because the published table has ten
  entries. Hazards are ignored.

Only the construction of `MXNET` requires the package mxnet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common.files import save_arrays
from battlesnake_gym.env.seat_memory import ScoreFn
from battlesnake_rl.mabs.base.game_metrics import GameStatistics, RecentGames
from battlesnake_rl.mabs.base.settings_config import StandaloneConfig
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.policy_loader import BEST_ONNX_FILE, LATEST_ONNX_FILE, Weights
from battlesnake_rl.mabs.settings.algorithm_settings import MXNETSettings
from battlesnake_rl.mabs.strength.ladder_evaluator import LadderPlayer
from sagemaker_rl.job.resources import BufferSize
from sagemaker_rl.runs.divergence import DivergedError

_STATE_FILE, _ARRAYS_FILE = "state.json", "mxnet.npz"
"""Files of a checkpoint: counters, and the arrays of networks and optimizer."""


class MXNETConfig(StandaloneConfig):
    """Configuration of the baseline for the launcher."""

    settings_class = MXNETSettings

    def __init__(self) -> None:
        super().__init__(MXNET)
        self.num_env_runners = 0

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid."""
        if self.num_env_runners:
            raise ValueError(
                f"num_env_runners is {self.num_env_runners}, but MXNET plays and learns in one "
                "process; leave it out"
            )

    def full_buffer(self) -> BufferSize:
        """Return the size of the full replay buffers of all snakes."""
        moves = self.settings.buffer_size * int(self.env_config["num_snakes"])
        size = 2 * env_options(self.env_config).observation_bytes
        return BufferSize("buffer_size", self.settings.buffer_size, moves * size)


class _SnakeReplayBuffer:
    """Latest transitions of one snake.

    Args:
        size: Maximum number of transitions.
        shape: Shape of an observation.
    """

    def __init__(self, size: int, shape: tuple[int, ...]) -> None:
        before = [("obs", np.uint8, shape), ("action", np.uint8), ("reward", np.float32)]
        after = [("obs", np.uint8, shape), ("action_mask", np.bool_, 4), ("terminated", np.bool_)]
        self.rows = np.zeros(size, [*before, ("next", after)])
        self.num_added = 0

    def __len__(self) -> int:
        return min(self.num_added, len(self.rows))

    def add(self, obs: Any, action: Any, reward: Any, *after: Any) -> None:
        """Replace the oldest transition.

        Args:
            obs: Observation before the move.
            action: The move.
            reward: Reward of the move.
            after: Observation, action mask and whether the snake is eliminated, after the move.
        """
        self.rows[self.num_added % len(self.rows)] = obs, action, reward, after
        self.num_added += 1


@dataclass
class _MXNETProgress:
    """Counters of a training, which checkpoints contain."""

    epsilon: float
    iterations: int = 0
    turns: int = 0
    moves: int = 0
    updates: int = 0


class MXNET(LadderPlayer):
    """The baseline, with the methods that the launcher calls on an algorithm."""

    env_runner_group = None
    """None, because this process plays the games."""

    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Function polled on every turn; True ends the iteration early."""

    def __init__(self, config: MXNETConfig) -> None:
        # Without the package, the settings of a job can still be checked.
        from battlesnake_rl.mabs.mxnet_dqn import mxnet_network

        self._mx = mxnet_network.mx
        self.config, self.settings = config, config.settings
        self.random = np.random.default_rng(config.seed)
        if config.seed is not None:
            self._mx.random.seed(config.seed)
        self.env = make_vector_env(1, config.env_config)
        self.shape = self.env.single_observation_space.shape
        self.network, self.target, self._evaluated = (
            mxnet_network.AttentionNetwork.create(self.shape) for _ in range(3)
        )
        self.update_target(1.0)
        self.parameters = self.network.get_parameters()
        self.progress = _MXNETProgress(self.settings.epsilon_start)
        self._make_optimizer()
        self.loss = self._mx.gluon.loss.L2Loss()
        self.losses: list[float] = []
        self.buffers = [
            _SnakeReplayBuffer(self.settings.buffer_size, self.shape)
            for _ in range(self.env.num_snakes)
        ]
        self._statistics = GameStatistics(1, self.env.num_snakes)
        self._recent_games = RecentGames(config.metrics_num_episodes_for_smoothing)
        self.start_ladder(self.settings.ladder_cpu_fraction)
        self._keep(*self.env.reset(seed=int(self.random.integers(1, 2**31))))

    @property
    def training_iteration(self) -> int:
        """Number of iterations, including the iterations before a resume."""
        return self.progress.iterations

    def train(self) -> dict[str, Any]:
        """Play and learn for one iteration, and return its results.

        Raises:
            DivergedError: If the weights are no longer finite. The algorithm has the weights of the
                iteration before.
        """
        before = self._get_arrays(), self.progress.updates
        until = self.progress.turns + self.settings.turns_per_iteration
        while self.progress.turns < until and not self.should_stop():
            self.play_turn()
        if not all(np.isfinite(one).all() for one in self._get_arrays().values()):
            self._set_arrays(*before)
            raise DivergedError("the network has weights that are not finite")
        self.progress.iterations += 1
        return self._build_results() | self.evaluate_on_ladder()

    # Playing

    def _keep(self, obs: Any, infos: dict[str, Any]) -> None:
        """Copy the arrays of the environment, which its next step overwrites."""
        self.obs, self.action_mask = obs[0].copy(), infos["action_mask"][0].copy()
        self.alive = infos["alive"][0].copy()

    def play_turn(self) -> None:
        """Move all snakes, add their transitions to the buffers, and learn if an update is due."""
        actions = self.choose_actions()
        moved = np.flatnonzero(self.alive)
        obs, rewards, terminations, _, infos = self.env.step(actions[None])
        for seat in moved:
            buffer = self.buffers[seat]
            after = obs[0, seat], infos["action_mask"][0, seat], terminations[0, seat]
            buffer.add(self.obs[seat], actions[seat], rewards[0, seat], *after)
            warm = len(buffer) > self.settings.warmup_batches * self.settings.batch_size
            if warm and buffer.num_added % self.settings.update_every == 0:
                self.learn(buffer)
        assert self.env.last_turn is not None
        self._statistics.update(self.env.last_turn, infos["acted"], rewards, infos)
        self._keep(obs, infos)
        if len(moved) == 0:  # This step started a new game.
            return
        self.progress.turns += 1
        self.progress.moves += len(moved)
        if not self.alive.any():
            decayed = self.progress.epsilon * self.settings.epsilon_decay
            self.progress.epsilon = max(decayed, self.settings.epsilon_end)

    def choose_actions(self) -> NDArray[np.intp]:
        """Return the best move of each seat, or with probability epsilon a random move, (S,)."""
        scores = self.random.random((self.env.num_snakes, 4))
        greedy = self.alive & (self.random.random(self.env.num_snakes) >= self.progress.epsilon)
        if greedy.any():
            scores[greedy] = self._values(self.network, self.obs[greedy])
        return np.asarray(np.where(self.action_mask, scores, -np.inf).argmax(-1))

    def _values(self, network: Any, obs: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a network's values of all moves, (B, 4)."""
        return np.asarray(network(self._mx.nd.array(obs)).asnumpy())

    # Learning

    def learn(self, buffer: _SnakeReplayBuffer) -> None:
        """Train the network on a random batch of one snake's transitions."""
        nd = self._mx.nd
        batch = buffer.rows[self.random.integers(len(buffer), size=self.settings.batch_size)]
        after = batch["next"]
        next_values = self._values(self.target, after["obs"])
        best = np.where(after["action_mask"], next_values, -np.inf).max(-1)
        best = np.where(after["terminated"], 0, best)
        targets = batch["reward"] + self.settings.gamma * best
        with self._mx.autograd.record():
            values = self.network(nd.array(batch["obs"]))
            loss = self.loss(values.pick(nd.array(batch["action"])), nd.array(targets))
        loss.backward()
        for index, (name, one) in enumerate(self.parameters.items()):
            self._optimizer.update(index, one.data(), one.grad(), self._moments[name])
        self.update_target(self.settings.tau)
        self.progress.updates += 1
        self.losses.append(float(loss.mean().asscalar()))

    def update_target(self, tau: float) -> None:
        """Move the target network's weights by the fraction ``tau`` towards the network's."""
        for ours, followed in zip(
            self.target.get_parameters().values(),
            self.network.get_parameters().values(),
            strict=True,
        ):
            ours.set_data(tau * followed.data() + (1 - tau) * ours.data())

    def _make_optimizer(self) -> None:
        """Create Adam for the current number of updates."""
        schedule = self._mx.lr_scheduler.FactorScheduler(
            step=self.settings.lr_halved_every, factor=0.5, base_lr=self.settings.lr
        )
        self._optimizer = self._mx.optimizer.Adam(
            learning_rate=self.settings.lr,
            lr_scheduler=schedule,
            begin_num_update=self.progress.updates,
            rescale_grad=1 / self.settings.batch_size,
        )
        self._moments = {
            name: self._optimizer.create_state(index, one.data())
            for index, (name, one) in enumerate(self.parameters.items())
        }

    # Results, ladder and checkpoints

    def _build_results(self) -> dict[str, Any]:
        """Return the results of one iteration under RLlib's names."""
        losses, self.losses = self.losses, []
        trained = self.progress.updates * self.settings.batch_size
        games: dict[str, Any] = dict(self._statistics.drain())
        self._recent_games.average(games)
        return {
            "training_iteration": self.progress.iterations,
            "env_runners": {
                "num_env_steps_sampled_lifetime": self.progress.turns,
                "num_agent_steps_sampled_lifetime": {"default_agent": self.progress.moves},
                **games,
            },
            "learners": {
                "default_policy": {
                    "num_module_steps_trained_lifetime": trained,
                    "qf_loss": float(np.mean(losses)) if losses else float("nan"),
                },
                "__all_modules__": {"num_env_steps_trained_lifetime": trained},
            },
            "epsilon": self.progress.epsilon,
        }

    def _get_export_weights(self) -> Weights:
        """Return the weights of the network."""
        return self.network.get_weights()

    def _policy_from_weights(self, weights: Weights) -> ScoreFn:
        """Return the policy with the given weights, until the next call."""
        self._evaluated.set_weights(weights)
        return lambda obs: self._values(self._evaluated, obs)

    def _get_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return copies of all arrays of networks and optimizer, keyed by name."""
        kinds = {
            "network": self.network.get_weights(),
            "target": self.target.get_weights(),
            "mean": {name: mean.asnumpy() for name, (mean, _) in self._moments.items()},
            "variance": {name: square.asnumpy() for name, (_, square) in self._moments.items()},
        }
        return {f"{kind}/{name}": one for kind, all_ in kinds.items() for name, one in all_.items()}

    def _set_arrays(self, arrays: Mapping[str, Any], updates: int) -> None:
        """Restore the arrays of `_get_arrays` after ``updates`` updates."""
        for kind, network in (("network", self.network), ("target", self.target)):
            weights = {name: arrays[f"{kind}/{name}"] for name in self.parameters}
            network.set_weights(weights)
        self.progress.updates = updates
        self._make_optimizer()
        for name, moments in self._moments.items():
            for kind, moment in zip(("mean", "variance"), moments, strict=True):
                moment[:] = self._mx.nd.array(arrays[f"{kind}/{name}"])

    def save_to_path(self, path: str) -> None:
        """Write a checkpoint into the directory ``path``, without the replay buffers."""
        folder = Path(path)
        save_arrays(folder / _ARRAYS_FILE, **self._get_arrays())
        state = asdict(self.progress) | {"recent_games": list(self._recent_games.iterations)}
        (folder / _STATE_FILE).write_text(json.dumps(state, indent=1) + "\n")
        self.save_ladder(folder)
        self.network.write_onnx(self.shape, folder / LATEST_ONNX_FILE)
        if (best := self.best_weights) is not None:
            self._evaluated.set_weights(best)
            self._evaluated.write_onnx(self.shape, folder / BEST_ONNX_FILE)

    def restore_from_path(self, path: str) -> None:
        """Restore a checkpoint, with empty replay buffers and a new game."""
        folder = Path(path)
        state = json.loads((folder / _STATE_FILE).read_text())
        self._recent_games.iterations.extend(state.pop("recent_games"))
        self.progress = _MXNETProgress(**state)
        with np.load(folder / _ARRAYS_FILE, allow_pickle=False) as arrays:
            self._set_arrays(arrays, self.progress.updates)
        self.restore_ladder(folder)

    def stop(self) -> None:
        """Do nothing, because the algorithm has no other processes."""

"""Deep Q-learning as the starter pack taught it, from top to bottom.

Several snakes play one game. They share one network but each keeps a memory of its own, and once in
20 of its moves it learns from 64 random memories: the value of a move should be its reward plus
what a slowly following copy of the network, the *target*, thinks of the best next move. At first
all moves are random; after every game a little fewer are.

>>> from battlesnake_rl.mxnet_baseline.mxnet_settings import OBSERVATION
>>> game = {"num_snakes": 2, "width": 7, "height": 7, "observation": OBSERVATION}
>>> baseline = Baseline(game, Settings(turns_per_iteration=20), seed=1)
>>> baseline.train()["env_runners"]["num_env_steps_sampled_lifetime"]
20
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from battlesnake_rl.launcher.runs import checkpoints
from battlesnake_rl.mabs.measure.strength import Strength
from battlesnake_rl.mabs.play.environment import make_vector
from battlesnake_rl.mabs.play.game_metrics import GameStatistics
from battlesnake_rl.mabs.policy.policies import Values, Weights
from battlesnake_rl.mxnet_baseline.mxnet_network import make_network, set_weights, weights_of
from battlesnake_rl.mxnet_baseline.mxnet_settings import MXNetSettings

OPTIMIZER = {
    ("builtins", "bytearray"),
    ("mxnet.ndarray.ndarray", "NDArray"),
    ("mxnet.optimizer.optimizer", "Adam"),
    ("mxnet.lr_scheduler", "FactorScheduler"),
}
"""What MXNet's pickle of an optimizer names besides numbers."""


class Memory:
    """The last moves of one snake: what it saw, did and got, and what it saw then."""

    def __init__(self, size: int, shape: tuple[int, ...]) -> None:
        self.seen = np.zeros((size, *shape), np.uint8)
        self.action = np.zeros(size, np.uint8)
        self.reward = np.zeros(size, np.float32)
        self.seen_then = np.zeros((size, *shape), np.uint8)
        self.allowed_then = np.zeros((size, 4), np.bool_)
        self.over = np.zeros(size, np.bool_)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, len(self.action))

    def add(
        self, seen: Any, action: Any, reward: Any, seen_then: Any, allowed_then: Any, over: Any
    ) -> None:
        """Remember a move in place of the oldest one."""
        row = self.added % len(self.action)
        self.seen[row], self.action[row], self.reward[row] = seen, action, reward
        self.seen_then[row], self.allowed_then[row], self.over[row] = seen_then, allowed_then, over
        self.added += 1


@dataclass
class MXNetProgress:
    """How far training has come; goes into checkpoints."""

    turns: int = 0
    moves: int = 0
    updates: int = 0
    epsilon: float = 1.0


class Baseline:
    """Plays one game after the other and learns meanwhile."""

    def __init__(
        self, env_config: dict[str, Any], settings: MXNetSettings, seed: int | None
    ) -> None:
        self.settings = settings
        self.progress = MXNetProgress(epsilon=settings.epsilon_start)
        self.seed = seed
        self.random = np.random.default_rng(seed)
        if seed is not None:
            mx.random.seed(seed)
        self.env = make_vector(1, env_config)
        shape = self.env.single_observation_space.shape
        self.network = make_network(*shape[1:])
        self.target = make_network(*shape[1:])
        self.measured = make_network(*shape[1:])
        # A first call, so that the weights exist and can be copied.
        for network in (self.network, self.target, self.measured):
            network(nd.zeros((1, *shape)))
        self.follow(1.0)
        schedule = mx.lr_scheduler.FactorScheduler(
            step=settings.lr_halved_every, factor=0.5, base_lr=settings.lr
        )
        self.trainer = gluon.Trainer(
            self.network.collect_params(),
            mx.optimizer.Adam(learning_rate=settings.lr, lr_scheduler=schedule),
        )
        self.loss = gluon.loss.L2Loss()
        self.memories = [Memory(settings.buffer_size, shape) for _ in range(self.env.num_snakes)]
        self.statistics = GameStatistics(1, self.env.num_snakes)
        self.losses: list[float] = []
        self.strength = Strength(
            env_config, time.process_time, share=settings.ladder_share, seed=seed
        )
        self.begin()

    def train(self) -> dict[str, Any]:
        """Play and learn for one iteration; returns its results."""
        until = self.progress.turns + self.settings.turns_per_iteration
        while self.progress.turns < until:
            self.play_turn()
        return self.results() | self.measure(at_end=False)

    def measure(self, at_end: bool = True) -> dict[str, Any]:
        """Games on the ladder beside training, as `battlesnake_rl.mabs.measure.strength` has them, if it is time."""
        return self.strength.follow(
            lambda: weights_of(self.network), self._values_of, at_end=at_end
        )

    def _values_of(self, weights: Weights) -> Values:
        set_weights(self.measured, weights)
        return lambda seen: self.measured(nd.array(seen)).asnumpy()

    # Playing

    def begin(self) -> None:
        """Begin a first game."""
        seen, infos = self.env.reset(seed=int(self.random.integers(1, 2**31)))
        self.seen, self.allowed = seen[0].copy(), infos["action_mask"][0].copy()
        self.alive = infos["alive"][0].copy()

    def play_turn(self) -> None:
        """All living snakes move, remember, and, when it is their time, learn."""
        actions = self.choose_moves()
        moved = np.flatnonzero(self.alive)
        seen, rewards, terminations, _, infos = self.env.step(actions[None])
        for seat in moved:
            memory = self.memories[seat]
            memory.add(
                self.seen[seat],
                actions[seat],
                rewards[0, seat],
                seen[0, seat],
                infos["action_mask"][0, seat],
                terminations[0, seat],
            )
            enough = len(memory) > self.settings.warmup_batches * self.settings.batch_size
            if memory.added % self.settings.update_every == 0 and enough:
                self.learn(memory)
        assert self.env.last_turn is not None
        self.statistics.update(self.env.last_turn, rewards, infos)
        self.seen, self.allowed = seen[0].copy(), infos["action_mask"][0].copy()
        self.alive = infos["alive"][0]
        self.progress.turns += len(moved) > 0
        self.progress.moves += len(moved)
        # The environment's next step begins a new game.
        if len(moved) and not self.alive.any():
            decayed = self.progress.epsilon * self.settings.epsilon_decay
            self.progress.epsilon = max(decayed, self.settings.epsilon_end)

    def choose_moves(self) -> Any:
        """For each seat the move of the highest value, or now and then (epsilon) any."""
        preference = self.random.random((self.env.num_snakes, 4))
        greedy = self.alive & (self.random.random(self.env.num_snakes) >= self.progress.epsilon)
        if greedy.any():
            preference[greedy] = self.network(nd.array(self.seen[greedy])).asnumpy()
        return np.where(self.allowed, preference, -np.inf).argmax(-1)

    # Learning

    def learn(self, memory: Memory) -> None:
        """One step down the gradient on a random batch of one snake's memories."""
        rows = self.random.integers(len(memory), size=self.settings.batch_size)
        best_then = self.best_values(memory.seen_then[rows], memory.allowed_then[rows])
        goals = memory.reward[rows] + self.settings.gamma * best_then * ~memory.over[rows]
        with autograd.record():
            values = self.network(nd.array(memory.seen[rows]))
            chosen = values.pick(nd.array(memory.action[rows]))
            loss = self.loss(chosen, nd.array(goals))
        loss.backward()
        self.trainer.step(self.settings.batch_size)
        self.follow(self.settings.tau)
        self.progress.updates += 1
        self.losses.append(float(loss.mean().asscalar()))

    def best_values(self, seen: Any, allowed: Any) -> Any:
        """What the target thinks of the best allowed move."""
        return np.where(allowed, self.target(nd.array(seen)).asnumpy(), -np.inf).max(-1)

    def follow(self, tau: float) -> None:
        """Move the target's weights towards the network's: ``tau`` of the way."""
        pairs = zip(
            self.network.collect_params().values(),
            self.target.collect_params().values(),
            strict=True,
        )
        for ours, targets in pairs:
            targets.set_data(tau * ours.data() + (1 - tau) * targets.data())

    # Results and checkpoints

    def results(self) -> dict[str, Any]:
        """What happened since the last call, named as RLlib does."""
        losses, self.losses = self.losses, []
        return {
            "env_runners": {
                "num_env_steps_sampled_lifetime": self.progress.turns,
                "num_agent_steps_sampled_lifetime": {"default_agent": self.progress.moves},
                **self.statistics.drain(),
            },
            "learners": {
                "default_policy": {
                    "num_module_steps_trained_lifetime": self.progress.updates
                    * self.settings.batch_size,
                    "qf_loss": float(np.mean(losses)) if losses else None,
                }
            },
            "epsilon": self.progress.epsilon,
        }

    def save(self, folder: Path) -> None:
        """Write everything but the memories, which fill again within a few games."""
        self.network.save_parameters(str(folder / "network.params"))
        self.target.save_parameters(str(folder / "target.params"))
        self.trainer.save_states(str(folder / "trainer.states"))
        (folder / "progress.json").write_text(json.dumps(asdict(self.progress)) + "\n")
        self.strength.save(folder)

    def restore(self, folder: Path) -> None:
        """Go on from what `save` wrote, with a new game."""
        self.network.load_parameters(str(folder / "network.params"))
        self.target.load_parameters(str(folder / "target.params"))
        checkpoints.load_numbers(folder / "trainer.states", also=OPTIMIZER)  # refuses a program
        self.trainer.load_states(str(folder / "trainer.states"))
        self.progress = MXNetProgress(**json.loads((folder / "progress.json").read_text()))
        self.strength.restore(folder)
        if self.seed is not None:
            self.random = np.random.default_rng([self.seed, self.progress.turns])
        self.begin()

"""Procgen: frames a second of the games and of training, each beside the plain thing in one run.

``python benchmarks/procgen.py`` prints the tables of games and of training. The games are stepped
with random actions, our environment and envpool's own in turns, each for a fraction of a second, so
that both see the same load of the machine; the middle of the ratios is what the wrapper costs.
Training is PPO on the same network with the published settings, from RLlib's own as it is usually
written to ours, a thing at a time, and the same iteration in raw torch; all of them in turns, by
CPU time. ``methods`` tells what the methods for generalization cost beside the recipe, each as its
experiment has it.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import envpool
import numpy as np
import ray
import torch
from gymnasium.spaces import Box, Discrete
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor, nn
from tqdm import tqdm

from procgen_rllib import experiments
from procgen_rllib.environment import VectorProcgen
from procgen_rllib.games import GAMES
from procgen_rllib.launcher import ProcgenHyperparameters, ProcgenLauncher, configure, register
from procgen_rllib.network import ImpalaModule, ImpalaTrunk
from procgen_rllib.procgen_ppo import ProcgenPPOConfig, policy_loss, value_loss
from sagemaker_rl.launch.hyperparameters import override_config, split


def rate(step: Callable[[Any], Any], num_envs: int, seconds: float) -> float:
    """Frames a second of CPU time that ``step`` makes with random actions."""
    actions = np.random.default_rng(1).integers(0, 15, (64, num_envs), dtype=np.int32)
    frames, began, until = 0, time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        for one in actions:
            step(one)
        frames += actions.size
    return frames / (time.process_time() - began)


def measure_games(num_envs: int, rounds: int, seconds: float) -> None:
    """Print a line for each game."""
    print(f"{num_envs} games at once, one thread; frames a second of CPU time")
    print(f"{'game':10} {'envpool':>9} {'ours':>9} {'overhead':>9}")
    for name in tqdm(GAMES, disable=None):
        ours = VectorProcgen(num_envs, {"env_name": name})
        ours.reset(seed=1)
        raw = envpool.make_gymnasium(
            f"{name.capitalize()}Easy-v0",
            num_envs=num_envs,
            num_threads=1,
            seed=1,
            channel_first=False,
        )
        raw.reset()
        pairs = [
            (rate(raw.step, num_envs, seconds), rate(ours.step, num_envs, seconds))
            for _ in range(rounds)
        ]
        overhead = median(plain / wrapped for plain, wrapped in pairs) - 1
        plain, wrapped = (median(column) for column in zip(*pairs, strict=True))
        tqdm.write(f"{name:10} {plain:9.0f} {wrapped:9.0f} {overhead:8.1%}")


class PlainImpalaModule(ImpalaModule):
    """The same network as it is usually written: channels first, whole batches."""

    def setup(self) -> None:
        """Build the network and give its weights their usual order."""
        super().setup()
        self.to(memory_format=torch.contiguous_format)

    def _features(self, pictures: Tensor, trunk: ImpalaTrunk | None = None) -> Tensor:
        planes = pictures.permute(0, 3, 1, 2).contiguous().float() / 255
        layers: nn.Module = self.trunk.layers
        features: Tensor = layers(planes)
        return features

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """In pieces as ours: on the whole batch at once memory would run out."""
        if embeddings is not None:
            return super().compute_values(batch, embeddings)
        with torch.no_grad():
            parts = [self._features(part) for part in batch[Columns.OBS].split(1024)]
            return super().compute_values(batch, torch.cat(parts))


@dataclass(frozen=True)
class Size:
    """How much an iteration is: the published one is 64 games, 256 turns, minibatches of 2,048."""

    env_name: str
    games: int
    turns: int
    minibatch: int

    @property
    def frames(self) -> int:
        """Of an iteration."""
        return self.games * self.turns


class RawTorch:
    """PPO's iteration by hand: envpool, torch and nothing else around the same network."""

    def __init__(self, size: Size, *, bfloat16: bool) -> None:
        self._size = size
        name = f"{size.env_name.capitalize()}Easy-v0"
        self._games = envpool.make_gymnasium(
            name, num_envs=size.games, num_threads=1, seed=1, channel_first=False
        )
        self._seen, _ = self._games.reset()
        self._network = RLModuleSpec(
            module_class=ImpalaModule,
            observation_space=Box(0, 255, (64, 64, 3), np.uint8),
            action_space=Discrete(15),
            model_config={"bfloat16": bfloat16},
        ).build()
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=5e-4, eps=1e-5)

    def __call__(self) -> None:
        """Play and learn once."""
        shape = (self._size.turns, self._size.games)
        pictures = torch.empty((*shape, 64, 64, 3), dtype=torch.uint8)
        actions = torch.empty(shape, dtype=torch.int64)
        logp, values = torch.empty(shape), torch.empty(shape)
        rewards, ended = torch.empty(shape), torch.empty(shape)
        for turn in range(self._size.turns):
            pictures[turn] = torch.from_numpy(self._seen)
            with torch.no_grad():
                policy, values[turn] = self._policy_and_values(pictures[turn])
                actions[turn] = torch.multinomial(policy.exp(), 1)[:, 0]
                logp[turn] = policy.gather(1, actions[turn][:, None])[:, 0]
            self._seen, paid, terminated, truncated, _ = self._games.step(
                actions[turn].numpy().astype(np.int32)
            )
            rewards[turn] = torch.from_numpy(paid)
            ended[turn] = torch.from_numpy((terminated | truncated).astype(np.float32))
        with torch.no_grad():
            _, following = self._policy_and_values(torch.from_numpy(self._seen))
        advantages = torch.empty(shape)
        advantage = torch.zeros(self._size.games)
        for turn in reversed(range(self._size.turns)):
            goes_on = 1 - ended[turn]
            wrong = rewards[turn] + 0.999 * goes_on * following - values[turn]
            advantages[turn] = advantage = wrong + 0.999 * 0.95 * goes_on * advantage
            following = values[turn]
        self._learn(pictures, actions, logp, values, advantages)

    def _learn(self, *columns: Tensor) -> None:
        pictures, actions, old_logp, old, advantages = (one.flatten(0, 1) for one in columns)
        targets = advantages + old
        for _ in range(3):
            for rows in torch.split(torch.randperm(self._size.frames), self._size.minibatch):
                policy, values = self._policy_and_values(pictures[rows])
                logp = policy.gather(1, actions[rows][:, None])[:, 0]
                loss = (
                    policy_loss(logp, old_logp[rows], advantages[rows], 0.2)
                    + 0.25 * value_loss(values, old[rows], targets[rows], 0.2)
                    + 0.01 * (policy.exp() * policy).sum(1).mean()
                )
                self._optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self._network.parameters(), 0.5)
                self._optimizer.step()

    def _policy_and_values(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the actions' chances (B, 15), and values (B,)."""
        batch = {Columns.OBS: pictures}
        out = self._network.forward_train(batch)
        values = self._network.compute_values(batch, out[Columns.EMBEDDINGS])
        return out[Columns.ACTION_DIST_INPUTS].log_softmax(1), values


def algorithm(
    size: Size, run: str, *, bfloat16: bool, plain: bool = False, one_by_one: bool = False
) -> Algorithm:
    """RLlib's PPO or ours with the published settings, in this process.

    ``plain``: the network as it is usually written; ``one_by_one``: an environment object a game.
    """
    config = configure(
        run, env_config={"env_name": size.env_name}, custom_options={"bfloat16": bfloat16}
    )
    config.training(
        gamma=0.999,
        lambda_=0.95,
        lr=5e-4,
        num_epochs=3,
        minibatch_size=size.minibatch,
        train_batch_size_per_learner=size.frames,
        use_kl_loss=False,
        entropy_coeff=0.01,
        grad_clip=0.5,
    )
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=size.games)
    config.learners(num_gpus_per_learner=0)
    if isinstance(config, ProcgenPPOConfig):
        config.games = None
    else:
        config.training(vf_clip_param=float("inf"))
    if one_by_one:
        config.env_runners(gym_env_vectorize_mode="sync")
    if plain:
        config.rl_module(rl_module_spec=RLModuleSpec(module_class=PlainImpalaModule))
    return config.debugging(log_level="ERROR", seed=1).build_algo()


ROWS: dict[str, Callable[[Size], Callable[[], Any]]] = {
    "RLlib's PPO, plain": lambda size: (
        algorithm(size, "PPO", bfloat16=False, plain=True, one_by_one=True).train
    ),
    "+ games in a batch": lambda size: algorithm(size, "PPO", bfloat16=False, plain=True).train,
    "+ colours last, pieces": lambda size: algorithm(size, "PPO", bfloat16=False).train,
    "ProcgenPPO, float32": lambda size: algorithm(size, "ProcgenPPO", bfloat16=False).train,
    "raw torch, float32": lambda size: RawTorch(size, bfloat16=False),
    "ProcgenPPO, bfloat16": lambda size: algorithm(size, "ProcgenPPO", bfloat16=True).train,
    "raw torch, bfloat16": lambda size: RawTorch(size, bfloat16=True),
}
"""Each adds one thing to the row before; raw torch has the network of the row above it."""


METHODS = ("easy-200", "level-replay", "rad", "drac", "ppg", "daac", "idaac")
"""Experiments: the recipe, and what is published for generalization."""


def experiment(size: Size, name: str) -> Algorithm:
    """An experiment with its own settings, but iterations of ``size`` and no test curve."""
    values = experiments.read(name) | {"env_name": size.env_name, "seed": 1}
    plain, overrides = split(values, ProcgenHyperparameters)
    config = ProcgenLauncher().get_experiment_config(plain)
    overrides |= {
        "train_batch_size_per_learner": size.frames,
        "minibatch_size": size.minibatch,
        "evaluation_interval": None,
        "games": size.games,
    }
    if "auxiliary_interval" in overrides:
        # A phase after each iteration costs what one over all frames of 32 does after 32.
        overrides["auxiliary_interval"] = 1
    override_config(config, overrides)
    config.env_runners(num_env_runners=0)
    config.learners(num_gpus_per_learner=0)
    return config.build_algo()


def in_turns(
    rounds: int, size: Size, iterations: dict[str, Callable[[], Any]]
) -> dict[str, list[float]]:
    """CPU seconds of each iteration in each round, after one that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in iterations}
    for turn in tqdm(range(rounds + 1), disable=None):
        for name, iterate in iterations.items():
            began = time.process_time()
            iterate()
            if turn > 0:
                seconds[name].append(time.process_time() - began)
                tqdm.write(f"{name}: {seconds[name][-1]:.2f} CPU seconds")
    print(
        f"{size.env_name}: {size.games} games x {size.turns} turns, minibatches of "
        f"{size.minibatch:,}, {torch.get_num_threads()} threads"
    )
    return seconds


def measure_training(rounds: int, size: Size, names: Sequence[str]) -> None:
    """Print frames a second of CPU time of each row, and of each by how much the last is faster."""
    before = None
    seconds = in_turns(rounds, size, {name: ROWS[name](size) for name in names})
    for name, spent in seconds.items():
        line = f"{name:24} {size.frames / median(spent):7.0f} frames a second of CPU time"
        if before is not None:
            ratio = median(b / s for b, s in zip(seconds[before], spent, strict=True))
            line += f", {ratio:5.2f} times the row before"
        print(line, flush=True)
        before = name


def measure_methods(rounds: int, size: Size) -> None:
    """Print what an iteration of each method costs beside the recipe's."""
    seconds = in_turns(rounds, size, {name: experiment(size, name).train for name in METHODS})
    for name, spent in seconds.items():
        ratios = (s / plain for s, plain in zip(spent, seconds[METHODS[0]], strict=True))
        print(f"{name:14} {median(spent):8.1f} CPU seconds, {median(ratios):5.2f} times the recipe")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["games", "training", "methods"], default=[])
    parser.add_argument("--num-envs", type=int, default=64, help="games at once (default: 64)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each in the games' table")
    parser.add_argument("--turns", type=int, default=256, help="of an iteration (default: 256)")
    parser.add_argument("--minibatch", type=int, default=2048, help="frames (default: 2048)")
    parser.add_argument("--env-name", default="bigfish")
    every = range(1, len(ROWS) + 1)
    parser.add_argument(
        "--rows", nargs="+", type=int, choices=every, default=every, help="of the training's table"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.disable(logging.WARNING)
    what = arguments.what or ["games", "training"]
    if "games" in what:
        measure_games(arguments.num_envs, arguments.rounds, arguments.seconds)
    if what == ["games"]:
        return
    register()
    ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
    size = Size(arguments.env_name, arguments.num_envs, arguments.turns, arguments.minibatch)
    if "training" in what:
        names = [list(ROWS)[row - 1] for row in arguments.rows]
        measure_training(arguments.rounds, size, names)
    if "methods" in what:
        measure_methods(arguments.rounds, size)


if __name__ == "__main__":
    main()

"""Procgen: frames a second of the games and of training, each beside the plain thing in one run.

``python benchmarks/procgen.py`` prints both tables. The games are stepped with random actions, our
environment and envpool's own in turns, each for a fraction of a second, so that both see the same
load of the machine; the middle of the ratios is what the wrapper costs. Training is PPO with the
same network and settings twice: ours (all games of a runner in one batch, bfloat16 where the
processor has it, channels last), and stock RLlib (float32, one environment object a game).
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import envpool
import numpy as np
import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from torch import Tensor, nn
from tqdm import tqdm

from procgen_rllib.environment import VectorProcgen
from procgen_rllib.games import GAMES
from procgen_rllib.launcher import configure, register
from procgen_rllib.network import ImpalaModule, ImpalaTrunk


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
    """The same network as it is usually written: float32, channels first, whole batches."""

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


def training_config(kind: str, batch: int, num_envs: int, env_name: str) -> AlgorithmConfig:
    """The baseline's settings, on batches small enough to measure several."""
    config = configure("PPO", env_config={"env_name": env_name})
    config.training(
        gamma=0.999,
        lambda_=0.95,
        lr=5e-4,
        num_epochs=3,
        minibatch_size=min(batch, 1024),
        train_batch_size_per_learner=batch,
        use_kl_loss=False,
        entropy_coeff=0.01,
        vf_clip_param=float("inf"),
        grad_clip=0.5,
    )
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
    if kind == "stock":
        config.env_runners(gym_env_vectorize_mode="sync")
        config.rl_module(rl_module_spec=type(config.rl_module_spec)(module_class=PlainImpalaModule))
    return config.debugging(log_level="ERROR", seed=1)


def measure_training(rounds: int, batch: int, num_envs: int, env_name: str) -> None:
    """Print frames a second of both, and where ours spends its time."""
    register()
    ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
    algorithms = {
        kind: training_config(kind, batch, num_envs, env_name).build_algo()
        for kind in ("stock", "ours")
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in algorithms}
    wall: dict[str, list[float]] = {kind: [] for kind in algorithms}
    results: dict[str, Any] = {}
    for turn in tqdm(range(rounds + 1), disable=None):
        for kind, algorithm in algorithms.items():
            began, clock = time.process_time(), time.perf_counter()
            results[kind] = algorithm.train()
            # The first one also warms up.
            if turn > 0:
                seconds[kind].append(time.process_time() - began)
                wall[kind].append(time.perf_counter() - clock)
    for algorithm in algorithms.values():
        algorithm.stop()
    print(
        f"PPO on {env_name}: {num_envs} games, batches of {batch}, three epochs, "
        f"{torch.get_num_threads()} threads"
    )
    for kind in algorithms:
        print(
            f"{kind:6} {batch / median(wall[kind]):7.0f} frames/s, "
            f"{batch / median(seconds[kind]):7.0f} frames a second of CPU time"
        )
    for name, parts in (("time", wall), ("CPU time", seconds)):
        ratio = median(s / o for s, o in zip(parts["stock"], parts["ours"], strict=True))
        print(f"ours is {ratio:.2f} times as fast by {name}")
    timers = results["ours"]["timers"]
    sampling, learning = timers["env_runner_sampling_timer"], timers["learner_update_timer"]
    print(f"learning takes {learning / (sampling + learning):.0%} of ours, sampling the rest")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["games", "training"], default=[])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="measurements (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each in the games' table")
    parser.add_argument("--batch", type=int, default=2048, help="frames of a training iteration")
    parser.add_argument("--env-name", default="bigfish")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.disable(logging.WARNING)
    if "games" in arguments.what or not arguments.what:
        measure_games(arguments.num_envs, arguments.rounds, arguments.seconds)
    if "training" in arguments.what or not arguments.what:
        measure_training(arguments.rounds, arguments.batch, arguments.num_envs, arguments.env_name)


if __name__ == "__main__":
    main()

"""What training costs: RLlib's own DQN and ours, DQN and APEX, for each second of processor time.

    python benchmarks/training.py
    python benchmarks/training.py --seconds 120 --only stock dqn

5 snakes on 11x11, our network, batches of 512, a replay ratio of 2, one torch thread. RLlib's DQN
plays 16 games through `BattlesnakeMultiAgentEnv` in float32, as it comes; ours is the default of
``battlesnake-gym train``. Then both at equal precision, float32 and bfloat16, RLlib's with Adam in
one call and without asking each gradient whether it is finite, as ours. Then APEX with two runners
against DQN, both at a replay ratio of 0.25.
Seconds are of CPU time, over all processes that play, store or learn (Ray's own servers do not
count), because a busy machine changes them least. Every measurement is a process of its own:
first it plays without learning, then it plays and learns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import psutil

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Otherwise runners give way to everything else that runs, the learner included.
os.environ.setdefault("RAY_worker_niceness", "0")

BATCH = 512
NEVER = 10**12
SNAKES, SIDE = 5, 11
EPSILON = 0.1
CAPACITY = 100_000
MEBIBYTE = 1 << 20
WARM_UP = 3.0
"""CPU seconds that do not count."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """What is measured."""

    algorithm: str
    replay_ratio: float
    runners: int = 0
    bfloat16: bool | None = None
    """None: as it comes, which is float32 for RLlib's and what is faster for ours."""


SETUPS = {
    "stock": Setup("stock", 2.0),
    "dqn": Setup("DQN", 2.0),
    "stock-float32": Setup("stock", 2.0, bfloat16=False),
    "dqn-float32": Setup("DQN", 2.0, bfloat16=False),
    "stock-bfloat16": Setup("stock", 2.0, bfloat16=True),
    "dqn-bfloat16": Setup("DQN", 2.0, bfloat16=True),
    "dqn-0.25": Setup("DQN", 0.25),
    "apex-0.25": Setup("APEX", 0.25, runners=2),
}


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was seen."""

    sampling: float
    """Agent-steps for a CPU-second, without learning."""
    agent_steps: float
    """Agent-steps for a CPU-second while learning."""
    updates: float
    """Updates for a CPU-second while learning."""
    agent_steps_wall: float
    """Agent-steps for a second of the clock while learning."""
    replay_ratio: float
    torch_share: float
    """Part of the learning phase's CPU time within the network's forward and backward passes."""
    memory: float
    """MiB of all processes at the end, Ray's own servers apart."""


class Stopwatch:
    """CPU time of some functions of this process."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, owner: Any, name: str) -> None:
        """Count the time of ``owner.name`` from now on. Watched ones must not call each other."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.process_time() - start

        setattr(owner, name, timed)


def stock_config(setup: Setup, agents_alive: float) -> Any:
    """RLlib's DQN; ``agents_alive`` because it counts its replay ratio in turns of games."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from battlesnake_rl.mabs.algorithms import MODULE
    from battlesnake_rl.mabs.play.environment import ENV_NAME
    from battlesnake_rl.mabs.policy.q_network import SnakeQModule

    ours = _ours()
    config = (
        DQNConfig()
        .environment(ENV_NAME, env_config=_games())
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16, rollout_fragment_length=32)
        .multi_agent(policies={MODULE}, policy_mapping_fn=_share)
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={MODULE: RLModuleSpec(module_class=SnakeQModule)}
            ),
            model_config=ours.model_config | {"bfloat16": bool(setup.bfloat16)},
        )
        .training(
            lr=ours.lr,
            gamma=ours.gamma,
            n_step=ours.n_step,
            epsilon=EPSILON,
            train_batch_size_per_learner=BATCH,
            training_intensity=setup.replay_ratio * agents_alive,
            target_network_update_freq=ours.target_network_update_freq,
            num_steps_sampled_before_learning_starts=NEVER,
            replay_buffer_config={
                "type": "MultiAgentPrioritizedEpisodeReplayBuffer",
                "capacity": CAPACITY,
                "alpha": 0.6,
                "beta": 0.4,
            },
        )
    )
    if setup.bfloat16 is not None:
        config.learners(learner_class=_fused_learner())
        config.torch_skip_nan_gradients = True
    return config


def _fused_learner() -> type:
    """RLlib's learner with our optimizer."""
    from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner

    from battlesnake_rl.mabs.dqn.learner import SnakeDQNLearner

    optimizers = "configure_optimizers_for_module"
    return type("FusedLearner", (DQNTorchLearner,), {optimizers: vars(SnakeDQNLearner)[optimizers]})


def _share(agent: str, episode: Any, **_: Any) -> str:
    from battlesnake_rl.mabs.algorithms import MODULE

    return MODULE


def _games() -> dict[str, Any]:
    from battlesnake_rl.mabs.play.environment import DEFAULTS

    games = {"num_snakes": SNAKES, "width": SIDE, "height": SIDE, "rewards": "survival"}
    return DEFAULTS | games


def _ours() -> Any:
    from battlesnake_rl.mabs.dqn.dqn import DQNConfig

    return DQNConfig()


def our_config(setup: Setup) -> Any:
    """DQN or APEX, as ``battlesnake-gym train`` has them but for what is compared."""
    from battlesnake_rl.mabs.algorithms import configure

    config = (
        configure(setup.algorithm, _games())
        .env_runners(num_env_runners=setup.runners)
        .training(
            epsilon=EPSILON,
            epsilon_ladder=None,
            train_batch_size_per_learner=BATCH,
            training_intensity=setup.replay_ratio,
            num_steps_sampled_before_learning_starts=NEVER,
            replay_buffer_config={"capacity": CAPACITY, "alpha": 0.6, "beta": 0.4},
        )
    )
    if setup.bfloat16 is not None:
        config.rl_module(model_config=config.model_config | {"bfloat16": setup.bfloat16})
    return config


class Course:
    """An algorithm in training, and what it has done and cost since `start`."""

    def __init__(self, config: Any) -> None:
        config.reporting(min_sample_timesteps_per_iteration=1_000, min_time_s_per_iteration=0)
        config.debugging(seed=1, log_level="ERROR")
        self.algorithm = config.build_algo()
        self.stopwatch = Stopwatch()
        self._pids = [os.getpid(), *self._actors()]
        self.start({})

    def _actors(self) -> list[int]:
        """The processes of runners and shards."""
        import ray

        shards = getattr(self.algorithm, "_shards", [])
        runners = self.algorithm.env_runner_group.foreach_env_runner(
            lambda _: os.getpid(), local_env_runner=False
        )
        return [*runners, *ray.get([shard.__ray_call__.remote(_own_pid) for shard in shards])]

    def start(self, results: dict[str, Any]) -> None:
        """Count from here, from what ``results`` say."""
        self._counts = _counts(results)
        self._cpu, self._wall = self._cpu_seconds(), time.perf_counter()
        self.stopwatch.seconds = 0.0

    def run(self, cpu_seconds: float) -> dict[str, float]:
        """Train for so long, and a little before it starts to count."""
        until = self._cpu_seconds() + WARM_UP
        while self._cpu_seconds() < until:
            results = self.algorithm.train()
        self.start(results)
        while self._cpu_seconds() - self._cpu < cpu_seconds:
            results = self.algorithm.train()
        agent_steps, env_steps, trained = (
            now - then for now, then in zip(_counts(results), self._counts, strict=True)
        )
        return {
            "agent_steps": agent_steps,
            "env_steps": env_steps,
            "trained": trained,
            "cpu_all": self._cpu_seconds() - self._cpu,
            "wall": time.perf_counter() - self._wall,
            "torch": self.stopwatch.seconds,
        }

    def memory(self) -> float:
        """MiB that the processes hold now."""
        held: int = sum(psutil.Process(pid).memory_info().rss for pid in self._pids)
        return held / MEBIBYTE

    def _cpu_seconds(self) -> float:
        """User and system time of all processes together."""
        times = [psutil.Process(pid).cpu_times() for pid in self._pids]
        return float(sum(one.user + one.system for one in times))


def _own_pid(_: Any) -> int:
    return os.getpid()


def _counts(results: dict[str, Any]) -> tuple[float, float, float]:
    """Agent-steps and env steps sampled, and samples trained on, ever."""
    played, learners = results.get("env_runners", {}), results.get("learners", {})
    return (
        sum(
            float(count)
            for name, count in played.get("num_module_steps_sampled_lifetime", {}).items()
            if not name.endswith("throughput")
        ),
        float(played.get("num_env_steps_sampled_lifetime", 0)),
        float(
            sum(
                module.get("num_module_steps_trained_lifetime", 0)
                for name, module in learners.items()
                if name != "__all_modules__"
            )
        ),
    )


def start_ray(cpus: int) -> None:
    """Ray for this process, and torch on one thread."""
    import ray
    import torch
    from ray.tune.registry import register_env

    from battlesnake_rl.mabs.algorithms import make_multi_agent_env
    from battlesnake_rl.mabs.play.environment import ENV_NAME

    torch.set_num_threads(1)
    ray.init(address="local", include_dashboard=False, num_cpus=cpus, log_to_driver=False)
    register_env(ENV_NAME, make_multi_agent_env)


def measure(setup: Setup, cpu_seconds: float) -> Figures:
    """Play for ``cpu_seconds`` / 3, then play and learn for ``cpu_seconds``."""
    from ray.rllib.core.learner.torch.torch_learner import TorchLearner

    from battlesnake_rl.mabs.policy.q_network import SnakeQModule

    start_ray(cpus=4)

    def config(agents_alive: float) -> Any:
        if setup.algorithm == "stock":
            return stock_config(setup, agents_alive)
        return our_config(setup)

    playing = Course(config(agents_alive=SNAKES))
    played = playing.run(cpu_seconds / 3)
    playing.algorithm.stop()

    learning = Course(
        config(played["agent_steps"] / played["env_steps"]).training(
            num_steps_sampled_before_learning_starts=2_000
        )
    )
    learning.stopwatch.watch(SnakeQModule, "_run")
    learning.stopwatch.watch(TorchLearner, "compute_gradients")
    while not _counts(learning.algorithm.train())[2]:
        pass
    learned = learning.run(cpu_seconds)
    memory = learning.memory()
    learning.algorithm.stop()
    return Figures(
        sampling=played["agent_steps"] / played["cpu_all"],
        agent_steps=learned["agent_steps"] / learned["cpu_all"],
        updates=learned["trained"] / BATCH / learned["cpu_all"],
        agent_steps_wall=learned["agent_steps"] / learned["wall"],
        replay_ratio=learned["trained"] / learned["agent_steps"],
        torch_share=learned["torch"] / learned["cpu_all"],
        memory=memory,
    )


def measure_apart(name: str, cpu_seconds: float) -> Figures:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, "--seconds", str(cpu_seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def table(figures: dict[str, Figures]) -> str:
    """Markdown: a row for each measurement, then what is compared."""
    lines = [
        "| | sampling alone, agent-steps/CPU-s | learning, agent-steps/CPU-s | updates/CPU-s "
        "| agent-steps/s of the clock | replay ratio | in torch's passes | memory, MiB |",
        "|---|" + "---:|" * 7,
    ]
    for name, seen in figures.items():
        # Runners in processes of their own are not watched.
        share = "" if SETUPS[name].runners else f"{seen.torch_share:.1%}"
        lines.append(
            f"| {name} | {seen.sampling:,.0f} | {seen.agent_steps:,.0f} | {seen.updates:.1f} "
            f"| {seen.agent_steps_wall:,.0f} | {seen.replay_ratio:.2f} | {share} "
            f"| {seen.memory:,.0f} |"
        )
    for kind, name in (("", "as it comes"), ("-float32", "float32"), ("-bfloat16", "bfloat16")):
        if {f"stock{kind}", f"dqn{kind}"} <= set(figures):
            stock, ours = figures[f"stock{kind}"], figures[f"dqn{kind}"]
            lines += [
                "",
                f"DQN against RLlib's own, {name}: sampling {ours.sampling / stock.sampling:.1f} "
                f"times as fast, updates {ours.updates / stock.updates:.1f} times.",
            ]
    if {"dqn-0.25", "apex-0.25"} <= set(figures):
        dqn, apex = figures["dqn-0.25"], figures["apex-0.25"]
        lines += [
            "",
            f"APEX against DQN: {apex.agent_steps / dqn.agent_steps:.2f} times the agent-steps "
            f"for a CPU-second, {apex.agent_steps_wall / dqn.agent_steps_wall:.2f} times by the "
            "clock.",
        ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of each learning phase")
    parser.add_argument("--only", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--measure", choices=SETUPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        warnings.simplefilter("ignore")
        figures = measure(SETUPS[arguments.measure], arguments.seconds)
        print(json.dumps(dataclasses.asdict(figures)))
        return 0
    print(table({name: measure_apart(name, arguments.seconds) for name in arguments.only}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

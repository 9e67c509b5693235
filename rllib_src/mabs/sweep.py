"""A sweep with Ray Tune: which learning rate, steps and discount teach a snake fastest?

    python -m mabs.sweep --samples 8 --minutes 3

An example to copy: every setting of the configuration may be a distribution of Ray Tune. What is
compared is how long snakes live among themselves; play the best checkpoints against others
(``battlesnake-gym evaluate``) before believing it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.registry import register_env

from mabs.algorithms import configure, make_multi_agent_env
from mabs.environment import ENV_NAME

SCORE = "env_runners/episode_len_mean"

SEARCH_SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 2e-3),
    "n_step": tune.choice([1, 3, 5]),
    "gamma": tune.choice([0.95, 0.97, 0.99]),
}
"""What is tried, by the names of ``config.training``."""


def search(config: Any, *, samples: int, minutes: float, folder: Path) -> tune.ResultGrid:
    """Train ``samples`` draws from the distributions in ``config``, each for ``minutes``.

    Trials run at the same time as far as Ray has CPUs for them. Results and last checkpoints are
    written under ``folder``.
    """
    return tune.Tuner(
        config.algo_class,
        param_space=config,
        tune_config=tune.TuneConfig(metric=SCORE, mode="max", num_samples=samples),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(folder.resolve()),
            stop={"time_total_s": minutes * 60},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, num_to_keep=1),
            verbose=1,
        ),
    ).fit()


def main(argv: list[str] | None = None) -> int:
    """Search, and name the best."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=8, help="trainings (default: 8)")
    parser.add_argument("--minutes", type=float, default=3, help="of each training (default: 3)")
    parser.add_argument("--num-agents", type=int, default=4, help="snakes in a game (default: 4)")
    parser.add_argument("--map-size", type=int, default=11, help="side of the board (default: 11)")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="default: runs")
    arguments = parser.parse_args(argv)
    ray.init(address="local", include_dashboard=False)
    register_env(ENV_NAME, make_multi_agent_env)
    games = {
        "num_snakes": arguments.num_agents,
        "width": arguments.map_size,
        "height": arguments.map_size,
    }
    config = configure("DQN", games).training(**SEARCH_SPACE)
    results = search(
        config, samples=arguments.samples, minutes=arguments.minutes, folder=arguments.folder
    )
    best = results.get_best_result()
    found = ", ".join(f"{name} {best.config[name]:.4g}" for name in SEARCH_SPACE)
    sys.stdout.write(f"best: {found}; its checkpoint: {best.checkpoint.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

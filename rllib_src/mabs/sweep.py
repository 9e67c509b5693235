"""A sweep with Ray Tune: which learning rate, steps and discount teach a snake to win?

    python -m mabs.sweep --samples 8 --minutes 3
    python -m mabs.sweep --samples 8 --minutes 20 --scheduler asha
    python -m mabs.sweep --samples 4 --minutes 20 --scheduler pbt

An example to copy: every setting of the configuration may be a distribution of Ray Tune. What is
compared is Elo by games against the ladder, which each training plays for a twentieth of its CPU
time (`mabs.strength`). ASHA (Li et al. 2018) stops the weaker trainings early; population based
training (Jaderberg et al. 2017) lets them go on from the weights of a stronger one, with settings
changed a little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.registry import register_env
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler

from mabs.algorithms import configure, make_multi_agent_env
from mabs.environment import DEFAULTS, ENV_NAME
from sagemaker_rl.runs import tracking

SCORE = "elo"
"""Not a number until the first games have been played, about a CPU minute into a training."""

SEARCH_SPACE: dict[str, Any] = {
    "lr": tune.loguniform(1e-4, 2e-3),
    "n_step": tune.choice([1, 3, 5]),
    "gamma": tune.choice([0.97, 0.99, 0.995]),
}
"""What is tried, by the names of ``config.training``."""


def scheduler_of(name: str, minutes: float) -> TrialScheduler | None:
    """ "asha", "pbt" or "none", for trainings of so many minutes."""
    seconds = 60 * minutes
    if name == "asha":
        return ASHAScheduler(
            time_attr="time_total_s", max_t=seconds, grace_period=seconds / 4, reduction_factor=2
        )
    if name == "pbt":
        return PopulationBasedTraining(
            time_attr="time_total_s",
            perturbation_interval=seconds / 5,
            hyperparam_mutations=SEARCH_SPACE,
        )
    return None


def search(
    config: Any,
    *,
    samples: int,
    minutes: float,
    folder: Path,
    scheduler: str = "none",
    stop: Mapping[str, float] | None = None,
    track: str | None = None,
) -> tune.ResultGrid:
    """Train ``samples`` draws from the distributions in ``config``, each for ``minutes``.

    ``stop`` are results at which one ends (None: the minutes). Trials run at the same time as far
    as Ray has CPUs for them. Results and last checkpoints are written under ``folder``, and logged
    to what ``track`` names (`sagemaker_rl.runs.tracking`).
    """
    return tune.Tuner(
        config.algo_class,
        param_space=config,
        tune_config=tune.TuneConfig(
            metric=SCORE,
            mode="max",
            num_samples=samples,
            scheduler=scheduler_of(scheduler, minutes),
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(folder.resolve()),
            stop=dict(stop or {"time_total_s": minutes * 60}),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, num_to_keep=1),
            callbacks=list(tracking.callbacks(track)),
            verbose=1,
        ),
    ).fit()


def main(argv: list[str] | None = None) -> int:
    """Search, and name the best."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=8, help="trainings (default: 8)")
    parser.add_argument("--minutes", type=float, default=3, help="of each training (default: 3)")
    parser.add_argument(
        "--num-agents", type=int, default=DEFAULTS["num_snakes"], help="snakes in a game"
    )
    parser.add_argument("--map-size", type=int, default=DEFAULTS["width"], help="side of the board")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="default: runs")
    parser.add_argument(
        "--scheduler",
        choices=("none", "asha", "pbt"),
        default="none",
        help="who trains on: all, the stronger ones, or all from the stronger ones' weights",
    )
    parser.add_argument("--track", help="mlflow, wandb, or mlflow,wandb: a run for each training")
    arguments = parser.parse_args(argv)
    try:
        tracking.check(arguments.track)
    except ValueError as error:
        parser.error(str(error))
    ray.init(address="local", include_dashboard=False)
    register_env(ENV_NAME, make_multi_agent_env)
    games = {
        "num_snakes": arguments.num_agents,
        "width": arguments.map_size,
        "height": arguments.map_size,
    }
    config = configure("DQN", games).training(**SEARCH_SPACE)
    results = search(
        config,
        samples=arguments.samples,
        minutes=arguments.minutes,
        folder=arguments.folder,
        scheduler=arguments.scheduler,
        track=arguments.track,
    )
    try:
        best = results.get_best_result()
    except RuntimeError:
        sys.stderr.write(
            "no training was long enough for games on the ladder; give more --minutes\n"
        )
        return 1
    found = ", ".join(f"{name} {best.config[name]:.4g}" for name in SEARCH_SPACE)
    sys.stdout.write(
        f"best: {best.metrics[SCORE]:.0f} Elo with {found}; its checkpoint: "
        f"{best.checkpoint.path}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The base launcher: hyperparameters in, a trained and checkpointed RLlib algorithm out.

A training script subclasses `SageMakerRayLauncher` and says what its experiment is; flags,
SageMaker's environment, Ray, curves, checkpoints and signals are taken care of here:

    class MyLauncher(SageMakerRayLauncher):
        def register_env_creator(self): ...
        def get_experiment_config(self, hyperparameters): ...

    if __name__ == "__main__":
        MyLauncher.train_main()
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from sagemaker_rl import checkpoints, hyperparameters
from sagemaker_rl.hyperparameters import HyperparameterError, option
from sagemaker_rl.job import Job
from sagemaker_rl.training_run import CSV_COLUMNS, TrainingRun, say


@dataclass(frozen=True)
class Hyperparameters:
    """What every experiment may be told; subclass to add to it."""

    algorithm: str = option("DQN", "what to train with")
    num_iters: int | None = option(None, "stop after this many training iterations in all")
    minutes: float | None = option(None, "stop after this many minutes of training in all")
    num_workers: int | None = option(None, "runner processes; null: as many as make sense")
    seed: int | None = option(None, "random seed")


class SageMakerRayLauncher:
    """Train on RLlib, on this machine or as a SageMaker job."""

    hyperparameters_class: ClassVar[type[Any]] = Hyperparameters
    csv_columns: ClassVar[Mapping[str, str]] = CSV_COLUMNS

    # What an experiment says of itself

    def register_env_creator(self) -> None:
        """Register the environment with Ray Tune."""
        raise NotImplementedError

    def get_experiment_config(self, hyperparameters: Any) -> AlgorithmConfig:
        """RLlib's configuration of the experiment; nothing may be started yet.

        Raises:
            ValueError: a hyperparameter has an impossible value.
        """
        raise NotImplementedError

    def presets(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Hyperparameters that the ``given`` ones imply; those given explicitly win.

        Raises:
            ValueError: there is no such preset.
        """
        return {}

    def default_workers(self, config: AlgorithmConfig, cpus: int) -> int:
        """Runner processes where no number is given: one for each CPU but the driver's."""
        return max(cpus - 1, 1)

    def default_name(self, hyperparameters: Any) -> str:
        """The run's name where none is given: what it trains, so that other things go elsewhere."""
        return str(hyperparameters.algorithm)

    def identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """JSON facts that a checkpoint must share with the experiment that resumes from it.

        Called with the final configuration before anything starts: the place for last checks.

        Raises:
            ValueError: the configuration is impossible.
        """
        return {"algorithm": config.algo_class.__name__}

    def export(self, checkpoint: Path, model_dir: Path) -> None:
        """Turn the final checkpoint into what the job delivers."""

    # What happens with it

    @classmethod
    def train_main(cls, argv: list[str] | None = None, prog: str | None = None) -> int:
        """Train as told by ``argv`` and the environment; returns the exit status.

        0: trained to the end. 2: refused, with the reason on stderr, before any work. 143 or 130:
        stopped by SIGTERM or Ctrl-C after writing a checkpoint; the same command resumes.
        """
        # RLlib warns at length about choices that are ours.
        for name in ("ray", "ray.rllib"):
            logging.getLogger(name).setLevel(logging.ERROR)
        launcher = cls()
        arguments, rest = launcher._parser(prog).parse_known_args(argv)
        try:
            run = launcher._plan(arguments, rest)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return launcher._run(run)

    def _parser(self, prog: str | None) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=prog,
            description=type(self).__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--name", help="the run's name (default: made of what is trained)")
        parser.add_argument(
            "--runs", type=Path, default=Path("runs"), help="folder of runs (default: runs)"
        )
        parser.add_argument(
            "--resume",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="go on from the newest checkpoint of this name, if there is one; --no-resume "
            "deletes the run of this name first",
        )
        hyperparameters.add_flags(parser, self.hyperparameters_class)
        return parser

    def _plan(self, arguments: argparse.Namespace, rest: list[str]) -> TrainingRun:
        """Everything that can be checked before work starts."""
        given = hyperparameters.collect(arguments, rest, os.environ)
        values = self.presets(given) | given
        plain, overrides = hyperparameters.split(values, self.hyperparameters_class)
        if plain.num_iters is None and plain.minutes is None:
            raise HyperparameterError("say when to stop: --num-iters N or --minutes M (or both)")
        self.register_env_creator()
        config = self.get_experiment_config(plain)
        cpus = len(os.sched_getaffinity(0))
        wanted = plain.num_workers
        if wanted is None:
            wanted = self.default_workers(config, cpus)
        config.num_env_runners = check_workers(wanted, cpus)
        override_config(config, overrides)
        config.validate()
        job = Job.from_environment(arguments.name or self.default_name(plain), arguments.runs)
        facts = {
            "identity": self.identity(config),
            "env_config": config.env_config,
            "hyperparameters": values,
        }
        checkpoint = checkpoints.newest(job.checkpoint_dir) if arguments.resume else None
        if checkpoint is not None:
            checkpoints.check_same(checkpoint, facts)
        return TrainingRun(
            config=config,
            job=job,
            facts=facts,
            checkpoint=checkpoint,
            num_iters=plain.num_iters,
            minutes=plain.minutes,
            columns=self.csv_columns,
        )

    def _run(self, run: TrainingRun) -> int:
        if run.checkpoint is None:
            checkpoints.delete_all(run.job.checkpoint_dir)
        if not run.finished:
            with started_ray():
                run.train()
        if run.stopped_by:
            say(f"stopped; the same command resumes from {run.checkpoint}")
            return 128 + run.stopped_by
        assert run.checkpoint is not None
        self.export(run.checkpoint, run.job.model_dir)
        return 0


@contextmanager
def started_ray() -> Iterator[None]:
    """Ray on this machine, quietly and for this process alone; or the one that it already has."""
    if ray.is_initialized():
        yield
        return
    ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def check_workers(wanted: int, cpus: int) -> int:
    """The number of runner processes that is wanted.

    Raises:
        HyperparameterError: there are not enough CPUs.
    """
    # On a single CPU one runner may share it with the driver.
    most = max(cpus - 1, 1)
    if not 0 <= wanted <= most:
        raise HyperparameterError(
            f"num_workers must be between 0 and {most}, got {wanted}: there are {cpus} CPUs, and "
            "one is the driver's (with 0 workers the driver plays the games itself)"
        )
    return wanted


def override_config(config: AlgorithmConfig, overrides: Mapping[str, Any]) -> None:
    """Set RLlib configuration fields by dotted names.

    Raises:
        HyperparameterError: an unknown name or a wrong type.
    """
    known = {}
    for key, value in config.to_dict().items():
        # Some fields are properties, kept under their name with an underscore.
        public = key.removeprefix("_")
        if public == key or isinstance(getattr(type(config), public, None), property):
            known[public] = value
    changed = hyperparameters.override(known, overrides)
    if "model_config" in changed:
        config.rl_module(model_config=changed.pop("model_config"))
    config.update_from_dict(changed)

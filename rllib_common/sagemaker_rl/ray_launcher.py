"""Base class of launchers, which training scripts subclass.

A launcher trains an RLlib algorithm with given hyperparameters and writes checkpoints. A training
script subclasses `SageMakerRayLauncher` and defines its experiment. `runs.launch` handles
SageMaker's environment, Ray, curves, checkpoints and signals::

    class MyLauncher(SageMakerRayLauncher):
        def register_env_creator(self): ...
        def get_experiment_config(self, hyperparameters): ...

    if __name__ == "__main__":
        MyLauncher.train_main()

This module imports neither torch nor Ray, so that ``--help`` and errors need little time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from battlesnake_gym.common.command_line import Parser, positive
from sagemaker_rl.cluster.membership import ClusterHyperparameters, Membership
from sagemaker_rl.job import hyperparameters, process_environment
from sagemaker_rl.job.hyperparameters import (
    STOP_CONDITIONS,
    CheckedFields,
    HyperparameterError,
    hyperparameter,
)
from sagemaker_rl.job.job_environment import check_channels, report_failure
from sagemaker_rl.job.utilization import ResourcePlan

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


@dataclass(frozen=True)
class _TrainingHyperparameters(CheckedFields):
    """Algorithm, stop conditions and resources of a training run."""

    algorithm: str = hyperparameter("DQN", "training algorithm")
    num_iters: int | None = hyperparameter(
        None, "stop after this many training iterations (resumed iterations count)", above=0
    )
    minutes: float | None = hyperparameter(
        None, "stop after this many minutes of training (wall clock; resumed time counts)", above=0
    )
    cpu_minutes: float | None = hyperparameter(
        None,
        "stop after this many minutes of CPU time, summed over all training processes",
        above=0,
    )
    driver_cpu_minutes: float | None = hyperparameter(
        None,
        "stop after this many minutes of CPU time of the driver, which runs the learner",
        above=0,
    )
    env_steps: int | None = hyperparameter(
        None, "stop after this many environment steps (turns of single games)", above=0
    )
    checkpoint_minutes: float = hyperparameter(1.0, "minutes between checkpoints")
    num_env_runners: int | None = hyperparameter(
        None,
        "number of env runner processes; 0 samples in the driver (default: depends on the "
        "algorithm and the CPUs)",
        aliases=("num_workers",),
    )
    seed: int | None = hyperparameter(None, "random seed (default: none)")
    allow_idle_instances: bool = hyperparameter(
        False,
        "accept a job in --dry-run and the preflight check even if more than half of its GPUs or "
        "instances would be idle",
    )


@dataclass(frozen=True)
class Hyperparameters(ClusterHyperparameters, _TrainingHyperparameters):
    """Hyperparameters that every experiment has.

    Subclasses add further hyperparameters.
    """

    @property
    def run_name(self) -> str:
        """Default name of the run; each experiment has a different default name."""
        return self.algorithm

    def recorded(self) -> dict[str, Any]:
        """Return the hyperparameters that the run directory shows, by name."""
        cluster = {field.name for field in fields(ClusterHyperparameters)}
        return {name: value for name, value in asdict(self).items() if name not in cluster}

    @classmethod
    def complete(cls, given: dict[str, Any]) -> Completion:
        """Return the dataclass and the defaults of the experiment that ``given`` selects.

        Args:
            given: Hyperparameters that the user set; former names are replaced in place.

        Raises:
            ValueError: If ``given`` names an unknown experiment or algorithm.
        """
        return Completion(cls)

    def check_early(self, overrides: Mapping[str, Any]) -> None:
        """Check the hyperparameters before torch and Ray are imported.

        Args:
            overrides: Other fields of RLlib's configuration, keyed by dotted names.

        Raises:
            ValueError: If a setting is invalid.
        """


@dataclass(frozen=True, slots=True)
class Completion:
    """Dataclass and defaults of the experiment that some hyperparameters select.

    Attributes:
        hyperparameters_class: Dataclass of all hyperparameters, such as `Hyperparameters`.
        presets: Values for hyperparameters that are not set.
        messages: Log lines about the choice.
        help_flags: Options that ``--help`` shows in addition.
        unknown_name: Function that returns the error for an unknown name, or None.
    """

    hyperparameters_class: type[Any]
    presets: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[str] = ()
    help_flags: Sequence[str] = ()
    unknown_name: Callable[[str], HyperparameterError] | None = None


_SHORT_HELP_FLAGS = (
    *("--name", "--resume", "--dry-run", "--experiment", "--algorithm", "--minutes", "--opponents"),
    *("--num-snakes", "--board-size", "--start-from", "--env-name"),
    *("--num-env-runners", "--hyperparameter"),
)
"""Options that ``--help`` shows; ``--help-all`` shows all options."""


class SageMakerRayLauncher:
    """Launcher that trains with RLlib, on this machine or as a SageMaker job.

    A subclass defines its experiment with `register_env_creator`, `get_experiment_config`,
    `plan_resources`, `checkpoint_identity` and `export_model`.

    Attributes:
        dry_run: Whether the launcher only checks the settings.
    """

    hyperparameters_class: ClassVar[type[Any]] = Hyperparameters
    channels: ClassVar[tuple[str, ...]] = ()
    """Names of the data channels that the experiment reads (`job/job_environment.py`)."""
    csv_columns: Mapping[str, str] = MappingProxyType({})
    """Result keys of additional columns of ``progress.csv``."""
    main_curves: Mapping[str, str] | None = None
    """Result keys of TensorBoard's main curves; None for those that every experiment has."""
    dry_run = False

    def register_env_creator(self) -> None:
        """Register the environment with Ray Tune."""

    def get_experiment_config(self, hyperparameters: Any) -> AlgorithmConfig:
        """Return RLlib's configuration of the experiment, without starting processes.

        Every instance calls this method.

        Raises:
            ValueError: If a hyperparameter has an invalid value, or if this machine does not meet
                the requirements of the environment.
        """
        raise NotImplementedError

    def plan_resources(self, config: AlgorithmConfig, cpus: int) -> ResourcePlan:
        """Return the default number of env runners, and the expected utilization.

        By default, one env runner starts per CPU, except one CPU for the driver.

        Args:
            config: RLlib's configuration of the experiment.
            cpus: Total number of CPUs of all instances.
        """
        learners = max(config.num_learners, 1) * config.num_gpus_per_learner
        runners = config.num_env_runners
        gpus = learners + runners * config.num_gpus_per_env_runner
        return ResourcePlan(max(cpus - 1, 1), 1 + runners, gpus)

    def checkpoint_identity(self, config: AlgorithmConfig) -> dict[str, Any]:
        """Return the identity of a checkpoint: the values that a resumed run must share.

        The launcher calls this method with the final configuration before training starts. An
        override can therefore also check the final configuration.

        Returns:
            JSON values, keyed by name.

        Raises:
            ValueError: If the configuration is invalid.
        """
        return {"algorithm": config.algo_class.__name__}

    def export_model(
        self, config: AlgorithmConfig, checkpoint: Path, model_dir: Path
    ) -> tuple[str, str, str]:
        """Export the last checkpoint into ``model_dir``, even if training was stopped.

        Returns:
            The texts of the last log lines of the run: strength, model files and next command.
        """
        strength = "not measured; the curves are in progress.csv"
        return strength, f"{checkpoint}, an RLlib checkpoint", "battlesnake-gym runs --web"

    @classmethod
    def train_main(cls, argv: Sequence[str] | None = None, prog: str | None = None) -> int:
        """Train with options and environment variables, and return the exit status.

        In a cluster, every instance calls this method. All instances except the head node only run
        Ray nodes, and end with the head node's exit status.

        Returns:
            Exit status: 0 if training is complete; 1 if training diverged, or the cluster did not
            form or failed; 2 if the settings are invalid; 143, 130 or 129 if SIGTERM, Ctrl-C or
            SIGHUP stopped training. Statuses 1 and 2 have a reason on stderr. A stopped run has a
            checkpoint and an exported model, and the same command resumes the run.
        """
        process_environment.set_default_variables()  # Must precede the imports of torch and Ray.
        launcher = cls()
        settings_class = cls.hyperparameters_class
        given: dict[str, Any] = {}
        typed: dict[str, Any] = {}

        def name_as_given(message: str) -> str:
            """Return an error message with the name or the option that the user gave."""
            flags = {name.replace("-", "_") for name in typed}
            message = settings_class.restore_name(message, [*given, *flags])
            return _name_flag(message, flags)

        words = sys.argv[1:] if argv is None else argv
        if hyperparameters.repeats_sm_hps(words, os.environ):
            words = []
        asks = [word for word in words if word in ("-h", "--help", "--help-all")]
        parser = launcher.parser(prog)
        arguments, rest = parser.parse_known_args([word for word in words if word not in asks])
        try:
            typed |= {
                name.removeprefix("hyperparameter."): value
                for name, value in vars(arguments).items()
                if name.startswith("hyperparameter.")
            }
            typed |= dict(arguments.hyperparameter) | hyperparameters.read_options(rest)
            given = {**hyperparameters.read_sm_hps(os.environ), **typed}
            if asks:
                launcher.parser(prog, given).parse_args(asks[:1])
            check_channels(cls.channels)
            _check_name(arguments.name)
            if not arguments.resume:
                parser.reject_given(arguments, ["trust_checkpoint"], "with --no-resume")
            chosen = cls.hyperparameters_class.complete(given)
            settings_class = chosen.hyperparameters_class
            settings, overrides = settings_class.fill(
                given, chosen.presets, chosen.unknown_name, typed
            )
            _check_stop_condition(settings)
            _check_overrides(settings, overrides)
            _check_evaluation(given, overrides)
            settings.check_early(overrides)
            _check_unused_settings(settings)
            membership = Membership.from_environment(settings)
        except ValueError as error:
            report_failure(name_as_given(str(error)), prog=prog)
            return 2
        if not arguments.dry_run and sys.stderr.isatty():
            sys.stderr.write("starting PyTorch and Ray, which takes some seconds ...\n")
        from sagemaker_rl.runs.launch import Launch  # Imports torch and Ray.

        launcher.dry_run = arguments.dry_run
        return Launch(
            launcher=launcher,
            settings=settings,
            given=settings_class.given_fields([*chosen.presets, *given]),
            overrides=overrides,
            options=arguments,
            membership=membership,
            messages=[*chosen.messages],
            prog=prog,
            name_as_given=name_as_given,
        ).run()

    def parser(self, prog: str | None, given: dict[str, Any] | None = None) -> Parser:
        """Return the parser of this experiment.

        Options that the parser does not define override RLlib's configuration.

        Args:
            prog: Name of the program.
            given: Hyperparameters that select the experiment.
        """
        chosen = self.hyperparameters_class.complete(dict(given or {}))
        parser = Parser(
            prog=prog,
            description=type(self).__doc__,
            allow_abbrev=False,
            short_help_flags=(*_SHORT_HELP_FLAGS, *chosen.help_flags),
        )
        add = parser.add_argument
        add("--name", help="run name (default: derived from the experiment or algorithm)")
        add("--runs-dir", type=Path, default=Path("runs"), metavar="DIR",
            help="parent directory of all run directories")  # fmt: skip
        add("--resume", action=argparse.BooleanOptionalAction, default=True,
            help="resume from the run's latest checkpoint; --no-resume deletes the run and "
            "starts over")  # fmt: skip
        add("--trust-checkpoint", action="store_true", help="load a checkpoint even if it may "
            "execute code; only for checkpoints you made yourself")  # fmt: skip
        add("--dry-run", action="store_true", help="validate the settings and exit; does not "
            "check that enough CPUs and GPUs exist")  # fmt: skip
        add("--ray-address", metavar="ADDRESS", help="connect to a running Ray cluster: HOST:PORT "
            "of its head node, or auto (default: start Ray on this machine)")  # fmt: skip
        add("--autoscale-timeout", type=positive, metavar="MINUTES", help="request enough "
            "CPUs from the cluster's autoscaler and wait up to MINUTES; needs --ray-address and "
            "--num-env-runners")  # fmt: skip
        chosen.hyperparameters_class.add_options(parser, chosen.presets)
        return parser


def _check_name(name: str | None) -> None:
    """Reject a run name that is not the name of one directory."""
    if name is not None and (name in ("", "..") or Path(name).name != name):
        raise HyperparameterError(
            f"--name must be the name of a directory in --runs-dir, got {name!r}; omit slashes, "
            "and set --runs-dir to the parent directory"
        )


def _check_overrides(settings: Any, overrides: Mapping[str, Any]) -> None:
    """Reject fields of RLlib's configuration that the launcher sets."""
    for name in overrides.keys() & {"env", "num_env_runners"}:
        remedy = f"use the hyperparameter {name}" if hasattr(settings, name) else "omit it"
        raise HyperparameterError(f"{hyperparameters.CONFIG_PREFIX}{name} cannot be set; {remedy}")


def _check_evaluation(given: Iterable[str], overrides: Mapping[str, Any]) -> None:
    """Reject given settings of RLlib's evaluation if RLlib does not evaluate."""
    prefix = f"{hyperparameters.CONFIG_PREFIX}evaluation_"
    interval = f"{prefix}interval"
    for name in given if not overrides.get("evaluation_interval") else ():
        if name.startswith(prefix) and name != interval:
            raise HyperparameterError(f"{name} has no effect; set {interval}, or omit it")


def _check_stop_condition(settings: Any) -> None:
    """Reject hyperparameters without a stop condition."""
    if all(getattr(settings, name) is None for name in STOP_CONDITIONS):
        raise HyperparameterError(
            "a stop condition is missing; give --num-iters N or --minutes M or --cpu-minutes M "
            "or --env-steps N"
        )


_JOB_SETTINGS = (
    "s3_bucket",
    "s3_prefix",
    "aws_region",
    "rl_join_timeout_minutes",
    "allow_idle_instances",
)
"""Hyperparameters that have an effect only in a SageMaker job, or if two jobs form a cluster."""


def _check_unused_settings(settings: Any) -> None:
    """Reject hyperparameters of SageMaker jobs on a machine without a job.

    A job accepts the hyperparameters, because several jobs may share one configuration.
    """
    if os.environ.get("SM_HOSTS") or settings.rl_cluster_type is not None:
        return
    defaults = {one.name: one.metadata["default"] for one in fields(settings)}
    for name in _JOB_SETTINGS:
        if getattr(settings, name) != defaults[name]:
            raise HyperparameterError(f"{name} has no effect outside a SageMaker job; omit {name}")


def _name_flag(message: str, typed: Container[str]) -> str:
    """Return an error message with the option that the user typed instead of its name."""
    name, *rest = message.removeprefix("hyperparameter ").split(" ", 1)
    plain = name.rstrip(":")
    if plain.replace("-", "_") in typed and "." not in plain:
        return " ".join([f"--{plain.replace('_', '-')}{name[len(plain) :]}", *rest])
    return message

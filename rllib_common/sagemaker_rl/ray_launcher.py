"""Base class of launchers, which training scripts subclass.

A launcher trains an RLlib algorithm with given hyperparameters and writes checkpoints. A training
script subclasses `SageMakerRayLauncher` and defines its experiment. This module handles options,
SageMaker's environment, Ray, curves, checkpoints and signals::

    class MyLauncher(SageMakerRayLauncher):
        def register_env_creator(self): ...
        def get_experiment_config(self, hyperparameters): ...

    if __name__ == "__main__":
        MyLauncher.train_main()
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.command_line import Parser, positive
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.run_dir import DONE, FAILED, STOPPED
from sagemaker_rl.cluster.membership import (
    ClusterHyperparameters,
    DiscoveryError,
    Membership,
)
from sagemaker_rl.cluster.ray_node import (
    LOOPBACK,
    RayNode,
    RayNodeError,
    connect_to_ray,
    find_free_port,
    private_auth_token,
    ray_connection,
)
from sagemaker_rl.cluster.rendezvous import ClusterError
from sagemaker_rl.cluster.roles import num_local_cpus, run_head, run_worker
from sagemaker_rl.job import hyperparameters, process_environment, utilization
from sagemaker_rl.job.hyperparameters import HyperparameterError, hyperparameter
from sagemaker_rl.job.job_environment import (
    JobPaths,
    check_channels,
    find_disk_full_error,
    log_line,
    report_failure,
)
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.job.resources import (
    check_cpus,
    check_cuda_driver,
    check_gpus,
    check_memory,
    max_env_runners,
)
from sagemaker_rl.job.stop_signals import PendingSignals, deferred_stop_signals
from sagemaker_rl.job.utilization import UsableResources
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError
from sagemaker_rl.runs.training_run import CPU_MINUTES_RESULT, CSV_COLUMNS, MAIN_CURVES, TrainingRun

_HEALTH_PROBE_TIMEOUT_S = 1.0
"""Timeout of RLlib's health probe of lost env runners in a cluster, in seconds.

RLlib's default is 30 s.
"""

_VALID_MESSAGE = "the hyperparameters are valid"
"""Last output line of ``--dry-run`` if all hyperparameters are valid."""

_PARAMS_FILE = "params.json"
"""Name of a JSON file in the model directory.

The file contains the checkpoint's metadata.
"""


@dataclass(frozen=True)
class TrainingHyperparameters:
    """Algorithm, stop conditions and resources of a training run."""

    algorithm: str = hyperparameter("DQN", "training algorithm")
    num_iters: int | None = hyperparameter(
        None, "stop after this many training iterations (resumed iterations count)"
    )
    minutes: float | None = hyperparameter(
        None, "stop after this many minutes of training (wall clock; resumed time counts)"
    )
    cpu_minutes: float | None = hyperparameter(
        None, "stop after this many minutes of CPU time, summed over all training processes"
    )
    driver_cpu_minutes: float | None = hyperparameter(
        None, "stop after this many minutes of CPU time of the driver, which runs the learner"
    )
    env_steps: int | None = hyperparameter(
        None, "stop after this many environment steps (turns of single games)"
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
class Hyperparameters(ClusterHyperparameters, TrainingHyperparameters):
    """Hyperparameters that every experiment has.

    Subclasses add further hyperparameters.
    """


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Text of a run's last log lines: strength, model files and next command."""

    strength: str
    model: str
    next_command: str


def report_summary(result: str, summary: RunSummary, folder: Path) -> None:
    """Write the run report into ``folder``, and log the five summary lines of the run."""
    page = _write_report(folder)
    log_line(f"result: {result}")
    log_line(f"strength: {summary.strength}")
    log_line(f"model: {summary.model}")
    log_line(f"report: {page}")
    log_line(f"next: {summary.next_command}")


def _check_cpu_minutes(minutes: float, columns: Mapping[str, str]) -> None:
    """Reject the stop condition ``cpu_minutes`` if it is invalid or not supported."""
    if CPU_MINUTES_RESULT not in columns:
        raise HyperparameterError(
            "cpu_minutes: this algorithm does not count CPU time; use minutes instead"
        )
    if not 0 < minutes < math.inf:
        raise HyperparameterError(f"cpu_minutes must be more than 0, got {minutes}")


_REPORT_ENTRY_POINTS = "battlesnake_gym.run_reports"
"""Entry point group of functions that write a report of a run directory."""


def _write_report(folder: Path) -> str:
    """Write the report ``report.html`` into ``folder``.

    If a job's image contains only the training packages, the report is missing.

    Returns:
        Log message with the path of the report, or with the reason for its absence.
    """
    try:
        for entry in entry_points(group=_REPORT_ENTRY_POINTS):
            return f"{entry.load()(folder)}, a page with the curves and all settings of the run"
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("battlesnake_server", "jinja2"):
            raise
        missing = error.name
    else:
        missing = "battlesnake_server"
    return (
        f"none, because the package {missing!r} is not installed; on a machine with the package "
        f"and this directory, `battlesnake-gym runs {folder} --report` writes {run_dir.REPORT_FILE}"
    )


_SHORT_HELP_FLAGS = (
    *("--name", "--resume", "--dry-run", "--experiment", "--algorithm", "--minutes", "--opponents"),
    *("--num-snakes", "--board-size", "--start-from", "--env-name"),
    *("--num-env-runners", "--hyperparameter"),
)
"""Options that ``--help`` shows; ``--help-all`` shows all options."""


class SageMakerRayLauncher:
    """Launcher that trains with RLlib, on this machine or as a SageMaker job."""

    hyperparameters_class: ClassVar[type[Any]] = Hyperparameters
    csv_columns: ClassVar[Mapping[str, str]] = CSV_COLUMNS
    main_curves: ClassVar[Mapping[str, str]] = MAIN_CURVES
    channels: ClassVar[tuple[str, ...]] = ()
    """Names of the data channels that the experiment reads.

    See `job/job_environment.py`.
    """

    def register_env_creator(self) -> None:
        """Register the environment with Ray Tune."""
        raise NotImplementedError

    def get_experiment_config(self, hyperparameters: Any) -> AlgorithmConfig:
        """Return RLlib's configuration of the experiment, without starting processes.

        Raises:
            ValueError: If a hyperparameter has an invalid value.
        """
        raise NotImplementedError

    def translate_legacy_hyperparameters(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the hyperparameters in ``given``, keyed by their current names.

        Raises:
            ValueError: If a legacy name has no equivalent.
        """
        return given

    def experiment_defaults(
        self, given: Mapping[str, Any], before: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], str]:
        """Return the hyperparameters implied by ``given``, and a log line or "".

        Args:
            given: Hyperparameters that the user set; the launcher uses them instead of the returned
                values.
            before: Hyperparameters of the resumed run or job.

        Raises:
            ValueError: If ``given`` names an unknown experiment.
        """
        return {}, ""

    def default_num_env_runners(self, config: AlgorithmConfig, cpus: int) -> int:
        """Return the default number of env runners.

        By default, one env runner starts per CPU, except one CPU for the driver.

        Args:
            config: RLlib's configuration of the experiment.
            cpus: Total number of CPUs of all instances.
        """
        return max(cpus - 1, 1)

    def expected_utilization(self, config: AlgorithmConfig) -> UsableResources:
        """Return the number of vCPUs and GPUs that the training keeps busy."""
        learners = max(config.num_learners, 1) * config.num_gpus_per_learner
        runners = config.num_env_runners
        return UsableResources(1 + runners, learners + runners * config.num_gpus_per_env_runner)

    def default_run_name(self, hyperparameters: Any) -> str:
        """Return the default name of the run.

        Each experiment has a different default name.
        """
        return str(hyperparameters.algorithm)

    def check_host(self, config: AlgorithmConfig) -> None:
        """Check that this machine meets the requirements of the environment.

        Every instance calls this method.

        Raises:
            ValueError: If a requirement is not met; the message names the remedy.
        """

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

    def on_training_end(self, algorithm: Any, results: dict[str, Any]) -> None:
        """Run the experiment's last step, before the last checkpoint.

        The launcher calls the method after the last iteration. The method may add metrics to
        ``results``. If a signal stops training, the launcher does not call the method.
        """

    def record_sample_game(self, algorithm: Any, path: Path, filmed: bool) -> bytes | None:
        """Play a game with the current policy, and write its replay.

        Args:
            algorithm: RLlib's algorithm, whose policy plays.
            path: Replay file to write.
            filmed: Whether to return the game as a GIF.

        Returns:
            The GIF file's content, or None if ``filmed`` is False or the environment does not
            support GIFs.
        """
        return None

    def export_model(self, checkpoint: Path, model_dir: Path) -> RunSummary:
        """Export the last checkpoint into ``model_dir``, even if training was stopped.

        Returns:
            The text of the last log lines of the run.
        """
        return RunSummary(
            strength="not measured; the curves are in progress.csv",
            model=f"{checkpoint}, an RLlib checkpoint",
            next_command="battlesnake-gym runs --web",
        )

    @classmethod
    def train_main(cls, argv: list[str] | None = None, prog: str | None = None) -> int:
        """Train with options and environment variables, and return the exit status.

        In a cluster, every instance calls this method. All instances except the head node only run
        Ray nodes, and end with the head node's exit status.

        Returns:
            Exit status: 0 if training is complete; 1 if training diverged, or the cluster did not
            form or failed; 2 if the settings are invalid; 143, 130 or 129 if SIGTERM, Ctrl-C or
            SIGHUP stopped training. Statuses 1 and 2 have a reason on stderr. A stopped run has a
            checkpoint and an exported model, and the same command resumes the run.
        """
        # Scripts without a train command of their own import torch before this call.
        limit_torch_threads()
        process_environment.set_default_variables()
        # RLlib logs long warnings about settings that this project chose deliberately.
        for name in ("ray", "ray.rllib"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
            # In the training image, this process inherits an ignored SIGTERM from
            # sagemaker-training.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        launcher = cls()
        words = hyperparameters.strip_sagemaker_arguments(
            sys.argv[1:] if argv is None else argv, os.environ
        )
        arguments, rest = launcher.parser(prog).parse_known_args(words)
        with ExitStack() as lock_stack:
            return launcher._main(arguments, rest, lock_stack, prog)

    def _main(
        self,
        arguments: argparse.Namespace,
        rest: list[str],
        lock_stack: ExitStack,
        prog: str | None,
    ) -> int:
        """Train with parsed options, and return the exit status.

        ``lock_stack`` closes the lock of the run directory.
        """
        try:
            check_channels(self.channels)
            settings = self._read_settings(arguments, rest)
            membership = settings.membership
            # Every instance checks this condition, so an error ends all instances immediately.
            if settings.autoscale_minutes and None in (
                settings.address,
                settings.plain.num_env_runners,
            ):
                raise HyperparameterError(
                    "--autoscale-timeout needs --ray-address and --num-env-runners; give both"
                )
            config = self._configure(settings)
            messages = [settings.preset_message] if settings.preset_message else []
            if not (arguments.dry_run and utilization.load_instance_groups(os.environ)):
                # A dry run before a job may run on a different machine than the job.
                messages += filter(None, [check_memory(config)])
            if arguments.dry_run:
                self.checkpoint_identity(config)
                for line in (*messages, *self._check_instances(config, settings), _VALID_MESSAGE):
                    log_line(line)
                return 0
            check_cuda_driver(os.environ)
            self.check_host(config)
            if settings.is_single_machine:
                check_cpus(config, num_local_cpus())
                check_gpus(config, torch.cuda.device_count())
            run = (
                self._lock_and_create_run(arguments, settings, config, lock_stack)
                if membership.is_head
                else None
            )
            for line in messages:
                log_line(line)
        except ValueError as error:
            message = hyperparameters.restore_typed_alias(
                str(error), arguments, self.hyperparameters_class
            )
            report_failure(message, prog=prog)
            return 2
        try:
            if run is None:
                return run_worker(membership, settings.plain)
            with run.tracked_status():
                return self._run_training(run, settings)
        except (
            CheckpointError,
            ClusterError,
            DiscoveryError,
            RayNodeError,
            HyperparameterError,
        ) as error:
            report_failure(str(error))
            return 1
        except Exception as error:
            if run is not None and (disk_full := find_disk_full_error(error)):
                report_failure(_disk_full_message(run, disk_full))
                return 1
            report_failure(f"{type(error).__name__}: {error}")
            raise

    def parser(self, prog: str | None) -> Parser:
        """Return the parser of this experiment.

        Options that the parser does not define override RLlib's configuration.
        """
        about = type(self).__doc__
        parser = Parser(
            prog=prog, description=about, allow_abbrev=False, short_help_flags=_SHORT_HELP_FLAGS
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
        hyperparameters.add_options(parser, self.hyperparameters_class)
        return parser

    def _read_settings(self, arguments: argparse.Namespace, rest: list[str]) -> _RunSettings:
        """Return the settings of the run.

        The method checks the names and types of the hyperparameters.
        """
        cls = self.hyperparameters_class
        given = self.translate_legacy_hyperparameters(
            hyperparameters.resolve_aliases(
                hyperparameters.collect_values(arguments, rest, os.environ), cls
            )
        )
        presets, message = self.experiment_defaults(given, _checkpoint_hyperparameters(arguments))
        values = {**hyperparameters.resolve_aliases(presets, cls), **given}
        plain, overrides = hyperparameters.split_rllib_overrides(
            values, self.hyperparameters_class, config_fields=_config_fields()
        )
        ends = plain.num_iters, plain.minutes, plain.cpu_minutes, plain.env_steps
        if all(end is None for end in (*ends, plain.driver_cpu_minutes)):
            raise HyperparameterError(
                "a stop condition is missing; give --num-iters N or --minutes M or --cpu-minutes M "
                "or --env-steps N"
            )
        if plain.cpu_minutes is not None:
            _check_cpu_minutes(plain.cpu_minutes, self.csv_columns)
        if "num_env_runners" in overrides:
            raise HyperparameterError(
                f"{hyperparameters.CONFIG_PREFIX}num_env_runners cannot be set; use the "
                "hyperparameter num_env_runners"
            )
        membership = Membership.from_environment(plain)
        return _RunSettings(
            values,
            plain,
            overrides,
            message,
            membership,
            arguments.ray_address,
            arguments.autoscale_timeout,
        )

    def _configure(self, settings: _RunSettings) -> AlgorithmConfig:
        """Return RLlib's validated configuration."""
        plain, membership, address = settings.plain, settings.membership, settings.address
        self.register_env_creator()
        config = self.get_experiment_config(plain)
        hyperparameters.apply_overrides(config, settings.overrides)
        # The numbers of CPUs of the other instances are unknown until the instances join. The
        # launcher therefore assumes equal instances.
        instances = 1 + len(membership.workers)
        config.num_env_runners = self._num_env_runners(
            config, plain.num_env_runners, num_local_cpus() * instances
        )
        if not membership.is_single_instance and address is not None:
            raise HyperparameterError(
                f"--ray-address is {address}, but this job has {instances} instances, which form "
                "their own cluster; leave out --ray-address, or use one instance"
            )
        if not settings.is_single_machine and config.num_env_runners == 0:
            many = f"{instances} instances" if address is None else "the machines of a cluster"
            raise HyperparameterError(
                f"there are {many}, but num_env_runners is 0, so all except one would be idle; "
                "choose an algorithm with env runners (such as APEX), set num_env_runners, or use "
                "one machine"
            )
        config.validate()
        return config

    def _check_instances(self, config: AlgorithmConfig, settings: _RunSettings) -> list[str]:
        """Return log lines with the expected utilization of a job's instances.

        The names of the instance types determine the numbers of vCPUs and GPUs.

        Raises:
            HyperparameterError: If there are more env runners than vCPUs, or too many idle
                instances.
        """
        if not (groups := utilization.load_instance_groups(os.environ)):
            return []
        plain, cpus = settings.plain, sum(group.instances * group.cpus for group in groups)
        config.num_env_runners = self._num_env_runners(config, plain.num_env_runners, cpus)
        if "num_gpus_per_learner" not in settings.overrides:
            config.num_gpus_per_learner = min(groups[0].gpus, 1)
        check_cpus(config, cpus)
        if plain.rl_cluster_type:  # The instances of the other job are unknown in this job.
            return []
        num_env_runners_given = plain.num_env_runners is not None
        return utilization.utilization_report(
            groups,
            self.expected_utilization(config),
            plain.allow_idle_instances,
            num_env_runners_given,
        )

    def _lock_and_create_run(
        self,
        arguments: argparse.Namespace,
        settings: _RunSettings,
        config: AlgorithmConfig,
        lock_stack: ExitStack,
    ) -> TrainingRun:
        """Lock the run directory, and return the training run.

        The directory stays locked until ``lock_stack`` is closed.
        """
        plain = settings.plain
        job = JobPaths.from_environment(
            arguments.name or self.default_run_name(plain), arguments.runs_dir
        )
        metadata = {
            "identity": self.checkpoint_identity(config),
            "env_config": config.env_config,
            "hyperparameters": drop_cluster_settings(settings.values),
        }
        lock_stack.enter_context(run_dir.lock_run_dir(job.output_dir))
        damaged: list[str] = []
        checkpoint = (
            checkpoints.newest_checkpoint(job.checkpoint_dir, damaged.append)
            if arguments.resume
            else None
        )
        if damaged and checkpoint is None:
            damaged.append("no checkpoint is complete, so training starts from scratch")
        for line in damaged:
            log_line(line)
        if checkpoint is not None:
            checkpoints.check_compatible(checkpoint, metadata)
        return TrainingRun(
            config=config,
            job=job,
            checkpoint_metadata=metadata,
            checkpoint=checkpoint,
            trust_checkpoint=arguments.trust_checkpoint,
            num_iters=plain.num_iters,
            minutes=plain.minutes,
            cpu_minutes=plain.cpu_minutes,
            driver_cpu_minutes=plain.driver_cpu_minutes,
            env_steps=plain.env_steps,
            checkpoint_minutes=plain.checkpoint_minutes,
            csv_columns=self.csv_columns,
            main_curves=self.main_curves,
            conclude=self.on_training_end,
            settings=self.recorded_settings(plain) | settings.given_config,
            record=self.record_sample_game,
        )

    def recorded_settings(self, hyperparameters: Hyperparameters) -> dict[str, Any]:
        """Return the hyperparameters that the run directory shows, by name."""
        return drop_cluster_settings(asdict(hyperparameters))

    def _num_env_runners(self, config: AlgorithmConfig, wanted: int | None, cpus: int) -> int:
        """Return the number of env runners; ``wanted`` overrides the default."""
        return self.default_num_env_runners(config, cpus) if wanted is None else wanted

    def _run_training(self, run: TrainingRun, settings: _RunSettings) -> int:
        """Train and export the model, and return the exit status."""
        checkpoints.delete_unfinished(run.job.checkpoint_dir)
        if run.checkpoint is None:
            checkpoints.delete_checkpoints(run.job.checkpoint_dir)
        run.restore_progress_csv()
        with deferred_stop_signals(raise_immediately=True) as stop_signals:
            try:
                self._train(run, settings, stop_signals)
            except (
                BaseException
            ):  # Ray does not wrap `StoppedBeforeTrainingError`, but wraps other errors.
                if not (stop_signals and stop_signals.raise_immediately):
                    raise
                run.stopped_by = stop_signals[0]
                if run.checkpoint is None or not run.job.in_sagemaker:
                    run.write_status(STOPPED)
                    then = (
                        f"resumes from {run.checkpoint}"
                        if run.checkpoint
                        else "starts from scratch"
                    )
                    log_line(f"stopped before training started; the same command {then}")
                    return 128 + run.stopped_by
        with deferred_stop_signals("the export"):
            self._export_and_report(run)
        if run.diverged:
            report_failure(run.diverged)
            return 1
        return 128 + run.stopped_by if run.stopped_by else 0

    def _train(
        self, run: TrainingRun, settings: _RunSettings, stop_signals: PendingSignals
    ) -> None:
        """Start Ray or connect to a cluster, and train."""
        address = settings.address
        if not settings.membership.is_single_instance:
            with run_head(settings.membership, settings.plain, stop_signals) as head:
                self._train_on_cluster(
                    head.cpus, head.gpus, run, settings, stop_signals, all_ready=head.all_ready
                )
                if run.stopped_by:
                    head.report_stop()
        elif address is not None:
            with (
                ray_connection(address) as resources,
                autoscaled_resources(resources, run.config, settings.autoscale_minutes) as now,
            ):
                self._train_on_cluster(*now, run, settings, stop_signals)
        elif not run.is_finished:
            with local_ray():
                run.train(stop_signals)

    def _train_on_cluster(
        self,
        cpus: int,
        gpus: int,
        run: TrainingRun,
        settings: _RunSettings,
        stop_signals: PendingSignals,
        all_ready: bool = True,
    ) -> None:
        """Train with as many env runners as the CPUs of the cluster allow.

        If the cluster grows, additional env runners start.
        """
        config, wanted = run.config, settings.plain.num_env_runners
        self._use_remote_gpu(config, gpus, settings.overrides)

        def num_runners(cpus: int) -> int:
            """Return the number of env runners for a cluster with ``cpus`` CPUs."""
            return min(self._num_env_runners(config, wanted, cpus), max_env_runners(config, cpus))

        config.num_env_runners = (
            self._num_env_runners(config, wanted, cpus) if all_ready else num_runners(cpus)
        )
        # While a machine is missing, RLlib repeatedly probes the env runners of this machine.
        config.env_runner_health_probe_timeout_s = min(
            config.env_runner_health_probe_timeout_s, _HEALTH_PROBE_TIMEOUT_S
        )
        run.max_env_runners = lambda: num_runners(int(ray.cluster_resources().get("CPU", 0)))
        check_cpus(config, cpus)
        check_gpus(config, gpus)
        if not run.is_finished:
            run.train(stop_signals)

    def _use_remote_gpu(self, config: AlgorithmConfig, gpus: int, given: Mapping[str, Any]) -> None:
        """Configure the learner to use a GPU of another machine.

        The method changes the configuration only if this machine has no GPU and the user did not
        configure the learner.
        """
        asked = {"num_learners", "num_gpus_per_learner"} & given.keys()
        if asked or config.num_gpus_per_learner or not gpus:
            return
        config.learners(num_learners=1, num_gpus_per_learner=1)
        if self.expected_utilization(config).gpus:
            log_line("the learner uses a GPU of another machine of this cluster")

    def _export_and_report(self, run: TrainingRun) -> None:
        """Export the last checkpoint, and report the run, even if training was stopped."""
        assert run.checkpoint is not None
        summary = self.export_model(run.checkpoint, run.job.model_dir)
        if run.job.in_sagemaker:
            save_model_artifacts(run.checkpoint, run.job.model_dir, run.checkpoint_metadata)
        if run.diverged:
            state, result = FAILED, "diverged: "
        elif run.stopped_by:
            state, result = STOPPED, f"stopped; the same command resumes from {run.checkpoint}: "
        else:
            state, result = DONE, "done: "
        run.write_status(state, run.diverged)
        result += run.summary_line()
        if line := run.cpu_contention_message():
            log_line(line)
        if run.job.in_sagemaker:
            call = f"download_artifacts(estimator, Path('runs/{run.job.name}'))"
            where = "sagemaker_rl.job.source_files"
            summary = replace(summary, next_command=f"{where}.{call} downloads the run")
        report_summary(result, summary, run.job.output_dir)


def _checkpoint_hyperparameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the hyperparameters in the checkpoint that a named run or job resumes."""
    job = JobPaths.from_environment(arguments.name or "", arguments.runs_dir)
    last = checkpoints.newest_checkpoint(job.checkpoint_dir) if arguments.resume else None
    return {} if last is None else dict(checkpoints.read_metadata(last)["hyperparameters"])


def _config_fields() -> list[str]:
    """Return the names of RLlib's configuration fields that every algorithm has."""
    return [name for name in AlgorithmConfig().to_dict() if not name.startswith("_")]


def _disk_full_message(run: TrainingRun, error: OSError) -> str:
    """Return the message about a full disk, with the remedy."""
    last = checkpoints.newest_checkpoint(run.job.checkpoint_dir)
    remedy = f"the same command resumes from {last}" if last else "run the command again"
    path = error.filename or run.job.checkpoint_dir.parent
    return f"no space to write {path} ({error.strerror}); free space, then {remedy}"


@dataclass(frozen=True, slots=True)
class _RunSettings:
    """Settings of a run: hyperparameters, RLlib overrides and cluster."""

    values: dict[str, Any]
    plain: Any
    overrides: dict[str, Any]
    preset_message: str
    """Log line about implied hyperparameters, or ""."""
    membership: Membership
    address: str | None
    """Address of a running Ray cluster, or None to start Ray on this machine."""
    autoscale_minutes: int | None
    """Maximum duration of the wait for the cluster's autoscaler, in minutes, or None."""

    @property
    def is_single_machine(self) -> bool:
        """Whether this machine is the only machine of the run."""
        return self.membership.is_single_instance and self.address is None

    @property
    def given_config(self) -> dict[str, Any]:
        """Overrides of RLlib's configuration, keyed by their hyperparameter names."""
        return {
            f"{hyperparameters.CONFIG_PREFIX}{name}": value
            for name, value in self.overrides.items()
        }


@contextmanager
def local_ray(num_cpus: int | None = None) -> Iterator[None]:
    """Start Ray on this machine for this process only.

    If Ray is already initialized, the existing Ray is used. Ray listens only on the loopback
    interface, so that other machines cannot reach Ray. The node is a `RayNode`, which survives a
    signal to the process group of this process. Containers and batch systems send such signals.

    Args:
        num_cpus: Number of CPUs that Ray may use; None for all CPUs that this process may use.

    Raises:
        RayNodeError: If Ray does not start.
    """
    if ray.is_initialized():
        yield
        return
    port = find_free_port()
    node = RayNode.create_head(LOOPBACK, port, num_local_cpus() if num_cpus is None else num_cpus)
    with private_auth_token():
        try:
            node.start()
            connect_to_ray(f"{LOOPBACK}:{port}", loopback=True)
            yield
        finally:
            ray.shutdown()
            node.stop()


@contextmanager
def autoscaled_resources(
    resources: tuple[int, int], config: AlgorithmConfig, timeout_minutes: int | None
) -> Iterator[tuple[int, int]]:
    """Wait for a cluster's autoscaler to add machines.

    When the block ends, the autoscaler may remove machines.

    Args:
        resources: Current numbers of CPUs and GPUs of the cluster.
        config: RLlib's configuration with the required number of env runners.
        timeout_minutes: Maximum duration of the wait, in minutes; None to use the current machines.

    Yields:
        Number of CPUs and number of GPUs of the cluster.

    Raises:
        ClusterError: If the cluster has too few CPUs after ``timeout_minutes`` minutes.
    """
    if timeout_minutes is None:
        yield resources
        return
    from ray.autoscaler.sdk import request_resources

    enough = (n for n in itertools.count(1) if max_env_runners(config, n) >= config.num_env_runners)
    wanted = next(enough)
    until = time.monotonic() + 60 * timeout_minutes
    try:
        request_resources(num_cpus=wanted)
        while (cpus := int(ray.cluster_resources().get("CPU", 0))) < wanted:
            if time.monotonic() > until:
                raise ClusterError(
                    f"the cluster has {cpus} of {wanted} needed CPUs after {timeout_minutes} "
                    "minutes; raise the cluster's maximum number of machines or "
                    "--autoscale-timeout, or lower num_env_runners"
                )
            time.sleep(1)
        yield cpus, int(ray.cluster_resources().get("GPU", 0))
    finally:
        request_resources(num_cpus=0)


def drop_cluster_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` without the fields of `ClusterHyperparameters`.

    The settings of the cluster do not affect checkpoints.
    """
    names = {field.name for field in fields(ClusterHyperparameters)}
    return {name: value for name, value in values.items() if name not in names}


def save_model_artifacts(checkpoint: Path, model_dir: Path, metadata: Mapping[str, Any]) -> None:
    """Copy the checkpoint into the model directory, and write `_PARAMS_FILE`.

    SageMaker packs the model directory as ``model.tar.gz``.
    """
    shutil.copytree(checkpoint, model_dir / "checkpoint", dirs_exist_ok=True)
    text = json.dumps(metadata, indent=2) + "\n"
    write_atomically(model_dir / _PARAMS_FILE, lambda part: part.write_text(text))

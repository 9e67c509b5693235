"""One launch of a training script: configuration, Ray, training, export.

`ray_launcher` reads the settings. This module imports torch and Ray.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import shlex
import shutil
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.exceptions import SnakeError
from battlesnake_gym.common.files import DISK_FULL_ERRNOS, write_atomically
from battlesnake_gym.common.run_dir import DONE, FAILED, STOPPED
from sagemaker_rl.cluster.local_ray import autoscaled_machines, local_ray
from sagemaker_rl.cluster.membership import ClusterError, Membership
from sagemaker_rl.cluster.ray_node import cluster_resources, ray_connection
from sagemaker_rl.cluster.roles import num_local_cpus, run_head, run_worker
from sagemaker_rl.job import hyperparameters
from sagemaker_rl.job.hyperparameters import STOP_CONDITIONS, HyperparameterError
from sagemaker_rl.job.job_environment import (
    InstanceGroup,
    JobPaths,
    check_instance_gpus,
    instance_groups,
    log_line,
    report_failure,
)
from sagemaker_rl.job.process_environment import limit_torch_threads
from sagemaker_rl.job.resources import (
    check_cluster,
    check_cpus,
    check_cuda_driver,
    check_memory,
    max_env_runners,
)
from sagemaker_rl.job.stop_signals import PendingSignals, deferred_stop_signals
from sagemaker_rl.job.utilization import ResourcePlan
from sagemaker_rl.runs.checkpoints import (
    CheckpointError,
    CheckpointFolder,
    changed_settings,
    check_compatible,
)
from sagemaker_rl.runs.curves import CSV_COLUMNS
from sagemaker_rl.runs.training_run import (
    CPU_MINUTES_RESULT,
    MAIN_CURVES,
    TrainingRun,
    original_error,
)

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


_REPORT_ENTRY_POINTS = "battlesnake_gym.run_reports"
"""Entry point group of functions that write a report of a run directory."""


def _write_report(folder: Path) -> str:
    """Write the report ``report.html`` into ``folder``.

    If a job's image contains only the training packages, the report is missing.

    Returns:
        Log message with the path of the report, or with the reason for its absence.
    """
    missing: str | None = "battlesnake_server"
    try:
        for entry in entry_points(group=_REPORT_ENTRY_POINTS):
            return f"{entry.load()(folder)}, a page with the curves and all settings of the run"
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("battlesnake_server", "jinja2"):
            raise
        missing = error.name
    return (
        f"none, because the package {missing!r} is not installed; on a machine with the package "
        f"and this directory, `battlesnake-gym runs {shlex.quote(str(folder))} --report` writes "
        f"{run_dir.REPORT_FILE}"
    )


@dataclass
class Launch:
    """One launch: the experiment, its settings and the command's options."""

    launcher: Any
    """Launcher of the experiment, a `ray_launcher.SageMakerRayLauncher`."""
    settings: Any
    """Hyperparameters, an instance of the launcher's dataclass."""
    given: Collection[str]
    """Names of the hyperparameters that the user or the experiment set."""
    overrides: Mapping[str, Any]
    """Other fields of RLlib's configuration, keyed by dotted names."""
    options: argparse.Namespace
    membership: Membership
    messages: list[str]
    """Log lines about the settings."""
    prog: str | None
    name_as_given: Callable[[str], str]
    """Function that returns an error message with the name of the setting that the user gave."""
    config: Any = None
    """RLlib's validated configuration, once the settings are checked."""

    @property
    def is_single_machine(self) -> bool:
        """Whether this machine is the only machine of the run."""
        return self.membership.is_single_instance and self.options.ray_address is None

    @functools.cached_property
    def _planned_groups(self) -> list[InstanceGroup]:
        """Instance groups that a dry run checks; groups with GPUs come first.

        A dry run before a job may run on a different machine than the job. The list is empty for a
        training, or if the number of vCPUs of an instance type is unknown.

        Raises:
            HyperparameterError: If torch does not support the GPUs of an instance type.
        """
        groups = instance_groups() if self.options.dry_run else []
        for group in groups:
            check_instance_gpus(group.instance_type)
        if not all(group.cpus for group in groups):
            return []
        return sorted(groups, key=lambda group: not group.gpus)

    def run(self) -> int:
        """Train, and return the exit status (see `SageMakerRayLauncher.train_main`)."""
        limit_torch_threads()
        # RLlib logs long warnings about settings that this project chose deliberately.
        for name in ("ray", "ray.rllib"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
            # In the training image, this process inherits an ignored SIGTERM from
            # sagemaker-training.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with ExitStack() as lock_stack:
            return self._run_locked(lock_stack)

    def _run_locked(self, lock_stack: ExitStack) -> int:
        """Train, and return the exit status; ``lock_stack`` unlocks the run directory."""
        try:
            with hyperparameters.convert_rllib_errors(self._rllib_settings):
                self._configure()
                self._check_resources()
            if self.options.dry_run:
                self.launcher.checkpoint_identity(self.config)
                for line in (*self.messages, _VALID_MESSAGE):
                    log_line(line)
                return 0
            run = self._create_run(self.config, lock_stack) if self.membership.is_head else None
            for line in self.messages:
                log_line(line)
        except ValueError as error:
            # RLlib appends a hint that disables all checks.
            reason = str(error).partition("\nTo suppress all validation errors")[0]
            report_failure(self.name_as_given(reason), prog=self.prog)
            return 2
        try:
            if run is None:
                return run_worker(self.membership, self.settings)
            with run.tracked_status():
                return self._run_training(run)
        except (CheckpointError, ClusterError, HyperparameterError, SnakeError) as error:
            report_failure(str(original_error(error)))
            return 1
        except Exception as error:
            if run is not None and (disk_full := _find_disk_full_error(error)):
                report_failure(_disk_full_message(run, disk_full))
                return 1
            report_failure(f"{type(error).__name__}: {error}")
            raise

    def _configure(self) -> None:
        """Set RLlib's validated configuration."""
        address = self.options.ray_address
        # Every instance checks this condition, so an error ends all instances immediately.
        if self.options.autoscale_timeout and None in (address, self.settings.num_env_runners):
            raise HyperparameterError(
                "--autoscale-timeout needs --ray-address and --num-env-runners; give both"
            )
        if self.settings.cpu_minutes is not None and CPU_MINUTES_RESULT not in self._csv_columns:
            raise HyperparameterError(
                "cpu_minutes: this algorithm does not count CPU time; use minutes instead"
            )
        self.launcher.register_env_creator()
        config = self.launcher.get_experiment_config(self.settings)
        hyperparameters.apply_overrides(config, self.overrides)
        groups = self._planned_groups
        if groups and "num_gpus_per_learner" not in self.overrides:
            config.num_gpus_per_learner = min(groups[0].gpus, 1)
        # The numbers of CPUs of the other instances are unknown until the instances join. The
        # launcher therefore assumes equal instances.
        instances = 1 + len(self.membership.workers)
        cpus = groups[0].cpus if groups else num_local_cpus()
        config.num_env_runners = self._num_env_runners(config, cpus * instances)
        if not self.membership.is_single_instance and address is not None:
            raise HyperparameterError(
                f"--ray-address is {address}, but this job has {instances} instances, which form "
                "their own cluster; leave out --ray-address, or use one instance"
            )
        if not self.is_single_machine and config.num_env_runners == 0:
            many = f"{instances} instances" if address is None else "the machines of a cluster"
            raise HyperparameterError(
                f"there are {many}, but num_env_runners is 0, so all except one would be idle; "
                "choose an algorithm with env runners (such as APEX), set num_env_runners, or use "
                "one machine"
            )
        config.validate()
        self.config = config

    def _check_resources(self) -> None:
        """Check the memory, the CPUs and the GPUs of this machine or of a job's instances."""
        config, dry_run = self.config, self.options.dry_run
        if not self._planned_groups:
            self.messages += filter(None, [check_memory(config)])
        if dry_run:
            self.messages += self._check_instances(config)
            return
        check_cuda_driver()
        if self.is_single_machine:
            check_cluster(config, num_local_cpus(), torch.cuda.device_count(), {})

    def _check_instances(self, config: AlgorithmConfig) -> list[str]:
        """Return log lines with the expected utilization of a job's instances.

        The names of the instance types determine the numbers of vCPUs and GPUs.

        Raises:
            HyperparameterError: If there are more env runners than vCPUs, or too many idle
                instances.
        """
        if not (groups := self._planned_groups):
            return []
        settings, cpus = self.settings, sum(len(group.hosts) * group.cpus for group in groups)
        config.num_env_runners = self._num_env_runners(config, cpus)
        if settings.rl_cluster_type:  # The instances of the other job are unknown in this job.
            return []
        check_cpus(config, cpus)
        plan: ResourcePlan = self.launcher.plan_resources(config, cpus)
        return plan.utilization_report(
            groups,
            settings.allow_idle_instances,
            num_env_runners_given=settings.num_env_runners is not None,
        )

    def _create_run(self, config: AlgorithmConfig, lock_stack: ExitStack) -> TrainingRun:
        """Lock the run directory, and return the training run.

        The directory stays locked until ``lock_stack`` is closed.
        """
        settings, options = self.settings, self.options
        recorded = settings.recorded()
        job = JobPaths.from_environment(options.name or settings.run_name, options.runs_dir)
        metadata = {
            "identity": self.launcher.checkpoint_identity(config),
            "env_config": config.env_config,
            "hyperparameters": {
                name: value for name, value in recorded.items() if name in self.given
            }
            | self._rllib_settings,
        }
        lock_stack.enter_context(run_dir.lock_run_dir(job.output_dir))
        damaged: list[str] = []
        checkpoint = None
        if options.resume:
            checkpoint = CheckpointFolder(job.checkpoint_dir).newest(damaged.append)
        if damaged and checkpoint is None:
            damaged.append("no checkpoint is complete, so training starts from scratch")
        for line in damaged:
            log_line(line)
        if checkpoint is not None:
            check_compatible(checkpoint, metadata)
            self.messages += changed_settings(checkpoint, metadata, settings.field_names())
        run = TrainingRun(
            config=config,
            job=job,
            checkpoint_metadata=metadata,
            checkpoint=checkpoint,
            trust_checkpoint=options.trust_checkpoint,
            stop_conditions={name: getattr(settings, name) for name in STOP_CONDITIONS},
            checkpoint_minutes=settings.checkpoint_minutes,
            csv_columns=self._csv_columns,
            main_curves=self.launcher.main_curves or MAIN_CURVES,
            settings=recorded | self._rllib_settings,
        )
        if run.is_finished:
            self.messages.append(
                f"{job.name} has met its stop condition and does not train; give a higher limit, "
                "another --name or --no-resume"
            )
            if status := run_dir.RunStatus.load(job.output_dir):
                run.settings = status.settings
        return run

    @property
    def _rllib_settings(self) -> dict[str, Any]:
        """RLlib's own settings that are given, by full name."""
        return {hyperparameters.CONFIG_PREFIX + name: v for name, v in self.overrides.items()}

    @property
    def _csv_columns(self) -> dict[str, str]:
        """Result key of each column of ``progress.csv``."""
        return CSV_COLUMNS | dict(self.launcher.csv_columns)

    def _num_env_runners(self, config: AlgorithmConfig, cpus: int) -> int:
        """Return the given number of env runners, or the default number for ``cpus`` CPUs."""
        given: int | None = self.settings.num_env_runners
        if given is not None:
            return given
        plan: ResourcePlan = self.launcher.plan_resources(config, cpus)
        return plan.num_env_runners

    def _run_training(self, run: TrainingRun) -> int:
        """Train and export the model, and return the exit status."""
        if run.checkpoint is None:
            CheckpointFolder(run.job.checkpoint_dir).delete_all()
        run.restore_progress_csv()
        with deferred_stop_signals(raise_immediately=True) as stop_signals:
            try:
                self._train(run, stop_signals)
            # Ray does not wrap `StoppedBeforeTrainingError`, but wraps other errors.
            except BaseException:
                if not (stop_signals and stop_signals.raise_immediately):
                    raise
                run.stopped_by = stop_signals[0]
                if run.checkpoint is None or not run.job.in_sagemaker:
                    run.write_status(STOPPED)
                    last = run.checkpoint
                    then = f"resumes from {last}" if last else "starts from scratch"
                    log_line(f"stopped before training started; the same command {then}")
                    return 128 + run.stopped_by
        with deferred_stop_signals("the export"):
            self._export_and_report(run)
        if run.diverged:
            report_failure(run.diverged)
            return 1
        return 128 + run.stopped_by if run.stopped_by else 0

    def _train(self, run: TrainingRun, stop_signals: PendingSignals) -> None:
        """Start Ray or connect to a cluster, and train."""
        address, timeout = self.options.ray_address, self.options.autoscale_timeout
        if not self.membership.is_single_instance:
            with run_head(self.membership, self.settings, stop_signals) as head:
                self._train_on_cluster(run, stop_signals, head.all_workers_ready)
                if run.stopped_by:
                    head.end_run()
        elif address is not None:
            with ray_connection(address), autoscaled_machines(run.config, timeout):
                self._train_on_cluster(run, stop_signals)
        elif not run.is_finished:
            with local_ray():
                run.train(stop_signals)

    def _train_on_cluster(
        self, run: TrainingRun, stop_signals: PendingSignals, all_ready: bool = True
    ) -> None:
        """Train with as many env runners as the CPUs of the cluster allow.

        If the cluster grows, additional env runners start.
        """
        config, (cpus, gpus) = run.config, cluster_resources()
        self._use_remote_gpu(config, cpus, gpus)

        def num_runners(cpus: int) -> int:
            """Return the number of env runners for a cluster with ``cpus`` CPUs."""
            return min(self._num_env_runners(config, cpus), max_env_runners(config, cpus))

        config.num_env_runners = (
            self._num_env_runners(config, cpus) if all_ready else num_runners(cpus)
        )
        # While a machine is missing, RLlib repeatedly probes the env runners of this machine.
        config.env_runner_health_probe_timeout_s = min(
            config.env_runner_health_probe_timeout_s, _HEALTH_PROBE_TIMEOUT_S
        )
        run.max_env_runners = lambda: num_runners(cluster_resources()[0])
        check_cluster(config, cpus, gpus, ray.cluster_resources())
        if not run.is_finished:
            run.train(stop_signals)

    def _use_remote_gpu(self, config: AlgorithmConfig, cpus: int, gpus: int) -> None:
        """Configure the learner to use a GPU of another machine.

        The method changes the configuration only if this machine has no GPU and the user did not
        configure the learner.
        """
        given = {"num_learners", "num_gpus_per_learner"} & self.overrides.keys()
        if given or config.num_gpus_per_learner or not gpus:
            return
        config.learners(num_learners=1, num_gpus_per_learner=1)
        if self.launcher.plan_resources(config, cpus).gpus:
            log_line("the learner uses a GPU of another machine of this cluster")

    def _export_and_report(self, run: TrainingRun) -> None:
        """Export the last checkpoint, and report the run, even if training was stopped."""
        assert run.checkpoint is not None
        strength, model, next_command = self.launcher.export_model(
            run.config, run.checkpoint, run.job.model_dir
        )
        if run.job.in_sagemaker:
            _save_model_artifacts(run.checkpoint, run.job.model_dir, run.checkpoint_metadata)
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
            next_command = f"sagemaker_rl.job.source_files.{call} downloads the run"
        page = _write_report(run.job.output_dir)
        log_line(f"result: {result}")
        log_line(f"strength: {strength}")
        log_line(f"model: {model}")
        log_line(f"report: {page}")
        log_line(f"next: {next_command}")


def _find_disk_full_error(error: BaseException | None) -> OSError | None:
    """Return the disk-full error that directly or indirectly caused ``error``.

    The function returns None if the disk was not full.
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
            return error
        error = error.__cause__ or error.__context__
    return None


def _disk_full_message(run: TrainingRun, error: OSError) -> str:
    """Return the message about a full disk, with the remedy."""
    last = CheckpointFolder(run.job.checkpoint_dir).newest()
    remedy = f"the same command resumes from {last}" if last else "run the command again"
    path = error.filename or run.job.checkpoint_dir.parent
    return f"no space to write {path} ({error.strerror}); free space, then {remedy}"


def _save_model_artifacts(checkpoint: Path, model_dir: Path, metadata: Mapping[str, Any]) -> None:
    """Copy the checkpoint into the model directory, and write `_PARAMS_FILE`.

    SageMaker packs the model directory as ``model.tar.gz``.
    """
    shutil.copytree(checkpoint, model_dir / "checkpoint", dirs_exist_ok=True)
    text = json.dumps(metadata, indent=2) + "\n"
    write_atomically(model_dir / _PARAMS_FILE, lambda part: part.write_text(text))

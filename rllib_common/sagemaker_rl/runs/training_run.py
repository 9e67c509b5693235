"""Training run: iterations until a stop condition or a stop signal.

The run writes curves and checkpoints.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.actor_manager import FaultTolerantActorManager, RemoteCallResults
from tqdm import tqdm

from battlesnake_gym.common.command_line import plural
from battlesnake_gym.common.exceptions import SnakeError
from battlesnake_gym.common.run_dir import (
    CSV_FILE,
    FAILED,
    GAMES_DIR,
    ITERATION_COLUMN,
    RUNNING,
    STOPPED,
    GameRecorder,
    RunStatus,
)
from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.job.hyperparameters import convert_rllib_errors
from sagemaker_rl.job.job_environment import LOGGED_METRICS, JobPaths, log_line, metric_line
from sagemaker_rl.job.process_environment import installed_versions
from sagemaker_rl.job.stop_signals import PendingSignals
from sagemaker_rl.runs import checkpoints, divergence
from sagemaker_rl.runs.curves import CSV_COLUMNS, ENV_STEPS_RESULT, Curves, flatten
from sagemaker_rl.runs.progress import progress

_TRANSITIONS_RESULT = "learners/__all_modules__/num_env_steps_trained_lifetime"
"""RLlib result with the number of transitions trained."""

CPU_MINUTES_RESULT = "cpu_minutes"
"""Result with the CPU time of all training processes, in minutes.

Some algorithms do not measure the CPU time.
"""

_LOW_CPU_FRACTION = 0.8
"""CPU utilization below which a message reports CPU contention; 1 is one CPU."""

_LOSS_PATTERN = re.compile(r"learners/[^/]+/(total_loss|qf_loss)")
"""Key pattern of the learners' losses; if both losses exist, they are equal."""

MAIN_CURVES = {
    "reward": "env_runners/episode_return_mean",
    "length": "env_runners/episode_len_mean",
    "env_steps": ENV_STEPS_RESULT,
}
"""Result keys of TensorBoard's main curves, keyed by curve name.

Every experiment has these curves.
"""

_NEW_MACHINE_CHECK_INTERVAL_S = 5.0
"""Interval between two checks for new machines, in seconds."""

_ENV_RUNNER_START_TIMEOUT_S = 300.0
"""Maximum duration without a responding env runner, in seconds.

Afterwards, training fails.
"""

_ABORT_TIMEOUT_S, _SAGEMAKER_ABORT_TIMEOUT_S = 5.0, 60.0
"""Time limits for the iteration in progress after a stop signal, in seconds.

The first limit applies outside SageMaker, the second limit in SageMaker. Docker sends SIGKILL 10 s
after SIGTERM. SageMaker sends SIGKILL 120 s after SIGTERM. The remaining time is for the
checkpoint.
"""

_RUNNER_REMEDY = (
    "see Ray's logs, /tmp/*ray*/session_latest/logs/worker-*.err, or set num_env_runners to 0 to "
    "see the error in the job's log"
)

_handle_errors = FaultTolerantActorManager.handle_remote_call_result_errors

_SEED_STEP = 1_000_003
"""Increment of the seed between runs that resume from successive iterations.

The increment is a prime number.
"""


@dataclass
class TrainingRun:
    """Configuration, stop conditions and directories of a training run.

    If the algorithm has a method ``conclude``, the run calls it with the results of the last
    iteration, unless a signal stops the run. The method may add results.
    """

    config: AlgorithmConfig
    job: JobPaths
    checkpoint_metadata: dict[str, Any]
    """Metadata of every checkpoint.

    Checkpoints also contain the iteration, the training time and the env steps.
    """
    checkpoint: Path | None
    """Checkpoint to resume from; after `train`, the last checkpoint of the run."""
    stop_conditions: Mapping[str, float | None]
    """Stop conditions, keyed by hyperparameter; the run ends when the first one is met.

    The values of a resumed run include the iterations before the resume.
    """
    csv_columns: Mapping[str, str] = field(default_factory=lambda: CSV_COLUMNS)
    main_curves: Mapping[str, str] = field(default_factory=lambda: MAIN_CURVES)
    """Result keys of TensorBoard's main curves, keyed by curve name."""
    trust_checkpoint: bool = False
    """Whether to read a checkpoint that contains objects other than numbers."""
    checkpoint_minutes: float = 1.0
    """Minutes between two checkpoints; the run always ends with a checkpoint."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All hyperparameters, keyed by name, for `run_dir.RunStatus`."""
    max_env_runners: Callable[[], int] | None = None
    """Function that returns the maximum number of env runners, or None.

    The maximum changes while a cluster grows.
    """
    stopped_by: int = 0
    """Number of the signal that ended `train` early, or 0."""
    diverged: str = ""
    """Message about diverged training, which ended `train` early, or ""."""

    def __post_init__(self) -> None:
        metadata = checkpoints.read_metadata(self.checkpoint) if self.checkpoint else {}
        self._iterations = int(metadata.get(ITERATION_COLUMN, 0))
        self._seconds = float(metadata.get("time_total_s", 0.0))
        self._steps = int(metadata.get("env_steps", 0))
        self._cpu_minutes = float(metadata.get(CPU_MINUTES_RESULT, 0.0))
        self._driver_cpu_s = 60 * float(metadata.get("driver_cpu_minutes", 0.0))
        self._cpu_fraction = math.nan
        self._last_machine_check_at = time.monotonic()
        self._started_at = time.time()
        # A checkpoint does not contain the number of transitions trained before.
        self._trained = 0.0 if self.checkpoint is None else math.nan

    @contextmanager
    def tracked_status(self) -> Iterator[None]:
        """Write the state of the block to ``run.json``: running, failed or stopped."""
        self.write_status(RUNNING)
        try:
            yield
        except Exception as error:
            with suppress(OSError):  # The disk may be full.
                cause = original_error(error)
                self.write_status(FAILED, f"{type(cause).__name__}: {cause}")
            raise
        except BaseException:  # A stop signal may arrive before the first iteration.
            self.write_status(STOPPED)
            raise

    def write_status(self, state: str, reason: str = "") -> None:
        """Write the status of the run to ``run.json``."""
        RunStatus(
            state=state,
            started_at=self._started_at,
            ended_at=None if state == RUNNING else time.time(),
            reason=reason,
            stop_conditions=dict(self.stop_conditions),
            settings=dict(self.settings),
            identity=self.checkpoint_metadata.get("identity", {}),
            versions=installed_versions("battlesnake-gym", "ray", "torch"),
        ).save(self.job.output_dir)

    def summary_line(self) -> str:
        """Return one line with the progress of the run."""
        return (
            f"{self.job.name}, {plural(self._iterations, 'iteration')} and "
            f"{self._steps:,} env steps in {self._seconds / 60:,.1f} minutes of training"
        )

    def cpu_contention_message(self) -> str:
        """Return a message if training used less CPU time than expected, or "".

        The limit is `_LOW_CPU_FRACTION` of one CPU. If env runners or learners run in other
        processes, there is no message.
        """
        others = self.config.num_env_runners or self.config.num_learners
        if others or not self._cpu_fraction < _LOW_CPU_FRACTION:
            return ""
        return (
            f"the machine was busy: training used {self._cpu_fraction:.0%} of a CPU; "
            "--cpu-minutes counts only the CPU time of the training"
        )

    @property
    def is_finished(self) -> bool:
        """Whether a stop condition is met."""
        return self._remaining_fraction() <= 0

    def restore_progress_csv(self) -> None:
        """Copy ``progress.csv`` from the checkpoint into the run directory.

        The file in the run directory may be missing on a new instance, or incomplete after a kill.
        """
        if self.checkpoint is not None and (kept := self.checkpoint / CSV_FILE).exists():
            self.job.output_dir.mkdir(parents=True, exist_ok=True)
            shutil.copy(kept, self.job.output_dir)

    def train(self, stop_signals: PendingSignals) -> None:
        """Train until a stop condition or a signal, and write a checkpoint.

        Until the start of the first iteration, a signal raises `StoppedBeforeTrainingError`.
        Afterwards, an iteration that does not end soon after a signal is aborted. If an iteration
        is aborted or diverges, the checkpoint has the weights of the iteration before.
        """
        if self._iterations and self.config.seed is not None:
            # The same seed would repeat the random numbers of the earlier iterations.
            seed = (self.config.seed + _SEED_STEP * self._iterations) % 2**31
            self.config.debugging(seed=seed)
        with convert_rllib_errors(self.settings):
            algorithm = self.build_algorithm()
        if hasattr(algorithm, "should_stop"):  # Some algorithms can cancel a long iteration.
            algorithm.should_stop = lambda: bool(stop_signals)
        try:
            if self.checkpoint is not None:
                log_line(f"resuming from {self.checkpoint}")
                # Loading the copy executes no code of the checkpoint.
                prepare = nullcontext if self.trust_checkpoint else checkpoints.numbers_only_copy
                with prepare(self.checkpoint) as checkpoint:
                    checkpoints.restore_algorithm(algorithm, self.config, checkpoint, self._steps)
            self._check_initial_weights(algorithm)
            folder = self.job.output_dir
            games = GameRecorder(folder / GAMES_DIR, self._iterations)
            drawn = Curves(
                folder,
                self.csv_columns,
                self._iterations,
                main_curves=self.main_curves,
                settings=self.settings,
                intermediate=self.job.intermediate_dir,
            )
            with closing(drawn) as curves:
                stop_signals.defer()
                self._run_iterations(algorithm, curves, games, stop_signals)
                self._save_checkpoint(algorithm)
                if stop_signals:  # The export may exceed the grace period after the signal.
                    self.write_status(STOPPED)
                self._show_game(algorithm, curves, games, last=True)
            self.stopped_by = stop_signals[0] if stop_signals else 0
        finally:
            algorithm.stop()

    def build_algorithm(self) -> Algorithm:
        """Build the algorithm, and check that at least one env runner responds.

        Without this check, RLlib would restart failed env runners forever. Env runners receive the
        configuration by value: RLlib would pass a reference to the object store, on which the
        restart of a lost env runner would then depend (ray-project/ray#53727).

        Raises:
            RuntimeError: If no env runner starts.
        """
        none_started = RuntimeError(
            f"none of {self.config.num_env_runners} env runners started; {_RUNNER_REMEDY}"
        )
        FaultTolerantActorManager.handle_remote_call_result_errors = staticmethod(
            _raise_snake_errors
        )
        EnvRunnerGroup._remote_config_obj_ref = property(
            lambda group: group._remote_config, lambda group, reference: None
        )
        try:
            algorithm = self.config.build_algo()
        except IndexError as error:
            # RLlib requested the environment's spaces from the env runners, and no env runner
            # responded.
            raise none_started from error
        group = algorithm.env_runner_group
        if group is None or self.config.num_env_runners == 0 or _wait_for_env_runner(algorithm):
            return algorithm
        algorithm.stop()
        raise none_started

    def _check_initial_weights(self, algorithm: Algorithm) -> None:
        """Reject a network whose weights are not finite before training starts."""
        try:
            divergence.Learners(algorithm).check_weights()
        except divergence.DivergedError as error:
            raise checkpoints.CheckpointError(
                f"{self.checkpoint or 'the initial network'}: {error}; start from another policy, "
                "or start over with --no-resume"
            ) from error

    def _run_iterations(
        self,
        algorithm: Algorithm,
        curves: Curves,
        games: GameRecorder,
        stop_signals: PendingSignals,
    ) -> None:
        """Run iterations until a stop condition, a signal or divergence."""
        learners = divergence.Learners(algorithm)
        before, began, used = self._seconds, time.monotonic(), time.process_time()
        driver_cpu_before_s, steps_before = self._driver_cpu_s, self._steps
        saved = began
        limit = _SAGEMAKER_ABORT_TIMEOUT_S if self.job.in_sagemaker else _ABORT_TIMEOUT_S
        psutil.cpu_percent()  # The first call starts the measurement.
        with self._make_progress_bar() as bar, progress.shown_by(bar):
            while not stop_signals and not self.is_finished:
                progress.begin_step(
                    f"{self.job.name} {self._progress_percent():.0f}%, iteration "
                    f"{self._iterations + 1}"
                )
                self._add_env_runners(algorithm)
                algorithm.run_progress = 1 - self._remaining_fraction()
                good = learners.copy_state()
                try:
                    with stop_signals.abort_after(limit if good else 0.0):
                        self._wait_for_lost_env_runners(algorithm)
                        results = algorithm.train()
                    self._check_finite(algorithm, results)
                except (Exception, KeyboardInterrupt) as error:
                    # A signal to the whole process group also ends the env runners, so the
                    # iteration fails.
                    if not stop_signals:
                        self._report_divergence(algorithm, error)
                    learners.restore_state(good)
                    algorithm._iteration = self._iterations  # RLlib has counted a diverged loss.
                    return
                self._iterations = algorithm.training_iteration
                seconds = before + time.monotonic() - began
                self._add_computed_columns(results, max(seconds - self._seconds, 1e-9))
                self._seconds = seconds
                cpu_s = time.process_time() - used
                self._cpu_fraction = cpu_s / max(seconds - before, 1e-9)
                self._driver_cpu_s = driver_cpu_before_s + cpu_s
                results["time_total_s"] = self._seconds
                results["driver_cpu_minutes"] = self._driver_cpu_s / 60
                if self._remaining_fraction() <= 0 and not stop_signals:
                    if self._steps == steps_before:
                        raise ClusterError(
                            f"{plural(self._iterations, 'iteration')} had no env steps: all "
                            f"env runners failed; {_RUNNER_REMEDY}"
                        )
                    with suppress(KeyboardInterrupt), stop_signals.abort_after(limit):
                        getattr(algorithm, "conclude", lambda results: None)(results)
                curves.add(results)
                self._show_progress(bar, dict(flatten(results)))
                if time.monotonic() - saved > 60 * self.checkpoint_minutes:
                    self._save_checkpoint(algorithm)
                    self._show_game(algorithm, curves, games)
                    saved = time.monotonic()

    def _check_finite(self, algorithm: Algorithm, results: Mapping[str, Any]) -> None:
        """Check the weights and the losses after an iteration.

        RLlib's own learners ignore gradients that are not finite, so their weights stay finite. If
        the norm of the gradients is infinite, clipping sets the gradients to 0. A loss is also NaN
        if the iteration had no updates.

        Raises:
            DivergedError: If a weight is not finite, or no loss of the updates is finite.
        """
        divergence.Learners(algorithm).check_weights()
        numbers = dict(flatten(results))
        losses = [loss for key, loss in numbers.items() if _LOSS_PATTERN.fullmatch(key)]
        if (
            losses
            and not any(map(math.isfinite, losses))
            and numbers.get(_TRANSITIONS_RESULT, 0) > self._trained
        ):
            raise divergence.DivergedError("the loss is not finite")

    def _report_divergence(self, algorithm: Algorithm, error: BaseException) -> None:
        """Set `diverged`, or raise ``error`` if training did not diverge."""
        if not isinstance(error, divergence.DivergedError):
            # Env runners may also fail because their network returns NaN.
            try:
                divergence.Learners(algorithm).check_weights()
            except divergence.DivergedError as cause:
                error = cause
            else:
                raise error
        setting = divergence.find_likely_cause(self.config)
        self.diverged = (
            f"iteration {self._iterations + 1} diverged: {error}; the likely cause is {setting}; "
            f"give a smaller value to resume from iteration {self._iterations}"
        )

    def _add_env_runners(self, algorithm: Algorithm) -> None:
        """Start env runners on machines that have joined the cluster."""
        if (
            self.max_env_runners is None
            or time.monotonic() < self._last_machine_check_at + _NEW_MACHINE_CHECK_INTERVAL_S
        ):
            return
        self._last_machine_check_at = time.monotonic()
        limit = self.max_env_runners()
        group = algorithm.env_runner_group
        if group is None:
            algorithm.ensure_num_runners(limit)
        elif (more := limit - group.num_remote_env_runners()) > 0:
            log_line(f"starting {more} more env runners, {limit} in total")
            _add_env_runners(group, more)

    def _wait_for_lost_env_runners(self, algorithm: Algorithm) -> None:
        """Wait until Ray has restarted an env runner, if all env runners are lost.

        Iterations without env runners would have no env steps.
        """
        group = getattr(algorithm, "env_runner_group", None)
        if group is None or not group.num_remote_env_runners():
            return
        if not group.num_healthy_remote_workers() and self.config.restart_failed_env_runners:
            _wait_for_env_runner(algorithm)

    def _show_game(
        self, algorithm: Algorithm, curves: Curves, games: GameRecorder, *, last: bool = False
    ) -> None:
        """Record a game if a recording is due, and add its animation to the curves."""
        film = games.add(algorithm, self._iterations, self._seconds, last=last)
        if film is not None:
            curves.add_animation(film, self._iterations)

    def _add_computed_columns(self, results: dict[str, Any], seconds: float) -> None:
        """Add the computed columns of `CSV_COLUMNS` to the results of an iteration."""
        numbers = dict(flatten(results))
        steps = int(numbers.get(self.csv_columns["env_steps"], self._steps))
        trained = numbers.get(_TRANSITIONS_RESULT, 0.0)
        losses = [value for key, value in numbers.items() if _LOSS_PATTERN.fullmatch(key)]
        results |= {
            "loss": sum(losses) / len(losses) if losses else math.nan,
            "env_steps_per_s": (steps - self._steps) / seconds,
            "transitions_per_s": (trained - self._trained) / seconds,
            "cpu_percent": psutil.cpu_percent(),
        }
        self._steps, self._trained = steps, trained
        self._cpu_minutes = float(numbers.get(CPU_MINUTES_RESULT, 0.0))

    def _save_checkpoint(self, algorithm: Algorithm) -> None:
        """Write a checkpoint with the current progress in its metadata."""
        metadata = {
            **self.checkpoint_metadata,
            ITERATION_COLUMN: self._iterations,
            "time_total_s": round(self._seconds, 3),
            "env_steps": self._steps,
            CPU_MINUTES_RESULT: round(self._cpu_minutes, 3),
            "driver_cpu_minutes": round(self._driver_cpu_s / 60, 3),
        }
        curves = [self.job.output_dir / CSV_FILE]
        folder = checkpoints.CheckpointFolder(self.job.checkpoint_dir)
        self.checkpoint = folder.save(algorithm, metadata, curves)

    def _remaining_fraction(self) -> float:
        """Return the remaining fraction of the run, at most 1.

        The run ends when a stop condition is met.
        """
        done = {
            "num_iters": self._iterations,
            "minutes": self._seconds / 60,
            "cpu_minutes": self._cpu_minutes,
            "driver_cpu_minutes": self._driver_cpu_s / 60,
            "env_steps": self._steps,
        }
        limits = self.stop_conditions.items()
        return min((1 - done[name] / limit for name, limit in limits if limit), default=1.0)

    def _progress_percent(self) -> float:
        """Return the completed fraction of the run in percent, at most 100."""
        return 100 * min(1 - self._remaining_fraction(), 1.0)

    def _make_progress_bar(self) -> Any:
        """Return a progress bar.

        In SageMaker, or if stderr is not a terminal, the progress bar is disabled.
        """
        return tqdm(
            total=100,
            # The estimated remaining time must not count the iterations before a resume.
            initial=self._progress_percent(),
            desc=self.job.name,
            # A log file or a pipe cannot show a moving progress bar.
            disable=self.job.in_sagemaker or None,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed} < {remaining}{postfix}",
        )

    def _show_progress(self, bar: Any, numbers: Mapping[str, float]) -> None:
        """Show progress, reward and Elo in the progress bar or in a log line."""
        bar.n = self._progress_percent()
        parts = [
            f"{label} {numbers[column]:.1f}"
            for label, column in (
                ("reward", self.csv_columns["episode_reward_mean"]),
                ("length", self.csv_columns["episode_len_mean"]),
            )
            if not math.isnan(numbers.get(column, math.nan))
        ]
        parts.append(f"{self._steps / self._seconds:.0f} env steps/s")
        elo, low, high = (numbers.get(name, math.nan) for name in ("elo", "elo_low", "elo_high"))
        if not math.isnan(elo):
            parts.append(f"{elo:.0f} Elo ({low:.0f} to {high:.0f})")
        text = ", ".join(parts)
        bar.set_postfix_str(text)
        if self.job.in_sagemaker:
            # CloudWatch extracts its metrics from the log.
            found = {
                name: numbers.get(self.csv_columns.get(name, name), math.nan)
                for name in LOGGED_METRICS
            }
            log_line(metric_line(found | {"env_steps": self._steps}))
        elif bar.disable:
            if not progress.is_due():
                return
            log_line(f"{self.job.name} {self._progress_percent():.0f}%, {text}")
        progress.mark_shown()


def _add_env_runners(group: Any, more: int) -> None:
    """Start ``more`` additional env runners asynchronously.

    The function marks the new env runners as failed. When a new env runner responds, RLlib restores
    the state that all env runners share. Until then, RLlib sends no requests to the env runner.
    """
    group.add_workers(more)
    manager = group._worker_manager
    for runner in manager.actor_ids()[-more:]:
        manager.set_actor_state(runner, healthy=False)


def _raise_snake_errors(results: RemoteCallResults, **options: Any) -> None:
    """Raise a `SnakeError` that an env runner returned, and handle RLlib's own errors."""
    for result in results:
        if isinstance(error := result.get(), SnakeError):
            raise error
    _handle_errors(results, **options)


def original_error(error: Exception) -> Exception:
    """Return the exception of a remote call without the traceback that Ray adds to the message."""
    return getattr(error, "cause", None) or error


def _wait_for_env_runner(algorithm: Algorithm) -> bool:
    """Wait until an env runner responds, and return whether one has responded in time."""
    group = algorithm.env_runner_group
    deadline = time.monotonic() + _ENV_RUNNER_START_TIMEOUT_S
    # On a busy machine, Ray may abort the start of a process and start another process.
    while not group.foreach_env_runner(lambda runner: True, local_env_runner=False):
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
        algorithm.restore_env_runners(group)
    return True

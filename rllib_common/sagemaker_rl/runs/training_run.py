"""One training run: iterate until done or asked to stop, with curves, checkpoints and a bar."""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from tqdm import tqdm

from battlesnake_gym.common.run_dir import (
    CSV_FILE,
    FAILED,
    GAMES_DIR,
    ITERATION,
    RUNNING,
    STOPPED,
    GameRecorder,
    RecordGame,
    RunStatus,
)
from sagemaker_rl.job.job_environment import LOGGED_METRICS, JobPaths, log_line, metric_line
from sagemaker_rl.job.stop_signals import PendingSignals
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.curves import ENV_STEPS_RESULT, Curves, flatten

CSV_COLUMNS = {
    ITERATION: ITERATION,
    "time_total_s": "time_total_s",
    "env_steps": ENV_STEPS_RESULT,
    "episode_reward_mean": "env_runners/episode_return_mean",
    "episode_len_mean": "env_runners/episode_len_mean",
    "num_episodes": "env_runners/num_episodes",
    "episode_reward_min": "env_runners/episode_return_min",
    "episode_reward_max": "env_runners/episode_return_max",
    "episode_len_min": "env_runners/episode_len_min",
    "episode_len_max": "env_runners/episode_len_max",
    "loss": "loss",
    "env_steps_per_s": "env_steps_per_s",
    "transitions_per_s": "transitions_per_s",
    "cpu_percent": "cpu_percent",
}
"""Columns of ``summary_line.csv`` that every experiment has, and the RLlib results they show.

The last four are from `TrainingRun` itself: the mean of all learners' losses, turns played and
transitions trained on in a second of this iteration, by the wall's clock, and how busy the CPUs of
the driver's machine were meanwhile, with all that runs there.
"""

_TRANSITIONS = "learners/__all_modules__/num_env_steps_trained_lifetime"
"""The result that counts what was trained on."""

CPU_MINUTES = "cpu_minutes"
"""The result that counts the CPU time of training, in all processes, where an algorithm does."""

_LOW_CPU_FRACTION = 0.8
"""The part of a processor below which it is said that a training had no more."""

_LOSS = re.compile(r"learners/[^/]+/(total_loss|qf_loss)")
"""Results of the learners: where there are both, the two are equal."""

MAIN_CURVES = {
    "reward": "env_runners/episode_return_mean",
    "length": "env_runners/episode_len_mean",
    "env_steps": ENV_STEPS_RESULT,
}
"""What TensorBoard opens with, of every experiment."""

_GROWTH_CHECK_INTERVAL_S = 5.0
"""How often is looked whether machines have come."""

_ENV_RUNNER_START_TIMEOUT_S = 300.0
"""How long there may be no runner before the job ends."""

_PROGRESS_INTERVAL_S = 60.0
"""How often a line shows the progress where no bar is drawn."""


@dataclass
class TrainingRun:
    """What to train, until when, and where it goes; `train` does it."""

    config: AlgorithmConfig
    job: JobPaths
    checkpoint_metadata: dict[str, Any]
    """Goes into every checkpoint, with the iteration, the seconds and the steps so far."""
    checkpoint: Path | None
    """Where to resume from; afterwards the last checkpoint."""
    num_iters: int | None
    minutes: float | None
    cpu_minutes: float | None = None
    env_steps: int | None = None
    """When to stop, whichever comes first; earlier parts of a resumed run count."""
    csv_columns: Mapping[str, str] = field(default_factory=lambda: CSV_COLUMNS)
    main_curves: Mapping[str, str] = field(default_factory=lambda: MAIN_CURVES)
    """TensorBoard's first curves, and the results they show."""
    trust_checkpoint: bool = False
    """Whether to read whatever the checkpoint holds, programs too."""
    checkpoint_minutes: float = 1.0
    """Time between checkpoints; there is always one at the end."""
    conclude: Callable[[Any, dict[str, Any]], None] = lambda algorithm, results: None
    """Called after the last iteration with its results, which it may add to."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All hyperparameters, for `run_folder.RunStatus`."""
    max_env_runners: Callable[[], int] | None = None
    """How many runners there is room for now, in a cluster to which machines may come."""
    record: RecordGame | None = None
    """Lets the algorithm play a game to look at; see `run_folder.Games`."""
    stopped_by: int = 0
    """The signal that ended `train` early, or 0."""

    def __post_init__(self) -> None:
        then = checkpoints.read_metadata(self.checkpoint) if self.checkpoint else {}
        self._iterations = int(then.get(ITERATION, 0))
        self._seconds = float(then.get("time_total_s", 0.0))
        self._steps = int(then.get("env_steps", 0))
        self._cpu_minutes = float(then.get(CPU_MINUTES, 0.0))
        self._cpu_fraction = math.nan
        self._last_progress_at = self._last_growth_check_at = time.monotonic()
        self._began = time.time()
        # How much a run that is resumed has trained on before is not known.
        self._trained = 0.0 if self.checkpoint is None else math.nan

    @contextmanager
    def tracked_status(self) -> Iterator[None]:
        """Within, ``run.json`` says that the run is running; afterwards, what it failed of."""
        self.write_status(RUNNING)
        try:
            yield
        except Exception as error:
            with suppress(OSError):  # a full disk has no room for it
                self.write_status(FAILED, f"{type(error).__name__}: {error}")
            raise
        except BaseException:  # Ctrl-C before there was anything to lose
            self.write_status(STOPPED)
            raise

    def write_status(self, state: str, why: str = "") -> None:
        """Write ``run.json``."""
        RunStatus(
            state=state,
            started_at=self._began,
            ended_at=None if state == RUNNING else time.time(),
            reason=why,
            stop_conditions={
                "num_iters": self.num_iters,
                "minutes": self.minutes,
                "cpu_minutes": self.cpu_minutes,
                "env_steps": self.env_steps,
            },
            settings=dict(self.settings),
            identity=self.checkpoint_metadata.get("identity", {}),
            versions=_versions("battlesnake-gym", "ray", "torch"),
        ).save(self.job.output_dir)

    def summary_line(self) -> str:
        """How far it came, in one line."""
        return (
            f"{self.job.name}, {self._iterations:,} iterations and {self._steps:,} turns in "
            f"{self._seconds / 60:,.1f} minutes of training"
        )

    def cpu_contention_message(self) -> str:
        """How much of the processor a training in one process got, where that is clearly less."""
        if self.config.num_env_runners or not self._cpu_fraction < _LOW_CPU_FRACTION:
            return ""
        return (
            f"the machine was busy: training got {self._cpu_fraction:.0%} of a processor; "
            f"--cpu-minutes counts what it gets"
        )

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        return self._remaining_fraction() <= 0

    def restore_progress_csv(self) -> None:
        """Take ``summary_line.csv`` from the checkpoint, which has the rows up to that point.

        The run's own may be missing, as on a new instance, or torn, if the last process was killed.
        """
        path = self.job.output_dir / CSV_FILE
        if self.checkpoint is None:
            return
        kept = self.checkpoint / CSV_FILE
        if kept.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(kept, path)

    def train(self, caught: PendingSignals) -> None:
        """Train to the end, or until a signal is ``caught``; either way ends with a checkpoint.

        There is none before the first iteration, when a signal raises `StoppedBeforeTrainingError`.
        """
        algorithm = build(self.config)
        if hasattr(algorithm, "should_stop"):  # it can break off its iterations, which may be long
            algorithm.should_stop = lambda: bool(caught)
        try:
            if self.checkpoint is not None:
                log_line(f"resuming from {self.checkpoint}")
                with self._readable(self.checkpoint) as checkpoint:
                    restore(algorithm, self.config, checkpoint)
            folder = self.job.output_dir
            games = GameRecorder(folder / GAMES_DIR, self.record, self._iterations)
            drawn = Curves(
                folder,
                self.csv_columns,
                self._iterations,
                named=self.main_curves,
                settings=self.settings,
                intermediate=self.job.intermediate_dir,
            )
            with closing(drawn) as curves:
                caught.defer()
                self._iterate(algorithm, curves, games, caught)
                self._save(algorithm)
                self._show_game(algorithm, curves, games, last=True)
            self.stopped_by = caught[0] if caught else 0
        finally:
            algorithm.stop()

    def _readable(self, checkpoint: Path) -> AbstractContextManager[Path]:
        return (
            nullcontext(checkpoint)
            if self.trust_checkpoint
            else checkpoints.numbers_only_copy(checkpoint)
        )

    def _iterate(
        self,
        algorithm: Algorithm,
        curves: Curves,
        games: GameRecorder,
        caught: list[int],
    ) -> None:
        before, began, used = self._seconds, time.monotonic(), time.process_time()
        saved = began
        psutil.cpu_percent()  # from here on
        with self._bar() as bar:
            while not caught and not self.finished:
                self._add_env_runners(algorithm)
                try:
                    results = algorithm.train()
                except Exception:
                    # A signal to the whole process group ends the runners too.
                    if caught:
                        return
                    raise
                self._iterations = algorithm.training_iteration
                seconds = before + time.monotonic() - began
                self._measure(results, max(seconds - self._seconds, 1e-9))
                self._seconds = seconds
                self._cpu_fraction = (time.process_time() - used) / max(seconds - before, 1e-9)
                results["time_total_s"] = self._seconds
                if self._remaining_fraction() <= 0 and not caught:
                    self.conclude(algorithm, results)
                curves.add(results)
                self._show(bar, dict(flatten(results)))
                if time.monotonic() - saved > 60 * self.checkpoint_minutes:
                    self._save(algorithm)
                    self._show_game(algorithm, curves, games)
                    saved = time.monotonic()

    def _add_env_runners(self, algorithm: Algorithm) -> None:
        """Have runners on machines that have come since."""
        if (
            self.max_env_runners is None
            or time.monotonic() < self._last_growth_check_at + _GROWTH_CHECK_INTERVAL_S
        ):
            return
        self._last_growth_check_at = time.monotonic()
        room = self.max_env_runners()
        group = algorithm.env_runner_group
        if group is None:
            algorithm.set_num_runners(room)
        elif (more := room - group.num_remote_env_runners()) > 0:
            log_line(f"there is room for {more} more runners, {room} in all")
            add_env_runners(group, more)

    def _show_game(
        self, algorithm: Algorithm, curves: Curves, games: GameRecorder, *, last: bool = False
    ) -> None:
        film = games.add(algorithm, self._iterations, self._seconds, last=last)
        if film is not None:
            curves.add_animation(film, self._iterations)

    def _measure(self, results: dict[str, Any], seconds: float) -> None:
        """Add what `CSV_COLUMNS` says to the results of an iteration that took so long."""
        numbers = dict(flatten(results))
        steps = int(numbers.get(self.csv_columns["env_steps"], self._steps))
        trained = numbers.get(_TRANSITIONS, 0.0)
        losses = [value for key, value in numbers.items() if _LOSS.fullmatch(key)]
        results |= {
            "loss": sum(losses) / len(losses) if losses else math.nan,
            "env_steps_per_s": (steps - self._steps) / seconds,
            "transitions_per_s": (trained - self._trained) / seconds,
            "cpu_percent": psutil.cpu_percent(),
        }
        self._steps, self._trained = steps, trained
        self._cpu_minutes = float(numbers.get(CPU_MINUTES, 0.0))

    def _save(self, algorithm: Algorithm) -> None:
        facts = {
            **self.checkpoint_metadata,
            ITERATION: self._iterations,
            "time_total_s": round(self._seconds, 3),
            "env_steps": self._steps,
            CPU_MINUTES: round(self._cpu_minutes, 3),
        }
        curves = [self.job.output_dir / CSV_FILE]
        self.checkpoint = checkpoints.save(algorithm, self.job.checkpoint_dir, facts, curves)

    def _remaining_fraction(self) -> float:
        """What is left to do, as a part of the whole."""
        iterations = 1 - self._iterations / self.num_iters if self.num_iters else 1.0
        minutes = 1 - self._seconds / (60 * self.minutes) if self.minutes else 1.0
        spent = 1 - self._cpu_minutes / self.cpu_minutes if self.cpu_minutes else 1.0
        steps = 1 - self._steps / self.env_steps if self.env_steps else 1.0
        return min(iterations, minutes, spent, steps)

    def _percent(self) -> float:
        return 100 * min(1 - self._remaining_fraction(), 1.0)

    def _bar(self) -> Any:
        return tqdm(
            total=100,
            initial=self._percent(),  # else the time that is left counts what was done before
            desc=self.job.name,
            # A log or a pipe has no place for a bar that moves.
            disable=self.job.in_sagemaker or None,
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed} < {remaining}{postfix}",
        )

    def _show(self, bar: Any, numbers: Mapping[str, float]) -> None:
        reward, length = (
            numbers.get(self.csv_columns[name], float("nan"))
            for name in ("episode_reward_mean", "episode_len_mean")
        )
        bar.n = self._percent()
        elo = numbers.get("elo", float("nan"))
        text = (
            f"reward {reward:.1f}, length {length:.1f}, {self._steps / self._seconds:.0f} turns/s"
            + ("" if math.isnan(elo) else f", {elo:.0f} Elo")
        )
        bar.set_postfix_str(text)
        if self.job.in_sagemaker:
            # CloudWatch takes its metrics out of the log.
            found = {
                name: numbers.get(self.csv_columns.get(name, name), math.nan)
                for name in LOGGED_METRICS
            }
            log_line(metric_line(found | {"env_steps": self._steps}))
        elif bar.disable and time.monotonic() - self._last_progress_at > _PROGRESS_INTERVAL_S:
            self._last_progress_at = self._last_growth_check_at = time.monotonic()
            log_line(f"{self.job.name} {self._percent():.0f}%, {text}")


def add_env_runners(group: Any, more: int) -> None:
    """Start ``more`` runners, and wait for none.

    RLlib takes them for runners that have died: it gives them the state of the others once they
    answer, and until then asks nothing of them.
    """
    group.add_workers(more)
    manager = group._worker_manager
    for runner in manager.actor_ids()[-more:]:
        manager.set_actor_state(runner, healthy=False)


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):  # of sources beside a script there is no package
            found[name] = version(name)
    return found


def build(config: AlgorithmConfig) -> Algorithm:
    """The algorithm, with runners that answer: RLlib would restart them for ever.

    Raises:
        RuntimeError: not one of its runners has started.
    """
    none_started = RuntimeError(
        f"none of {config.num_env_runners} runners started; Ray's logs say why: "
        "/tmp/ray*/session_latest/logs/worker-*.err. With num_env_runners 0 the driver plays the "
        "games itself, and the reason is in the job's log"
    )
    try:
        algorithm = config.build_algo()
    except IndexError as error:
        # RLlib has asked them for the environment's spaces, and took the first answer.
        raise none_started from error
    group = algorithm.env_runner_group
    if group is None or config.num_env_runners == 0:
        return algorithm
    deadline = time.monotonic() + _ENV_RUNNER_START_TIMEOUT_S
    # On a busy machine Ray loses patience with a process that starts, and starts another one.
    while not group.foreach_env_runner(lambda runner: True, local_env_runner=False):
        if time.monotonic() > deadline:
            algorithm.stop()
            raise none_started
        time.sleep(1.0)
        algorithm.restore_env_runners(group)
    return algorithm


def restore(algorithm: Algorithm, config: AlgorithmConfig, checkpoint: Path) -> None:
    """Give an algorithm the state of a checkpoint; and what RLlib leaves out: the callback."""
    algorithm.restore_from_path(str(checkpoint.absolute()))
    if (loaded := config.callbacks_on_checkpoint_loaded) is not None:
        loaded(algorithm=algorithm)

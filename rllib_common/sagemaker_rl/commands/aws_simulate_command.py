"""``battlesnake-gym aws simulate``: simulate a SageMaker training job."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from battlesnake_gym.common.command_line import (
    Parser,
    natural,
    output_dir,
    positive,
    reports_errors,
)
from battlesnake_gym.common.extensions import EXTENSIONS_VARIABLE
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import PRIMARY_JOB, SECONDARY_JOB, log_line
from sagemaker_rl.job.process_environment import find_interpreter_problem, quiet_sagemaker_sdk
from sagemaker_rl.job.source_files import copy_project_sources, training_image_uri
from sagemaker_rl.job.stop_signals import handled_signals
from sagemaker_rl.simulator.local_job import parse_hyperparameters

_INSTANCE_TYPE = "ml.c5.xlarge"
"""Instance type of the jobs, which has no effect in a simulation."""

MAX_RUNTIME_S = 28 * 86_400
"""Maximum runtime of a job, in seconds, which is the longest that AWS allows."""


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym aws simulate",
        description="Simulate a SageMaker training job on this machine. Each instance is a "
        "process of the real sagemaker-training program, and moto simulates S3. Example: "
        "aws simulate train-mabs.py --instance-count 3 --hyperparameters algorithm=APEX minutes=1",
    )
    add = parser.add_argument
    add("entry_point", help="training script, such as train-mabs.py")
    add("--source-dir", type=Path, help="directory of the script (default: this project's scripts)")
    add("--dependencies", type=Path, nargs="*", default=[],
        help="more directories to copy next to the script, besides our packages")  # fmt: skip
    add("--instance-count", type=positive, default=1, help="number of instances")
    add("--secondary-instance-count", type=natural, default=0,
        help="number of instances of a secondary job that runs env runners")  # fmt: skip
    add("--hyperparameters", nargs="+", default=[], metavar="NAME=VALUE",
        help="hyperparameters as NAME=VALUE, JSON objects or .json files")  # fmt: skip
    add("--channels", nargs="+", type=_parse_channel, default=[], metavar="NAME=PATH",
        help="file or directory of each data channel, such as policy=runs/first/model")  # fmt: skip
    add("--job-dir", type=job_dir, default=Path("sagemaker-local") / "job",
        help="job directory; the job resumes from existing checkpoints")  # fmt: skip
    return parser


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Simulate a job.

    The first Ctrl-C stops all instances; later ones kill all instances.

    Returns:
        Exit status of the first failed instance, or 0.
    """
    arguments = parser().parse_args(argv)
    if problem := find_interpreter_problem():
        raise ValueError(problem)
    hyperparameters = parse_hyperparameters(arguments.hyperparameters)
    channels = dict(arguments.channels)
    if len(channels) < len(arguments.channels):
        raise HyperparameterError("--channels repeats a name; give each channel once")
    sources = copy_project_sources(arguments.dependencies, arguments.source_dir)
    if not Path(sources["source_dir"], arguments.entry_point).is_file():
        raise HyperparameterError(
            f"there is no file {arguments.entry_point!r} in "
            f"{arguments.source_dir or 'this project'}; "
            "the entry point must be a file in --source-dir"
        )
    options = {"hyperparameters": hyperparameters, **sources}
    return _run_jobs(arguments, options, channels)


def job_dir(text: str) -> Path:
    """Parse the path of a directory whose name becomes the name of a job."""
    if re.search(r"[#?]", Path(text).name):  # sagemaker-training would cut the URI of the code.
        raise argparse.ArgumentTypeError(f"must not contain # or ?, got {text!r}")
    path = output_dir(text)
    return path if path.name.strip(".") else path.resolve()


def _parse_channel(text: str) -> tuple[str, Path]:
    """Parse the name of a channel and the path of its data from ``NAME=PATH``."""
    name, _, path = text.partition("=")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not path:
        raise argparse.ArgumentTypeError(f"must be NAME=PATH, got {text!r}")
    if not Path(path).exists():
        raise argparse.ArgumentTypeError(f"{name}: there is no {path}; check its path")
    return name, Path(path)


def _run_jobs(
    arguments: argparse.Namespace, options: Mapping[str, Any], channels: Mapping[str, Path]
) -> int:
    """Run the jobs at the same time, and return the exit status of the first failed instance.

    Args:
        arguments: Options of the command.
        options: Sources and hyperparameters, as arguments of an estimator.
        channels: Path of each channel's data.
    """
    quiet_sagemaker_sdk()
    from sagemaker_rl.simulator.simulated_session import SimulatedSession

    folder = arguments.job_dir.absolute()
    parent = folder if arguments.secondary_instance_count else folder.parent
    session = SimulatedSession(parent)
    try:
        jobs = _start_jobs(session, arguments, options, channels)
        with handled_signals(_stopper(jobs)):
            _print_logs(jobs)
    finally:
        session.close()
    failures = {job.name: job.describe().get("FailureReason") for job in jobs}
    for name, reason in failures.items():
        if reason:
            log_line(f"{name} failed: {reason}")
    statuses = [status for job in jobs for status in job.exit_statuses if status]
    if statuses or any(failures.values()):
        return next(iter(statuses), 1)
    log_line(f"wrote {parent / jobs[0].name / 'model.tar.gz'}")
    return 0


def _start_jobs(
    session: Any,
    arguments: argparse.Namespace,
    options: Mapping[str, Any],
    channels: Mapping[str, Path],
) -> list[Any]:
    """Start the job, or the primary and the secondary job (see `_run_jobs`)."""
    from sagemaker.rl import RLEstimator

    inputs = {
        name: session.upload_data(str(data), key_prefix=f"channels/{name}")
        for name, data in channels.items()
    }
    own = {name: value for name, value in os.environ.items() if name == EXTENSIONS_VARIABLE}
    secondary, job_name = arguments.secondary_instance_count, arguments.job_dir.absolute().name
    instances, cluster = {job_name: arguments.instance_count}, {}
    if secondary:
        instances = {PRIMARY_JOB: arguments.instance_count, SECONDARY_JOB: secondary}
        cluster = {
            "rl_num_instances_secondary": secondary,
            "s3_bucket": session.default_bucket(),
            "s3_prefix": job_name,
        }
    for name, count in instances.items():
        role = {"rl_cluster_type": name} if secondary else {}
        RLEstimator(
            entry_point=arguments.entry_point,
            image_uri=training_image_uri(session),
            role=session.get_caller_identity_arn(),
            sagemaker_session=session,
            instance_type=_INSTANCE_TYPE,
            instance_count=count,
            max_run=MAX_RUNTIME_S,
            environment=own,
            **{**options, "hyperparameters": cluster | role | options["hyperparameters"]},
        ).fit(inputs or None, wait=False, job_name=name)
    return [session.sagemaker_client.jobs[name] for name in instances]


def _stopper(jobs: Sequence[Any]) -> Callable[[int], None]:
    """Return a signal handler that stops all jobs, and kills them when called again."""
    actions = itertools.chain(["stop"], itertools.repeat("kill"))

    def on_signal(number: int) -> None:
        action = next(actions)
        for job in jobs:
            getattr(job, action)()

    return on_signal


def _print_logs(jobs: Sequence[Any]) -> None:
    """Print the log lines of all jobs until the jobs end."""

    def print_log(job: Any) -> None:
        prefix = f"{job.name}/" if len(jobs) > 1 else ""
        for line in job.iter_log(wait=True):
            log_line(f"{prefix}{line}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(print_log, jobs))

"""``battlesnake-gym aws simulate``: simulate a SageMaker training job."""

from __future__ import annotations

from pathlib import Path

from battlesnake_gym.common.command_line import Parser, natural, output_dir, positive, print_error
from sagemaker_rl.job.source_files import copy_project_sources
from sagemaker_rl.simulator.local_job import LocalJob, parse_channels, parse_hyperparameters


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
    add("--channels", nargs="+", default=[], metavar="NAME=PATH",
        help="file or directory of each data channel, such as policy=runs/first/model")  # fmt: skip
    add("--job-dir", type=output_dir, default=Path("sagemaker-local") / "job",
        help="job directory; the job resumes from existing checkpoints")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Simulate a job.

    Returns:
        Exit status of the first failed instance, or 0.
    """
    arguments = parser().parse_args(argv)
    try:
        sources = copy_project_sources(arguments.dependencies)
        job = LocalJob(
            entry_point=arguments.entry_point,
            source_dir=arguments.source_dir or Path(sources["source_dir"]),
            dependencies=[Path(folder) for folder in sources["dependencies"]],
            hyperparameters=parse_hyperparameters(arguments.hyperparameters),
            folder=arguments.job_dir,
            instance_count=arguments.instance_count,
            secondary_instance_count=arguments.secondary_instance_count,
            channels=parse_channels(arguments.channels),
        )
        return job.fit()
    except ValueError as error:
        return print_error("battlesnake-gym aws simulate", error)

"""``battlesnake-gym aws rehearse``: a SageMaker training job rehearsed on this machine."""

from __future__ import annotations

from pathlib import Path

from battlesnake_gym.common.command_line import Parser, natural, positive, print_error, writable
from sagemaker_rl.job.source_files import PROJECT_DEPENDENCIES
from sagemaker_rl.simulator.local_job import LocalJob, read_channels, read_hyperparameters


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym aws rehearse",
        description="Run a SageMaker training job on this machine: real sagemaker-training, "
        "instances as processes, S3 by moto. Start it in the repository. Example: "
        "aws rehearse train-mabs.py --instances 3 --hyperparameters algorithm=APEX minutes=1",
    )
    add = parser.add_argument
    add("entry_point", help="the script, such as train-mabs.py")
    add("--source-dir", type=Path, default=Path("rllib_src"), help="its folder")
    add("--dependencies", type=Path, nargs="*", default=[Path(folder) for folder in PROJECT_DEPENDENCIES],
        help=f"folders to put beside it ({' '.join(PROJECT_DEPENDENCIES)})")  # fmt: skip
    add("--instances", type=positive, default=1, help="instances of the job")
    add("--secondary", type=natural, default=0,
        help="instances of a secondary job that plays for this one (none)")  # fmt: skip
    add("--hyperparameters", nargs="+", default=[], metavar="NAME=VALUE",
        help="also JSON objects and .json files")  # fmt: skip
    add("--channels", nargs="+", default=[], metavar="NAME=PATH",
        help="data channels: files or folders, such as policy=runs/first/model")  # fmt: skip
    add("--folder", type=writable, default=Path("sagemaker-local") / "job",
        help="where the job lives; its checkpoints are resumed")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Rehearse a job; the exit status is that of the first instance that failed."""
    arguments = parser().parse_args(argv)
    try:
        job = LocalJob(
            entry_point=arguments.entry_point,
            source_dir=arguments.source_dir,
            dependencies=arguments.dependencies,
            hyperparameters=read_hyperparameters(arguments.hyperparameters),
            folder=arguments.folder,
            instances=arguments.instances,
            secondary=arguments.secondary,
            channels=read_channels(arguments.channels),
        )
        return job.fit()
    except ValueError as error:
        return print_error("battlesnake-gym aws rehearse", error)

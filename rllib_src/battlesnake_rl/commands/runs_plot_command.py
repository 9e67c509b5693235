"""``battlesnake-gym runs plot``: plot the learning curves of several runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

from battlesnake_gym.common import run_dir
from battlesnake_gym.common.command_line import Parser, local_path, output_file, positive
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.run_dir import smooth
from battlesnake_gym.common.suggestions import unknown_name_message

matplotlib.use("agg")
from matplotlib import pyplot as plt

_DEFAULT_Y_COLUMNS = ("episode_reward_mean", "episode_len_mean")
"""Default columns of ``progress.csv`` for the y axes."""

_X_LABELS = {
    "time_total_s": "minutes of training",
    "cpu_minutes": "CPU minutes of training",
    "driver_cpu_minutes": "CPU minutes of the driver",
    "env_steps": "env steps",
    "training_iteration": "iterations",
}
"""Label of the x axis by column of ``progress.csv``."""


def load_progress(run: Path) -> list[dict[str, float]]:
    """Load the rows of a run's ``progress.csv``.

    Args:
        run: Run directory, directory of a simulated job, or CSV file.

    Raises:
        ValueError: If the file has no rows.
    """
    path = run
    if run.suffix != ".csv":
        # Only the head node of a simulated job has curves.
        patterns = (f"{prefix}output/data/{run_dir.CSV_FILE}" for prefix in ("*/", "primary/*/"))
        found = (path for pattern in patterns for path in sorted(run.glob(pattern)))
        path = next(found, run / run_dir.CSV_FILE)
    rows = run_dir.read_progress(path)
    if not rows:
        problem = "has no rows" if path.exists() else "does not exist"
        raise ValueError(f"{path} {problem}; give the directory of a run or of a simulated job")
    return rows


def _parse_run(word: str) -> tuple[str, Path]:
    """Split ``NAME=FOLDER`` into label and path; the default label is the folder's name."""
    name, equals, folder = word.partition("=")
    if not equals or Path(word).exists():
        return Path(word).resolve().name, local_path(word)
    return name, local_path(folder)


def plot_curves(
    runs: Sequence[tuple[str, Path]],
    target: Path,
    columns: Sequence[str],
    x_column: str,
    span: int,
    marks: Mapping[str, Mapping[str, float]] | None = None,
    x_label: str = "",
) -> None:
    """Draw one panel per column, with one line per run.

    Args:
        runs: Label and path of each run: a run directory, the directory of a simulated job, or a
            CSV file.
        target: Output file, ``.svg`` or ``.png``.
        columns: Columns of ``progress.csv`` to plot.
        x_column: Column of ``progress.csv`` for the x axis.
        span: Width of the moving average, in iterations.
        marks: Values that dashed lines mark, keyed by column and by label.
        x_label: Label of the x axis, or "" for the label of the column.

    Raises:
        ValueError: If a run has no rows or lacks a column.
    """
    tables = [(label, load_progress(run)) for label, run in runs]
    for (_, run), (_, rows) in zip(runs, tables, strict=True):
        if missing := sorted({*columns, x_column} - set(rows[0])):
            raise ValueError(f"{run}: {unknown_name_message('column', missing[0], rows[0])}")
    scale = 1 / 60 if x_column == "time_total_s" else 1.0
    figure, axes = plt.subplots(
        1, len(columns), figsize=(6 * len(columns), 4), squeeze=False, layout="constrained"
    )
    lines = []
    for axis, column in zip(axes[0], columns, strict=True):
        for _, rows in tables:
            x = [row[x_column] * scale for row in rows]
            y = [row[column] for row in rows]
            # A line through a single point is visible only with a marker.
            marker = "o" if len(rows) == 1 else ""
            (line,) = axis.plot(x, smooth(y, span), marker=marker)
            lines.append(line)
            if span > 1:
                axis.plot(x, y, color=line.get_color(), alpha=0.2, linewidth=0.8)
        for label, value in (marks or {}).get(column, {}).items():
            axis.axhline(value, color="gray", linestyle="--", linewidth=0.8)
            axis.annotate(label, (0.01, value), xycoords=("axes fraction", "data"), va="bottom")
        axis.set(xlabel=x_label or _X_LABELS[x_column], title=column)
        axis.grid(alpha=0.3)
        axis.margins(y=0.1)
    # Matplotlib omits lines whose own labels start with an underscore.
    labels = [label for label, _ in tables]
    figure.legend(lines[: len(tables)], labels, loc="outside lower center", ncols=len(columns))
    write_atomically(target, lambda path: figure.savefig(path, format=target.suffix[1:], dpi=120))
    plt.close(figure)


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym runs plot``."""
    parser = Parser(
        prog="battlesnake-gym runs plot",
        description="Plot the learning curves of several runs in one figure.",
    )
    add = parser.add_argument
    add("runs", type=_parse_run, nargs="+", metavar="[NAME=]RUN",
        help="run directory or directory of a simulated job, with its name in the plot, e.g. "
        "first=runs/first")  # fmt: skip
    add("-o", "--output", type=output_file, default=Path("curves.svg"),
        help="output file, .svg or .png")  # fmt: skip
    add("--columns", default=",".join(_DEFAULT_Y_COLUMNS),
        help="columns of progress.csv to plot, comma-separated")  # fmt: skip
    add("--x", choices=list(_X_LABELS), default="time_total_s", help="column for the x axis")
    add("--smooth", type=positive, default=5, help="width of the moving average, in iterations")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``battlesnake-gym runs plot`` and return the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if arguments.output.suffix not in (".svg", ".png"):
        options.error(f"--output must end in .svg or .png, got {arguments.output}")
    columns = arguments.columns.split(",")
    try:
        rows = [row for _, run in arguments.runs for row in load_progress(run)]
        for column in (*columns, arguments.x):
            if not any(math.isfinite(row.get(column, 0)) for row in rows):
                options.error(f"no run has a value in the column {column}; plot another column")
        plot_curves(arguments.runs, arguments.output, columns, arguments.x, arguments.smooth)
    except ValueError as error:
        options.error(str(error))
    sys.stdout.write(f"wrote {arguments.output}\n")
    return 0

"""``battlesnake-gym compare``: experiments in one table, on whatever machine they ran.

A run is a folder with a ``progress.csv``; a job's is in the ``output.tar.gz`` that it left in S3.
Folders and prefixes with several runs in them are looked through.
"""

from __future__ import annotations

import io
import math
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from battlesnake_gym.common.command_line import Parser, add_json, refuse, write_json
from battlesnake_rl.launcher.launch.job_files import bucket_and_key
from battlesnake_rl.launcher.runs.run_folder import CSV_FILE, read_progress

PROG = "battlesnake-gym compare"
OUTPUT = "output.tar.gz"

Row = dict[str, float]

NUMBERS = {
    "iterations": "training_iteration",
    "turns": "env_steps",
    "minutes": "time_total_s",
    "reward": "episode_reward_mean",
    "length": "episode_len_mean",
    "elo": "elo",
}
"""Columns of the table, and of ``progress.csv``."""

MEANS = ("reward", "length")
"""Taken over the last tenth of a run, where a single iteration says little."""


def find(place: str, s3: Any = None) -> Iterator[tuple[str, list[Row]]]:
    """The runs in a folder, or below an address in S3, by name, with their rows.

    ``s3`` is boto3's client. Raises ``ValueError`` where there is none.
    """
    found = list(_in_s3(place, s3) if place.startswith("s3://") else _in_folder(Path(place)))
    if not found:
        raise ValueError(
            f"{place} has no run: no {CSV_FILE}, and no {OUTPUT} of a job; give "
            "runs/NAME, runs, or s3://BUCKET/JOB"
        )
    yield from found


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """A run's figures in the table; NaN for what it does not have."""
    figures = {}
    last = rows[-max(1, len(rows) // 10) :]
    for name, column in NUMBERS.items():
        values = [row.get(column, math.nan) for row in (last if name in MEANS else rows)]
        known = [value for value in values if not math.isnan(value)]
        figures[name] = math.nan
        if known:
            figures[name] = sum(known) / len(known) if name in MEANS else known[-1]
    figures["minutes"] /= 60
    return figures


def table(runs: dict[str, dict[str, float]]) -> str:
    """One line a run, the best first: by Elo, or without one by reward."""
    width = max(len("run"), *map(len, runs))
    lines = [f"{'run':<{width}}" + "".join(f"{name:>12}" for name in NUMBERS)]
    for name, figures in sorted(runs.items(), key=lambda item: _rank(item[1])):
        numbers = (_shown(figures[column], column) for column in NUMBERS)
        lines.append(f"{name:<{width}}" + "".join(f"{number:>12}" for number in numbers))
    return "\n".join(lines) + "\n"


def _rank(figures: dict[str, float]) -> tuple[float, ...]:
    return tuple(
        -(-math.inf if math.isnan(figures[name]) else figures[name]) for name in ("elo", "reward")
    )


def _shown(number: float, column: str) -> str:
    if math.isnan(number):
        return "-"
    return f"{number:,.1f}" if column in (*MEANS, "minutes") else f"{number:,.0f}"


def _in_folder(folder: Path) -> Iterator[tuple[str, list[Row]]]:
    for path in sorted([*folder.glob(CSV_FILE), *folder.glob(f"*/{CSV_FILE}")]):
        if rows := read_progress(path):
            yield path.parent.name, rows


def _in_s3(address: str, s3: Any) -> Iterator[tuple[str, list[Row]]]:
    bucket, prefix = bucket_and_key(address)
    prefix += "/" if prefix and address.endswith("/") else ""  # else jobs' names may go on there
    if s3 is None:
        import boto3

        s3 = boto3.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for one in page.get("Contents", []):
            key = one["Key"]
            if key.rpartition("/")[2] not in (CSV_FILE, OUTPUT):
                continue
            data = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            if rows := _rows(_curve(data) if key.endswith(OUTPUT) else data):
                yield _name(key), rows


def _name(key: str) -> str:
    """``.../JOB/output/output.tar.gz`` is the job's, ``.../NAME/progress.csv`` that run's."""
    folders = key.split("/")[:-1]
    if key.endswith(OUTPUT) and folders[-1:] == ["output"]:
        folders.pop()
    return folders[-1] if folders else key


def _curve(packed: bytes) -> bytes:
    """``progress.csv`` in a job's output; nothing where it has none."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and Path(member.name).name == CSV_FILE:
                return file.read()
    return b""


def _rows(text: bytes) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / CSV_FILE
        path.write_bytes(text)
        return read_progress(path)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=PROG,
        description="Compare experiments in one table, whatever machine they ran on: turns, "
        "minutes, reward and length of the last tenth, Elo. The best comes first.",
        epilog="Example: battlesnake-gym compare runs s3://BUCKET/policy-training-2026-01-01",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs/NAME, a folder of runs, or an "
        "address in S3 below which jobs have left their output")  # fmt: skip
    add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Print the table; the exit status is 2 where there is no run."""
    options = parser().parse_args(argv)
    runs: dict[str, dict[str, float]] = {}
    try:
        for place in options.runs:
            for name, rows in find(place):
                twice = f"{name} ({place})" if name in runs else name
                runs[twice] = summary(rows)
    except (ValueError, OSError, ImportError, tarfile.TarError) as error:
        return refuse(PROG, error)
    if options.json:
        plain = {
            name: {key: None if math.isnan(value) else value for key, value in figures.items()}
            for name, figures in runs.items()
        }
        write_json([{"run": name} | figures for name, figures in plain.items()])
    else:
        sys.stdout.write(table(runs))
    return 0

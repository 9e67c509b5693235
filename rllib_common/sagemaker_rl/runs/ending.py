"""What a run says at its end: five lines that name the result, the files and what to do next."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from sagemaker_rl.launch.console import say
from sagemaker_rl.runs.run_file import REPORT

COMMAND = "battlesnake-gym runs"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of a run, each in one line: how good it is, its files, and the next command."""

    strength: str
    model: str
    next: str


def tell(result: str, delivered: Delivered, folder: Path) -> None:
    """Write the report into ``folder``, the run's, and print the five lines."""
    report = write_report(folder)
    say(f"result: {result}")
    say(f"strength: {delivered.strength}")
    say(f"model: {delivered.model}")
    say(f"report: {report}")
    say(f"next: {delivered.next}")


def write_report(folder: Path) -> str:
    """Write ``report.html``; returns where it is, or why it is not.

    It is made by `server.runs`, which is loaded by name: where only training's sources are, as in a
    job of an image of somebody's own, there is none.
    """
    try:
        made = importlib.import_module("server.runs.report").write(folder)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("server", "jinja2"):
            raise
        return (
            f"none, since the package {error.name!r} is not here; where this folder and the "
            f"package are, `{COMMAND} {folder} --report` writes {REPORT}"
        )
    return f"{made}, a page that shows how it went, with all settings"

"""``battlesnake-gym runs``: list training runs; serve or write reports."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    align_columns,
    print_json,
    reports_errors,
)
from battlesnake_gym.common.extras import load_module
from battlesnake_server import address_policy
from battlesnake_server.runs.run_view import DIED, RunsView, RunView, differing_settings

_DEFAULT_PORT = 8793

_SETTINGS_WIDTH = 80
"""Maximum number of characters of a run's differing settings; ``--json`` prints all."""


def _format_table(runs: Sequence[RunView]) -> str:
    """Format a table of the runs, followed by the reasons of died and damaged runs."""
    differ = differing_settings(runs)
    rows = [("run", "state", "left", "minutes", "env steps", "Elo", "differing settings")]
    rows += [
        (
            run.name,
            run.state_text,
            run.time_left_text,
            f"{run.seconds / 60:,.1f}",
            f"{run.env_steps:,}",
            str(run.strength or "-"),
            _format_settings(differ[run.path]),
        )
        for run in runs
    ]
    reasons = [
        f"{run.name} {'died' if run.state == DIED else 'is damaged'}: {run.reason}\n"
        for run in runs
        if run.reason
    ]
    return align_columns(rows) + "".join(reasons)


def _format_settings(settings: Mapping[str, str]) -> str:
    """Format the settings that a run has, with short names, on one line of limited length."""
    present = (f"{name.split('.')[-1]}={value}" for name, value in settings.items() if value != "-")
    return textwrap.shorten(", ".join(present), _SETTINGS_WIDTH, placeholder=" …")


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym runs",
        description="List all training runs in a directory: state, Elo and differing settings. "
        "Read-only; does not affect running trainings.",
        epilog="Examples: battlesnake-gym runs --web; battlesnake-gym runs runs/NAME --report",
    )
    add = parser.add_argument
    add("dir", type=Path, nargs="?", default=Path("runs"), metavar="DIR",
        help="directory of runs, or one run (default: runs)")  # fmt: skip
    add_json_option(parser)
    add("--web", action="store_true",
        help="serve a live page with the runs' curves and games")  # fmt: skip
    add("--report", action="store_true", help="write report.html into each run directory")
    address_policy.add_page_options(parser, _DEFAULT_PORT)
    add("--no-browser", action="store_true", help="do not open a browser (with --web)")
    return parser


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """List runs, serve their pages or write their reports.

    Returns:
        Exit status 0, or 2 if the directory does not exist or a file cannot be read or written.
    """
    command = parser()
    options = command.parse_args(argv)
    if options.report:
        command.reject_given(options, ["web", "json"], "with --report")
    if options.web:
        command.reject_given(options, ["json"], "with --web")
    else:
        names = (*address_policy.PAGE_OPTIONS, "no_browser")
        command.reject_given(options, names, "without --web")
    runs = RunsView(options.dir, may_be_missing=options.web)
    found = runs.refresh()
    if not found and not options.web:
        raise ValueError(
            f"{options.dir} has no runs; `battlesnake-gym train --minutes 3` creates a run"
        )
    if options.report:
        module = load_module("battlesnake_server.runs.report", "server")
        for run in found:
            sys.stdout.write(f"wrote {module.write(run.path)}\n")
    elif options.web:
        module = load_module("battlesnake_server.web.runs_page", "server")
        return int(module.serve(runs, options))
    elif options.json:
        print_json([run.to_dict() for run in found])
    else:
        sys.stdout.write(_format_table(found))
    return 0

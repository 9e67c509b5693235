"""``battlesnake-gym runs``: all training runs in a table, on a page, or one as a report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    align_columns,
    port,
    print_error,
    write_json,
)
from battlesnake_gym.common.extras import load_module
from battlesnake_server.runs.run_view import DIED, Run, Runs, differing, left, state

_PROG = "battlesnake-gym runs"
_DEFAULT_PORT = 8793


def table(runs: Sequence[Run]) -> str:
    """One line a run, the one that was written to last first."""
    differ = differing(runs)
    rows = [("run", "state", "left", "minutes", "turns", "Elo", "what differs")]
    rows += [
        (
            run.name,
            state(run),
            left(run),
            f"{run.seconds / 60:,.1f}",
            f"{run.turns:,}",
            str(run.strength or "-"),
            ", ".join(f"{name}={value}" for name, value in differ[run.path].items()),
        )
        for run in runs
    ]
    died = [f"{run.name} died: {run.reason}\n" for run in runs if run.state == DIED]
    return align_columns(rows) + "".join(died)


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="Show all training runs in a folder: what differs in their settings, their "
        "state, how strong they are. They are only looked at: what runs goes on.",
        epilog="Examples: battlesnake-gym runs --web; battlesnake-gym runs runs/NAME --report",
    )
    add = parser.add_argument
    add("folder", type=Path, nargs="?", default=Path("runs"), metavar="FOLDER",
        help="a folder of runs, or one of them (default: runs)")  # fmt: skip
    add_json(parser)
    add("--web", action="store_true", help="show them on a page, with curves, live")
    add("--report", action="store_true", help="write report.html into each of them")
    add("--port", type=port, default=_DEFAULT_PORT, help="with --web; 0: any free one")
    add("--no-browser", action="store_true", help="with --web: open no browser")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Show runs; returns 2 where there is no such folder."""
    options = parser().parse_args(argv)
    try:
        runs = Runs(options.folder)
        found = runs.refresh()
        if not found and not options.web:
            raise ValueError(
                f"{options.folder} has no runs; `battlesnake-gym train --minutes 3` makes one in "
                "runs"
            )
        if options.report:
            module = load_module("battlesnake_server.runs.report", "server")
            for run in found:
                sys.stdout.write(f"wrote {module.write(run.path)}\n")
        elif options.web:
            module = load_module("battlesnake_server.web.runs_page", "server")
            return int(module.serve(runs, options.port, open_browser=not options.no_browser))
        elif options.json:
            write_json([run.to_json() for run in found])
        else:
            sys.stdout.write(table(found))
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    return 0

"""Run the notebooks and store their outputs: `make notebooks`.

Each notebook runs in a copy of the sources, so a run changes only outputs in the repository. The
script removes widgets that need a kernel, execution counts, overwritten progress bars and absolute
paths from the outputs. `--check` runs no notebook; it lists the notebooks whose code changed since
their last run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from shutil import copy
from typing import Any

from battlesnake_gym.common.files import write_atomically

_HERE = Path(__file__).parents[1]
_NOTEBOOKS = _HERE / "notebooks"
_SOURCES = ("battlesnake_gym", "heuristics", "rllib_src", "rllib_common", "docs")
"""Folders that the notebooks import or send to training jobs."""

_SECONDS_A_CELL = 3600
MAX_NOTEBOOK_BYTES = 300_000
"""Maximum size of a notebook with its outputs, in bytes."""

Notebook = dict[str, Any]


def main() -> None:
    """Run the given notebooks, or all notebooks if none is given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", type=Path, nargs="*", help="notebooks to run (default: all)")
    parser.add_argument(
        "--check", action="store_true", help="list the notebooks that must run again"
    )
    arguments = parser.parse_args()
    paths = [path.absolute() for path in arguments.notebooks] or sorted(_NOTEBOOKS.glob("*.ipynb"))
    if arguments.check:
        if old := [path.stem for path in paths if not is_current(json.loads(path.read_text()))]:
            sys.exit(f"code changed since the last run; run `make notebooks`: {', '.join(old)}")
    else:
        run_all(paths)


def is_current(notebook: Notebook) -> bool:
    """Return whether the outputs belong to the current code.

    A notebook without outputs counts as current.
    """
    shown = any(cell["outputs"] for cell in code_cells(notebook))
    return not shown or bool(notebook["metadata"].get("outputs_of") == digest(notebook))


def digest(notebook: Notebook) -> str:
    """Return a hash of the notebook's code."""
    code = ["".join(cell["source"]) for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def code_cells(notebook: Notebook) -> Iterable[Notebook]:
    """Return the code cells of a notebook."""
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def run_all(paths: Iterable[Path]) -> None:
    """Run the notebooks in one folder.

    Later notebooks use earlier results.
    """
    with tempfile.TemporaryDirectory() as root:
        for name in _SOURCES:
            (Path(root) / name).symlink_to(_HERE / name)
        folder = Path(root) / "notebooks"
        folder.mkdir()
        for module in _NOTEBOOKS.glob("*.py"):
            copy(module, folder)
        (folder / "my_snake.py").unlink(missing_ok=True)  # a notebook writes this file
        for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            os.environ[name] = str(folder / ".jupyter")  # ignores the user's settings
        watch_commands(folder / ".jupyter")
        for path in paths:
            notebook = run(json.loads(path.read_text()), folder)
            written = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            size = len(written.encode())
            if size > MAX_NOTEBOOK_BYTES:
                sys.exit(f"{path.name} would have {size} bytes, over {MAX_NOTEBOOK_BYTES}")
            write_atomically(path, partial(Path.write_text, data=written))
            print(f"{path.name}: {len(written.encode())} bytes", flush=True)  # noqa: T201


_RAISE = """
import subprocess

shell = get_ipython()
run_command = shell.system


def system(command):
    run_command(command)
    if code := shell.user_ns["_exit_code"]:
        raise subprocess.CalledProcessError(code, command)


shell.system = system
"""
"""IPython startup code that turns a failed shell command into an error."""


def watch_commands(settings: Path) -> None:
    """Configure kernels of ``settings`` to raise errors for failed shell commands."""
    startup = settings / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    (startup / "commands.py").write_text(_RAISE)


def run(notebook: Notebook, folder: Path) -> Notebook:
    """Run a notebook in ``folder`` and return the notebook with its outputs.

    The error of a failed cell is raised.
    """
    import nbformat
    from nbclient import NotebookClient

    ran = NotebookClient(
        nbformat.reads(json.dumps(notebook), as_version=4),  # type: ignore[no-untyped-call]
        timeout=_SECONDS_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()
    lines = nbformat.writes(ran)  # type: ignore[no-untyped-call]
    result: Notebook = json.loads(lines)
    result["metadata"] = {**notebook["metadata"], "outputs_of": digest(notebook)}
    for cell in code_cells(result):
        cell["metadata"].pop("execution", None)
        cell["execution_count"] = None
        cell["outputs"] = [clean_output(output, folder) for output in cell["outputs"]]
    return result


def clean_output(output: Notebook, folder: Path) -> Notebook:
    """Return an output without data of this run, this machine or a live kernel."""
    if "execution_count" in output:
        output["execution_count"] = None
    if "text" in output:
        output["text"] = split_lines(
            visible_text(replace_local_paths("".join(output["text"]), folder))
        )
    for kind, value in list(output.get("data", {}).items()):
        if kind == "application/vnd.jupyter.widget-view+json":
            del output["data"][kind]
        elif kind.startswith("text/"):
            output["data"][kind] = split_lines(replace_local_paths("".join(value), folder))
    return output


def replace_local_paths(text: str, folder: Path) -> str:
    """Return ``text`` with the folders of this machine replaced by portable names."""
    places = {f"{folder}/": "", str(folder): ".", str(folder.parent): ".."}
    places |= {sys.prefix: ".venv", str(_HERE): "..", str(Path.home()): "~"}
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def visible_text(text: str) -> str:
    """Return ``text`` as a terminal finally shows it: the last version of each line.

    The ANSI colors of Ray's process names are removed, because they are too pale on paper.
    """
    plain = re.sub(r"\x1b\[3\dm(\(.*?\))\x1b\[0m", r"\1", text.replace("\r\n", "\n"))
    return re.sub(r"^.*\r(?=.)", "", plain, flags=re.MULTILINE)


def split_lines(text: str) -> list[str]:
    """Return ``text`` as a list with one string per line, as stored in notebooks."""
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main()

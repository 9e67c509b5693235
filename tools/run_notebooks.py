"""Run the notebooks and store their outputs: `make notebooks`.

Each notebook runs in a copy of the sources, so a run changes only the outputs of the notebooks in
the repository. The script removes four things from the outputs: widgets that need a kernel,
execution counts, overwritten progress bars and absolute paths.
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

_ROOT = Path(__file__).parents[1]
_NOTEBOOK_FOLDER = _ROOT / "notebooks"
_SOURCE_FOLDERS = ("battlesnake_gym", "heuristics", "rllib_src", "rllib_common", "docs")
"""Folders that the notebooks import or send to training jobs."""

_SETTINGS_FOLDER = ".jupyter"
_CELL_TIMEOUT_S = 3600
MAX_NOTEBOOK_BYTES = 300_000
"""Maximum size of a notebook with its outputs, in bytes."""

Notebook = dict[str, Any]


def main() -> None:
    """Run the given notebooks, or all notebooks if none is given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", type=Path, nargs="*", help="notebooks to run (default: all)")
    paths = parser.parse_args().notebooks or sorted(_NOTEBOOK_FOLDER.glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as root:
        folder = prepare_folder(Path(root))
        for path in paths:
            notebook = run_notebook(json.loads(path.read_text()), folder)
            written = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
            size = len(written.encode())
            if size > MAX_NOTEBOOK_BYTES:
                sys.exit(
                    f"{path.name} would have {size} bytes, the limit is "
                    f"{MAX_NOTEBOOK_BYTES}; shorten the outputs"
                )
            write_atomically(path, partial(Path.write_text, data=written))
            print(f"{path.name}: {size} bytes", flush=True)


def is_current(notebook: Notebook) -> bool:
    """Return whether the stored outputs belong to the current code.

    A notebook without outputs counts as current.
    """
    shown = any(cell["outputs"] for cell in _code_cells(notebook))
    return not shown or bool(notebook["metadata"].get("outputs_of") == _code_hash(notebook))


def _code_hash(notebook: Notebook) -> str:
    """Return a hash of the notebook's code.

    The hash is the first 16 hexadecimal digits of the SHA-256 hash.
    """
    code = ["".join(cell["source"]) for cell in _code_cells(notebook)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def _code_cells(notebook: Notebook) -> Iterable[Notebook]:
    """Return the code cells of a notebook."""
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def prepare_folder(root: Path) -> Path:
    """Prepare the folder ``notebooks`` in ``root``, in which the notebooks run.

    Later notebooks read files of earlier notebooks.

    Returns:
        The path of the folder.
    """
    for name in _SOURCE_FOLDERS:
        (root / name).symlink_to(_ROOT / name)
    folder = root / "notebooks"
    startup = folder / _SETTINGS_FOLDER / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "commands.py").write_text(_STARTUP_CODE)
    for module in _NOTEBOOK_FOLDER.glob("*.py"):
        copy(module, folder)
    (folder / "my_snake.py").unlink(missing_ok=True)  # A notebook writes this file.
    return folder


_STARTUP_CODE = """
import subprocess

shell = get_ipython()
run_command = shell.system


def system(command):
    run_command(command)
    if code := shell.user_ns["_exit_code"]:
        raise subprocess.CalledProcessError(code, command)


shell.system = system
"""
"""IPython startup code that raises an error if a shell command fails."""


def run_notebook(notebook: Notebook, folder: Path) -> Notebook:
    """Run a notebook in a folder of `prepare_folder`, and return the notebook with its outputs.

    Raises:
        CellExecutionError: If a cell fails.
    """
    import nbformat
    from nbclient import NotebookClient

    # The kernel ignores the settings of the user.
    settings = dict.fromkeys(
        ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"), str(folder / _SETTINGS_FOLDER)
    )
    ran = NotebookClient(
        nbformat.reads(json.dumps(notebook), as_version=4),  # type: ignore[no-untyped-call]
        timeout=_CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        coalesce_streams=True,
    ).execute(env=os.environ | settings)
    lines = nbformat.writes(ran)  # type: ignore[no-untyped-call]
    result: Notebook = json.loads(lines)
    result["metadata"] = {**notebook["metadata"], "outputs_of": _code_hash(notebook)}
    for cell in _code_cells(result):
        cell["metadata"].pop("execution", None)
        cell["execution_count"] = None
        cell["outputs"] = [_clean_output(output, folder) for output in cell["outputs"]]
    return result


def _clean_output(output: Notebook, folder: Path) -> Notebook:
    """Return an output without execution count, widget state and absolute paths."""
    if "execution_count" in output:
        output["execution_count"] = None
    if "text" in output:
        text = _visible_text(_replace_local_paths("".join(output["text"]), folder))
        output["text"] = text.splitlines(keepends=True)
    for kind, value in list(output.get("data", {}).items()):
        if kind == "application/vnd.jupyter.widget-view+json":
            del output["data"][kind]
        elif kind.startswith("text/"):
            text = _replace_local_paths("".join(value), folder)
            output["data"][kind] = text.splitlines(keepends=True)
    return output


def _replace_local_paths(text: str, folder: Path) -> str:
    """Replace the directories of this machine in ``text`` by portable names."""
    places = {f"{folder}/": "", str(folder): ".", str(folder.parent): ".."}
    places |= {sys.prefix: ".venv", str(_ROOT): "..", str(Path.home()): "~"}
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def _visible_text(text: str) -> str:
    """Return the last version of each line in ``text``.

    A terminal displays only this version. The function removes the ANSI colors of Ray's process
    names, because the colors are too pale on paper.
    """
    plain = re.sub(r"\x1b\[3\dm(\(.*?\))\x1b\[0m", r"\1", text.replace("\r\n", "\n"))
    return re.sub(r"^.*\r(?=.)", "", plain, flags=re.MULTILINE)


if __name__ == "__main__":
    main()

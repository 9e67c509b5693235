"""``python -m battlesnake_server.aws.layer``: a live snake and its packages as an AWS Lambda layer.

The packages are those of ``deployment/server/requirements-lambda.txt``, compared with their hashes
and fetched for Lambda's system, whatever this one is; our own are those of this installation.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_gym.common.files import write_atomically, zip_bytes
from battlesnake_server.aws import deployment_file

_PYTHON = "3.13"
"""Lambda's Python; its system is Amazon Linux 2023. With Python 3.11 comes an older one, on which
onnxruntime does not start."""

_NEWEST_GLIBC = 34
"""Of Amazon Linux 2023, as in 2.34."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")

_OURS = ("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server")

_LIMIT = 250 << 20
"""Bytes that Lambda allows a function and its layers unpacked."""

_NOT_ASKED_FOR = re.compile(r"/(tests?|testing|f2py|include|typing/tests|bin)/|\.pyi$")
"""What packages bring along and a playing snake never imports."""


class LayerError(ValueError):
    """The layer cannot be built here; says what to do."""


def build(path: Path) -> int:
    """Write the layer to ``path``; returns its size unpacked, in bytes.

    Raises `LayerError` where a package cannot be fetched, or ours are not compiled for Lambda.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, data in _ours():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        _fetch(folder)
        _add_bytecode(folder)
        files = {name: file.read_bytes() for name, file in _tree(folder)}
    size = sum(map(len, files.values()))
    if size > _LIMIT:
        raise LayerError(f"the layer has {size >> 20} MB unpacked, and Lambda takes {_LIMIT >> 20}")
    named = sorted((f"python/{name}", data) for name, data in files.items())
    write_atomically(path, lambda part: part.write_bytes(zip_bytes(named, 0o755)))
    return size


def _fetch(folder: Path) -> None:
    """Install the packages for Lambda into ``folder``."""
    wanted = deployment_file("server/requirements-lambda.txt")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(folder), "--python-version", _PYTHON, "--only-binary", ":all:"]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command += ["--no-deps", "--no-compile", "--require-hashes", "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = (said or done.stderr.splitlines() or ["no word"])[-1].removeprefix("ERROR: ")
        raise LayerError(f"pip could not fetch the packages for Lambda: {why}")


def _add_bytecode(folder: Path) -> None:
    """Compile for Lambda's Python, if it is here: Lambda itself would do it at each cold start."""
    name = f"python{_PYTHON}"
    here = f"{sys.version_info[0]}.{sys.version_info[1]}" == _PYTHON
    python = sys.executable if here else shutil.which(name)
    mode = ["--invalidation-mode", "unchecked-hash"]
    command = [python or name, "-m", "compileall", "-q", *mode, "-s", str(folder), str(folder)]
    if python is None or subprocess.run(command, capture_output=True, check=False).returncode:
        sys.stderr.write(
            f"there is no {name} here, so the layer has no bytecode: cold starts take 0.7 s of CPU "
            "time longer\n"
        )


def _ours() -> Iterator[tuple[str, bytes]]:
    """The files of our packages."""
    compiled = 0
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path, file in _tree(root):
            if "__pycache__" in path:
                continue
            data = file.read_bytes()
            if path.endswith(".so"):
                _check_compiled(file, data)
                compiled += 1
            yield f"{name}/{path}", data
    if not compiled:
        raise LayerError(
            "the search is not compiled here; install with a C compiler, on Linux on x86-64 "
            "(AWS CloudShell is one)"
        )


def _check_compiled(file: Path, data: bytes) -> None:
    """Raise `LayerError` where a compiled part would not start on Lambda."""
    if data[:5] != b"\x7fELF\x02" or data[18:20] != b"\x3e\x00":
        raise LayerError(
            f"{file.name} is not compiled for Linux on x86-64; deploy from there (AWS CloudShell), "
            "or take container.yaml"
        )
    newest = max(map(int, re.findall(rb"GLIBC_2\.(\d+)", data)), default=0)
    if newest > _NEWEST_GLIBC:
        raise LayerError(
            f"{file.name} needs glibc 2.{newest} and Lambda has 2.{_NEWEST_GLIBC}; deploy from an "
            "older Linux (AWS CloudShell), or take container.yaml"
        )


def _tree(root: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.is_file() and not _NOT_ASKED_FOR.search(f"/{path}"):
            yield path, file


def main(argv: list[str] | None = None) -> int:
    """Build the layer and print its size."""
    parser = Parser(
        prog="python -m battlesnake_server.aws.layer",
        description="Build the layer that `battlesnake-gym aws deploy --layer` takes.",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("layer.zip"))
    options: argparse.Namespace = parser.parse_args(argv)
    try:
        size = build(options.output)
    except (ValueError, OSError) as error:
        return print_error(parser.prog, error)
    packed = options.output.stat().st_size
    sys.stdout.write(f"{options.output}: {packed >> 20} MB, {size >> 20} MB unpacked\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Builder of the AWS Lambda layer for a live snake.

``python -m battlesnake_server.aws.layer`` builds the layer. pip downloads the packages of
``deployment/server/requirements-lambda.txt`` for Lambda's platform and verifies their hashes. This
project's packages are copied from this installation.
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

from battlesnake_gym.common.command_line import Parser, output_file, print_error
from battlesnake_gym.common.files import create_zip, write_atomically
from battlesnake_server.aws import find_deployment_file

_PYTHON_VERSION = "3.13"
"""Python version of the Lambda runtime on Amazon Linux 2023.

The Lambda runtime of Python 3.11 uses an older system, on which onnxruntime does not start.
"""

_GLIBC_MINOR = 34
"""Minor version of glibc on Amazon Linux 2023: 2.34."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")

_PROJECT_PACKAGES = ("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server")

_MAX_UNPACKED_BYTES = 250 << 20
"""Maximum unpacked size of a function and its layers on Lambda, in bytes."""

_UNUSED_FILE_PATTERN = re.compile(r"/(tests?|testing|f2py|include|typing/tests|bin)/|\.pyi$")
"""Pattern of package files that a live snake never imports."""


def build_layer(path: Path) -> int:
    """Build the layer as a zip file.

    Args:
        path: File to write.

    Returns:
        Unpacked size in bytes.

    Raises:
        ValueError: If a package cannot be downloaded, or this project's packages are not compiled
            for Lambda.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, data in _iter_project_files():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        _install_packages(folder)
        _add_bytecode(folder)
        files = {name: file.read_bytes() for name, file in _iter_files(folder)}
    size = sum(map(len, files.values()))
    if size > _MAX_UNPACKED_BYTES:
        raise ValueError(
            f"the layer has {size >> 20} MB unpacked; Lambda permits {_MAX_UNPACKED_BYTES >> 20} MB"
        )
    named = sorted((f"python/{name}", data) for name, data in files.items())
    write_atomically(path, lambda part: part.write_bytes(create_zip(named, 0o755)))
    return size


def _install_packages(folder: Path) -> None:
    """Install the packages for Lambda into ``folder``."""
    wanted = find_deployment_file("server/requirements-lambda.txt")
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", f"--target={folder}"]
    command += ["--disable-pip-version-check", "--only-binary=:all:"]
    command += [f"--python-version={_PYTHON_VERSION}"]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command += ["--no-deps", "--no-compile", "--require-hashes", "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or done.stderr.splitlines() or ["no output"])[-1].removeprefix("ERROR: ")
        raise ValueError(f"pip could not download the packages for Lambda: {reason}")


def _add_bytecode(folder: Path) -> None:
    """Compile the layer to bytecode if Lambda's Python version is installed.

    Without bytecode, Lambda compiles the layer at each cold start.
    """
    name = f"python{_PYTHON_VERSION}"
    here = f"{sys.version_info[0]}.{sys.version_info[1]}" == _PYTHON_VERSION
    python = sys.executable if here else shutil.which(name)
    mode = ["--invalidation-mode", "unchecked-hash"]
    command = [python or name, "-m", "compileall", "-q", *mode, "-s", str(folder), str(folder)]
    if python is None or subprocess.run(command, capture_output=True, check=False).returncode:
        sys.stderr.write(
            f"{name} is not installed, so the layer has no bytecode; each cold start uses 0.7 s "
            "more CPU time\n"
        )


def _iter_project_files() -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of every file in this project's packages."""
    compiled = 0
    for name in _PROJECT_PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for path, file in _iter_files(root):
            if "__pycache__" in path:
                continue
            data = file.read_bytes()
            if path.endswith(".so"):
                _check_compiled(file, data)
                compiled += 1
            yield f"{name}/{path}", data
    if not compiled:
        raise ValueError(
            "the search is not compiled; reinstall with a C compiler on Linux on x86-64, for "
            "example in AWS CloudShell"
        )


def _check_compiled(file: Path, data: bytes) -> None:
    """Raise ``ValueError`` if Lambda cannot load an extension module."""
    if data[:5] != b"\x7fELF\x02" or data[18:20] != b"\x3e\x00":
        raise ValueError(
            f"{file.name} is not compiled for Linux on x86-64; deploy from such a machine (for "
            "example AWS CloudShell), or use container.yaml"
        )
    newest = max(map(int, re.findall(rb"GLIBC_2\.(\d+)", data)), default=0)
    if newest > _GLIBC_MINOR:
        raise ValueError(
            f"{file.name} needs glibc 2.{newest} and Lambda has 2.{_GLIBC_MINOR}; deploy from an "
            "older Linux (AWS CloudShell), or use container.yaml"
        )


def _iter_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative path and the file of every used file below ``root``."""
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.is_file() and not _UNUSED_FILE_PATTERN.search(f"/{path}"):
            yield path, file


def main(argv: list[str] | None = None) -> int:
    """Build the layer and print its size."""
    parser = Parser(
        prog="python -m battlesnake_server.aws.layer",
        description="Build the layer for `battlesnake-gym aws deploy --layer`.",
    )
    parser.add_argument(
        "-o", "--output", type=output_file, default=Path("layer.zip"), help="zip file to write"
    )
    options: argparse.Namespace = parser.parse_args(argv)
    try:
        size = build_layer(options.output)
    except (ValueError, OSError) as error:
        return print_error(parser.prog, error)
    packed = options.output.stat().st_size
    sys.stdout.write(f"{options.output}: {packed >> 20} MB, {size >> 20} MB unpacked\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

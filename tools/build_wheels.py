"""Build the source distribution and one wheel per platform: ``make wheels``.

Zig's C compiler cross-compiles the extensions. The compiler contains the C libraries of all
platforms. A wheel supports Python 3.11 to 3.14. The build does not require Python for the target
platform, because the modules use only the stable ABI. The names of the stable ABI come from the
headers of the running Python and from `abi3info`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from abi3info import DATAS, FUNCTIONS

_ROOT = Path(__file__).parents[1]
_ZIG_COMMAND = (sys.executable, "-m", "ziglang")

_ZIG_TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""Zig target for each platform tag, with the oldest supported system version."""

_WINDOWS_CONFIG = """\
#define MS_WIN64
#define MS_WINDOWS
#define NT_THREADS
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 4
"""
"""Macros that Python's headers need on Windows."""


def main() -> None:
    """Build all wheels into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="output directory")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        plain = _build_pure_wheel(folder, Path(scratch))
        headers = _write_windows_headers(Path(scratch))
        for platform in _ZIG_TARGETS:
            _compile_extensions(plain, platform, headers)
            _pack_wheel(plain, platform, folder)


def _build_pure_wheel(folder: Path, scratch: Path) -> Path:
    """Build the source distribution and a wheel without compiled modules.

    Returns:
        The directory of the unpacked wheel.
    """
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", scratch / "plain", _ROOT)
    subprocess.run(build, check=True, env=os.environ | {"CC": "false"}, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = (scratch / "plain").glob("*.gz"), (scratch / "plain").glob("*.whl")
    shutil.copy(sdist, folder)
    subprocess.run((sys.executable, "-m", "wheel", "unpack", "-d", scratch, wheel), check=True)
    (unpacked,) = scratch.glob("battlesnake_gym-*")
    return unpacked


def _write_windows_headers(scratch: Path) -> Path:
    """Write Python's headers for Windows, and an import library for ``python3.dll``.

    Returns:
        The directory of the headers and of the library.
    """
    headers = scratch / "include"
    shutil.copytree(sysconfig.get_path("include"), headers)
    (headers / "pyconfig.h").write_text(_WINDOWS_CONFIG)
    names = [one.name for one in FUNCTIONS] + [f"{one.name} DATA" for one in DATAS]
    (headers / "python3.def").write_text("LIBRARY python3.dll\nEXPORTS\n" + "\n".join(names))
    words = ("dlltool", "-m", "i386:x86-64", "-d", headers / "python3.def")
    subprocess.run((*_ZIG_COMMAND, *words, "-l", headers / "python3.lib"), check=True)
    return headers


def _compile_extensions(unpacked: Path, platform: str, windows: Path) -> None:
    """Compile the extensions for a platform into the unpacked wheel.

    The function deletes the extensions of the previous platform first.
    """
    on_windows = platform.startswith("win")
    for old in (*unpacked.rglob("*.abi3.so"), *unpacked.rglob("*.pyd")):
        old.unlink()
    importlib.import_module("setuptools")  # The import of setuptools provides distutils.
    distutils = importlib.import_module("distutils.core")
    for part in distutils.run_setup(str(_ROOT / "setup.py"), stop_after="init").ext_modules:
        target = unpacked / part.name.replace(".", "/")
        target = target.with_suffix(".pyd" if on_windows else ".abi3.so")
        include = windows if on_windows else sysconfig.get_path("include")
        command = [*_ZIG_COMMAND, "cc", "-target", _ZIG_TARGETS[platform]]
        command += ["-shared", "-s", "-o", str(target)]
        command += [f"-I{folder}" for folder in (include, *part.include_dirs)]
        command += [f"-D{name}={value}" for name, value in part.define_macros]
        command += [*part.extra_compile_args, *part.sources]
        if on_windows:
            command.append(str(windows / "python3.lib"))
        if platform.startswith("macosx"):
            command += ["-undefined", "dynamic_lookup"]
        subprocess.run(command, check=True, cwd=_ROOT)
        for rest in (*target.parent.glob("*.lib"), *target.parent.glob("*.pdb")):
            rest.unlink()


def _pack_wheel(unpacked: Path, platform: str, folder: Path) -> None:
    """Pack the unpacked wheel into a wheel file for one platform."""
    (facts,) = unpacked.glob("*.dist-info/WHEEL")
    kept = [line for line in facts.read_text().splitlines() if line and line[:4] != "Tag:"]
    facts.write_text("\n".join([*kept, f"Tag: cp311-abi3-{platform}", ""]))
    subprocess.run((sys.executable, "-m", "wheel", "pack", "-d", folder, unpacked), check=True)


if __name__ == "__main__":
    main()

"""The wheel, built as a release would be, and an environment that has nothing but it."""

import fcntl
import os
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]


def tracked() -> list[str]:
    """The files of the project, relative to its root."""
    words = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    listed = run("git", "-C", ROOT, *words, check=True)
    names = listed.stdout.split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's files in a folder of their own, as a fresh clone has them."""
    folder = tmp_path_factory.mktemp("clone") / "battlesnake"
    for name in tracked():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod((ROOT / name).stat().st_mode)
    return folder


@dataclass(frozen=True)
class Built:
    """What `python -m build` leaves."""

    sdist: Path
    wheel: Path
    log: str


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that all worker processes share; the first one makes it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder


@pytest.fixture(scope="session")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that is built from nothing else.

    Its C files are compiled without optimization, which takes a tenth of the time.
    """

    def build(folder: Path) -> None:
        compiler = tmp_path_factory.mktemp("compiler") / "cc"
        compiler.write_text(f'#!/bin/sh\nexec {sysconfig.get_config_var("CC")} "$@" -O0\n')
        compiler.chmod(0o755)
        words = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, clone)
        done = run(*words, env=os.environ | {"CC": str(compiler)})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (folder / "log").write_text(done.stdout + done.stderr)

    folder = make_once(tmp_path_factory, "dist", build)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel, (folder / "log").read_text())


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel in it; its packages are those of the tests."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that make it the one that a shell uses."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        return kept | {"PATH": path, "VIRTUAL_ENV": str(self.folder)}


@pytest.fixture(scope="session")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel in an environment outside the checkout.

    Packages are not installed a second time: a .pth file names the folders they are in. Python
    reads no .pth file that lies there, and so nothing of the checkout is importable.
    """

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        packages = [path for path in sys.path if path.endswith("-packages")]
        (site / "packages.pth").write_text("\n".join(packages) + "\n")
        words = ("install", "--quiet", "--no-deps", "--disable-pip-version-check")
        pip = (sys.executable, "-m", "pip", "--python", Environment(folder).python)
        run(*pip, *words, "--force-reinstall", built.wheel, check=True)

    return Environment(make_once(tmp_path_factory, "environment", install))

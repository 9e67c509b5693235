"""The wheel, built as a release would be, and an environment that has nothing but it."""

from __future__ import annotations

import os
import sys
import venv
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


@pytest.fixture(scope="session")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution, and the wheel that is built from nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, clone)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel, done.stdout + done.stderr)


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
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    one = Environment(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("-packages")]
    (site / "packages.pth").write_text("\n".join(packages) + "\n")
    install = ("install", "--quiet", "--no-deps", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "--python", one.python)
    run(*pip, *install, "--force-reinstall", built.wheel, check=True)
    return one

"""Packages of 2022 and older whose metadata require numpy<2, although they run with numpy 2.

pip cannot resolve these packages together with the packages of this project. They are therefore
installed without their dependencies, by ``make`` and, in a SageMaker job, by the training script::

    python -m sagemaker_rl.job.pinned_wheels mxnet
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.job_environment import log_line


@dataclass(frozen=True, slots=True)
class _PinnedWheels:
    """A package, and the wheels that provide it.

    Attributes:
        module: Name of the imported module.
        target: Target of ``make`` that installs the wheels.
        requirements: Requirements of the wheels for pip.
        pythons: Minor versions of Python 3 that the wheels support.
    """

    module: str
    target: str
    requirements: tuple[str, ...]
    pythons: tuple[int, ...]

    def pip_command(self, python: str) -> list[str]:
        """Return the command that installs the wheels with the interpreter ``python``."""
        options = ("--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "-q")
        return [python, "-m", "pip", "install", *options, *self.requirements]

    def unavailable_reason(self) -> str:
        """Return the reason why this machine cannot have the package, or ""."""
        machine = sys.platform, platform.machine()
        if machine == ("linux", "x86_64") and sys.version_info.minor in self.pythons:
            return ""
        versions = " or ".join(f"3.{minor}" for minor in self.pythons)
        return f"{self.module} needs Linux on x86-64 and Python {versions}"

    def missing_reason(self) -> str:
        """Return the reason why the package cannot be imported, with the remedy, or ""."""
        if find_spec(self.module) is not None:
            return ""
        return self.unavailable_reason() or (
            f"{self.module} is not installed; run `make {self.target}` in a clone, or "
            f"{' '.join(self.pip_command('python'))}"
        )

    def ensure_installed(self, user: str) -> None:
        """Check that the package is installed; a SageMaker job installs a missing package.

        Args:
            user: Setting that needs the package, for error messages.

        Raises:
            HyperparameterError: If the package is missing.
        """
        reason = self.missing_reason()
        if reason and "SM_MODEL_DIR" in os.environ and not self.unavailable_reason():
            log_line(f"installing {' '.join(self.requirements)}")
            done = subprocess.run(self.pip_command(sys.executable), capture_output=True, text=True)
            importlib.invalidate_caches()
            lines = done.stderr.strip().splitlines()
            reason = f"pip failed: {lines[-1] if lines else ''}" if done.returncode else ""
        if reason:
            raise HyperparameterError(f"{user} needs the package {self.module}: {reason}")


MXNET = _PinnedWheels("mxnet", "mxnet", ("mxnet==1.9.1", "graphviz==0.8.4"), (11,))
PROCGEN_ORIGINAL = _PinnedWheels(
    "procgen", "procgen-original", ("procgen-mirror==0.10.7", "gym3==0.3.3"), (11, 12)
)


def main(argv: list[str] | None = None) -> int:
    """Install the wheels of a ``make`` target, or print why this machine cannot have them.

    Returns:
        Exit status of pip, or 0 if the machine cannot have the package.
    """
    targets = {wheels.target: wheels for wheels in (MXNET, PROCGEN_ORIGINAL)}
    parser = argparse.ArgumentParser(description="Install packages that require numpy<2.")
    parser.add_argument("target", choices=targets, help="target of make")
    wheels = targets[parser.parse_args(argv).target]
    if reason := wheels.unavailable_reason():
        log_line(f"{wheels.target} is not installed: {reason}")
        return 0
    return subprocess.run(wheels.pip_command(sys.executable)).returncode


if __name__ == "__main__":
    raise SystemExit(main())

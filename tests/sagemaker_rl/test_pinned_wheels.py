"""Packages that require numpy<2: installed without their dependencies, or refused in one line."""

import platform
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from sagemaker_rl.job import pinned_wheels
from sagemaker_rl.job.hyperparameters import HyperparameterError
from sagemaker_rl.job.pinned_wheels import _PinnedWheels
from tests.allowed_skips import is_allowed

JOB = "SM_MODEL_DIR", "/opt/ml/model"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _PinnedWheels:
    """A package that no numpy of today satisfies; pip installs it into a folder of the test."""
    wheel = tmp_path / "oldpackage-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        info = "oldpackage-1.0.dist-info"
        file.writestr("oldpackage.py", "")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: oldpackage\nVersion: 1.0\n"
                                          "Requires-Dist: numpy<1\n")  # fmt: skip
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                                       "Tag: py3-none-any\n")  # fmt: skip
        file.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "installed"))
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    return _PinnedWheels("oldpackage", "old", (str(wheel),), (sys.version_info.minor,))


def test_a_job_installs_a_missing_package_and_others_name_the_command(
    old: _PinnedWheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        HyperparameterError, match=r"games needs the package.* run `make old` in a clone, or pyt"
    ):
        old.ensure_installed("games")
    with monkeypatch.context() as job:
        job.setenv(*JOB)
        old.ensure_installed("games")
    assert find_spec(old.module) is not None
    old.ensure_installed("games")


def test_a_job_says_why_pip_failed(old: _PinnedWheels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*JOB)
    gone = _PinnedWheels("oldpackage", "old", ("/nowhere/old-1-py3-none-any.whl",), old.pythons)
    with pytest.raises(HyperparameterError, match=r"games need.* pip failed: .*nowhere"):
        gone.ensure_installed("games")


def test_another_python_gets_one_line_that_tests_may_skip_by(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pinned_wheels, "find_spec", lambda name: None)
    monkeypatch.setenv(*JOB)
    for wheels in (pinned_wheels.MXNET, pinned_wheels.PROCGEN_ORIGINAL):
        with monkeypatch.context() as here:
            here.setattr(pinned_wheels._PinnedWheels, "unavailable_reason", lambda self: "")
            assert f"`make {wheels.target}`" in wheels.missing_reason()
            assert not is_allowed(wheels.missing_reason()), "here it is installed"
        monkeypatch.setattr(platform, "machine", lambda: "riscv64")
        assert is_allowed(wheels.missing_reason())
        assert pinned_wheels.main([wheels.target]) == 0
        assert capsys.readouterr().out.splitlines() == [
            f"{wheels.target} is not installed: {wheels.missing_reason()}"
        ]
        with pytest.raises(HyperparameterError, match="needs Linux on x86-64 and Python 3"):
            wheels.ensure_installed("it")

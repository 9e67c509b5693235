"""Fixtures for simulated jobs."""

import io
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/battlesnake-training"

collect_ignore = ["sdk3_job.py"]
"""A script for an environment with the SDK 3, whose imports version 2 lacks."""


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the process, even if the tests run under ``nohup``."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# At most one module: `moto.mock_aws` in another module deletes all accounts of the process.
@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the SDK's session with a simulated account."""
    for package in ("sagemaker_training", "moto.server", "sagemaker"):
        pytest.importorskip(package, reason="needs the extras sagemaker and sagemaker-simulator")
    from sagemaker_rl.simulator.simulated_session import SimulatedSession

    one = SimulatedSession(tmp_path_factory.mktemp("jobs"))
    yield one
    one.close()


@pytest.fixture
def estimator(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that creates an estimator of a script with a dependency ``helping``."""
    # The SDK calls it for each setting of each estimator, which takes half a second.
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda _: None)
    from sagemaker import get_execution_role
    from sagemaker.rl import RLEstimator

    def make(script: str, helping: str, **changes: Any) -> Any:
        for path, text in (("source/train.py", script), ("helping/__init__.py", helping)):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text)
        arguments = {
            "entry_point": "train.py",
            "source_dir": str(tmp_path / "source"),
            "dependencies": [str(tmp_path / "helping")],
            "image_uri": f"{IMAGE}:latest",
            "role": get_execution_role(session),
            "instance_type": "ml.c5.large",
            "instance_count": 1,
            "sagemaker_session": session,
        }
        return RLEstimator(**(arguments | changes))

    return make


@pytest.fixture
def legacy_listings(session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of this name; its changes of the SDK end with the test."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    import sagemaker.rl

    from sagemaker_rl.job import legacy_listings

    monkeypatch.setattr(sagemaker.rl, "RLEstimator", sagemaker.rl.RLEstimator)
    monkeypatch.setattr(legacy_listings.RLEstimator, "session", None)
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda _: None)
    return legacy_listings


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`preflight.check` asks this process, not a new one, which would import Ray and torch.

    Another process asks in test_preflight.py, in the wheel's tests, and in all that trains.
    """
    pytest.importorskip("ray", reason="needs the extra rllib")
    from battlesnake_rl.commands import procgen_train_command, train_command
    from sagemaker_rl.job import preflight

    commands: dict[str, Callable[[list[str]], int]] = {
        "train-mabs.py": train_command.main,
        "train-procgen.py": procgen_train_command.main,
    }

    def ask(words: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        said, told = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(told), pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            status = commands[words[1]](words[2:])
        return SimpleNamespace(returncode=status, stdout=said.getvalue(), stderr=told.getvalue())

    monkeypatch.setattr(preflight, "subprocess", SimpleNamespace(run=ask))


@pytest.fixture
def training(session: Any) -> Callable[..., Any]:
    """Return a function that creates an estimator of this project's training script."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    import sagemaker
    from sagemaker.rl import RLEstimator

    from sagemaker_rl.job.source_files import copy_project_sources

    account = f"{session.account_id()}.dkr.ecr.{session.boto_region_name}.amazonaws.com"

    def make(*brings: Path, **options: Any) -> Any:
        return RLEstimator(
            entry_point="train-mabs.py",
            **copy_project_sources(brings),
            image_uri=f"{account}/battlesnake-training:latest",
            role=sagemaker.get_execution_role(session),
            sagemaker_session=session,
            instance_type="ml.m5.xlarge",
            instance_count=1,
            **options,
        )

    return make

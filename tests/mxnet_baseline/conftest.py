"""Small games for the baseline, and a way to run lines of Python where MXNet is."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mabs.conftest import SMALL as GAMES

SMALL: dict[str, Any] = {**GAMES, "observation": "planes", "action_mask": "none"}
"""An ``env_config`` whose games are over in a moment."""

QUICK = {"turns_per_iteration": 60, "batch_size": 8, "warmup_batches": 1, "update_every": 4}
"""Settings that learn within one short iteration."""


@pytest.fixture
def mxnet_python() -> Path:
    """The Python of MXNet's environment; without one the test is skipped."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    from battlesnake_rl.mxnet_baseline import mxnet_algorithm as algorithm

    try:
        return algorithm.interpreter()
    except ValueError as error:
        pytest.skip(f"needs `make mxnet`: {error}")


@pytest.fixture
def run_in_mxnet(mxnet_python: Path) -> Callable[[str], str]:
    """A function that runs a script beside MXNet and returns what it printed."""
    from battlesnake_rl.mxnet_baseline import mxnet_algorithm as algorithm

    def run(script: str) -> str:
        done = subprocess.run(
            [mxnet_python, "-c", script],
            env=algorithm.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    return run


@pytest.fixture
def quick_config(mxnet_python: Path) -> Any:
    """A configuration that trains in a second or two."""
    from battlesnake_rl.mxnet_baseline.mxnet_algorithm import MXNetConfig

    config = MXNetConfig().environment("battlesnake", env_config=SMALL)
    return config.debugging(seed=7).update_from_dict(QUICK)

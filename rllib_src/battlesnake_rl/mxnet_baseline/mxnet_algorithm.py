"""The baseline for the launcher: configured, trained, saved and restored like RLlib's algorithms.

The work is done by `worker` in MXNet's own virtual environment. That process imports the same game
from the same folders; only an iteration's results cross over.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

import battlesnake_gym
import battlesnake_rl.launcher
from battlesnake_rl.mabs.measure.strength import check_share
from battlesnake_rl.mabs.play.game_metrics import average_games
from battlesnake_rl.mxnet_baseline.mxnet_settings import OBSERVATION, MXNetSettings

INTERPRETER_VARIABLE = "MXNET_PYTHON"
"""Environment variable: the Python that has MXNet, if it is not the one of ``make mxnet``."""

ROOT = Path(__file__).resolve().parents[3]


def interpreter() -> Path:
    """The Python that has MXNet.

    Raises:
        ValueError: there is none.
    """
    named = os.environ.get(INTERPRETER_VARIABLE)
    home = ROOT if (ROOT / "Makefile").is_file() else Path.cwd()
    python = Path(named) if named else home / ".venv-mxnet" / "bin" / "python"
    if not python.is_file():
        raise ValueError(
            f"{python} is not there: the MXNet baseline needs a Python with mxnet 1.9.1; run "
            "`make mxnet` in a clone of the project, or name one in the environment variable "
            f"{INTERPRETER_VARIABLE}"
        )
    return python


def environment() -> dict[str, str]:
    """The environment of a process in which our packages are importable and one core is enough."""
    launcher = str(Path(battlesnake_rl.launcher.__file__).resolve().parents[2])
    ours = str(Path(__file__).resolve().parents[2])
    folders = dict.fromkeys(
        [str(Path(battlesnake_gym.__file__).resolve().parents[1]), ours, launcher]
    )
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore::DeprecationWarning",
    }


class MXNet:
    """A baseline in training, with the methods that the launcher calls on an RLlib algorithm."""

    env_runner_group = None
    """It has no runners: its process plays the games too."""

    def __init__(self, config: MXNetConfig) -> None:
        self.training_iteration = 0
        self._process = subprocess.Popen(
            [interpreter(), "-m", "battlesnake_rl.mxnet_baseline.mxnet_worker"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._tell(
            {
                "env_config": config.env_config,
                "settings": asdict(config.settings),
                "seed": config.seed,
            }
        )

    def train(self) -> dict[str, Any]:
        """One iteration."""
        results: dict[str, Any] = self._ask("train")
        self.training_iteration += 1
        average_games(results["env_runners"])
        return {**results, "training_iteration": self.training_iteration}

    def conclude(self, results: dict[str, Any]) -> None:
        """After the last iteration: measure what came of it, and mend its ``results``."""
        results |= self._ask("measure")

    def save_to_path(self, path: str) -> None:
        """Write a checkpoint into the folder ``path``."""
        self._ask("save", path)
        (Path(path) / "iteration.json").write_text(json.dumps(self.training_iteration) + "\n")

    def restore_from_path(self, path: str) -> None:
        """Go on from a checkpoint."""
        self._ask("restore", path)
        self.training_iteration = json.loads((Path(path) / "iteration.json").read_text())

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _tell(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")

    def _ask(self, *command: str) -> Any:
        assert self._process.stdout is not None
        try:
            self._tell(command)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise RuntimeError(
                f"the MXNet process ended with status {self._process.wait()} at {command[0]!r}; "
                "its last words are above"
            ) from error


class MXNetConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib's configuration for the launcher's sake; beside games and seed, `MXNetSettings` counts.

    ``settings`` are the published ones unless ``update_from_dict`` is told otherwise.
    """

    def __init__(self) -> None:
        super().__init__(algo_class=MXNet)
        self.settings = MXNetSettings()
        self.num_env_runners = 0

    def environment(self, env: str, *, env_config: Mapping[str, Any]) -> MXNetConfig:
        """Play what ``env_config`` says, seen as the baseline sees it.

        Raises:
            ValueError: it asks for another observation.
        """
        if env_config["observation"] not in ("planes", OBSERVATION):
            raise ValueError(
                f"observation is {env_config['observation']!r}, but the MXNet baseline sees "
                f"{OBSERVATION['name']!r} of the last {OBSERVATION['frames']} turns only; "
                "leave the option out"
            )
        super().environment(env, env_config={**env_config, "observation": OBSERVATION})
        return self

    def validate(self) -> None:
        """Refuse what the baseline cannot do, before anything starts.

        Raises:
            ValueError: saying what, and what to do.
        """
        if self.num_env_runners:
            raise ValueError(
                "the MXNet baseline plays and learns in one process, got "
                f"num_workers={self.num_env_runners}; leave it out or give 0"
            )
        check_share(self.settings.ladder_share)
        for name, value in self.to_dict().items():
            if name != "ladder_share" and not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        interpreter()

    def to_dict(self) -> dict[str, Any]:
        """The settings, by name: what can be changed."""
        return asdict(self.settings)

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> MXNetConfig:
        """Change settings."""
        self.settings = replace(self.settings, **config_dict)
        return self

    def build_algo(self) -> MXNet:
        """Start it."""
        return MXNet(self)


def write_onnx(
    checkpoint: Path, shape: list[int], path: Path, last: bool = False
) -> dict[str, str]:
    """Write the network of a checkpoint to ``path``; returns the versions that made it.

    It is the strongest that was measured, if one was, and it is not to be the ``last``.

    Raises:
        RuntimeError: MXNet refused; with what it said.
    """
    command = [
        interpreter(),
        "-m",
        "battlesnake_rl.mxnet_baseline.mxnet_export",
        checkpoint,
        path,
        "--shape",
    ]
    done = subprocess.run(
        [str(word) for word in [*command, *shape, *["--last"] * last]],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the export of {checkpoint} failed:\n{done.stderr}")
    versions: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return versions

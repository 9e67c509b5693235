"""Named experiments: hyperparameters from the YAML files in ``experiment_files``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml

_EXPERIMENT_DIR = Path(__file__).with_name("experiment_files")


def experiment_names() -> list[str]:
    """Return the names of the built-in experiments."""
    return sorted(path.stem for path in _EXPERIMENT_DIR.glob("*.yaml"))


def load_experiment(name: str) -> dict[str, Any]:
    """Load the hyperparameters of a named experiment or of a ``.yaml`` file.

    Raises:
        ValueError: If the experiment does not exist, or if the file does not contain a mapping.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else _EXPERIMENT_DIR / f"{name}.yaml"
    if not path.is_file():
        if path.parent == _EXPERIMENT_DIR:
            raise ValueError(
                f"{unknown_name_message('experiment', name, experiment_names())}; or use the path "
                "of a .yaml file"
            )
        raise ValueError(f"there is no experiment file {path}")
    values = read_yaml(path)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{path} must contain a mapping of hyperparameters, such as num_snakes: 2")
    return old_runs.convert_hyperparameters(values)

"""Named experiments: hyperparameters from the YAML files in ``experiment_files``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml

EXPERIMENT_DIR = Path(__file__).with_name("experiment_files")
"""Directory of the built-in experiments of Battlesnake."""


def find_experiment(name: str, directory: Path = EXPERIMENT_DIR) -> Path:
    """Return the path of a built-in experiment in ``directory``, or of a ``.yaml`` file.

    Raises:
        ValueError: If the experiment does not exist.
    """
    is_path = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_path else directory / f"{name}.yaml"
    if path.is_file():
        return path
    if is_path:
        raise ValueError(f"there is no experiment file {name}")
    known = sorted(path.stem for path in directory.glob("*.yaml"))
    raise ValueError(
        f"{unknown_name_message('experiment', name, known)}; or use the path of a .yaml file"
    )


def load_experiment(name: str) -> dict[str, Any]:
    """Load the hyperparameters of a named experiment or of a ``.yaml`` file.

    Raises:
        ValueError: If the experiment does not exist, or if the file does not contain a mapping.
    """
    path = find_experiment(name)
    values = read_yaml(path)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{path} must contain a mapping of hyperparameters, such as num_snakes: 2")
    if "experiment" in values:
        raise ValueError(f"{path}: experiment has no effect in a file; omit it")
    return old_runs.convert_hyperparameters(values)

"""Named experiments: hyperparameters from the files in ``experiment_files``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.yaml_files import read_yaml

_FOLDER = Path(__file__).with_name("experiment_files")


def names() -> list[str]:
    """Return the names of the experiments."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    """Return the hyperparameters of a named experiment or of a ``.yaml`` file.

    Raises:
        ValueError: If there is no such experiment, or if the file does not contain a mapping.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    if not path.is_file():
        if path.parent == _FOLDER:
            raise ValueError(
                f"{unknown_name_message('experiment', name, names())}; or use the path of a "
                ".yaml file"
            )
        raise ValueError(f"there is no experiment file {path}")
    values = read_yaml(path)
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{path} must be a table of hyperparameters, such as num_snakes: 2")
    return old_runs.convert_hyperparameters(values)

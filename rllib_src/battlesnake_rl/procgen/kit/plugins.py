"""User-defined models, algorithms and callbacks, loaded from folders by name.

``models/my_vision_network.py`` contains one subclass of RLlib's ``RLModule`` and has the name
``my_vision_network``. Likewise, ``algorithms/`` contains subclasses of ``Algorithm``, and
``callbacks/`` subclasses of ``RLlibCallback``. The search path of the folders is the current
directory, the directory of the script, and this package, which contains examples. Files of the
competition's starter kit that need RLlib's API of 2020 are rejected with a remedy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ray import cloudpickle
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.registry import ALGORITHMS, _get_algorithm_class
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModule

from battlesnake_gym.common import extensions

_EXAMPLES = Path(__file__).parents[1]

_BASES: dict[str, type[Any]] = {
    "models": RLModule,
    "algorithms": Algorithm,
    "callbacks": RLlibCallback,
}
"""Base class of the user-defined class, by folder."""

_NETWORK = "networks of RLlib's former API are not supported; "
_UNSUPPORTED = {
    "tensorflow": _NETWORK,
    "ray.rllib.models.tf": _NETWORK,
    "ray.rllib.models.torch.torch_modelv2": _NETWORK,
    "ray.rllib.agents.callbacks": "callbacks of RLlib's former API are not supported; subclass "
    "ray.rllib.callbacks.callbacks.RLlibCallback, as callbacks/level_counter.py does",
    "ray.rllib.agents.trainer": "RLlib no longer has a Trainer; subclass "
    "ray.rllib.algorithms.algorithm.Algorithm, as algorithms/random_agent.py does, or for the "
    "kit's random agents use run: random_agent",
}
"""Remedies for unsupported modules, by prefix of the module name."""

_ANY_NETWORK = "write it as an RLModule, as models/my_vision_network.py does"
_SAME_NETWORK = "use custom_model: impala_cnn, the same network"
_NETWORKS = {
    "impala_cnn_tf": _SAME_NETWORK,
    "impala_cnn_torch": _SAME_NETWORK,
    "my_vision_network": "remove the file from models/; this package has a network of this name",
}
"""Remedies for the starter kit's networks."""

NO_PREPROCESSORS = (
    "custom_preprocessor: preprocessors of RLlib's former API are not supported; preprocess at the "
    "start of your network's _forward"
)


def find(kind: str, name: str, ours: Mapping[str, type[Any]] | None = None) -> type[Any]:
    """Return a class of this project, of RLlib or of a user's file by name.

    Args:
        kind: Folder, a key of `_BASES`.
        name: Name of the class, name of a file in the folder, or path of a .py file.
        ours: This project's classes by name.

    Raises:
        ValueError: If there is no such class, or its file is invalid. For an unknown name, the
            message lists the known names.
    """
    ours = ours or {}
    if name in ours:
        return ours[name]
    if kind == "algorithms" and name in ALGORITHMS:
        return cast("type[Any]", _get_algorithm_class(name))
    files = {
        path.stem: path
        for folder in (_EXAMPLES, Path(sys.argv[0]).resolve().parent, Path.cwd())
        for path in sorted((folder / kind).glob("*.py"))
        if not path.stem.startswith("_")
    }
    if name.endswith(".py"):
        files[name] = Path(name)
    if name not in files:
        built_in = ALGORITHMS if kind == "algorithms" else ()
        raise ValueError(
            f"found no {kind.removesuffix('s') if kind != 'callbacks' else kind} {name!r}; "
            f"there are {', '.join(sorted([*files, *ours, *built_in])) or 'none'}; "
            f"put your own file into {kind}/"
        )
    return _only_class(_load(kind, files[name]), _BASES[kind], files[name])


def _load(kind: str, path: Path) -> ModuleType:
    try:
        if path.is_file():
            _check(path)
        module = extensions.load_file(path, kind)
    except Exception as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} cannot be imported: {why}") from error
    # Env runners on other machines may not have the file. Therefore, the class is pickled by value.
    cloudpickle.register_pickle_by_value(module)
    return module


def _check(path: Path) -> None:
    """Reject a file that uses RLlib's former API.

    The error message names the imported module and the remedy.
    """
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for module, remedy in _UNSUPPORTED.items():
            if any(name.startswith(module) for name in names):
                if remedy == _NETWORK:
                    remedy += _NETWORKS.get(path.stem, _ANY_NETWORK)
                raise ValueError(f"it imports {module}: {remedy}")


def _only_class(module: ModuleType, base: type[Any], path: Path) -> type[Any]:
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        raise ValueError(
            f"{path} must define exactly one subclass of "
            f"{base.__module__}.{base.__name__}; "
            f"it defines {found}"
        )
    return classes[0]

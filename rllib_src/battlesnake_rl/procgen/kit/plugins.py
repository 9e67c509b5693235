"""Models, algorithms and callbacks of users: files in folders, named in an experiment.

``models/my_vision_network.py`` holds one subclass of RLlib's ``RLModule`` and is called
``my_vision_network``; in the same way ``algorithms/`` holds subclasses of ``Algorithm`` and
``callbacks/`` subclasses of ``RLlibCallback``. Folders are looked for in the current directory,
then beside the script that was started, then in this package, where the examples are. Files of the
competition's starter kit that need RLlib's interfaces of 2020 are refused with what to do instead.
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
"""The base class of each folder."""

_NETWORK = "networks of RLlib's old API do not run any more; "
_GONE = {
    "tensorflow": _NETWORK,
    "ray.rllib.models.tf": _NETWORK,
    "ray.rllib.models.torch.torch_modelv2": _NETWORK,
    "ray.rllib.agents.callbacks": "callbacks of RLlib's old API do not run any more; subclass "
    "ray.rllib.callbacks.callbacks.RLlibCallback, as callbacks/level_counter.py does",
    "ray.rllib.agents.trainer": "RLlib has no Trainer any more; subclass "
    "ray.rllib.algorithms.algorithm.Algorithm, as algorithms/random_agent.py does, or for the "
    "kit's random agents write run: random_agent",
}
"""Modules whose users cannot run here, also those whose names begin so, and the remedy."""

_ANY_NETWORK = "write it as an RLModule, as models/my_vision_network.py does"
_SAME_NETWORK = "write custom_model: impala_cnn, the same network"
_NETWORKS = {
    "impala_cnn_tf": _SAME_NETWORK,
    "impala_cnn_torch": _SAME_NETWORK,
    "my_vision_network": "take the file out of models/: my_vision_network is a small network here",
}
"""The kit's own networks, and what to do instead."""

NO_PREPROCESSORS = (
    "custom_preprocessor: preprocessors of RLlib's old API do not run any more; do what yours does "
    "at the start of your network's _forward"
)


def find(kind: str, name: str, ours: Mapping[str, type[Any]] | None = None) -> type[Any]:
    """The class called ``name`` of a ``kind`` of `_BASES`: one of ``ours``, RLlib's, or a file's.

    ``name`` is that of a file in the folder ``kind``, or the path of a ``.py``.

    Raises:
        ValueError: there is none (the error lists those there are), or its file is not valid.
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
            f"there are {', '.join(sorted([*files, *ours, *built_in])) or 'none'}. "
            f"Put one into {kind}/"
        )
    return _only_class(_load(kind, files[name]), _BASES[kind], files[name])


def _load(kind: str, path: Path) -> ModuleType:
    try:
        if path.is_file():
            _check(path)
        module = extensions.module(path, kind)
    except Exception as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} cannot be imported: {why}") from error
    # Runners on other machines may not have the file: the class travels as a whole.
    cloudpickle.register_pickle_by_value(module)
    return module


def _check(path: Path) -> None:
    """Refuse a file of RLlib's old API, with the module that it imports and the remedy."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for gone, remedy in _GONE.items():
            if any(name.startswith(gone) for name in names):
                if remedy == _NETWORK:
                    remedy += _NETWORKS.get(path.stem, _ANY_NETWORK)
                raise ValueError(f"it imports {gone}: {remedy}")


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

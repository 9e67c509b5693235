"""User-defined models, algorithms and callbacks, loaded from folders by name.

The file ``models/my_vision_network.py`` contains one subclass of RLlib's ``RLModule`` and has the
name ``my_vision_network``. Likewise, ``algorithms/`` contains subclasses of ``Algorithm``, and
``callbacks/`` contains subclasses of ``RLlibCallback``. The folders are searched for in the current
directory, in the directory of the script, and in this package, which contains examples. Networks
from the competition's starter kit may be subclasses of RLlib's ``TorchModelV2``. The kit's files
that need TensorFlow or other parts of RLlib's 2020 API are rejected with a remedy.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, cast

import torch
from ray import cloudpickle
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.registry import ALGORITHMS, _get_algorithm_class
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.models.catalog import MODEL_DEFAULTS
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2
from torch import Tensor

from battlesnake_gym.common import extensions

_EXAMPLES_DIR = Path(__file__).parents[1]
"""Directory of the package, which contains the folders with examples."""

_BASE_CLASSES: dict[str, tuple[type[Any], ...]] = {
    "models": (RLModule, TorchModelV2),
    "algorithms": (Algorithm,),
    "callbacks": (RLlibCallback,),
}
"""Base classes of the user-defined classes, keyed by folder name."""

_NETWORK_ERROR = "TensorFlow networks are not supported; "
_UNSUPPORTED_MODULES = {
    "tensorflow": _NETWORK_ERROR,
    "ray.rllib.models.tf": _NETWORK_ERROR,
    "ray.rllib.agents.callbacks": "callbacks of RLlib's former API are not supported; subclass "
    "ray.rllib.callbacks.callbacks.RLlibCallback, like callbacks/level_counter.py",
    "ray.rllib.agents.trainer": "RLlib no longer has a Trainer; subclass "
    "ray.rllib.algorithms.algorithm.Algorithm, like algorithms/random_agent.py; for the kit's "
    "random agents, use run: random_agent",
}
"""Remedies for unsupported imports, by prefix of the module name."""

_DEFAULT_NETWORK_REMEDY = (
    "write an RLModule, like models/my_vision_network.py, or a TorchModelV2 in PyTorch"
)
_NETWORK_REMEDIES = {
    "impala_cnn_tf": "use custom_model: impala_cnn, the same network",
    "my_vision_network": "remove the file from models/; this package has a port of this network",
}
"""Remedies for the starter kit's networks, by file name."""

PREPROCESSOR_ERROR = (
    "custom_preprocessor: preprocessors of RLlib's former API are not supported; preprocess at the "
    "start of your network's _forward"
)


class _ModelV2Module(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """Module that computes logits and values with a ``TorchModelV2`` without recurrent state.

    The network reads the ``custom_options`` of the experiment from its ``model_config``, and also
    from the entries ``custom_options`` and ``custom_model_config`` there.
    """

    network_class: ClassVar[type[TorchModelV2]]

    def setup(self) -> None:
        """Build the network with the arguments of RLlib's former API."""
        options = dict(self.model_config)
        config = {
            **MODEL_DEFAULTS,
            **options,
            "custom_options": options,
            "custom_model_config": options,
        }
        spaces = (self.observation_space, self.action_space)
        self.network = self.network_class(*spaces, int(self.action_space.n), config, "network")

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Return the logits of the actions, float32 (B, 15), and the values as embeddings."""
        images = batch[Columns.OBS]
        inputs = {"obs": images, "obs_flat": images.flatten(1), "is_training": self.training}
        logits, _ = self.network.forward(inputs, [], None)
        return {
            Columns.ACTION_DIST_INPUTS: logits,
            Columns.EMBEDDINGS: self.network.value_function(),
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values of the images, float32 (B,)."""
        if embeddings is not None:
            return embeddings
        with torch.no_grad():
            values: Tensor = self._forward(batch)[Columns.EMBEDDINGS]
            return values


def _wrap_network(network_class: type[TorchModelV2]) -> type[_ModelV2Module]:
    """Return a subclass of `_ModelV2Module` for a network class.

    The subclass belongs to the network's module, so that both are serialized by value.
    """
    members = {"network_class": network_class, "__module__": network_class.__module__}
    return type(network_class.__name__, (_ModelV2Module,), members)


def find_class(
    kind: str, name: str, project_classes: Mapping[str, type[Any]] | None = None
) -> type[Any]:
    """Find a class by name in this project, in RLlib or in a user's file.

    Args:
        kind: Folder, a key of `_BASE_CLASSES`.
        name: Name of the class, name of a file in the folder, or path of a .py file.
        project_classes: This project's classes, keyed by name.

    Raises:
        ValueError: If the class does not exist, or if its file is invalid. For an unknown name, the
            message lists the known names.
    """
    project_classes = project_classes or {}
    if name in project_classes:
        return project_classes[name]
    if kind == "algorithms" and name in ALGORITHMS:
        return cast("type[Any]", _get_algorithm_class(name))
    files = {
        path.stem: path
        for folder in (_EXAMPLES_DIR, Path(sys.argv[0]).resolve().parent, Path.cwd())
        for path in sorted((folder / kind).glob("*.py"))
        if not path.stem.startswith("_")
    }
    if name.endswith(".py"):
        files[name] = Path(name)
    if name not in files:
        built_in = ALGORITHMS if kind == "algorithms" else ()
        raise ValueError(
            f"found no {kind.removesuffix('s') if kind != 'callbacks' else kind} {name!r}; "
            f"available: {', '.join(sorted([*files, *project_classes, *built_in])) or 'none'}; "
            f"add your own file to {kind}/"
        )
    found = _find_subclass(_load_module(kind, files[name]), _BASE_CLASSES[kind], files[name])
    return _wrap_network(found) if issubclass(found, TorchModelV2) else found


def _load_module(kind: str, path: Path) -> ModuleType:
    """Import a user's file as a module.

    Raises:
        ValueError: If the import fails.
    """
    try:
        if path.is_file():
            _check_imports(path)
        module = extensions.load_file(path, kind)
    except Exception as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} cannot be imported: {why}") from error
    # Env runners on other machines may not have the file. Cloudpickle must therefore serialize the
    # class by value.
    cloudpickle.register_pickle_by_value(module)
    return module


def _check_imports(path: Path) -> None:
    """Reject a file that imports RLlib's former API.

    Raises:
        ValueError: If the file imports an unsupported module; the message names the remedy.
    """
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for module, remedy in _UNSUPPORTED_MODULES.items():
            if any(name.startswith(module) for name in names):
                if remedy == _NETWORK_ERROR:
                    remedy += _NETWORK_REMEDIES.get(path.stem, _DEFAULT_NETWORK_REMEDY)
                raise ValueError(f"the file imports {module}: {remedy}")


def _find_subclass(module: ModuleType, bases: tuple[type[Any], ...], path: Path) -> type[Any]:
    """Return the only subclass of ``bases`` that a module defines.

    Raises:
        ValueError: If the module defines no subclass, or several subclasses.
    """
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, bases)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        names = " or ".join(f"{base.__module__}.{base.__name__}" for base in bases)
        raise ValueError(f"{path} must define exactly one subclass of {names}; it defines {found}")
    return classes[0]

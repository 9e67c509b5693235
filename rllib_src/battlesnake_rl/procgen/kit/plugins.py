"""Models, algorithms and callbacks of users: files in folders, named in an experiment.

``models/my_vision_network.py`` holds one subclass of RLlib's ``RLModule`` and is called
``my_vision_network``; in the same way ``algorithms/`` holds subclasses of ``Algorithm`` and
``callbacks/`` subclasses of ``RLlibCallback``. Folders are looked for in the current directory,
then beside the script that was started, then in this package, where the examples are. Files of the
competition's starter kit, with classes of the old RLlib, work as well (`kit_files`).
"""

from __future__ import annotations

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
from ray.rllib.models.preprocessors import Preprocessor
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2

from battlesnake_gym.common import own_files
from battlesnake_rl.procgen.kit import kit_files

EXAMPLES = Path(__file__).parents[1]

BASES: dict[str, tuple[type[Any], ...]] = {
    "models": (RLModule, TorchModelV2),
    "algorithms": (Algorithm,),
    "callbacks": (RLlibCallback, kit_files.DefaultCallbacks),
    "preprocessors": (Preprocessor,),
}
"""The base classes of each folder: today's, and where there are two, the old RLlib's."""


def find(kind: str, name: str, ours: Mapping[str, type[Any]] | None = None) -> type[Any]:
    """The class called ``name`` of a ``kind`` of `BASES`: one of ``ours``, RLlib's, or a file's.

    ``name`` is that of a file in the folder ``kind``, or the path of a ``.py``; a preprocessor's
    may be a key of the kit's ``CUSTOM_PREPROCESSORS``. A class of the old RLlib comes adapted.

    Raises:
        ValueError: there is none (the error lists those there are), or its file is not valid.
    """
    ours = ours or {}
    if name in ours:
        return ours[name]
    if kind == "algorithms" and name in ALGORITHMS:
        return cast("type[Any]", _get_algorithm_class(name))
    if kind == "preprocessors":
        name = kit_files.preprocessor_file(name, Path.cwd())
    files = {
        path.stem: path
        for folder in (EXAMPLES, Path(sys.argv[0]).resolve().parent, Path.cwd())
        for path in sorted((folder / kind).glob("*.py"))
        if not path.stem.startswith("_")
    }
    if name.endswith(".py"):
        files[name] = Path(name)
    if name not in files:
        built_in = ALGORITHMS if kind == "algorithms" else ()
        raise ValueError(
            f"found no {kind.removesuffix('s') if kind != 'callbacks' else kind} {name!r} "
            f"among the {kind}: {', '.join(sorted([*files, *ours, *built_in])) or 'none'}. "
            f"Put a file {kind}/{name}.py into the current directory or beside the script"
        )
    found = _only_class(_load(kind, files[name]), BASES[kind], files[name])
    if issubclass(found, TorchModelV2):
        return kit_files.module_of(found)
    if issubclass(found, kit_files.DefaultCallbacks):
        return kit_files.callbacks_of(found)
    return found


def _load(kind: str, path: Path) -> ModuleType:
    try:
        if path.is_file():
            kit_files.check(path)
        with kit_files.old_names():
            module = own_files.module(path, kind)
    except Exception as error:
        why = error if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{path} cannot be imported: {why}") from error
    # Runners on other machines may not have the file: the class travels as a whole.
    cloudpickle.register_pickle_by_value(module)
    return module


def _only_class(module: ModuleType, bases: tuple[type[Any], ...], path: Path) -> type[Any]:
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, bases)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        raise ValueError(
            f"{path} must define exactly one subclass of "
            f"{bases[0].__module__}.{bases[0].__name__}; "
            f"it defines {found}"
        )
    return classes[0]

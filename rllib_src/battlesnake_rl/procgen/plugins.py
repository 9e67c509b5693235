"""Models, algorithms and callbacks of users: files in folders, named in an experiment.

``models/my_vision_network.py`` holds one subclass of RLlib's ``RLModule`` and is called
``my_vision_network``; in the same way ``algorithms/`` holds subclasses of ``Algorithm`` and
``callbacks/`` subclasses of ``RLlibCallback``. Folders are looked for in the current directory,
then beside the script that was started, then here, where the examples are. Files of the
competition's starter kit, with classes of RLlib's of then, go as well (`kit_files`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.registry import ALGORITHMS, _get_algorithm_class
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.models.preprocessors import Preprocessor
from ray.rllib.models.torch.torch_modelv2 import TorchModelV2

from battlesnake_gym.common import own_files
from battlesnake_rl.procgen import kit_files
from battlesnake_rl.procgen.impala_network import ImpalaModule
from battlesnake_rl.procgen.procgen_ppo import ProcgenPPO

EXAMPLES = Path(__file__).parent

_BASES: dict[str, tuple[type[Any], ...]] = {
    "models": (RLModule, TorchModelV2),
    "algorithms": (Algorithm,),
    "callbacks": (RLlibCallback, kit_files.DefaultCallbacks),
    "preprocessors": (Preprocessor,),
}
"""What the classes of each folder are made of: today, and where there are two, then."""


def find_model(name: str) -> type[RLModule]:
    """The network called ``name``: ``impala_cnn``, or a file in ``models/``.

    Raises:
        ValueError: there is none (those there are get named), or its file is not as it must be.
    """
    found = _find("models", name, {"impala_cnn": lambda: ImpalaModule})
    return kit_files.module_of(found) if issubclass(found, TorchModelV2) else found


def find_preprocessor(name: str) -> type[Preprocessor]:
    """The preprocessor called ``name``: a file in ``preprocessors/``, or its class.

    The kit names it by a key of ``CUSTOM_PREPROCESSORS`` in ``preprocessors/__init__.py``.

    Raises:
        ValueError: as `find_model`.
    """
    return _find("preprocessors", kit_files.preprocessor_file(name, Path.cwd()), {})


def find_algorithm(name: str) -> type[Algorithm]:
    """The algorithm called ``name``: ``ProcgenPPO``, one of RLlib's, or a file.

    Raises:
        ValueError: as `find_model`.
    """
    built_in: dict[str, Callable[[], type[Any]]] = {
        known: partial(_get_algorithm_class, known) for known in ALGORITHMS
    }
    built_in["ProcgenPPO"] = lambda: ProcgenPPO
    return _find("algorithms", name, built_in)


def find_callbacks(name: str) -> type[RLlibCallback]:
    """The callbacks called ``name``: a file in ``callbacks/``, or the path of a ``.py``.

    Raises:
        ValueError: as `find_model`.
    """
    found = _find("callbacks", name, {})
    return kit_files.callbacks_of(found) if not issubclass(found, RLlibCallback) else found


def _find(kind: str, name: str, built_in: Mapping[str, Callable[[], type[Any]]]) -> type[Any]:
    if name in built_in:
        return built_in[name]()
    files = {
        path.stem: path
        for folder in (EXAMPLES, Path(sys.argv[0]).resolve().parent, Path.cwd())
        for path in sorted((folder / kind).glob("*.py"))
        if not path.stem.startswith("_")
    }
    if name.endswith(".py"):
        files[name] = Path(name)
    if name not in files:
        there = ", ".join(sorted([*files, *built_in])) or "none"
        raise ValueError(
            f"found no {kind.removesuffix('s') if kind != 'callbacks' else kind} {name!r} "
            f"among the {kind}: {there}. "
            f"Put a file {kind}/{name}.py into the current directory or beside the script"
        )
    return _only_class(_load(kind, files[name]), _BASES[kind], files[name])


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

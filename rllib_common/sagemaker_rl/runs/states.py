"""What networks and optimizers have learned, read from a checkpoint without running what it says.

RLlib writes checkpoints as pickles, and a pickle may call anything as it is read: whoever made the
file decides. But all that training needs of one are numbers, in arrays and in containers. So only
what makes those is looked up here, and a file that asks for more is refused. The pickles that say
how to build the objects are not read at all: the experiment that goes on builds them itself.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sagemaker_rl.runs.checkpoints import CheckpointError

NUMBERS = {
    ("collections", "OrderedDict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *(
        (f"numpy.{core}.{module}", name)
        for core in ("core", "_core")
        for module, name in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    ),
}
"""What a pickle of numbers names: module and name."""

UNREAD = ("class_and_ctor_args.pkl", "*.msgpack")
"""Files of a checkpoint that build objects, or, as RLlib reads msgpack, may hold pickles."""


class _Reader(pickle.Unpickler):
    """Looks up nothing but what it is allowed to."""

    def __init__(self, file: Any, allowed: Collection[tuple[str, str]]) -> None:
        super().__init__(file)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self._allowed:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")
        return super().find_class(module_name, global_name)


def load(path: Path, also: Collection[tuple[str, str]] = ()) -> Any:
    """The numbers in a pickle, or what is made of ``also`` (module, name) as well.

    Raises:
        CheckpointError: it holds something else, or is damaged.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, {*NUMBERS, *also}).load()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise CheckpointError(
            f"{path} holds more than numbers, or is damaged ({error}); reading it could run "
            "somebody's program"
        ) from error


def _load_weights(path: Path) -> None:
    import torch

    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # as above
        raise CheckpointError(
            f"{path} holds more than weights, or is damaged; reading it could run a program"
        ) from error


@contextmanager
def without_code(checkpoint: Path) -> Iterator[Path]:
    """A copy of ``checkpoint`` whose pickles hold numbers alone, for the time of the context.

    So do torch's own files (``.pt``), as torch itself checks.

    Raises:
        CheckpointError: one of them holds something else, or is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        copy = Path(folder) / checkpoint.name
        shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns(*UNREAD))
        for path in sorted((*copy.rglob("*.pkl"), *copy.rglob("*.pt"))):
            try:
                _load_weights(path) if path.suffix == ".pt" else load(path)
            except CheckpointError as error:
                shown = str(error).replace(str(copy), str(checkpoint))
                raise CheckpointError(f"{shown}; --trust reads it all the same") from error
        yield copy

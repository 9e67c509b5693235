"""Checkpoints on disk: written whole or not at all, found again, read without running them.

RLlib writes checkpoints as pickles, and a pickle may call anything as it is read: its author
decides. But all that training needs of one is numbers, in arrays and in containers. So only what
makes those is looked up here, and a file that asks for more is refused. The pickles that say how to
build the objects are not read at all: the experiment that goes on builds them itself.
"""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs

CHECKPOINT_METADATA_FILE = "metadata.json"
"""File of every checkpoint: identity, environment options, hyperparameters and progress."""

_OLD_METADATA_FILE = "facts.json"
"""Name of `CHECKPOINT_METADATA_FILE` in checkpoints of version 0.1."""

_FILES = "files"
"""Entry in the facts: the checkpoint's files and their sizes, which show whether it is whole."""

_PREFIX = "checkpoint_"
_UNFINISHED = ".unfinished"

_SAFE_GLOBALS = {
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

IGNORED_FILES = ("class_and_ctor_args.pkl", "*.msgpack")
"""Files of a checkpoint that build objects, or, as RLlib reads msgpack, may hold pickles."""


class CheckpointError(ValueError):
    """A checkpoint that is not there, or not one of this experiment."""


def save(
    algorithm: Any,
    folder: Path,
    facts: Mapping[str, Any],
    files: Sequence[Path] = (),
    keep: int = 2,
) -> Path:
    """Write ``algorithm`` into a new checkpoint in ``folder`` and delete all but the last ``keep``.

    The ``files`` are copied into it.

    The checkpoint gets its name only when everything is written, so that a job that is killed
    meanwhile leaves the one before as the newest. SageMaker copies the folder to S3 and back file
    by file, so a checkpoint also says what belongs to it.
    """
    target = folder / f"{_PREFIX}{algorithm.training_iteration:06d}"
    draft = folder / (target.name + _UNFINISHED)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        algorithm.save_to_path(str(draft.absolute()))
        for path in files:
            shutil.copy(path, draft)
        facts = {**facts, _FILES: _sizes(draft)}
        (draft / CHECKPOINT_METADATA_FILE).write_text(json.dumps(facts, indent=2) + "\n")
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)  # a full disk has no room for it
        raise
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    for old in _all(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def delete_all(folder: Path) -> None:
    """Delete every checkpoint in ``folder``, and nothing else."""
    for checkpoint in _all(folder):
        shutil.rmtree(checkpoint)


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint in ``folder``, or None."""
    return next((path for path in reversed(_all(folder)) if _is_whole(path)), None)


def find(path: Path) -> Path:
    """The checkpoint that ``path`` is, or the newest in the run or folder that it is.

    Raises:
        CheckpointError: there is none.
    """
    if _metadata(path) is not None:
        return path
    found = newest(path / "checkpoints") or newest(path)
    if found is None:
        raise CheckpointError(
            f"{path} is neither a checkpoint nor a folder with one; "
            f"a checkpoint is a folder with a {CHECKPOINT_METADATA_FILE}, a run has them under checkpoints/"
        )
    return found


def read_metadata(checkpoint: Path) -> dict[str, Any]:
    """Return the metadata that `save` wrote, with the current names.

    Raises:
        CheckpointError: If the directory is not a checkpoint.
    """
    metadata = _metadata(checkpoint)
    if metadata is None:
        raise CheckpointError(
            f"{checkpoint} is not a checkpoint: it has no {CHECKPOINT_METADATA_FILE}"
        )
    metadata.pop(_FILES, None)
    return old_runs.convert_checkpoint_metadata(metadata)


def _metadata(checkpoint: Path) -> dict[str, Any] | None:
    """Return the content of the metadata file, or None if the directory has none.

    RLlib's components have files of the same name, with a checkpoint version.
    """
    for name in (CHECKPOINT_METADATA_FILE, _OLD_METADATA_FILE):
        try:
            found = json.loads((checkpoint / name).read_text())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and "checkpoint_version" not in found:
            return found
    return None


def check_compatible(checkpoint: Path, now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose ``"identity"`` differs from that of the experiment of ``now``.

    Raises:
        CheckpointError: naming everything that differs.
    """
    # Through JSON as the other was: a tuple comes back as a list.
    wanted = json.loads(json.dumps(now["identity"]))
    then = read_metadata(checkpoint)["identity"]
    differences = [
        f"{name} is {json.dumps(wanted.get(name))} but was {json.dumps(then.get(name))}"
        for name in {**wanted, **then}
        if wanted.get(name) != then.get(name)
    ]
    if differences:
        raise CheckpointError(
            f"cannot resume from {checkpoint}: {'; '.join(differences)}. Train under another "
            "--name, or repeat the command that this checkpoint is from, or add --no-resume to "
            "delete it and start anew"
        )


def _sizes(checkpoint: Path) -> dict[str, int]:
    return {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }


def _is_whole(checkpoint: Path) -> bool:
    metadata = _metadata(checkpoint)
    if metadata is None:
        return False
    wanted, sizes = metadata.get(_FILES, {}), _sizes(checkpoint)
    return all(sizes.get(name) == size for name, size in wanted.items())


def _all(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and path.suffix != _UNFINISHED
    )


class _Reader(pickle.Unpickler):
    """Looks up nothing but what it is allowed to."""

    def __init__(self, file: Any, allowed: Collection[tuple[str, str]]) -> None:
        super().__init__(file)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self._allowed:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")
        return super().find_class(module_name, global_name)


def load_numeric_pickle(path: Path, also: Collection[tuple[str, str]] = ()) -> Any:
    """The numbers in a pickle, or what is made of ``also`` (module, name) as well.

    Raises:
        CheckpointError: it holds something else, or is damaged.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, {*_SAFE_GLOBALS, *also}).load()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise CheckpointError(
            f"{path} holds more than numbers, or is damaged ({error}); reading it could run "
            "a stranger's program"
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
def numbers_only_copy(checkpoint: Path) -> Iterator[Path]:
    """A copy of ``checkpoint`` whose pickles hold numbers alone, for the time of the context.

    So do torch's own files (``.pt``), as torch itself checks.

    Raises:
        CheckpointError: one of them holds something else, or is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        copy = Path(folder) / checkpoint.name
        shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns(*IGNORED_FILES))
        for path in sorted((*copy.rglob("*.pkl"), *copy.rglob("*.pt"))):
            try:
                _load_weights(path) if path.suffix == ".pt" else load_numeric_pickle(path)
            except CheckpointError as error:
                shown = str(error).replace(str(copy), str(checkpoint))
                raise CheckpointError(
                    f"{shown}; --trust-checkpoint reads it all the same"
                ) from error
        yield copy

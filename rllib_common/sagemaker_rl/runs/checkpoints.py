"""Checkpoints on disk: written atomically, and read without executing code.

RLlib writes checkpoints as pickles, and a pickle can execute arbitrary code when it is read.
Training needs only the numbers in a checkpoint, in arrays and containers. Therefore, this module
resolves only the names that construct arrays and containers, and rejects all other pickles. Files
in `IGNORED_FILES` are not read, because the experiment constructs these objects again.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import sync, sync_tree
from battlesnake_gym.common.temporary_dirs import temporary_dir

CHECKPOINT_METADATA_FILE = "metadata.json"
"""Metadata file of a checkpoint: identity, options, hyperparameters and progress."""

_OLD_METADATA_FILE = "facts.json"
"""Name of `CHECKPOINT_METADATA_FILE` in checkpoints of version 0.1."""

_FILES = "files"
"""Metadata key of the names and sizes of the checkpoint's files.

The sizes show whether the checkpoint is complete.
"""

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
"""Module and name of each allowed function and class in a pickle."""

IGNORED_FILES = ("class_and_ctor_args.pkl", "*.msgpack")
"""Files of a checkpoint that are not read.

These files construct objects or, like RLlib's msgpack files, may contain pickles.
"""


class CheckpointError(ValueError):
    """Error raised if a checkpoint is missing or belongs to another experiment."""


def save(
    algorithm: Any,
    folder: Path,
    metadata: Mapping[str, Any],
    files: Sequence[Path] = (),
    keep: int = 2,
) -> Path:
    """Write a new checkpoint into ``folder`` and delete all except the last ``keep``.

    The checkpoint gets its final name when all files are complete and on disk. The older
    checkpoints are deleted after that. A job that is killed or loses power therefore leaves a
    complete checkpoint. SageMaker copies the directory to S3 and back file by file, so the metadata
    lists the checkpoint's files.

    Args:
        algorithm: The algorithm to save.
        folder: Directory of all checkpoints of the run.
        metadata: Metadata of the checkpoint.
        files: Files to copy into the checkpoint.
        keep: Number of checkpoints to keep.

    Returns:
        Directory of the checkpoint.
    """
    target = folder / f"{_PREFIX}{algorithm.training_iteration:06d}"
    draft = folder / (target.name + _UNFINISHED)
    delete_unfinished(folder)
    draft.mkdir(parents=True)
    try:
        algorithm.save_to_path(str(draft.absolute()))
        for path in files:
            shutil.copy(path, draft)
        content = {**metadata, _FILES: _sizes(draft)}
        (draft / CHECKPOINT_METADATA_FILE).write_text(json.dumps(content, indent=2) + "\n")
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)  # the files may have filled the disk
        raise
    sync_tree(draft)  # a power failure must not leave empty files under the final name
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    sync(folder)
    for old in _all(folder)[:-keep]:
        shutil.rmtree(old)
    return target


def delete_all(folder: Path) -> None:
    """Delete all checkpoints in ``folder``; other files are kept."""
    delete_unfinished(folder)
    for checkpoint in _all(folder):
        shutil.rmtree(checkpoint)


def delete_unfinished(folder: Path) -> None:
    """Delete the checkpoints in ``folder`` whose `save` was killed.

    No other process may write into ``folder`` at the same time.
    """
    for draft in folder.glob(f"{_PREFIX}*{_UNFINISHED}"):
        shutil.rmtree(draft, ignore_errors=True)


def newest(folder: Path, report: Callable[[str], None] = lambda line: None) -> Path | None:
    """Return the newest complete checkpoint in ``folder``, or None.

    Args:
        folder: Directory of all checkpoints of the run.
        report: Function called with a line about each newer checkpoint that is damaged.
    """
    for path in reversed(_all(folder)):
        damage = _find_damage(path)
        if not damage:
            return path
        report(f"skipping the damaged checkpoint {path}: {damage}")
    return None


def find(path: Path) -> Path:
    """Return ``path``, or the newest checkpoint in a directory of checkpoints.

    Args:
        path: A checkpoint, a run directory, or a directory of checkpoints.

    Raises:
        CheckpointError: If there is no checkpoint.
    """
    if _metadata(path) is not None:
        return path
    found = newest(path / "checkpoints", _warn) or newest(path, _warn)
    if found is None:
        raise CheckpointError(
            f"{path} is neither a checkpoint nor a directory with one; a checkpoint is a directory "
            f"with a {CHECKPOINT_METADATA_FILE}, and a run has them in checkpoints/"
        )
    return found


def read_metadata(checkpoint: Path) -> dict[str, Any]:
    """Return the metadata that `save` wrote; former names are replaced.

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
    """Return the content of the metadata file, or None if the file does not exist.

    RLlib's components have files of the same name. These files contain a checkpoint version and are
    ignored.
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
    """Reject a checkpoint whose identity differs from the identity in ``now``.

    Raises:
        CheckpointError: If the identities differ; the message lists all differences.
    """
    # The identity is converted through JSON, because JSON stores a tuple as a list.
    wanted = json.loads(json.dumps(now["identity"]))
    then = read_metadata(checkpoint)["identity"]
    differences = [
        f"{name} is {json.dumps(wanted.get(name))} but was {json.dumps(then.get(name))}"
        for name in {**wanted, **then}
        if wanted.get(name) != then.get(name)
    ]
    if differences:
        raise CheckpointError(
            f"cannot resume from {checkpoint}: {'; '.join(differences)}; use another --name, or "
            "repeat the command of this checkpoint, or add --no-resume to delete it and start over"
        )


def _sizes(checkpoint: Path) -> dict[str, int]:
    return {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }


def _find_damage(checkpoint: Path) -> str:
    """Return the first difference from the files that `save` wrote, or ""."""
    metadata = _metadata(checkpoint)
    if metadata is None:
        return f"{CHECKPOINT_METADATA_FILE} is missing or damaged"
    sizes = _sizes(checkpoint)
    for name, size in metadata.get(_FILES, {}).items():
        if sizes.get(name) != size:
            return f"{name} has {sizes.get(name, 0)} of {size} bytes"
    return ""


def _warn(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _all(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and path.suffix != _UNFINISHED
    )


class _Reader(pickle.Unpickler):
    """Unpickler that resolves only allowed names."""

    def __init__(self, file: Any, allowed: Collection[tuple[str, str]]) -> None:
        super().__init__(file)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self._allowed:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")
        return super().find_class(module_name, global_name)


def load_numeric_pickle(path: Path, also: Collection[tuple[str, str]] = ()) -> Any:
    """Read a pickle that contains only numbers.

    Args:
        path: The file.
        also: Additional allowed names, as (module, name).

    Raises:
        CheckpointError: If the pickle contains other objects, or is damaged.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, {*_SAFE_GLOBALS, *also}).load()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged pickle may raise any error
        raise CheckpointError(
            f"{path} contains more than numbers, or is damaged ({error}); reading it could execute "
            "another person's code"
        ) from error


def _load_weights(path: Path) -> None:
    import torch

    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle may raise any error
        raise CheckpointError(
            f"{path} contains more than weights, or is damaged; reading it could execute code"
        ) from error


@contextmanager
def numbers_only_copy(checkpoint: Path) -> Iterator[Path]:
    """Yield a temporary directory with the files of ``checkpoint`` that contain only numbers.

    The directory contains links, so a checkpoint with a large replay buffer needs no space. torch
    checks its own files (``.pt``).

    Raises:
        CheckpointError: If a file contains other objects, or is damaged.
    """
    with temporary_dir("checkpoint") as folder:
        copy = folder / checkpoint.name
        for path in checkpoint.rglob("*"):
            if path.is_file() and not any(path.match(pattern) for pattern in IGNORED_FILES):
                link = copy / path.relative_to(checkpoint)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.absolute())
        for path in sorted((*copy.rglob("*.pkl"), *copy.rglob("*.pt"))):
            try:
                _load_weights(path) if path.suffix == ".pt" else load_numeric_pickle(path)
            except CheckpointError as error:
                shown = str(error).replace(str(copy), str(checkpoint))
                raise CheckpointError(f"{shown}; --trust-checkpoint reads it anyway") from error
        yield copy

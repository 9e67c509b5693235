"""Checkpoints on disk: written atomically, and read without executing code.

RLlib writes checkpoints as pickles. Unpickling can execute arbitrary code. Training needs only the
numbers in a checkpoint, in arrays and containers. This module therefore resolves only the names
that construct arrays and containers, and rejects all other pickles. The module does not read the
files in `IGNORED_FILES`, because the experiment constructs their objects again.
"""

from __future__ import annotations

import functools
import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import sync, sync_tree
from battlesnake_gym.common.run_dir import flatten_settings
from battlesnake_gym.common.temporary_dirs import temporary_dir
from sagemaker_rl.job.hyperparameters import STOP_CONDITIONS

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

CHECKPOINT_METADATA_FILE = "metadata.json"
"""Name of a checkpoint's metadata file.

The metadata include the identity, the options, the hyperparameters and the progress.
"""

_OLD_METADATA_FILE = "facts.json"
"""Name of the metadata file in checkpoints of version 0.1."""

_FILES_KEY = "files"
"""Metadata key of the names and sizes of the checkpoint's files.

The sizes show whether the checkpoint is complete.
"""

_KL_FILE = "kl_coeffs.json"
"""File with the KL coefficients of RLlib's PPO, keyed by module; other algorithms lack it."""

_ENTROPY_SCHEDULES, _KL_COEFFS = "entropy_coeff_schedulers_per_module", "curr_kl_coeffs_per_module"
"""Attributes of RLlib's learners that their state lacks."""

_CHECKPOINT_PREFIX = "checkpoint_"
"""Name prefix of checkpoint directories; the iteration follows."""
_UNFINISHED_SUFFIX = ".unfinished"
"""Name suffix of the directory of a checkpoint that is being written."""

_SAFE_GLOBALS = {
    ("collections", "OrderedDict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
}
"""Module and name of each function and class that a pickle may use."""

IGNORED_FILES = ("class_and_ctor_args.pkl", "*.msgpack")
"""Name patterns of checkpoint files that this module does not read.

These files construct objects or, like RLlib's msgpack files, may contain pickles.
"""


class CheckpointError(ValueError):
    """Error raised if a checkpoint is missing or belongs to another experiment."""


class CheckpointFolder:
    """Directory of all checkpoints of a run.

    Args:
        path: The directory, which may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(
        self,
        algorithm: Any,
        metadata: Mapping[str, Any],
        files: Sequence[Path] = (),
        keep: int = 2,
    ) -> Path:
        """Write a new checkpoint, and delete old checkpoints.

        The checkpoint is renamed to its final name when all files are complete and on disk. After
        that, the older checkpoints are deleted. A killed job therefore leaves a complete
        checkpoint, even after a power failure. SageMaker copies the directory to S3 and back file
        by file. The metadata therefore lists the checkpoint's files.

        Args:
            algorithm: RLlib's algorithm to save.
            metadata: JSON values to store in the metadata file.
            files: Files to copy into the checkpoint.
            keep: Number of latest checkpoints to keep, including the new checkpoint.

        Returns:
            Directory of the new checkpoint.
        """
        from sagemaker_rl.runs.divergence import Learners  # Imports torch.

        target = self._path / f"{_CHECKPOINT_PREFIX}{algorithm.training_iteration:06d}"
        draft = self._path / (target.name + _UNFINISHED_SUFFIX)
        self._delete_unfinished()
        draft.mkdir(parents=True)
        try:
            algorithm.save_to_path(str(draft.absolute()))
            for path in files:
                shutil.copy(path, draft)
            found = Learners(algorithm).call(lambda one: dict(getattr(one, _KL_COEFFS, {})))
            kl_coeffs: dict[str, Any] = next(iter(found), {})
            if kl_coeffs:
                text = json.dumps({module: float(coeff) for module, coeff in kl_coeffs.items()})
                (draft / _KL_FILE).write_text(text + "\n")
            content = {**metadata, _FILES_KEY: _file_sizes(draft)}
            (draft / CHECKPOINT_METADATA_FILE).write_text(json.dumps(content, indent=2) + "\n")
            sync_tree(draft)  # A power failure must not leave empty files under the final name.
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)  # The files may have filled the disk.
            raise
        replaced = self._path / f"{target.name}.replaced{_UNFINISHED_SUFFIX}"
        if target.exists():  # Its deletion takes longer than its renaming.
            target.rename(replaced)
        draft.rename(target)
        shutil.rmtree(replaced, ignore_errors=True)
        sync(self._path)
        checkpoints = self._list()
        # Later checkpoints are damaged, because the run has not resumed from them.
        for old in checkpoints[: max(checkpoints.index(target) + 1 - keep, 0)]:
            shutil.rmtree(old)
        return target

    def newest(self, report: Callable[[str], None] = lambda line: None) -> Path | None:
        """Return the newest complete checkpoint.

        Args:
            report: Function called with a message about each newer checkpoint that is damaged.

        Returns:
            Directory of the checkpoint, or None if no checkpoint is complete.
        """
        for path in reversed(self._list()):
            damage = _find_damage(path)
            if not damage:
                return path
            report(f"skipping the damaged checkpoint {path}: {damage}")
        return None

    def delete_all(self) -> None:
        """Delete all checkpoints, but no other files."""
        self._delete_unfinished()
        for checkpoint in self._list():
            shutil.rmtree(checkpoint)

    def _delete_unfinished(self) -> None:
        """Delete the checkpoints that a killed process left incomplete.

        No other process may write into the directory at the same time.
        """
        for draft in self._path.glob(f"{_CHECKPOINT_PREFIX}*{_UNFINISHED_SUFFIX}"):
            shutil.rmtree(draft, ignore_errors=True)

    def _list(self) -> list[Path]:
        """Return the directories of all checkpoints, oldest first."""
        found = [
            path
            for path in self._path.glob(f"{_CHECKPOINT_PREFIX}*")
            if path.is_dir() and path.suffix != _UNFINISHED_SUFFIX
        ]
        # A name has at least six digits.
        return sorted(found, key=lambda path: (len(path.name), path.name))


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint ``path``, or the newest checkpoint in ``path``.

    Args:
        path: A checkpoint, a run directory, or a directory of checkpoints.

    Raises:
        CheckpointError: If there is no checkpoint, or if the checkpoint is damaged.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; give a run or a checkpoint")
    if _read_metadata_file(path) is not None:
        if damage := _find_damage(path):
            raise CheckpointError(f"{path} is damaged: {damage}; use another checkpoint")
        return path
    for folder in (path / "checkpoints", path):
        if (found := CheckpointFolder(folder).newest(_print_warning)) is not None:
            return found
    raise CheckpointError(
        f"{path} is neither a checkpoint nor a directory of checkpoints; a checkpoint contains "
        f"{CHECKPOINT_METADATA_FILE}, and the checkpoints of a run are in checkpoints/"
    )


def read_metadata(checkpoint: Path) -> dict[str, Any]:
    """Return a checkpoint's metadata; current names replace former names.

    Raises:
        CheckpointError: If the directory is not a checkpoint.
    """
    metadata = _read_metadata_file(checkpoint)
    if metadata is None:
        raise CheckpointError(
            f"{checkpoint} is not a checkpoint: it has no {CHECKPOINT_METADATA_FILE}"
        )
    metadata.pop(_FILES_KEY, None)
    converted = old_runs.convert_checkpoint_metadata(metadata)
    if "identity" not in converted:
        raise CheckpointError(
            f"{checkpoint}/{CHECKPOINT_METADATA_FILE} is damaged: it lacks identity; use "
            "another checkpoint"
        )
    return converted


def _read_metadata_file(checkpoint: Path) -> dict[str, Any] | None:
    """Return the content of the metadata file, or None if the file does not exist.

    The components of an RLlib checkpoint have files of the same name. These files contain a key
    ``checkpoint_version`` and are ignored.
    """
    for name in (CHECKPOINT_METADATA_FILE, _OLD_METADATA_FILE):
        try:
            found = json.loads((checkpoint / name).read_text())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and "checkpoint_version" not in found:
            return found
    return None


def check_compatible(checkpoint: Path, metadata: Mapping[str, Any]) -> None:
    """Reject a checkpoint whose identity differs from the identity in ``metadata``.

    Raises:
        CheckpointError: If the identities differ; the message names the first difference.
    """
    wanted = flatten_settings(metadata["identity"])
    then = flatten_settings(read_metadata(checkpoint)["identity"])
    for name in wanted | then:
        if (now := wanted.get(name, "null")) != (before := then.get(name, "null")):
            raise CheckpointError(
                f"cannot resume from {checkpoint}: {name} is {now} but was {before}; use another "
                "--name, the earlier value, or --no-resume, which deletes the checkpoint"
            )


def changed_settings(
    checkpoint: Path, metadata: Mapping[str, Any], field_names: Mapping[str, str]
) -> list[str]:
    """Return a log line with the given settings that differ from the checkpoint's, if any.

    The line omits stop conditions, because a run that has ended continues with other ones.
    ``field_names`` maps every accepted name of a setting to the name of its field. Checkpoints of
    version 0.1 contain RLlib's names.
    """
    now, before = (
        flatten_settings(old_runs.rename_keys(one.get("hyperparameters", {}), field_names))
        for one in (metadata, read_metadata(checkpoint))
    )
    changes = [
        f"{name} is {now.get(name, 'the default')} but was {before.get(name, 'the default')}"
        for name in now | before
        if name not in STOP_CONDITIONS and now.get(name) != before.get(name)
    ]
    return [f"settings changed since {checkpoint.name}: {', '.join(changes)}"] if changes else []


def _file_sizes(checkpoint: Path) -> dict[str, int]:
    """Return the size of each file in bytes, keyed by relative path."""
    return {
        str(path.relative_to(checkpoint)): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }


def _find_damage(checkpoint: Path) -> str:
    """Return a message about the first damaged file, or "".

    A damaged file has a different size than in the metadata.
    """
    metadata = _read_metadata_file(checkpoint)
    if metadata is None:
        return f"{CHECKPOINT_METADATA_FILE} is missing or damaged"
    sizes = _file_sizes(checkpoint)
    for name, size in metadata.get(_FILES_KEY, {}).items():
        if sizes.get(name) != size:
            return f"{name} has {sizes.get(name, 0)} of {size} bytes"
    return ""


def _print_warning(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{line}\n")


class _RestrictedUnpickler(pickle.Unpickler):
    """Unpickler that resolves only the names in `_SAFE_GLOBALS`."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Return an allowed class or function, or raise `pickle.UnpicklingError`."""
        if (module_name, global_name) not in _SAFE_GLOBALS:
            raise pickle.UnpicklingError(f"the pickle contains {module_name}.{global_name}")
        return super().find_class(module_name, global_name)


def load_numeric_pickle(path: Path) -> Any:
    """Load a pickle that contains only numbers, arrays and containers.

    Raises:
        CheckpointError: If the pickle contains other objects, or is damaged.
    """
    try:
        with path.open("rb") as file:
            return _RestrictedUnpickler(file).load()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # A damaged pickle may raise any error.
        raise CheckpointError(
            f"{path} contains more than numbers, or is damaged ({error}); reading it could execute "
            "another person's code"
        ) from error


def _check_weights_file(path: Path) -> None:
    """Reject a torch file that contains objects other than weights."""
    import torch

    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # A damaged pickle may raise any error.
        raise CheckpointError(
            f"{path} contains more than weights, or is damaged; reading it could execute code"
        ) from error


@contextmanager
def numbers_only_copy(checkpoint: Path) -> Iterator[Path]:
    """Yield a temporary directory with the numeric files of ``checkpoint``.

    The directory contains links, so a checkpoint with a large replay buffer needs no space. torch
    itself checks the files with its suffix ``.pt``.

    Raises:
        CheckpointError: If a file contains objects other than numbers, or is damaged.
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
                _check_weights_file(path) if path.suffix == ".pt" else load_numeric_pickle(path)
            except CheckpointError as error:
                shown = str(error).replace(str(copy), str(checkpoint))
                raise CheckpointError(
                    f"{shown}; use --trust-checkpoint to read the file anyway"
                ) from error
        yield copy


def restore_algorithm(
    algorithm: Algorithm, config: AlgorithmConfig, checkpoint: Path, env_steps: int
) -> None:
    """Restore a checkpoint, and call the callback ``on_checkpoint_loaded``.

    RLlib itself does not call this callback. The optimizers keep the settings of this run. RLlib's
    PPO resumes with the schedule's entropy coefficient and the last KL coefficient.

    Args:
        algorithm: Algorithm of this run.
        config: Configuration of this run.
        checkpoint: Directory of the checkpoint.
        env_steps: Env steps until the checkpoint, which determine the values of the schedules.
    """
    from sagemaker_rl.runs.divergence import Learners  # Imports torch.

    algorithm.restore_from_path(str(checkpoint.absolute()))
    path = checkpoint / _KL_FILE
    kl_coeffs = json.loads(path.read_text()) if path.exists() else {}
    resume = functools.partial(_resume_settings, env_steps=env_steps, kl_coeffs=kl_coeffs)
    Learners(algorithm).call(resume)
    if (loaded := config.callbacks_on_checkpoint_loaded) is not None:
        loaded(algorithm=algorithm)


def _resume_settings(learner: Any, env_steps: int, kl_coeffs: Mapping[str, float]) -> None:
    """Replace the settings of the checkpoint's optimizers, and set the coefficients of the losses.

    RLlib would train with the checkpoint's learning rate, and with the first entropy coefficient of
    a schedule, until the end of the first update.
    """
    for optimizer in learner._named_optimizers.values():
        for group in optimizer.param_groups:
            group["eps"] = getattr(learner.config, "adam_epsilon", group.get("eps"))
        if (schedule := learner._optimizer_lr_schedules.get(optimizer)) is not None:
            learner._set_optimizer_lr(optimizer, lr=schedule.update(timestep=env_steps))
    for module in learner.module.keys() if hasattr(learner, _ENTROPY_SCHEDULES) else ():
        getattr(learner, _ENTROPY_SCHEDULES)[module].update(timestep=env_steps)
    for module, coeff in kl_coeffs.items():
        if learner.config.kl_coeff:  # A run may disable the KL divergence.
            getattr(learner, _KL_COEFFS)[module].fill_(coeff)

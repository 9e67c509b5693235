"""Checkpoints on disk: written whole or not at all, the newest found again, strangers refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FACTS_FILE = "facts.json"
"""In every checkpoint: what it was trained on and how far (the launcher's ``describe``)."""

_FILES = "files"
"""Entry in the facts: the checkpoint's files and their sizes, to tell a part from the whole."""

_PREFIX = "checkpoint_"
_UNFINISHED = ".unfinished"


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
        (draft / FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n")
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
    if (path / FACTS_FILE).is_file():
        return path
    found = newest(path / "checkpoints") or newest(path)
    if found is None:
        raise CheckpointError(
            f"{path} is neither a checkpoint nor a folder with one; "
            f"a checkpoint is a folder with a {FACTS_FILE}, a run has them under checkpoints/"
        )
    return found


def read_facts(checkpoint: Path) -> dict[str, Any]:
    """What `save` was told about the checkpoint."""
    facts: dict[str, Any] = json.loads((checkpoint / FACTS_FILE).read_text())
    facts.pop(_FILES, None)
    return facts


def check_same(checkpoint: Path, now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose ``"identity"`` differs from that of the experiment of ``now``.

    Raises:
        CheckpointError: naming everything that differs.
    """
    # Through JSON as the other was: a tuple comes back as a list.
    wanted = json.loads(json.dumps(now["identity"]))
    then = read_facts(checkpoint)["identity"]
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
    try:
        wanted = json.loads((checkpoint / FACTS_FILE).read_text()).get(_FILES, {})
    except (OSError, ValueError):
        return False
    sizes = _sizes(checkpoint)
    return all(sizes.get(name) == size for name, size in wanted.items())


def _all(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.glob(f"{_PREFIX}*") if path.is_dir() and path.suffix != _UNFINISHED
    )

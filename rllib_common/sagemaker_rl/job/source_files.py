"""A job's files: the sources that it brings along, and what it has left in S3.

The SageMaker SDK packs folders as they are, compiled parts and all. Those are of this machine's
system and processor; the training image has its own, built from the same sources.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

_COMPILED = (".so", ".pyd", ".dylib", ".dll", ".o", ".a")
"""How files end that only the system and processor that they were compiled on can use."""

PROJECT_DEPENDENCIES = ("rllib_common/sagemaker_rl", "battlesnake_gym", "heuristics")
"""Folders of a clone that this project's scripts need beside them."""


class Sources(TypedDict):
    """Two arguments of the SDK's estimators."""

    source_dir: str
    dependencies: list[str]


def is_wanted(path: PathLike[str] | str) -> bool:
    """Whether a job brings the file or folder along.

    >>> is_wanted("battlesnake_gym/engine/engine.py"), is_wanted("battlesnake_gym/_engine.abi3.so")
    (True, False)
    >>> is_wanted("battlesnake_gym/__pycache__"), is_wanted("engine.cpython-311.pyc")
    (False, False)
    """
    path = Path(path)
    return path.name != "__pycache__" and path.suffix not in (*_COMPILED, ".pyc")


def compiled_files(folder: Path) -> Iterator[Path]:
    """All files in the folder that were compiled for one system and processor."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in _COMPILED)


def copy_sources(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> Sources:
    """Copies of the folders of a job without compiled files, as arguments of its estimator::

        RLEstimator(entry_point="train-mabs.py", **cleaned(source_dir=..., dependencies=[...]), ...)

    The copies show the folders as they are now, also where the estimator packs them later, and are
    removed when this process ends.

    Raises:
        ValueError: there is no such folder, or two dependencies have one name, under which the
            one would overwrite the other in the job.
    """
    folders = [Path(folder) for folder in dependencies]
    for folder in (Path(source_dir), *folders):
        if not folder.is_dir():
            raise ValueError(
                f"there is no folder {folder}; start in the repository, or name it whole"
            )
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"dependencies: two folders are called {name}; rename one of them")
    home = Path(tempfile.mkdtemp(prefix="job-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return {
        "source_dir": _copy(Path(source_dir), home / "source_dir"),
        "dependencies": [_copy(folder, home / "dependencies") for folder in folders],
    }


SCRIPT_COMMAND = "exec python3 {script}"
"""The ``command`` with which `ModelTrainer` runs a script so that it hears SIGTERM: by its
``entry_script``, the shell above would keep it from a job that is asked to stop."""


def merge_source_dir(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> str:
    """One folder with all of a job's, for the SageMaker SDK 3, which takes but one::

        SourceCode(
            source_dir=together(source_dir=..., dependencies=[...]),
            command=START.format(script="train-mabs.py"),
        )

    As with `copy_sources`, without compiled files, as they are now, and gone when this process ends.

    Raises:
        ValueError: as `copy_sources`.
    """
    parts = copy_sources(source_dir=source_dir, dependencies=dependencies)
    for folder in map(Path, parts["dependencies"]):
        shutil.copytree(folder, Path(parts["source_dir"]) / folder.name)
    return parts["source_dir"]


def _copy(folder: Path, place: Path) -> str:
    folder = folder.resolve()
    return str(shutil.copytree(folder, place / folder.name, ignore=_unwanted))


def _unwanted(_: str, names: list[str]) -> list[str]:
    return [name for name in names if not is_wanted(name)]


def with_compiled_parts(path: str) -> str:
    """``path`` and where the parts compiled here lie: the image of a job has them installed."""
    folders = {path: None}
    for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
        part = find_spec(name)
        if part is not None and part.origin is not None:
            folders[str(Path(part.origin).parents[2])] = None
    return os.pathsep.join(filter(None, folders))


def bucket_and_key(address: str) -> tuple[str, str]:
    """The two parts of the address ``s3://BUCKET/KEY``; of the key without slashes at its end.

    Raises:
        ValueError: it is no such address.
    """
    scheme, _, place = address.partition("://")
    bucket, _, key = place.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{address!r} is not an address in S3; give s3://BUCKET/FOLDER")
    return bucket, key.rstrip("/")


def download_artifacts(estimator: Any, run: Path) -> Path:
    """Unpack what a finished job has left in S3, as ``battlesnake-gym train`` leaves a run.

    ``run`` gets ``progress.csv``, ``tensorboard/`` and, in ``model/``, the policy with its
    checkpoint. ``estimator`` is one of the SageMaker SDK's. Returns ``run``.
    """
    bucket, key = bucket_and_key(estimator.model_data)
    folder = key.rpartition("/")[0]
    for name, target in (("output.tar.gz", run), ("model.tar.gz", run / "model")):
        with tempfile.TemporaryDirectory() as draft:
            (packed,) = estimator.sagemaker_session.download_data(draft, bucket, f"{folder}/{name}")
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
    return run

"""Source files and model artifacts of a job.

The SageMaker SDK packs folders unchanged, including compiled modules. Compiled modules fit only
this machine's operating system and processor. The training image has its own modules, compiled from
the same sources.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from battlesnake_gym.common.temporary_dirs import TemporaryDir, temporary_dir

_COMPILED = (".so", ".pyd", ".dylib", ".dll", ".o", ".a")
"""Suffixes of compiled files, which fit only one operating system and processor."""

PROJECT_DEPENDENCIES = ("rllib_common/sagemaker_rl", "battlesnake_gym", "heuristics")
"""Folders of a clone that a job needs next to this project's scripts."""


class Sources(TypedDict):
    """Arguments ``source_dir`` and ``dependencies`` of the SDK's estimators."""

    source_dir: str
    dependencies: list[str]


def is_wanted(path: PathLike[str] | str) -> bool:
    """Return whether a job needs the file or folder.

    >>> is_wanted("battlesnake_gym/engine/engine.py"), is_wanted("battlesnake_gym/_engine.abi3.so")
    (True, False)
    >>> is_wanted("battlesnake_gym/__pycache__"), is_wanted("engine.cpython-311.pyc")
    (False, False)
    """
    path = Path(path)
    return path.name != "__pycache__" and path.suffix not in (*_COMPILED, ".pyc")


def compiled_files(folder: Path) -> Iterator[Path]:
    """Yield the compiled files in a folder."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in _COMPILED)


def copy_sources(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> Sources:
    """Copy a job's folders without compiled files.

        RLEstimator(entry_point="train-mabs.py",
                    **copy_sources(source_dir=..., dependencies=[...]), ...)

    Later changes of the folders do not affect the copies. When this process ends, the copies are
    deleted.

    Returns:
        Arguments of the estimator.

    Raises:
        ValueError: If a folder does not exist, or two dependencies have the same name.
    """
    folders = [Path(folder) for folder in dependencies]
    for folder in (Path(source_dir), *folders):
        if not folder.is_dir():
            raise ValueError(
                f"there is no folder {folder}; start in the repository, or use an absolute path"
            )
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"dependencies: two folders have the name {name}; rename one of them")
    directory = TemporaryDir("job")
    atexit.register(directory.delete)
    copies = directory.path
    return {
        "source_dir": _copy(Path(source_dir), copies / "source_dir"),
        "dependencies": [_copy(folder, copies / "dependencies") for folder in folders],
    }


SCRIPT_COMMAND = "exec python3 {script}"
"""``command`` with which a `ModelTrainer` runs a script that must receive SIGTERM.

With ``entry_script`` instead, SageMaker's process would be a shell, which does not forward
SIGTERM.
"""


def merge_source_dir(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> str:
    """Copy all folders of a job into one folder for the SageMaker SDK 3.

        SourceCode(
            source_dir=merge_source_dir(source_dir=..., dependencies=[...]),
            command=SCRIPT_COMMAND.format(script="train-mabs.py"),
        )

    Like the copies of `copy_sources`, the folder has no compiled files and is deleted when this
    process ends.

    Raises:
        ValueError: If a folder does not exist, or two dependencies have the same name.
    """
    parts = copy_sources(source_dir=source_dir, dependencies=dependencies)
    for folder in map(Path, parts["dependencies"]):
        shutil.copytree(folder, Path(parts["source_dir"]) / folder.name)
    return parts["source_dir"]


def _copy(folder: Path, parent: Path) -> str:
    folder = folder.resolve()
    return str(shutil.copytree(folder, parent / folder.name, ignore=_unwanted))


def _unwanted(_: str, names: list[str]) -> list[str]:
    return [name for name in names if not is_wanted(name)]


def with_compiled_modules(path: str) -> str:
    """Add the folders of this machine's compiled modules to ``path``.

    A job's image installs its own compiled modules.
    """
    folders = {path: None}
    for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
        module = find_spec(name)
        if module is not None and module.origin is not None:
            folders[str(Path(module.origin).parents[2])] = None
    return os.pathsep.join(filter(None, folders))


def bucket_and_key(address: str) -> tuple[str, str]:
    """Split ``s3://BUCKET/KEY`` into bucket and key; trailing slashes are removed.

    Raises:
        ValueError: If ``address`` is not an S3 URI.
    """
    scheme, _, path = address.partition("://")
    bucket, _, key = path.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{address!r} is not an S3 URI; use s3://BUCKET/FOLDER")
    return bucket, key.rstrip("/")


def download_artifacts(estimator: Any, run: Path) -> Path:
    """Download a finished job's artifacts into a run directory.

    ``run`` has the layout of ``train``: ``progress.csv``, ``tensorboard/`` and, in ``model/``, the
    policy with its checkpoint.

    Args:
        estimator: An estimator of the SageMaker SDK whose job has finished.
        run: Directory to write.

    Returns:
        ``run``.
    """
    bucket, key = bucket_and_key(estimator.model_data)
    folder = key.rpartition("/")[0]
    for name, target in (("output.tar.gz", run), ("model.tar.gz", run / "model")):
        with temporary_dir("download") as draft:
            (packed,) = estimator.sagemaker_session.download_data(
                str(draft), bucket, f"{folder}/{name}"
            )
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
    return run

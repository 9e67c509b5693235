"""Source files and model artifacts of a training job.

The SageMaker SDK packs folders unchanged, including compiled modules. A compiled module fits only
this machine's operating system and processor. The training image contains its own modules, compiled
from the same sources.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import battlesnake_gym
from battlesnake_gym.common.temporary_dirs import TemporaryDir, temporary_dir

_COMPILED_SUFFIXES = (".so", ".pyd", ".dylib", ".dll", ".o", ".a")
"""File name suffixes of compiled files.

A compiled file fits only one operating system and processor.
"""

IMAGE_REPOSITORY = "battlesnake-training"
"""Name of the Amazon ECR repository that contains the training image."""

PROJECT_DEPENDENCIES = ("rllib_common/sagemaker_rl", "battlesnake_gym", "heuristics")
"""Folders of a clone that a job needs in addition to the training script."""
_INSTALLED_SCRIPT_DIR = "battlesnake_rl/job_scripts"
_INSTALLED_PACKAGES = (
    "sagemaker_rl",
    "battlesnake_gym",
    "battlesnake_heuristics",
    "battlesnake_rl",
)
"""Folders of an installed wheel that correspond to ``rllib_src`` and `PROJECT_DEPENDENCIES`."""


def find_compiled_files(folder: Path) -> Iterator[Path]:
    """Yield the paths of the compiled files in a folder and its subfolders."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in _COMPILED_SUFFIXES)


def copy_sources(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> dict[str, Any]:
    """Copy a job's folders without compiled files.

    Example::

        RLEstimator(entry_point="train-mabs.py",
                    **copy_sources(source_dir=..., dependencies=[...]), ...)

    Later changes to the folders do not affect the copies. When this process ends, the copies are
    deleted.

    Returns:
        Arguments ``source_dir`` and ``dependencies`` of the estimator.

    Raises:
        ValueError: If a folder does not exist, or two dependencies have the same name.
    """
    folders = [Path(folder) for folder in dependencies]
    for folder in (Path(source_dir), *folders):
        if not folder.is_dir():
            raise ValueError(
                f"there is no folder {folder}; run Python in the repository, or set absolute paths"
            )
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"dependencies: two folders have the name {name}; rename one folder")
    directory = TemporaryDir("job")
    atexit.register(directory.delete)
    copies = directory.path
    return {
        "source_dir": _copy_folder(Path(source_dir), copies / "source_dir"),
        "dependencies": [_copy_folder(folder, copies / "dependencies") for folder in folders],
    }


def copy_project_sources(
    dependencies: Iterable[PathLike[str] | str] = (), source_dir: PathLike[str] | str | None = None
) -> dict[str, Any]:
    """Copy this project's training scripts and packages, from a clone or an installed wheel.

    Args:
        dependencies: Further folders of the job.
        source_dir: Folder with another training script, or None for this project's scripts.

    Returns:
        Arguments of the estimator (see `copy_sources`).

    Raises:
        ValueError: If a folder does not exist, or two dependencies have the same name.
    """
    root = Path(battlesnake_gym.__file__).parents[1]
    scripts = root / "rllib_src"
    packages: tuple[str, ...] = PROJECT_DEPENDENCIES
    if not scripts.is_dir():
        scripts, packages = root / _INSTALLED_SCRIPT_DIR, _INSTALLED_PACKAGES
    return copy_sources(
        source_dir=source_dir or scripts,
        dependencies=[*(root / name for name in packages), *dependencies],
    )


SCRIPT_COMMAND = "exec python3 {script}"
"""``command`` with which a `ModelTrainer` runs a script that must receive SIGTERM.

With ``entry_script`` instead, SageMaker would start a shell, which does not forward SIGTERM.
"""


def merge_source_dir(
    *, source_dir: PathLike[str] | str, dependencies: Iterable[PathLike[str] | str] = ()
) -> str:
    """Copy all folders of a job into one folder for SageMaker SDK 3.

    Example::

        SourceCode(
            source_dir=merge_source_dir(source_dir=..., dependencies=[...]),
            command=SCRIPT_COMMAND.format(script="train-mabs.py"),
        )

    The folder has no compiled files. When this process ends, the folder is deleted.

    Returns:
        Path of the folder.

    Raises:
        ValueError: If a folder does not exist, or two dependencies have the same name.
    """
    parts = copy_sources(source_dir=source_dir, dependencies=dependencies)
    merged = str(parts["source_dir"])
    for folder in map(Path, parts["dependencies"]):
        shutil.copytree(folder, Path(merged) / folder.name)
    return merged


def _copy_folder(folder: Path, parent: Path) -> str:
    """Copy ``folder`` into ``parent`` without compiled files and dangling links.

    Returns:
        Path of the copy.
    """
    folder = folder.resolve()
    patterns = ("__pycache__", *(f"*{suffix}" for suffix in (*_COMPILED_SUFFIXES, ".pyc")))
    ignore = shutil.ignore_patterns(*patterns)
    target = parent / folder.name
    return str(shutil.copytree(folder, target, ignore=ignore, ignore_dangling_symlinks=True))


def add_compiled_modules(path: str) -> str:
    """Add the folders of this machine's compiled modules to the search path ``path``.

    A job's image installs its own compiled modules.
    """
    folders = {path: None}
    for name in ("battlesnake_gym.engine._engine", "battlesnake_heuristics.search._search"):
        module = find_spec(name)
        if module is not None and module.origin is not None:
            folders[str(Path(module.origin).parents[2])] = None
    return os.pathsep.join(filter(None, folders))


def training_image_uri(session: Any) -> str:
    """Return the URI of the training image in Amazon ECR, for the account of a session."""
    region = session.boto_region_name
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{session.account_id()}.dkr.ecr.{region}.{domain}/{IMAGE_REPOSITORY}:latest"


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Split the URI ``s3://BUCKET/KEY`` into bucket and key, without trailing slashes.

    Raises:
        ValueError: If ``uri`` is not an S3 URI.
    """
    scheme, _, path = uri.partition("://")
    bucket, _, key = path.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{uri!r} is not an S3 URI; use s3://BUCKET/FOLDER")
    return bucket, key.rstrip("/")


def download_artifacts(estimator: Any, run: Path) -> Path:
    """Download a finished job's model artifacts and curves into a run directory.

    The directory has the layout of a local run: ``progress.csv``, ``tensorboard/`` and ``model/``.
    ``model/`` contains the policy with its checkpoint.

    Args:
        estimator: Estimator of the SageMaker SDK whose job has finished.
        run: Run directory to write.

    Returns:
        The argument ``run``.
    """
    bucket, key = split_s3_uri(estimator.model_data)
    folder = key.rpartition("/")[0]
    # The curves are last, because a run directory with curves counts as complete.
    for name, target in (("model.tar.gz", run / "model"), ("output.tar.gz", run)):
        with temporary_dir("download") as draft:
            (packed,) = estimator.sagemaker_session.download_data(
                str(draft), bucket, f"{folder}/{name}"
            )
            shutil.unpack_archive(packed, target, filter="data")
    return run

"""Build the packages and the two extension modules; the metadata is in ``pyproject.toml``."""

import runpy
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

PROJECT_FOLDER = Path(__file__).parent

# The folders that contain the packages. A SageMaker job uses `rllib_src` as its source_dir and
# `rllib_common/sagemaker_rl` as a dependency.
SOURCE_FOLDERS = {
    ".": "battlesnake_gym*",
    "heuristics": "battlesnake_heuristics*",
    "server": "battlesnake_server*",
    "rllib_src": "battlesnake_rl*",
    "rllib_common": "sagemaker_rl*",
}


package_folders = {
    name: str(Path(base, *name.split(".")))
    for base, pattern in SOURCE_FOLDERS.items()
    for name in find_packages(base, include=[pattern])
}

BUILD_CHECK_PATH = "battlesnake_gym/engine/build_check.py"
build_check = runpy.run_path(str(PROJECT_FOLDER / BUILD_CHECK_PATH))


def _create_extension(name: str) -> Extension:
    """Create the extension module from the C files in the folder ``csrc`` of its package."""
    folder = PROJECT_FOLDER / package_folders[name.rpartition(".")[0]] / "csrc"
    shared: list[Path] = build_check["SHARED_SOURCES"]
    headers = {*shared, *folder.glob("*.h")}
    return Extension(
        name,
        sources=sorted(str(path.relative_to(PROJECT_FOLDER)) for path in folder.glob("*.c")),
        depends=[
            BUILD_CHECK_PATH,
            *sorted(str(path.relative_to(PROJECT_FOLDER)) for path in headers),
        ],
        include_dirs=[str(shared[0].parent.relative_to(PROJECT_FOLDER))],
        # With Python's default -O2, the observation loops are three times slower. Without
        # contraction, sums of doubles equal Python's sums on processors with fused multiply-add
        # instructions.
        extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off"],
        define_macros=[
            ("Py_LIMITED_API", "0x030B0000"),
            # The module stores this hash. The import compares the hash with the sources to reject
            # stale builds.
            ("SOURCES_HASH", f'"{build_check["sources_hash"](folder)}"'),
        ],
        py_limited_api=True,
        # Without a compiler, the installation succeeds, and the game runs on the Python rules.
        optional=True,
    )


COPIED_FILES = {
    "deployment/cloudformation/*.yaml": "battlesnake_server/deployment/cloudformation",
    "deployment/server/requirements-lambda.txt": "battlesnake_server/deployment/server",
    "rllib_src/*.*": "battlesnake_rl/job_scripts",
}
"""Folders of the wheel with files of ``battlesnake-gym aws``, keyed by pattern in the clone."""


class _BuildWithCopiedFiles(build_py):
    """Build step that also copies `COPIED_FILES`."""

    def run(self) -> None:
        """Build the packages, then copy the files into the packages."""
        super().run()
        if self.editable_mode:
            return
        for pattern, folder in COPIED_FILES.items():
            target = Path(self.build_lib) / folder
            self.mkpath(str(target))
            for file in PROJECT_FOLDER.glob(pattern):
                self.copy_file(str(file), str(target / file.name))


setup(
    cmdclass={"build_py": _BuildWithCopiedFiles},
    packages=list(package_folders),
    package_dir=package_folders,
    ext_modules=[
        _create_extension("battlesnake_gym.engine._engine"),
        _create_extension("battlesnake_heuristics.search._search"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

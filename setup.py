"""Build the packages and the two extension modules; the metadata is in ``pyproject.toml``."""

import runpy
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

# Folders that contain the packages. A SageMaker job uses `rllib_src` as its source_dir and
# `rllib_common/sagemaker_rl` as a dependency.
FOLDERS = {
    ".": "battlesnake_gym*",
    "heuristics": "battlesnake_heuristics*",
    "server": "battlesnake_server*",
    "rllib_src": "battlesnake_rl*",
    "rllib_common": "sagemaker_rl*",
}


package_folders = {
    name: str(Path(base, *name.split(".")))
    for base, pattern in FOLDERS.items()
    for name in find_packages(base, include=[pattern])
}

CHECK = "battlesnake_gym/engine/build_check.py"
build_check = runpy.run_path(str(HERE / CHECK))


def extension(name: str) -> Extension:
    """Describe the extension module compiled from its package's folder ``csrc``."""
    folder = HERE / package_folders[name.rpartition(".")[0]] / "csrc"
    shared: list[Path] = build_check["SHARED_SOURCES"]
    headers = {*shared, *folder.glob("*.h")}
    return Extension(
        name,
        sources=sorted(str(path.relative_to(HERE)) for path in folder.glob("*.c")),
        depends=[CHECK, *sorted(str(path.relative_to(HERE)) for path in headers)],
        include_dirs=[str(shared[0].parent.relative_to(HERE))],
        # With Python's default -O2, the observation loops are three times slower. Without
        # contraction, sums of doubles equal Python's on processors that can fuse them.
        extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off"],
        define_macros=[
            ("Py_LIMITED_API", "0x030B0000"),
            # Stored in the module and compared when it is imported, so that stale builds are
            # rejected.
            ("SOURCES_HASH", f'"{build_check["sources_hash"](folder)}"'),
        ],
        py_limited_api=True,
        # Without a compiler, the game runs on the Python rules.
        optional=True,
    )


class BuildWithDeployment(build_py):
    """Copies the files of ``battlesnake-gym aws deploy`` into the server package."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        for pattern in ("cloudformation/*.yaml", "server/requirements-lambda.txt"):
            for file in (HERE / "deployment").glob(pattern):
                target = Path(self.build_lib) / "battlesnake_server" / file.relative_to(HERE)
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))


setup(
    cmdclass={"build_py": BuildWithDeployment},
    packages=list(package_folders),
    package_dir=package_folders,
    ext_modules=[
        extension("battlesnake_gym.engine._engine"),
        extension("battlesnake_heuristics.search._search"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

"""Builds the packages and the two compiled parts; the metadata stands in ``pyproject.toml``."""

import runpy
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

build_check = runpy.run_path(str(HERE / "battlesnake_gym" / "build_check.py"))

# Folder of each family of packages; the training ones are also the source_dir and a dependency of
# a SageMaker job, where they stand flat beside the script, hence their flat names.
FOLDERS = {
    ".": ["battlesnake_gym*", "heuristics*", "server*"],
    "rllib_src": ["mabs*", "mxnet_baseline*", "procgen_rllib*"],
    "rllib_common": ["sagemaker_rl*"],
}

packages = {
    name: f"{folder}/{name.replace('.', '/')}".removeprefix("./")
    for folder, patterns in FOLDERS.items()
    for name in find_packages(folder, include=patterns)
}


def extension(name: str) -> Extension:
    """Compile all of the folder ``csrc`` in the package of ``name``."""
    folder = HERE.joinpath(*name.split(".")[:-1], "csrc")
    shared: Path = build_check["SHARED"]
    headers = {shared, *folder.glob("*.h")}
    return Extension(
        name,
        sources=sorted(str(path.relative_to(HERE)) for path in folder.glob("*.c")),
        depends=sorted(str(path.relative_to(HERE)) for path in headers),
        include_dirs=[str(shared.parent.relative_to(HERE))],
        # -O3: with Python's own -O2 the observation loops are three times slower.
        # No contraction: sums of doubles come out as in Python where a processor could fuse them.
        extra_compile_args=["-std=gnu11", "-O3", "-ffp-contract=off"],
        define_macros=[
            ("Py_LIMITED_API", "0x030B0000"),
            # What the module says of itself, so that it is not used beside other sources.
            ("SOURCES", f'"{build_check["hash_of_sources"](folder)}"'),
        ],
        py_limited_api=True,
        # Without a compiler the game still runs, on the plain Python rules.
        optional=True,
    )


class BuildWithDeployment(build_py):
    """Puts into ``server/deployment`` what ``battlesnake-gym deploy`` reads of ``deployment/``."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        for pattern in ("cloudformation/*.yaml", "server/requirements-lambda.txt"):
            for file in (HERE / "deployment").glob(pattern):
                target = Path(self.build_lib) / "server" / file.relative_to(HERE)
                self.mkpath(str(target.parent))
                self.copy_file(str(file), str(target))


setup(
    cmdclass={"build_py": BuildWithDeployment},
    packages=list(packages),
    package_dir=packages,
    ext_modules=[
        extension("battlesnake_gym._engine"),
        extension("heuristics._search"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

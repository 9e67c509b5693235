"""Builds the packages and the compiled game engine; the metadata stands in ``pyproject.toml``."""

from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
SOURCES = sorted(str(p.relative_to(HERE)) for p in (HERE / "battlesnake_gym/csrc").glob("*.c"))
HEADERS = sorted(str(p.relative_to(HERE)) for p in (HERE / "battlesnake_gym/csrc").glob("*.h"))

# Folder of each family of packages; the training ones are also the source_dir and a dependency of
# a SageMaker job, where they stand flat beside the script, hence their flat names.
FOLDERS = {
    ".": ["battlesnake_gym*", "heuristics*", "server*"],
    "rllib_src": ["mabs*"],
    "rllib_common": ["sagemaker_rl*"],
}

packages = {
    name: f"{folder}/{name.replace('.', '/')}".removeprefix("./")
    for folder, patterns in FOLDERS.items()
    for name in find_packages(folder, include=patterns)
}

setup(
    packages=list(packages),
    package_dir=packages,
    ext_modules=[
        Extension(
            "battlesnake_gym._engine",
            sources=SOURCES,
            depends=HEADERS,
            # -O3: with Python's own -O2 the observation loops are three times slower.
            extra_compile_args=["-std=c11", "-O3"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            # Without a compiler the game still runs, on the plain Python rules.
            optional=True,
        )
    ]
    if SOURCES
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

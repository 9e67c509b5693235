"""The parts in C: which of those found is used, and why one is not.

Only the standard library is imported here: ``setup.py`` runs this file too.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType

BUILD_HINT = (
    "`make build` in a clone of the project, or install the package again with a C compiler"
)
_SUFFIXES = (".so", ".pyd", ".dylib")
"""How compiled modules end, on any platform."""

SHARED_SOURCES = [
    Path(__file__).parent / "csrc" / name
    for name in ("bitset.h", "bitset_template.h", "cpu_features.h")
]
"""What all C files may include, those of other packages too."""

_reasons: dict[str, str] = {}


def sources_hash(csrc: Path) -> str:
    """A hash of the C files in a folder and of `SHARED_SOURCES`; "" where there are none."""
    files = {path.name: path for path in sorted(csrc.glob("*.[ch]")) if path.is_file()}
    if not files:
        return ""
    found = hashlib.sha256()
    for path in ({path.name: path for path in SHARED_SOURCES} | files).values():
        found.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return found.hexdigest()


def load(name: str, cost: str) -> ModuleType | None:
    """The compiled module ``name``, from the first folder of its package that has a fitting one.

    It fits if it can be loaded and was compiled from the C files that lie beside the package's
    sources. Where only others were found, a ``RuntimeWarning`` says why they were passed over,
    ``cost`` what that costs, and what to do; where none was found, nothing is said.
    """
    if name in sys.modules:  # loaded before, or None: wanted to be missing
        return sys.modules[name]
    package, _, leaf = name.rpartition(".")
    folders = [Path(folder) for folder in sys.modules[package].__path__]
    # A SageMaker job has copies of the sources, and the compiled modules only in its image.
    installed = [Path(folder, *package.split(".")) for folder in sys.path]
    reasons = []
    for folder in dict.fromkeys([*folders, *installed]):
        found = _find(name, folder)
        if found is None:
            continue
        module = found if isinstance(found, str) else _try(found, folders[0] / "csrc")
        if not isinstance(module, str):
            sys.modules[name] = module
            setattr(sys.modules[package], leaf, module)
            return module
        reasons.append(module)
    _reasons[name] = "; ".join(reasons) or "it was not compiled here"
    sys.modules[name] = None  # type: ignore[assignment]  # no import finds it by another way
    if reasons:
        message = f"{_reasons[name]}; so {cost}; to mend it: {BUILD_HINT}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return None


def missing_reason(name: str) -> str:
    """Why `load` has found no ``name``; "" where it has."""
    return _reasons.get(name, "")


def _find(name: str, folder: Path) -> importlib.machinery.ModuleSpec | str | None:
    """The module in a folder, None, or why one that lies there is none for this Python."""
    spec = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    if spec is not None:
        return spec
    leaf = name.rpartition(".")[2]
    others = [path for path in sorted(folder.glob(f"{leaf}.*")) if path.suffix in _SUFFIXES]
    if not others:
        return None
    here = f"{sysconfig.get_platform()} and Python {sysconfig.get_python_version()}"
    return f"{others[0]} is not for {here}"


def _try(spec: importlib.machinery.ModuleSpec, csrc: Path) -> ModuleType | str:
    """The module, or why it does not fit."""
    assert spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        return f"{spec.origin} cannot be loaded ({error})"
    wanted = sources_hash(csrc)
    if wanted and getattr(module, "SOURCES_HASH", "") != wanted:
        return f"{spec.origin} was compiled from other C sources than those in {csrc}"
    return module

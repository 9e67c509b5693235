"""Loader of compiled modules, which records the reasons why a module is unusable.

This module imports only the standard library, because ``setup.py`` also runs this module.
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
_MODULE_SUFFIXES = (".so", ".pyd", ".dylib")
"""File suffixes of compiled modules on all platforms."""

SHARED_SOURCES = [
    Path(__file__).parent / "csrc" / name
    for name in ("bitset.h", "bitset_template.h", "cpu_features.h")
]
"""Headers that the C files of all packages may include."""

_unusable_reasons: dict[str, str] = {}


def sources_hash(csrc: Path) -> str:
    """Return a hash of `SHARED_SOURCES` and the C files in a directory.

    The result is "" if the directory contains no C files.
    """
    files = {path.name: path for path in sorted(csrc.glob("*.[ch]")) if path.is_file()}
    if not files:
        return ""
    digest = hashlib.sha256()
    for path in ({path.name: path for path in SHARED_SOURCES} | files).values():
        digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def load_compiled_module(name: str, consequence: str) -> ModuleType | None:
    """Load the compiled module ``name`` from the first directory with a usable file.

    A module is usable if it loads and was compiled from the C files next to the package's sources.
    If only unusable modules exist, a ``RuntimeWarning`` gives the reasons, the consequence and the
    remedy. If no module exists, the function does not warn.

    Args:
        name: Full name of the module.
        consequence: Consequence of a missing module, for the warning.

    Returns:
        The module, or None if no usable module exists.
    """
    # The value None marks a module that is missing or unusable.
    if name in sys.modules:
        return sys.modules[name]
    package, _, leaf = name.rpartition(".")
    folders = [Path(folder) for folder in sys.modules[package].__path__]
    # A SageMaker job runs copies of the sources; the compiled modules exist only in its image.
    installed = [Path(folder, *package.split(".")) for folder in sys.path]
    reasons = []
    for folder in dict.fromkeys([*folders, *installed]):
        found = _find_module(name, folder)
        if found is None:
            continue
        module = found if isinstance(found, str) else _try_load(found, folders[0] / "csrc")
        if not isinstance(module, str):
            sys.modules[name] = module
            setattr(sys.modules[package], leaf, module)
            return module
        reasons.append(module)
    _unusable_reasons[name] = "; ".join(reasons) or "it was not compiled here"
    sys.modules[name] = None  # type: ignore[assignment]  # An import must not find it.
    if reasons:
        message = f"{_unusable_reasons[name]}, so {consequence}; to fix it: {BUILD_HINT}"
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return None


def missing_reason(name: str) -> str:
    """Return the reason why a compiled module is not usable.

    The result is "" if the module is usable.
    """
    return _unusable_reasons.get(name, "")


def _find_module(name: str, folder: Path) -> importlib.machinery.ModuleSpec | str | None:
    """Find the module in ``folder``.

    Returns:
        The spec of the module, None if no file exists, or the reason why this Python cannot load
        the existing file.
    """
    spec = importlib.machinery.PathFinder.find_spec(name, [str(folder)])
    if spec is not None:
        return spec
    leaf = name.rpartition(".")[2]
    others = [path for path in sorted(folder.glob(f"{leaf}.*")) if path.suffix in _MODULE_SUFFIXES]
    if not others:
        return None
    here = f"{sysconfig.get_platform()} and Python {sysconfig.get_python_version()}"
    return f"{others[0]} is not for {here}"


def _try_load(spec: importlib.machinery.ModuleSpec, csrc: Path) -> ModuleType | str:
    """Load the module, or return the reason why it is not usable."""
    assert spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        return f"{spec.origin} cannot be loaded ({error})"
    wanted = sources_hash(csrc)
    if wanted and getattr(module, "SOURCES_HASH", "") != wanted:
        return f"{spec.origin} was compiled from other C sources than the files in {csrc}"
    return module

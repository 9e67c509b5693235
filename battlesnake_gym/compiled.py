"""Whether a compiled part belongs to the sources that import it."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def check_same_sources(module: ModuleType, here: Path = HERE) -> None:
    """Refuse a compiled part that was built elsewhere from other C sources than those in ``here``.

    Raises:
        ImportError: so that the Python rules are used; with a warning, since they are slow.
    """
    there = Path(str(module.__file__)).parent
    if there == here or _sources(there) == _sources(here):
        return
    message = (
        f"{module.__file__} was compiled from other C sources than those in {here / 'csrc'}, so "
        "games run on the slow Python rules; build the image again, or compile here"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)
    raise ImportError(message)


def _sources(package: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (package / "csrc").glob("*.[ch]")}

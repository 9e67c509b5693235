"""RLlib's algorithms for as long as a block lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def built(config: Any) -> Iterator[Any]:
    """An algorithm by this configuration, which is stopped in the end."""
    algorithm = config.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()

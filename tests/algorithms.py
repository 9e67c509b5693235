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


def noted_batches(algorithm: Any) -> list[Any]:
    """What an algorithm learns from, batch by batch from now on."""
    seen: list[Any] = []
    update = algorithm.learner_group.update

    def noted(**told: Any) -> Any:
        seen.append(told["batch"]["default_policy"])
        return update(**told)

    algorithm.learner_group.update = noted
    return seen

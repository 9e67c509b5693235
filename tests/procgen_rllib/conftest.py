"""The games must be there: skipped where they are not, but never in continuous integration."""

import os
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def games() -> None:
    """Skip the tests, naming the missing package, unless Procgen runs."""
    from procgen_rllib.environment import VectorProcgen

    try:
        VectorProcgen(1).reset(seed=0)
    except ImportError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, for as long as the tests run."""
    ray = pytest.importorskip("ray", reason="needs the extra rllib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            ignore_reinit_error=True,
        )
    yield
    ray.shutdown()

"""What several packages' tests share."""

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, one for all tests of a process, for as long as they run."""
    ray = pytest.importorskip("ray", reason="needs the extra rllib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()

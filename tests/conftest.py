"""What several packages' tests share."""

import contextlib
import os
import signal
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.allowed_skips import pytest_sessionfinish as pytest_sessionfinish
from tests.allowed_skips import pytest_terminal_summary as pytest_terminal_summary

# No example is too late on a busy machine: neither to be made nor to be tried.
settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

# Where the tests were started in the background, a shell has switched Ctrl-C off, also for every
# server that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of torch wait for each other in a busy loop, which stalls on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, one for all tests of a process, for as long as they run."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    from sagemaker_rl.cluster.local_ray import local_ray

    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stack.enter_context(local_ray(num_cpus=4))
        yield


@pytest.fixture
def disconnected_from_ray() -> Iterator[None]:
    """No connection to the Ray of earlier tests of the process, for a test with another cluster."""
    import ray

    from sagemaker_rl.cluster import ray_node

    if not ray.is_initialized():
        yield
        return
    address = ray.get_runtime_context().gcs_address
    ray.shutdown()
    yield
    ray_node._read_token_again()
    ray_node.connect_to_ray(address, loopback=True)

"""The games must be there: skipped where they are not, but never in continuous integration."""

import os

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

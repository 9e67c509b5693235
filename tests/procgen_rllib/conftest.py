"""Skip of the tests if Procgen cannot run."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def games() -> None:
    """Skip the tests, with the name of the missing package, unless Procgen runs."""
    from battlesnake_rl.procgen.procgen_environment import VectorProcgen

    try:
        VectorProcgen(1).reset(seed=0)
    except ImportError as error:
        pytest.skip(str(error))

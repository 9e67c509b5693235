"""The games must be there: the tests are skipped where they are not."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def games() -> None:
    """Skip the tests, naming the missing package, unless Procgen runs."""
    from battlesnake_rl.procgen.procgen_environment import VectorProcgen

    try:
        VectorProcgen(1).reset(seed=0)
    except ImportError as error:
        pytest.skip(str(error))

"""Freed memory is used again."""

import sys

import pytest

from tests.processes import run

COUNT_PAGE_FAULTS = """
import resource, sys
from battlesnake_rl.mabs.base.allocator import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit(3)
def use():
    blocks = [bytearray(6 << 20) for _ in range(4)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(which: str) -> int:
    done = run(sys.executable, "-c", COUNT_PAGE_FAULTS, which)
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    return int(done.stdout)


def test_large_blocks_are_not_asked_for_again_and_again() -> None:
    given_back, kept = _page_faults("given back"), _page_faults("kept")
    # 4 blocks of 1,536 pages of 4 KiB, ten times over.
    assert kept < 6_000 < given_back

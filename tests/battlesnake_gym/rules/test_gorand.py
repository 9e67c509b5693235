"""The random streams are exactly those of Go."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym.rules.gorand import GoRand

ROOT = Path(__file__).parents[3]
STREAMS: list[dict[str, Any]] = json.loads(
    gzip.decompress((ROOT / "conformance/gorand.json.gz").read_bytes())
)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: str(stream["seed"]))
class TestStreams:
    @pytest.mark.parametrize("kind", ["int63", "uint32", "int31"])
    def test_numbers(self, stream: dict[str, Any], kind: str) -> None:
        rand = GoRand(stream["seed"])
        assert [getattr(rand, kind)() for _ in stream[kind]] == stream[kind]

    @pytest.mark.parametrize("n", [2, 4, 7, 100, 121])
    def test_intn(self, stream: dict[str, Any], n: int) -> None:
        rand = GoRand(stream["seed"])
        wanted = stream[f"intn_{n}"]
        assert [rand.intn(n) for _ in wanted] == wanted

    def test_shuffles(self, stream: dict[str, Any]) -> None:
        rand = GoRand(stream["seed"])
        for wanted in stream["shuffle_10"]:
            items = list(range(10))
            rand.shuffle(items)
            assert items == wanted
        items = list(range(121))
        GoRand(stream["seed"]).shuffle(items)
        assert items == stream["shuffle_121"]

    def test_more_outputs_than_seeded_words(self, stream: dict[str, Any]) -> None:
        rand = GoRand(stream["seed"])
        drawn = []
        for _ in range(40):
            drawn.append(rand.intn(100))
            items = list(range(57))
            rand.shuffle(items)
            drawn.append(items[0])
        assert drawn == stream["mixed"]
        assert rand.drawn > 2 * 607


def test_seeds_wrap_like_64_bit_integers() -> None:
    assert GoRand(2**63).uint64() == GoRand(-(2**63)).uint64()


@pytest.mark.parametrize("n", [0, -1, 2**31])
def test_intn_rejects_the_arguments_that_go_rejects(n: int) -> None:
    with pytest.raises(ValueError, match=r"n .* 1"):
        GoRand(1).intn(n)

"""Mutations of valid files: loaders must reject each in one line, or read it.

    python -m tests.server.hostile_files FILE LOADER COUNT SEED

runs in a separate process that may allocate 300 MB.
"""

import gzip
import hashlib
import io
import json
import random
import resource
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from battlesnake_gym import policy_file
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server.arena import league_config
from battlesnake_server.bundle import Bundle

MEMORY = 300 << 20
SECONDS = 2.0

LOADERS: dict[str, Callable[[Path], object]] = {
    "bundle": Bundle.load,
    "evaluation": Evaluation.load,
    "policy": lambda path: policy_file.check(b"", path.read_bytes(), path),
    "replay": Replay.load,
    "replay.gz": Replay.load,
    "league": league_config.LeagueConfig.load,
}
"""Loader per kind of file; for a policy only its JSON file, which describes an empty network."""

VALUES = (
    b"null", b"true", b"-1", b"1e999", b"1" * 5000, b"1" + b"0" * 30, b"[]", b"{}", b'""', b"NaN",
    b"[" * 100_000, b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900, b'"\\ud800"',
    b'"' + b"x" * 70_000 + b'"', b"\xff\xfe", b"\0", b"\n", b"*a", b"&a [*a]", b"<<: {a: 1}",
)  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Apply up to three random cuts, duplications, bit flips and unusual values."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(data) + 1)
        end = start + chance.choice([0, 1, 2, 8, 100])
        new = chance.choice([b"", data[start:end] * 2, chance.randbytes(end - start), *VALUES])
        data = data[:start] + new + data[end:]
    return data


def mutated_zip(data: bytes, chance: random.Random) -> bytes:
    """Return a zip file with mutated bytes, or with another file, name or metadata inside."""
    if chance.random() < 0.5:
        return mutated(data, chance)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(files["snake.json"])
    name = chance.choice([*files, "../../up", "/etc/passwd", "a/b", "x" * 200, "rules.py\0", "é"])
    files[name] = mutated(files.get(name, b"{}"), chance)
    facts["files"] = {
        one: hashlib.sha256(content).hexdigest()
        for one, content in files.items() if one != "snake.json"
    }  # fmt: skip
    if name != "snake.json":
        files["snake.json"] = mutated(json.dumps(facts).encode(), chance)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", chance.choice([0, 8, 12, 14])) as archive:
        for one, content in files.items():
            archive.writestr(one, content)
    return written.getvalue()


def mutant(loader: str, data: bytes, chance: random.Random) -> bytes:
    if loader == "bundle":
        return mutated_zip(data, chance)
    if loader == "replay.gz" and chance.random() < 0.5:
        return gzip.compress(mutated(gzip.decompress(data), chance), 1)
    return mutated(data, chance)


def main(original: Path, loader: str, count: int, seed: int) -> None:
    """Load mutants of a file; raise at the first that is neither read nor rejected properly."""
    load, data = LOADERS[loader], original.read_bytes()
    path = original.with_name(f"mutant-{seed}-{original.name}")
    (now,) = (
        int(line.split()[1]) << 10
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmSize")
    )
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    for number in range(count):
        content = mutant(loader, data, random.Random(f"{seed} {number}"))
        path.write_bytes(content)
        began = time.process_time()
        try:
            load(path)
        except ValueError as error:
            line = str(error)
            assert "\n" not in line, (number, line)
            assert len(line) < 1000 + len(str(path)), (number, line)
        assert time.process_time() - began < SECONDS, number


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

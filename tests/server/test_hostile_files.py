"""Loaders of untrusted files: each rejects a malformed file with a one-line error."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from battlesnake_gym import policy_file
from battlesnake_gym.boards.board import Board
from battlesnake_gym.policy_file import PolicyError
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_gym.rules import MOVES
from battlesnake_heuristics.search.evaluation import BUILTIN_PATH as EVALUATION
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server import bundle
from battlesnake_server.arena import league_config
from battlesnake_server.bundle import Bundle, run_extension_code
from tests.processes import run
from tests.server import training_runs
from tests.server.hostile_files import LOADERS, SECONDS

FACTS: dict[str, object] = {"snake": "cautious", "nodes": None, "filters": [], "customization": {}}
ZEROS = bytes(1 << 20)


@pytest.fixture
def original(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Return a function that writes a valid file for a loader."""

    def write(loader: str) -> Path:
        path = tmp_path / loader
        if loader == "bundle":
            path.write_bytes(bundle.to_bytes(FACTS | {"snake": "mine"}, {"rules.py": b"x = 1\n"}))
        elif loader == "evaluation":
            shutil.copy(EVALUATION, path)
        elif loader == "policy":
            card = {"format": 1, "actions": MOVES, "sha256": hashlib.sha256(b"").hexdigest()}
            path.write_text(json.dumps(card))
        elif loader == "league":
            path.write_text(league_config.EXAMPLE_LEAGUE_FILE)
        else:
            recorded = path.with_suffix(".jsonl.gz" if loader == "replay.gz" else ".jsonl")
            training_runs.played(1, turns=5).save(recorded)
            recorded.rename(path)
        return path

    return write


def zipped(path: Path, files: dict[str, bytes], *, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def described(files: dict[str, bytes], **facts: object) -> dict[str, bytes]:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    text = json.dumps({"format": 2, **FACTS, **facts, "files": hashes})
    return {"snake.json": text.encode(), **files}


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/b", "..", ".hidden", "a\\b", "folder/"]
)
def test_a_bundle_holds_plain_names_alone(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", described({name: b""}))
    with pytest.raises(ValueError, match="unique"):
        Bundle.load(path)


def test_a_bundle_holds_no_links(tmp_path: Path) -> None:
    files = described({"rules.py": b"/etc/passwd"})
    with pytest.raises(ValueError, match=r"'snake.json'"):
        Bundle.load(zipped(tmp_path / "a.zip", files, mode=stat.S_IFLNK | 0o777))
    assert Bundle.load(zipped(tmp_path / "b.zip", files, mode=stat.S_IFREG | 0o600))


def test_a_bundle_s_names_are_there_once(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", described({"rules.py": b"x = 1"}))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("rules.py", b"x = 1")
    with pytest.raises(ValueError, match=r"'rules.py'"):
        Bundle.load(path)


def lie_about_sizes(path: Path, size: int) -> None:
    """Set the uncompressed size in all headers of a zip file to ``size``."""
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = -1
        while (start := data.find(mark, start + 1)) >= 0:
            struct.pack_into("<I", data, start + place, size)
    path.write_bytes(data)


OPENED = """
import resource, sys, time
from battlesnake_server import bundle
try:
    bundle.Bundle.load(sys.argv[1])
except ValueError as error:
    print(error)
print(int(time.process_time() * 1000), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def opened(path: Path) -> tuple[str, float, int]:
    """Open a bundle in a process; return its output, its seconds, and its memory in KiB."""
    done = run(sys.executable, "-c", OPENED, path, cwd=Path(__file__).parents[2], check=True)
    *said, taken = done.stdout.strip().splitlines()
    milliseconds, memory = map(int, taken.split())
    return "\n".join(said), milliseconds / 1000, memory


def test_a_bundle_that_lies_about_its_size_costs_little(tmp_path: Path) -> None:
    """256 MB of zeros are compressed to 256 kB and declared as a kilobyte."""
    path = tmp_path / "a.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("rules.py", "w", force_zip64=True) as file,
    ):
        for _ in range(256):
            file.write(ZEROS)
    assert path.stat().st_size < 1 << 19
    honest = zipped(tmp_path / "b.zip", described({"rules.py": b""}, snake="cautious"))
    said, usual_seconds, usual_memory = opened(honest)
    assert said == ""
    lie_about_sizes(path, 1000)
    said, seconds, memory = opened(path)
    assert path.name in said
    assert "\n" not in said
    assert seconds - usual_seconds < SECONDS
    assert memory - usual_memory < 100 << 10


def test_a_bundle_is_packed_in_the_usual_way(tmp_path: Path) -> None:
    for number, method in enumerate((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("snake.json", "{}")
        with pytest.raises(ValueError, match="unsupported compression"):
            Bundle.load(path)


def test_a_bundle_of_many_files_or_bytes_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zipped(tmp_path / "a.zip", {f"{number}.py": b"" for number in range(200)})
    with pytest.raises(ValueError, match="100 files"):
        Bundle.load(path)
    monkeypatch.setattr(bundle, "_MAX_ARCHIVE_BYTES", 100)
    with pytest.raises(ValueError, match="100 bytes"):
        Bundle.load(path)


@pytest.mark.parametrize("nodes", [True, 0, -1, 1.5, 10**30, "5", [[[]]]])
def test_a_bundle_searches_a_number_of_nodes(tmp_path: Path, nodes: object) -> None:
    path = zipped(tmp_path / "a.zip", described({}, nodes=nodes))
    with pytest.raises(ValueError, match=r"nodes.* 1.* 1000000000"):
        Bundle.load(path)
    for most in (1, 10**9):
        assert Bundle.load(zipped(tmp_path / "b.zip", described({}, nodes=most)))


DEEP = b"[" * 50_000


@pytest.mark.parametrize(("facts", "words"), [(DEEP, "nested"), (b" " * 70_000, "65536")])
def test_facts_are_short_and_flat(tmp_path: Path, facts: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Bundle.load(zipped(tmp_path / "a.zip", {"snake.json": facts}))
    with pytest.raises(PolicyError, match=words):
        policy_file.check(b"", facts, tmp_path / "policy.onnx")
    with pytest.raises(ValueError, match=words):
        Evaluation.from_bytes(b"battlesnake evaluation\n" + facts + b"\n", "snake.evaluation")


def test_a_league_s_snake_may_be_called_what_no_file_is(tmp_path: Path) -> None:
    path = tmp_path / "league.yaml"
    path.write_text(f"name: x\nsnakes: {{a: {'x' * 5000}, b: hungry}}\n")
    assert league_config.LeagueConfig.load(path).entrants[0].source == "x" * 5000


def test_a_replay_s_error_is_short(tmp_path: Path) -> None:
    replay = Replay(Board.from_text("A . . B"))
    first = json.dumps(replay.to_lines()[0]).replace('"id": "a"', f'"id": "{"x" * 70_000}"')
    path = tmp_path / "replay.jsonl"
    path.write_text(first + '\n{"moves": {}}\n')
    with pytest.raises(ReplayError) as raised:
        Replay.load(path)
    assert len(str(raised.value)) < 1000


def test_files_are_not_read_further_than_they_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.json"
    path.write_bytes(ZEROS)
    with pytest.raises(ValueError, match="more than"):
        Evaluation.load(path)
    with pytest.raises(ValueError, match="more than"):
        league_config.LeagueConfig.load(path)
    monkeypatch.setattr(policy_file, "_MAX_MODEL_BYTES", 100)
    for model in (b"", ZEROS):  # the JSON file is too long, or the network is
        path.with_suffix(".onnx").write_bytes(model)
        with pytest.raises(PolicyError, match="100 bytes"):
            policy_file.read(path.with_suffix(".onnx"))


@pytest.mark.parametrize(
    "text",
    [
        "snakes: " + "[" * 5000,
        "a: &a {x: 1}\n" + "".join(
            f"{new}: &{new} {{y: 1, <<: [{f'*{old}, ' * 9}]}}\n"
            for old, new in zip("abcdefghijk", "bcdefghijkl", strict=True)
        ),
    ],
    ids=["deep", "merges"],
)  # fmt: skip
def test_a_league_s_file_is_flat(tmp_path: Path, text: str) -> None:
    path = tmp_path / "league.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="YAML"):
        league_config.LeagueConfig.load(path)


@pytest.mark.parametrize(
    "count", [500, pytest.param(100_000, marks=[pytest.mark.slow])], ids=["few", "many"]
)
@pytest.mark.parametrize("loader", LOADERS)
def test_mutants_are_read_or_refused_in_a_line(
    loader: str, count: int, original: Callable[[str], Path]
) -> None:
    """The process may use 300 MB; its error message names the mutant that failed."""
    path = original(loader)
    LOADERS[loader](path)
    done = run(
        sys.executable, "-m", "tests.server.hostile_files", path, loader, str(count), "1",
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "raise KeyboardInterrupt", "exit()"])
def test_code_of_a_bundle_that_exits_is_an_error(code: str) -> None:
    with pytest.raises(ValueError, match=r"rules\.py, line 2: (SystemExit|KeyboardInterrupt)"):
        run_extension_code(f"\n{code}".encode(), "rules.py")

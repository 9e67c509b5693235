"""Files that survive power cuts and kills: syncs in the right order, no leftovers, clear errors."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from battlesnake_gym.common.files import sync_tree, write_atomically
from tests.processes import run, running


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every sync and every rename, with the name that it affects."""
    found: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        size = "" if path.is_dir() else f" {path.stat().st_size} bytes"
        found.append(f"sync {path.suffix or path.name}{size}")
        fsync(descriptor)

    def record_replace(path: Path, target: Path) -> Path:
        found.append(f"rename to {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_replace)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_content_is_synced_before_the_rename_and_the_name_after_it(
    tmp_path: Path, events: list[str]
) -> None:
    folder = tmp_path / "replays"
    write_atomically(folder / "game.jsonl", lambda part: part.write_bytes(b"12345"))
    assert events == ["sync .part 5 bytes", "rename to game.jsonl", "sync replays"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_tree_is_synced_from_its_leaves(tmp_path: Path, events: list[str]) -> None:
    (tmp_path / "top" / "sub").mkdir(parents=True)
    (tmp_path / "top" / "sub" / "a.bin").write_bytes(b"1")
    (tmp_path / "top" / "b.bin").write_bytes(b"22")
    sync_tree(tmp_path / "top")
    assert events == ["sync .bin 1 bytes", "sync sub", "sync .bin 2 bytes", "sync top"]


def test_a_file_system_that_cannot_sync_directories_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def reject_directories(descriptor: int) -> None:
        if os.path.isdir(f"/dev/fd/{descriptor}"):  # noqa: PTH112  (follows the descriptor)
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", reject_directories)
    write_atomically(tmp_path / "file", lambda part: part.write_text("content"))
    assert (tmp_path / "file").read_text() == "content"


def test_a_failed_sync_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "file", lambda part: part.write_text("new"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


STUCK_WRITER = """
import sys, time
from pathlib import Path
from battlesnake_gym.common.files import write_atomically
def write(part):
    part.write_text("half of it")
    print(part.name, flush=True)
    time.sleep(600)
write_atomically(Path(sys.argv[1]), write)
"""


def test_what_a_killed_writer_leaves_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    kept = [".mine.part", ".mine.12345678.part.txt", "mine.12345678.part"]
    for name in kept:
        (tmp_path / name).write_text("another program's")
    again = "import sys; from battlesnake_gym.common.files import write_atomically;"
    again += "write_atomically(sys.argv[1], lambda part: part.write_text('other'))"
    with running(sys.executable, "-c", STUCK_WRITER, tmp_path / "first") as writer:
        assert writer.stdout is not None
        part = writer.stdout.readline().strip()
        run(sys.executable, "-c", again, tmp_path / "second", check=True)
        assert (tmp_path / part).read_text() == "half of it", "its writer is alive"
    run(sys.executable, "-c", again, tmp_path / "second", check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "second"])


@pytest.mark.parametrize("step", ["write", "copy", "rename", "create"])
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    target = tmp_path / "policy.onnx"

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "rename":
        monkeypatch.setattr(Path, "replace", fail)
    if step == "create":
        monkeypatch.setattr(os, "open", fail)

    def copy(part: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "source", None, str(part))

    writers: dict[str, Callable[[Path], object]] = {"write": fail, "copy": copy}
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_atomically(target, writers.get(step, Path.touch))
    assert raised.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []


def test_an_error_about_another_file_names_that_file(tmp_path: Path) -> None:
    def write(part: Path) -> None:
        (tmp_path / "missing").read_text()

    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "file", write)
    assert raised.value.filename == str(tmp_path / "missing")


def test_a_directory_at_the_target_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as error:
        write_atomically(tmp_path, Path.touch)
    assert error.value.filename == str(tmp_path)

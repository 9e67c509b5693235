"""Files that survive a power cut: content and names are synced in the right order."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from battlesnake_gym.common.files import sync_tree, write_atomically


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

"""Temporary directories of killed processes are deleted by the next process."""

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest

from battlesnake_gym.common.temporary_dirs import TemporaryDir, temporary_dir
from tests.processes import running

HOLDER = """
import sys, time
from battlesnake_gym.common.temporary_dirs import TemporaryDir
directory = TemporaryDir("ray", sys.argv[1])
(directory.path / "token").write_text("secret")
print(directory.path, flush=True)
time.sleep(600)
"""


def test_a_directory_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    (tmp_path / "bsgym-notes").mkdir()
    (tmp_path / "bsgym-ray-12345678").symlink_to(tmp_path / "bsgym-notes")
    with running(sys.executable, "-c", HOLDER, tmp_path) as holder:
        assert holder.stdout is not None
        held = Path(holder.stdout.readline().strip())
        TemporaryDir("game", str(tmp_path)).delete()
        assert (held / "token").exists(), "its process is alive"
    TemporaryDir("game", str(tmp_path)).delete()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bsgym-notes", "bsgym-ray-12345678"]


def test_a_directory_that_is_deleted_before_its_lock_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdtemp, created = tempfile.mkdtemp, []

    def delete_the_first(*arguments: str, **named: str) -> str:
        created.append(mkdtemp(*arguments, **named))
        if len(created) == 1:
            Path(created[0]).rmdir()
        return created[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", delete_the_first)
    directory = TemporaryDir("game", str(tmp_path))
    assert [str(path) for path in tmp_path.iterdir()] == [created[1]] == [str(directory.path)]
    directory.delete()
    assert list(tmp_path.iterdir()) == []


def fill_disk(*names: str | None) -> None:
    """Raise the error of a full disk; "in" is a file in the temporary directory."""
    with temporary_dir("game") as path:
        one, two = [str(path / "file") if name == "in" else name for name in names]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), one, None, two)


@pytest.mark.parametrize("names", [(None, None), ("in", None), ("/source", "in")])
def test_a_full_disk_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str | None, ...]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left on device") as raised:
        fill_disk(*names)
    assert Path(raised.value.filename).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_an_error_elsewhere_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No space left") as raised:
        fill_disk("/elsewhere", None)
    assert raised.value.filename == "/elsewhere"

"""The cache of loaded files."""

from pathlib import Path

import pytest

from battlesnake_server.file_cache import cache_by_file


def test_only_new_and_changed_files_are_loaded(tmp_path: Path) -> None:
    loaded = []

    @cache_by_file(4)
    def load(path: Path) -> str:
        loaded.append(path)
        return path.read_text()

    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        load(path)
    path.write_text("first")
    assert [load(path), load(str(path))] == ["first", "first"]
    path.write_text("second")
    assert load(path) == "second"
    assert len(loaded) == 3

"""Checkpoints appear whole or not at all, and strangers are refused."""

from pathlib import Path

import pytest

from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError


class Algorithm:
    """Writes one file, or dies while it does."""

    def __init__(self, iteration: int, dies: bool = False) -> None:
        self.training_iteration = iteration
        self.dies = dies

    def save_to_path(self, path: str) -> None:
        (Path(path) / "weights").write_text(str(self.training_iteration))
        if self.dies:
            raise OSError("disk full")


FACTS = {"identity": {"board size": [11, 11], "actions": ["up"]}}


def test_the_last_two_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None
    for iteration in (9, 10, 100):
        checkpoints.save(Algorithm(iteration), tmp_path, FACTS)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "checkpoint_000010",
        "checkpoint_000100",
    ]
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    assert (newest / "weights").read_text() == "100"
    assert checkpoints.read_facts(newest) == FACTS
    assert checkpoints.find(newest) == checkpoints.find(tmp_path) == newest


def test_files_come_along_and_belong_to_it(tmp_path: Path) -> None:
    curves = tmp_path / "progress.csv"
    curves.write_text("env_steps\n7\n")
    folder = tmp_path / "checkpoints"
    for iteration in (1, 2):
        newest = checkpoints.save(Algorithm(iteration), folder, FACTS, [curves])
    assert (newest / curves.name).read_text() == curves.read_text()
    (newest / curves.name).unlink()  # as in a copy that came only in part
    assert checkpoints.newest(folder) == folder / "checkpoint_000001"


def test_a_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    whole = checkpoints.save(Algorithm(1), tmp_path, FACTS)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(Algorithm(2, dies=True), tmp_path, FACTS)
    assert list(tmp_path.iterdir()) == [whole], "a full disk has no room for the rest"
    # A process that is killed leaves it.
    (tmp_path / "checkpoint_000002.unfinished").mkdir()
    assert checkpoints.newest(tmp_path) == whole
    # The next attempt takes its place.
    checkpoints.save(Algorithm(2), tmp_path, FACTS)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "checkpoint_000001",
        "checkpoint_000002",
    ]


def test_deleting_spares_other_files(tmp_path: Path) -> None:
    checkpoints.save(Algorithm(1), tmp_path, FACTS)
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.delete_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_every_difference_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoints.save(Algorithm(1), tmp_path, FACTS)
    checkpoints.check_same(checkpoint, FACTS)
    other = {"identity": {"board size": [7, 7], "network": 3, "actions": ["up"]}}
    with pytest.raises(CheckpointError) as error:
        checkpoints.check_same(checkpoint, other)
    text = str(error.value)
    assert "board size is [7, 7] but was [11, 11]" in text
    assert "network is 3 but was null" in text
    assert "actions" not in text
    assert "--no-resume" in text


def test_nothing_found_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a checkpoint nor a folder with one"):
        checkpoints.find(tmp_path)


def test_a_checkpoint_that_came_only_in_part_does_not_count(tmp_path: Path) -> None:
    # S3 gets the files one by one, so an interrupted job may leave any part of a checkpoint.
    whole = checkpoints.save(Algorithm(1), tmp_path, FACTS)
    part = checkpoints.save(Algorithm(2), tmp_path, FACTS)
    (part / "weights").write_text("")
    assert checkpoints.newest(tmp_path) == whole
    (part / "weights").unlink()
    assert checkpoints.newest(tmp_path) == whole
    (whole / checkpoints.FACTS_FILE).write_text("{")
    assert checkpoints.newest(tmp_path) is None

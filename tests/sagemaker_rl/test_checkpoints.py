"""Checkpoints are written atomically, compared with the experiment, and read without code."""

import collections
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_rl.mabs.settings.algorithm_settings import DISTILSettings
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError
from tests.sagemaker_rl.malicious_checkpoints import doctor


class Algorithm:
    """Writes one file, or fails while writing."""

    def __init__(self, iteration: int, dies: bool = False) -> None:
        self.training_iteration = iteration
        self.dies = dies

    def save_to_path(self, path: str) -> None:
        (Path(path) / "weights").write_text(str(self.training_iteration))
        if self.dies:
            raise OSError("disk full")


FACTS = {"identity": {"board_size": [11, 11], "actions": ["up"]}}

NUMBERS = collections.OrderedDict(
    weights=np.arange(6, dtype=np.float32).reshape(2, 3),
    turned=np.asfortranarray(np.eye(3)[:, ::2]),
    steps=np.int64(7),
    names={"a": [1, 2.5, None, True, (b"x", "y")], "b": {3}},
)


def test_the_last_two_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    assert checkpoints.CheckpointFolder(tmp_path).newest() is None
    for iteration in (10, 999_999, 1_000_000):
        checkpoints.CheckpointFolder(tmp_path).save(Algorithm(iteration), FACTS)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint_999999",
        "checkpoint_1000000",
    }
    newest = checkpoints.CheckpointFolder(tmp_path).newest()
    assert newest is not None
    assert (newest / "weights").read_text() == "1000000"
    assert checkpoints.read_metadata(newest) == FACTS
    assert checkpoints.find_checkpoint(newest) == checkpoints.find_checkpoint(tmp_path) == newest


def test_files_come_along_and_belong_to_it(tmp_path: Path) -> None:
    curves = tmp_path / "progress.csv"
    curves.write_text("env_steps\n7\n")
    folder = tmp_path / "checkpoints"
    for iteration in (1, 2):
        newest = checkpoints.CheckpointFolder(folder).save(Algorithm(iteration), FACTS, [curves])
    assert (newest / curves.name).read_text() == curves.read_text()
    (newest / curves.name).unlink()  # as in an incomplete copy
    assert checkpoints.CheckpointFolder(folder).newest() == folder / "checkpoint_000001"


def test_a_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    whole = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.CheckpointFolder(tmp_path).save(Algorithm(2, dies=True), FACTS)
    assert list(tmp_path.iterdir()) == [whole], "a full disk has no room for the rest"
    # Left by a killed process.
    (tmp_path / "checkpoint_000002.unfinished").mkdir()
    assert checkpoints.CheckpointFolder(tmp_path).newest() == whole
    # The next attempt replaces it.
    checkpoints.CheckpointFolder(tmp_path).save(Algorithm(2), FACTS)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "checkpoint_000001",
        "checkpoint_000002",
    ]


def test_a_checkpoint_is_on_disk_before_it_has_its_name_and_the_older_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, list[str]]] = []

    def record(path: Path) -> None:
        synced.append((path.name, sorted(other.name for other in tmp_path.iterdir())))

    monkeypatch.setattr(checkpoints, "sync_tree", record)
    monkeypatch.setattr(checkpoints, "sync", record)
    for number in (1, 2):
        checkpoints.CheckpointFolder(tmp_path).save(Algorithm(number), FACTS, keep=1)
    first, second = "checkpoint_000001", "checkpoint_000002"
    assert synced[2:] == [
        (f"{second}.unfinished", [first, f"{second}.unfinished"]),
        (tmp_path.name, [first, second]),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [second]


def test_damaged_later_checkpoints_do_not_replace_the_new_one(tmp_path: Path) -> None:
    for iteration in (4, 6, 7):
        newest = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(iteration), FACTS, keep=3)
        if iteration > 4:
            (newest / "weights").unlink()
    new = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(5), FACTS)
    assert checkpoints.CheckpointFolder(tmp_path).newest() == new
    assert (tmp_path / "checkpoint_000004").exists()


def test_a_replaced_checkpoint_is_deleted_after_the_new_one_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    newest: list[Path | None] = []
    delete = shutil.rmtree

    def record(path: Path, **options: Any) -> None:
        delete(path, **options)
        newest.append(checkpoints.CheckpointFolder(tmp_path).newest())

    monkeypatch.setattr(shutil, "rmtree", record)
    again = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    assert newest == [again]
    assert list(tmp_path.iterdir()) == [again]


def test_deleting_spares_other_files(tmp_path: Path) -> None:
    checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.CheckpointFolder(tmp_path).delete_all()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_checkpoints_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    leftover = tmp_path / "checkpoint_000005.unfinished"
    for iteration in (4, 6):
        leftover.mkdir()
        checkpoints.CheckpointFolder(tmp_path).save(Algorithm(iteration), FACTS)
        assert not leftover.exists()
    leftover.mkdir()
    checkpoints.CheckpointFolder(tmp_path).delete_all()
    assert list(tmp_path.iterdir()) == []


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    checkpoints.check_compatible(checkpoint, FACTS)
    other = {"identity": {"board_size": [7, 7], "network": 3, "actions": ["up"]}}
    with pytest.raises(CheckpointError) as error:
        checkpoints.check_compatible(checkpoint, other)
    assert re.search(r"board_size is \[7, 7\] but was \[11, 11\]; .*--no-resume", str(error.value))
    other["identity"] = {**FACTS["identity"], "network": {"channels": [64, 64]}}
    with pytest.raises(CheckpointError, match=r"network.channels is \[64, 64\] but was null;"):
        checkpoints.check_compatible(checkpoint, other)


def test_changed_settings_are_named_without_stop_conditions(tmp_path: Path) -> None:
    before = {"hyperparameters": {"minutes": 1.0, "lr": 0.1, "ruleset": "wrapped"}}
    checkpoint = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS | before)
    assert checkpoints.changed_settings(checkpoint, FACTS | before, {}) == []
    now = {"hyperparameters": {"minutes": 2.0, "lr": 0.2}}
    (line,) = checkpoints.changed_settings(checkpoint, FACTS | now, {})
    assert line.endswith(": lr is 0.2 but was 0.1, ruleset is the default but was wrapped")


def test_a_setting_under_a_former_name_has_not_changed(tmp_path: Path) -> None:
    before = {"hyperparameters": {"rl.training.config.minibatch_size": 32}}
    checkpoint = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS | before)
    now, names = {"hyperparameters": {"batch_size": 32}}, DISTILSettings.field_names()
    assert checkpoints.changed_settings(checkpoint, FACTS | now, names) == []


def test_a_checkpoint_that_came_only_in_part_does_not_count(tmp_path: Path) -> None:
    # S3 gets files one by one, so an interrupted job may leave any part of a checkpoint.
    whole = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    part = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(2), FACTS)
    (part / "weights").write_text("")
    assert checkpoints.CheckpointFolder(tmp_path).newest() == whole
    (part / "weights").unlink()
    assert checkpoints.CheckpointFolder(tmp_path).newest() == whole
    (whole / checkpoints.CHECKPOINT_METADATA_FILE).write_text("{")
    assert checkpoints.CheckpointFolder(tmp_path).newest() is None


def test_every_damaged_checkpoint_that_is_passed_over_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = checkpoints.CheckpointFolder(tmp_path).save(Algorithm(1), FACTS)
    short, bare = (
        checkpoints.CheckpointFolder(tmp_path).save(Algorithm(n), FACTS, keep=3) for n in (2, 3)
    )
    (short / "weights").write_text("")
    (bare / checkpoints.CHECKPOINT_METADATA_FILE).unlink()
    told: list[str] = []
    assert checkpoints.CheckpointFolder(tmp_path).newest(told.append) == whole
    size = (whole / "weights").stat().st_size
    of_bare, of_short = told
    assert re.search(rf"{re.escape(str(bare))}: metadata\.json\b", of_bare)
    assert re.search(rf"{re.escape(str(short))}: weights .*\b0 .*\b{size} bytes", of_short)
    assert checkpoints.find_checkpoint(tmp_path) == whole
    assert capsys.readouterr().err.splitlines() == told
    with pytest.raises(CheckpointError, match=rf"{re.escape(str(short))} is damaged: weights "):
        checkpoints.find_checkpoint(short)


@pytest.mark.parametrize("protocol", [4, 5])
def test_numbers_come_back(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(NUMBERS, protocol))
    assert repr(checkpoints.load_numeric_pickle(path)) == repr(NUMBERS)


def test_a_program_is_refused_by_its_name_and_does_not_run(tmp_path: Path) -> None:
    path, ran = tmp_path / "state.pkl", tmp_path / "ran"
    doctor(path, ran)
    refused = r"(posix|nt)\.system"
    with pytest.raises(CheckpointError, match=refused):
        checkpoints.load_numeric_pickle(path)
    assert not ran.exists()
    pickle.loads(path.read_bytes())
    assert ran.exists(), "the test's own pickle would have run"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"cos\nsystem\n", r"os\.system"),
        (b"\x80\x04\x95\xff", "damaged"),
        (pickle.dumps(Path("x")), r"pathlib\.PosixPath"),
        (pickle.dumps(range(3)), r"builtins\.range"),
    ],
)
def test_what_is_no_pickle_of_numbers_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.load_numeric_pickle(path)


def refused(checkpoint: Path, why: str) -> None:
    """Check that this checkpoint is not copied."""
    with pytest.raises(CheckpointError, match=why), checkpoints.numbers_only_copy(checkpoint):
        raise AssertionError("it is refused before")


def test_the_copy_holds_no_constructors(tmp_path: Path) -> None:
    checkpoint, ran = tmp_path / "checkpoint_000001", tmp_path / "ran"
    (checkpoint / "learner").mkdir(parents=True)
    state = checkpoint / "learner" / "state.pkl"
    state.write_bytes(pickle.dumps(NUMBERS))
    doctor(checkpoint / "learner" / "class_and_ctor_args.pkl", ran)
    (checkpoint / "state.msgpack").write_bytes(b"x")
    (checkpoint / "metadata.json").write_text("{}")
    with checkpoints.numbers_only_copy(checkpoint) as copy:
        assert copy.name == checkpoint.name
        files = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
        assert files == ["learner/state.pkl", "metadata.json"]
    assert not copy.exists()
    doctor(state, ran)
    refused(checkpoint, r"checkpoint_000001/learner/state\.pkl.*--trust-checkpoint")
    assert not ran.exists()


def test_the_copy_needs_no_space(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint_000001"
    checkpoint.mkdir()
    (checkpoint / "buffer.npz").write_bytes(b"x" * 100_000)
    with checkpoints.numbers_only_copy(checkpoint) as copy:
        assert (copy / "buffer.npz").stat().st_size == 100_000
        assert sum(path.lstat().st_size for path in copy.rglob("*")) < 10_000


def test_torchs_own_files_hold_weights_or_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra rllib")
    checkpoint, ran = tmp_path / "checkpoint_000001", tmp_path / "ran"
    checkpoint.mkdir()
    model = checkpoint / "model.pt"
    torch.save({"weights": torch.arange(3), "steps": 7}, model)
    with checkpoints.numbers_only_copy(checkpoint) as copy:
        assert torch.load(copy / "model.pt")["steps"] == 7
    doctor(model, ran)
    refused(checkpoint, r"model\.pt .*--trust-checkpoint")
    assert not ran.exists()

"""Pickles of numbers are read, all others refused, and nothing in them runs."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path

import numpy as np
import pytest

from sagemaker_rl.runs import states
from sagemaker_rl.runs.checkpoints import CheckpointError
from tests.sagemaker_rl.doctored import doctor

NUMBERS = collections.OrderedDict(
    weights=np.arange(6, dtype=np.float32).reshape(2, 3),
    turned=np.asfortranarray(np.eye(3)[:, ::2]),
    steps=np.int64(7),
    names={"a": [1, 2.5, None, True, (b"x", "y")], "b": {3}},
)


@pytest.mark.parametrize("protocol", [4, 5])
def test_numbers_come_back(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(NUMBERS, protocol))
    assert repr(states.load(path)) == repr(NUMBERS)


def test_a_program_is_refused_by_its_name_and_does_not_run(tmp_path: Path) -> None:
    path, ran = tmp_path / "state.pkl", tmp_path / "ran"
    doctor(path, ran)
    with pytest.raises(CheckpointError, match=r"names (posix|nt)\.system.* run somebody's program"):
        states.load(path)
    assert not ran.exists()
    pickle.loads(path.read_bytes())
    assert ran.exists(), "the test's own pickle would have run"


@pytest.mark.parametrize(
    "content",
    [b"", b"cos\nsystem\n", b"\x80\x04\x95\xff", pickle.dumps(Path("x")), pickle.dumps(print)],
)
def test_what_is_no_pickle_of_numbers_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        states.load(path)


def test_what_may_be_read_besides_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps(range(3)))
    with pytest.raises(CheckpointError, match=r"builtins\.range"):
        states.load(path)
    assert states.load(path, also={("builtins", "range")}) == range(3)


def test_the_copy_holds_no_constructors(tmp_path: Path) -> None:
    checkpoint, ran = tmp_path / "checkpoint_000001", tmp_path / "ran"
    (checkpoint / "learner").mkdir(parents=True)
    state = checkpoint / "learner" / "state.pkl"
    state.write_bytes(pickle.dumps(NUMBERS))
    doctor(checkpoint / "learner" / "class_and_ctor_args.pkl", ran)
    (checkpoint / "state.msgpack").write_bytes(b"x")
    (checkpoint / "facts.json").write_text("{}")
    with states.without_code(checkpoint) as copy:
        assert copy.name == checkpoint.name
        files = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
        assert files == ["facts.json", "learner/state.pkl"]
    assert not copy.exists()
    doctor(state, ran)
    with (
        pytest.raises(CheckpointError, match=r"checkpoint_000001/learner/state\.pkl.*--trust"),
        states.without_code(checkpoint),
    ):
        raise AssertionError("it is refused before")
    assert not ran.exists()


def test_torchs_own_files_hold_weights_or_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra rllib")
    checkpoint, ran = tmp_path / "checkpoint_000001", tmp_path / "ran"
    checkpoint.mkdir()
    model = checkpoint / "model.pt"
    torch.save({"weights": torch.arange(3), "steps": 7}, model)
    with states.without_code(checkpoint) as copy:
        assert torch.load(copy / "model.pt")["steps"] == 7
    doctor(model, ran)
    with (
        pytest.raises(CheckpointError, match=r"model\.pt holds more than weights.*--trust"),
        states.without_code(checkpoint),
    ):
        raise AssertionError("it is refused before")
    assert not ran.exists()

"""progress.csv goes on where a resumed run left off."""

import math
from pathlib import Path

import pytest

curves = pytest.importorskip("sagemaker_rl.curves", reason="needs the extra rllib")

COLUMNS = {"training_iteration": "training_iteration", "reward": "env_runners/mean"}


def results(iteration: int, reward: float | None) -> dict[str, object]:
    runners = {} if reward is None else {"mean": reward, "note": "text"}
    return {"training_iteration": iteration, "env_runners": runners, "done": False}


def test_rows_after_the_checkpoint_are_dropped_and_written_again(tmp_path: Path) -> None:
    first = curves.Curves(tmp_path, COLUMNS, 0)
    for iteration in (1, 2, 3):
        first.add(results(iteration, iteration / 2))
    first.close()
    with (tmp_path / curves.CSV_FILE).open("a") as file:
        file.write("4")  # killed in the middle of a row
    second = curves.Curves(tmp_path, COLUMNS, 2)
    second.add(results(3, None))
    second.close()
    table = curves.read(tmp_path / curves.CSV_FILE)
    assert [row["training_iteration"] for row in table] == [1, 2, 3]
    assert [row["reward"] for row in table[:2]] == [0.5, 1.0]
    assert math.isnan(table[2]["reward"])
    assert len(list((tmp_path / "tensorboard").glob("events.*"))) == 2


def test_a_fresh_run_begins_empty(tmp_path: Path) -> None:
    for _ in range(2):
        run = curves.Curves(tmp_path, COLUMNS, 0)
        run.add(results(1, 1.0))
        run.close()
    assert len(curves.read(tmp_path / curves.CSV_FILE)) == 1
    assert len(list((tmp_path / "tensorboard").glob("events.*"))) == 1


def test_flatten_takes_numbers_only() -> None:
    nested = {"a": {"b": 1, "c": "x", "d": [1]}, "e": True, "f": 2.5}
    assert dict(curves.flatten(nested)) == {"a/b": 1.0, "f": 2.5}

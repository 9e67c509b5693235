"""The comparison of experiments, without training."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the extra rllib")
pytest.importorskip("matplotlib", reason="needs the extra rllib")

from benchmarks import experiments
from benchmarks.experiments import ENDS, MEASURED_FILE, Measured, among_copies, table
from mabs.environment import DEFAULTS

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


def measured(elo: float, turns: float = 40.0) -> Measured:
    return Measured(elo, elo - 50, elo + 50, turns, dict.fromkeys(ENDS, 0.1) | {"wall": 0.5})


def test_the_strongest_experiment_stands_first() -> None:
    rows = table({"a": [measured(100), measured(300)], "b": [measured(250, 60)]}).splitlines()
    assert rows[2] == "| `b` | 250 (250 to 250) | 60 | 50% | 10% | 10% | 10% | 10% |"
    assert rows[3].startswith("| `a` | 200 (100 to 300) | 40 |")


def test_snakes_that_only_go_straight_end_at_the_wall() -> None:
    straight = np.array([1, 0, 0, 0], dtype=np.float32)
    config = DEFAULTS | {"num_snakes": 2, "width": 11, "height": 11, "action_mask": "none"}
    turns, ends = among_copies(lambda seen: np.tile(straight, (len(seen), 1)), config, 50, seed=1)
    assert 1 <= turns <= 11
    # Some meet on their way, and whoever is left last has won.
    assert ends["wall"] > 0.8
    assert ends["starved"] == 0
    assert sum(ends.values()) < 1


def test_what_was_measured_is_drawn_and_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, elo in ((1, 400.0), (2, 600.0)):
        run = tmp_path / f"hill-vanilla-{seed}"
        run.mkdir()
        (run / MEASURED_FILE).write_text(json.dumps(asdict(measured(elo))))
    assert experiments.main(["--output", str(tmp_path), "--draw-only"]) == 0
    assert "| `hill-vanilla` | 500 (400 to 600) |" in capsys.readouterr().out
    for suffix in ("svg", "png"):
        assert (tmp_path / f"experiments.{suffix}").stat().st_size > 5000
    with (tmp_path / "experiments.csv").open(newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2"]


def test_without_measurements_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        experiments.main(["--output", str(tmp_path), "--draw-only"])
    assert "leave --draw-only out" in capsys.readouterr().err

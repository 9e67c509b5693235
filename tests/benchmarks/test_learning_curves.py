"""Curves of Elo from runs' own progress.csv, without training."""

import csv
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra rllib")
pytest.importorskip("matplotlib", reason="needs the extra rllib")

from benchmarks import learning_curves
from benchmarks.learning_curves import WAYS, Point, mean_curve, points, table, until

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]


def run(*elo_by_minute: tuple[float, float]) -> list[Point]:
    return [Point(minutes, elo, elo - 50, elo + 50) for minutes, elo in elo_by_minute]


def write_run(folder: Path, measured: list[Point], cpu_minutes: float) -> None:
    """A run's progress.csv: a row before the first measurement, and three rows for each."""
    folder.mkdir(parents=True)
    names = ["cpu_minutes", "time_total_s", "elo", "elo_low", "elo_high", "elo_cpu_minutes"]
    with (folder / "progress.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["training_iteration", *names])
        writer.writerow([1, 0.01, 1.0, "", "", "", ""])
        for number, point in enumerate(measured):
            for part in range(3):
                now = point.cpu_minutes + part / 10
                row = [now, 60 * now, point.elo, point.low, point.high, point.cpu_minutes]
                writer.writerow([2 + 3 * number + part, *row])
        writer.writerow([999, cpu_minutes, 60 * cpu_minutes, *row[2:]])


def test_each_measurement_counts_once(tmp_path: Path) -> None:
    measured = run((1, 700), (3, 900))
    write_run(tmp_path / "dqn-1", measured, 5.0)
    assert points(tmp_path / "dqn-1") == measured
    assert points(tmp_path / "not-there") == []


def test_the_mean_is_where_all_seeds_were_measured() -> None:
    rows = mean_curve([run((1, 600), (3, 800)), run((2, 1000), (5, 1000))])
    assert rows == [(2, 850, 700, 1000), (3, 900, 800, 1000)]
    assert mean_curve([run((1, 600)), run((2, 700))]) == []


def test_cpu_minutes_until_above_half_are_the_first_above_the_rungs_elo() -> None:
    assert until(run((1, 600), (2, 1001), (3, 900)), 1000) == 2
    assert math.isinf(until(run((1, 600), (2, 1000)), 1000))
    seeds = [run((1, 600), (2, 1010)), run((4, 1010)), run((1, 10), (9, 20))]
    text = table({"DQN": seeds, "PPO": [run((7, 600))]}).splitlines()
    assert (
        next(row for row in text if row.startswith("| hungry "))
        == "| hungry | 1000 | 4.0 | never |"
    )
    assert next(row for row in text if row.startswith("| safe-random")).endswith("| 4.0 | 7.0 |")
    assert not any(row.startswith("| tree") for row in text)
    assert text[-1] == "| seeds | | 3 | 1 |"


def test_what_is_there_is_drawn_and_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"dqn-{seed}", run((1, 600 + seed), (3, 800), (6, 1200)), 20.0)
    started: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda *words, **_: started.append(words))
    command = ["--ways", "dqn", "--seeds", "1", "2", "--output", str(tmp_path)]
    assert learning_curves.main([*command, "--cpu-minutes", "20"]) == 0
    assert not started
    assert "| hungry | 1000 | 6.0 |" in capsys.readouterr().out
    assert (tmp_path / "table.md").is_file()
    for suffix in ("svg", "png"):
        assert (tmp_path / f"curves.{suffix}").stat().st_size > 5000
    with (tmp_path / "curves.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6
    with pytest.raises(SystemExit):
        learning_curves.main(["--ways", "ppo", "--output", str(tmp_path), "--draw-only"])
    assert "has an Elo yet" in capsys.readouterr().err


def test_a_run_is_trained_until_its_cpu_time_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def train(command: list[str], check: bool) -> Any:
        asked.append(float(command[command.index("--minutes") + 1]))
        folder = tmp_path / "apex-3"
        spent = 12.0 if len(asked) == 1 else 20.0
        if folder.exists():
            (folder / "progress.csv").unlink()
            folder.rmdir()
        write_run(folder, run((1, 600)), spent)
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(subprocess, "run", train)
    apex = next(way for way in WAYS if way.name == "apex")
    learning_curves.train(apex, 3, 20.0, tmp_path)
    # Two cores for twenty minutes of them; then for what was left, after the time that was used.
    assert asked == [10.0, 12.0 + 4.0]


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_every_way_can_be_trained(way: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from mabs.launcher import main

    if way.name == "mxnet":
        from mxnet_baseline import algorithm

        try:
            algorithm.interpreter()
        except ValueError as error:
            pytest.skip(f"needs `make mxnet`: {error}")
    assert main([*way.flags, "--num-iters", "1", "--check"]) == 0

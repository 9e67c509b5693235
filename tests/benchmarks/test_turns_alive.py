"""Scores and resuming of the learning curves, without training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the extra rllib")
pytest.importorskip("matplotlib", reason="needs the extra rllib")

from benchmarks import turns_alive
from benchmarks.turns_alive import CURVES, Point, play, safe_random, table

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

GAME = {"num_snakes": 2, "rewards": "survival"}
SETTINGS = {"minutes": 1.0, "games": 4, "seed": 1}


def test_a_score_is_turns_alive() -> None:
    # On 5x5 whoever only goes up from the middle or below is dead within five turns.
    env_config = GAME | {"width": 5, "height": 5, "action_mask": "none"}
    upwards = np.array([[3.0, 2.0, 1.0, 0.0]], np.float32)
    point = play(lambda boards: upwards.repeat(len(boards), 0), env_config, 40, 1, minutes=2.0)
    assert point.minutes == 2.0
    assert 1 <= point.length <= 5
    # The turn of its death pays a snake nothing, so the longest-lived gets a turn less than it was.
    assert 0 < point.reward <= point.length
    assert 0 < point.length_error < point.length


def test_a_game_counts_once_however_often_its_board_is_used() -> None:
    # Turns are cut at 3, except for games that end before: nobody does who moves safely that long.
    env_config = GAME | {"max_turns": 3}
    point = play(lambda boards: np.zeros((len(boards), 4), np.float32), env_config, 8, 1, 0)
    assert (point.length, point.length_error, point.reward) == (3, 0, 3)


def test_safe_random_play_beats_walking_into_walls() -> None:
    floor = safe_random(20, seed=3)
    assert floor.reward > 20
    assert floor == safe_random(20, seed=3)


def test_finished_curves_are_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def fake_train(curve: Any, folder: Path, minutes: float, seed: int) -> None:
        trained.append(curve.name)
        (folder / "kept" / f"checkpoint_{len(trained):06d}").mkdir(parents=True)

    monkeypatch.setattr(turns_alive, "train", fake_train)
    monkeypatch.setattr(
        turns_alive, "scores", lambda kept, games, seed: Point(1.0, 2.0, 0.1, 3.0, 0.2)
    )
    first = turns_alive.curve_points(CURVES[0], tmp_path, SETTINGS)
    assert first == turns_alive.curve_points(CURVES[0], tmp_path, SETTINGS)
    assert trained == ["mxnet"]
    # Interrupted before it was scored: trained on (by the trainer), then scored.
    (tmp_path / "mxnet" / "points.json").unlink()
    turns_alive.curve_points(CURVES[0], tmp_path, SETTINGS)
    assert trained == ["mxnet", "mxnet"]
    with pytest.raises(SystemExit, match="made with other settings"):
        turns_alive.curve_points(CURVES[0], tmp_path, SETTINGS | {"minutes": 2.0})


def test_checkpoints_are_set_aside_whole(tmp_path: Path) -> None:
    for name in ("checkpoint_000001", "checkpoint_000002", "checkpoint_000003.unfinished"):
        folder = tmp_path / "checkpoints" / name
        folder.mkdir(parents=True)
        (folder / "facts.json").write_text(json.dumps(name))
    (tmp_path / "checkpoints" / "checkpoint_000002" / "facts.json").unlink()
    turns_alive.set_aside(tmp_path)
    turns_alive.set_aside(tmp_path)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint_000001"]
    assert (tmp_path / "kept" / "checkpoint_000001" / "facts.json").is_file()


def test_the_table_compares_with_the_baseline(tmp_path: Path) -> None:
    points = {
        "mxnet": [Point(1, 50, 1, 50, 1), Point(20, 5, 0.5, 8, 0.5)],
        "dqn-1": [Point(20, 100, 2, 40, 1)],
    }
    floor = Point(0, 40, 1, 60, 1)
    lines = table(points, floor).splitlines()
    assert lines[2] == "| MXNet DQN, 1 core | 20.0 | 5.0 ± 0.5 | 8.0 ± 0.5 | 1.0 | 1.0 |"
    assert lines[3] == "| DQN, 1 core | 20.0 | 100.0 ± 2.0 | 40.0 ± 1.0 | 20.0 | 5.0 |"
    assert lines[4].startswith("| safe-random play |")
    for suffix in ("svg", "png"):
        turns_alive.draw(tmp_path / f"curves.{suffix}", points, floor)
        assert (tmp_path / f"curves.{suffix}").stat().st_size > 5000

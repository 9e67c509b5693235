"""A resumed run continues progress.csv and TensorBoard."""

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from battlesnake_gym.common import run_dir
from sagemaker_rl.runs import curves
from tests.sagemaker_rl import tensorboard_cards

PLAYED = {"num_env_steps_sampled_lifetime": 800}
COLUMNS = {"training_iteration": "training_iteration", "reward": "env_runners/mean"}


def results(iteration: int, reward: float | None) -> dict[str, object]:
    runners = {} if reward is None else {"mean": reward, "note": "text"}
    return {"training_iteration": iteration, "env_runners": runners, "done": False}


def test_rows_after_the_checkpoint_are_dropped_and_written_again(tmp_path: Path) -> None:
    first = curves.Curves(tmp_path, COLUMNS, 0)
    for iteration in (1, 2, 3):
        first.add(results(iteration, iteration / 2))
    first.close()
    with (tmp_path / run_dir.CSV_FILE).open("a") as file:
        file.write("4")  # killed while writing a row
    second = curves.Curves(tmp_path, COLUMNS, 2)
    second.add(results(3, None))
    second.close()
    table = run_dir.read_progress(tmp_path / run_dir.CSV_FILE)
    assert [row["training_iteration"] for row in table] == [1, 2, 3]
    assert [row["reward"] for row in table[:2]] == [0.5, 1.0]
    assert math.isnan(table[2]["reward"])
    assert len(list((tmp_path / "tensorboard").glob("events.*"))) == 2


def test_tensorboard_opens_with_the_named_curves_alone(tmp_path: Path) -> None:
    settings = {"lr": 1e-4, "algorithm": "DQN", "double_q": True, "sizes": [7, 11], "seed": None}
    settings["clip"] = math.inf  # tensorboardX warns of it
    main_curves = {"reward": "env_runners/mean"}
    run = curves.Curves(tmp_path, COLUMNS, 0, main_curves=main_curves, settings=settings)
    played = {"env_runners": {"mean": 0.5} | PLAYED}
    gif = b"GIF89a" + bytes([30, 0, 20, 1]) + b"..."
    for iteration in (1, 2):
        config = {"lr": 1e-4, "model": {"width": 256}}
        learners = {"loss": 2.0}
        run.add(results(iteration, None) | played | {"config": config, "learners": learners})
        run.add_animation(gif, iteration)
    run.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(board.Tags()["scalars"]) == [
        "curves/reward", "progress/env_steps",
        "rllib/learners/loss", "rllib/training_iteration",
    ]  # fmt: skip
    assert tensorboard_cards.check(tmp_path / "tensorboard") == ["reward"]
    assert [event.step for event in board.Scalars("curves/reward")] == [1, 2]
    (image, _) = board.Images("game/against_itself")
    assert (image.width, image.height, image.encoded_image_string) == (30, 276, gif)
    found = board.PluginTagToContent("hparams")
    began = HParamsPluginData.FromString(found["_hparams_/session_start_info"])
    told = began.session_start_info.hparams
    assert sorted(told) == ["algorithm", "clip", "double_q", "lr", "sizes"]
    assert told["lr"].number_value == pytest.approx(1e-4)
    assert told["sizes"].string_value == "[7, 11]"
    assert told["clip"].string_value == "Infinity"
    experiment = HParamsPluginData.FromString(found["_hparams_/experiment"]).experiment
    assert sorted(one.name.tag for one in experiment.metric_infos) == [
        "curves/reward", "progress/env_steps"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="13"):
        curves.Curves(tmp_path, COLUMNS, 0, main_curves={str(n): str(n) for n in range(12)})


def test_tensorboard_has_the_elo_over_cpu_time_after_a_resume_too(tmp_path: Path) -> None:
    columns = COLUMNS | {name: name for name in ("elo", "elo_cpu_minutes")}
    once, twice, last = (400.0, 0.9), (900.0, 2.0), (950.0, 3.0)
    measured: dict[int, tuple[float, ...]] = {1: (), 2: once, 3: once, 4: twice, 5: last}

    def play(iterations: Iterable[int], resumed_at: int) -> None:
        run = curves.Curves(tmp_path, columns, resumed_at)
        for iteration in iterations:
            told = dict(zip(("elo", "elo_cpu_minutes"), measured[iteration], strict=False))
            run.add(results(iteration, None) | told)
        run.close()

    play((1, 2, 3, 4), 0)
    play((4, 5), 3)  # a checkpoint between the first and the second measurement
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    points = board.Scalars("progress/elo_over_cpu_seconds")
    assert [(point.step, point.value) for point in points] == [(54, 400), (120, 900), (180, 950)]
    elo = board.Scalars("rllib/elo")
    assert [(point.step, point.value) for point in elo] == [(2, 400), (4, 900), (5, 950)]


def test_where_no_game_is_filmed_tensorboard_opens_with_the_turns_too(tmp_path: Path) -> None:
    run = curves.Curves(tmp_path, COLUMNS, 0, main_curves={"reward": "env_runners/mean"})
    run.add({"training_iteration": 1, "env_runners": {"mean": 0.5, "max": 1.0} | PLAYED})
    run.close()
    assert tensorboard_cards.check(tmp_path / "tensorboard") == ["reward", "env_steps"]


def test_what_is_uploaded_is_copied_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        (copy,) = (tmp_path / "intermediate" / "tensorboard").iterdir()
        return copy.stat().st_size

    run = curves.Curves(tmp_path / "data", COLUMNS, 0, intermediate=tmp_path / "intermediate")
    run.add(results(1, 1.0))
    first = size()
    assert first > 0
    run.add(results(2, 1.0))
    assert size() == first
    monkeypatch.setattr(curves, "_COPY_INTERVAL_S", 0.0)
    run.add(results(3, 1.0))
    second = size()
    assert second > first
    monkeypatch.setattr(curves, "_COPY_INTERVAL_S", 1e9)
    run.add(results(4, 1.0))
    run.close()
    (written,) = (tmp_path / "data" / "tensorboard").iterdir()
    assert size() == written.stat().st_size > second


def test_flatten_takes_numbers_only() -> None:
    nested = {"a": {"b": 1, "c": "x", "d": [1]}, "e": True, "f": 2.5}
    assert dict(curves.flatten(nested)) == {"a/b": 1.0, "f": 2.5}

"""Expert iteration by the launcher: two runners, a kill, a signal, and what is left by them."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch

pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_heuristics.search.evaluation import BUILTIN_PATH, NUM_INPUTS, Evaluation
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlaySettings, play_games
from battlesnake_rl.commands import runs_export_command
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher
from battlesnake_rl.mabs.exit import exit, exit_self_play
from battlesnake_rl.mabs.exit.evaluation_fit import Samples
from battlesnake_rl.mabs.exit.exit import EXIT, EXITConfig, _label_fragments
from battlesnake_rl.mabs.exit.exit_self_play import ExitProgress, IterationStoppedError, SelfPlay
from battlesnake_rl.mabs.policy.policy_loader import load_score_fn
from battlesnake_rl.mabs.settings.algorithm_settings import EXITSettings
from battlesnake_rl.mabs.strength.ladder_evaluator import StrengthHistory
from sagemaker_rl.job.resources import check_memory
from sagemaker_rl.runs.divergence import DivergedError, is_finite
from tests import run_summary
from tests.algorithms import built
from tests.progress_csv import rows
from tests.sagemaker_rl import tensorboard_cards
from tests.sagemaker_rl.malicious_checkpoints import doctor, mark_whole

pytestmark = pytest.mark.filterwarnings("default")

SMALL = shlex.split("""
    --algorithm EXIT --seed 3 --num-env-runners 2 --moves-per-iteration 6000
    --moves-per-fragment 1000 --match-pairs 4 --match-nodes 20 --bootstrap-epochs 30
    --rl.training.config.buffer_iterations 3 --rl.training.config.elo0 -2000
    --rl.training.config.elo1 -1000 --ladder-cpu-fraction 0.2
""")


def train(runs: Path, *arguments: str) -> int:
    return main([*SMALL, "--runs-dir", str(runs), *arguments])


@pytest.fixture(scope="module")
def trained(ray_with_games: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three iterations, made in two parts."""
    runs = tmp_path_factory.mktemp("runs")
    assert train(runs, "--num-iters", "2") == 0
    assert train(runs, "--num-iters", "3") == 0
    return runs / "EXIT"


def test_a_run_leaves_curves_checkpoints_and_an_evaluation(trained: Path) -> None:
    table = rows(trained)
    assert [int(row["training_iteration"]) for row in table] == [1, 2, 3]
    moves = [float(row["env_steps"]) for row in table]
    assert moves == sorted(moves)
    assert moves[0] >= 6000
    assert moves[2] - moves[1] >= 6000
    minutes = [float(row["cpu_minutes"]) for row in table]
    assert 0 < minutes[0] < minutes[1] < minutes[2]
    # By these bounds everybody is promoted who is not beaten in every game.
    assert float(table[-1]["promotions"]) >= 1
    evaluation = Evaluation.load(trained / "model" / "champion.evaluation")
    assert evaluation.metadata["command"] == "train --algorithm EXIT"
    assert [11, 11] in evaluation.metadata["trained_for"]["sizes"]
    assert tensorboard_cards.check(trained / "tensorboard")


def test_it_ends_with_five_lines(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(trained.parent, "--num-iters", "3") == 0
    told = run_summary.told(capsys.readouterr().out, trained)
    assert told["result"].startswith("done: EXIT, 3 iterations")
    assert told["model"] == f"{trained}/model/champion.evaluation"
    assert told["next"] == f"battlesnake-gym runs {trained}"


def test_a_doctored_checkpoint_runs_nothing(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, runs = tmp_path / "ran", tmp_path / "runs"
    shutil.copytree(trained, runs / trained.name)
    newest = sorted((runs / trained.name / "checkpoints").iterdir())[-1]
    doctor(newest / "model.pt", ran)
    mark_whole(newest)
    assert train(runs, "--num-iters", "4") == 1
    assert "--trust-checkpoint" in capsys.readouterr().err
    doctor(newest / "samples-000.npz", ran)
    with pytest.raises(ValueError, match="pickled"):
        Samples.load(newest / "samples-000.npz")
    assert not ran.exists()


def test_it_is_no_policy_and_says_so(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runs_export_command.main([str(trained), "-o", str(trained / "policy.onnx")])
    assert "evaluation" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"model/champion\.evaluation"):
        load_score_fn(trained)


def test_without_a_champion_there_is_nothing_to_export(trained: Path, tmp_path: Path) -> None:
    newest = sorted((trained / "checkpoints").iterdir())[-1]
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(newest, checkpoint)
    (checkpoint / "champion.evaluation").unlink()
    model = tmp_path / "model"
    model.mkdir()
    (model / "champion.evaluation").write_bytes(b"of a run that --no-resume deleted")
    StrengthHistory().save(checkpoint)
    strength, delivered, _ = BattlesnakeLauncher().export_model(EXITConfig(), checkpoint, model)
    assert delivered
    assert "battlesnake-gym evaluate" not in strength  # It needs a policy.
    assert not list(model.iterdir())


def test_each_champions_games_are_labelled_by_themselves() -> None:
    one, other = (
        play_games(seed, SelfPlaySettings(7, 7), [SearchPlayer(nodes=20)] * 2, 600)
        for seed in (1, 1000)
    )
    apart = _label_fragments([(0, one), (1, other)])
    alone = np.concatenate([Samples.from_games(one).target, Samples.from_games(other).target])
    assert (apart.target == alone).all()
    together = _label_fragments([(1, one), (1, other)])
    assert (together.target != alone).any()


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("collect", marks=pytest.mark.slow),
        "_fit_model",
        pytest.param("_play_match", marks=pytest.mark.slow),
    ],
)
def test_an_iteration_is_broken_off(
    trained: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is asked to stop has two minutes, and an iteration may take twenty."""
    run = tmp_path / "EXIT"
    shutil.copytree(trained, run)
    last = run / "checkpoints" / "checkpoint_000003"
    before = torch.load(last / "model.pt")["stacks"]
    samples = len(list(last.glob("samples-*")))
    owner = SelfPlay if stage == "collect" else EXIT
    original = getattr(owner, stage)

    def told(one: object, *arguments: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(one, *arguments)

    monkeypatch.setattr(owner, stage, told)
    assert train(tmp_path, "--num-iters", "9", "--rl.training.config.buffer_iterations", "9") == 143
    assert len(rows(run)) == 3
    assert json.loads((last / "state.json").read_text())["training_iteration"] == 3
    # The games that were all played are kept, but not a half fit.
    assert len(list(last.glob("samples-*"))) == samples + (stage != "collect")
    after = torch.load(last / "model.pt")["stacks"]
    same = all(
        torch.equal(one[name], other[name])
        for one, other in zip(before, after, strict=True)
        for name in one
    )
    assert same == (stage != "_play_match")
    assert (run / "model" / "champion.evaluation").exists()


def test_a_fit_that_diverges_changes_no_weights(
    ray_with_games: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with built(EXITConfig()) as algorithm:
        stack = algorithm.model.stacks[1]
        before = stack.first.weight.clone()

        def diverge(*_: object, **__: object) -> list[float]:
            stack.first.weight.data[0, 0] = math.nan
            return [math.nan] * 3

        monkeypatch.setattr(algorithm.model, "fit", diverge)
        inputs = np.zeros((1, NUM_INPUTS), np.int16)
        algorithm.sample_buffer = [Samples(inputs, np.ones(1, np.uint8), np.ones(1, np.float32))]
        with pytest.raises(DivergedError, match="finite"):
            algorithm._fit_model()
        assert is_finite(stack)
        assert torch.equal(stack.first.weight, before)


def test_a_runner_that_dies_is_replaced(ray_with_games: None) -> None:
    config = EXITConfig()
    config.num_env_runners = 2
    few: dict[str, Any] = {"moves_per_iteration": 2000, "moves_per_fragment": 500, "match_pairs": 2}
    config.update_from_dict(few | {"ladder_cpu_fraction": 0.0})
    with built(config) as algorithm:
        algorithm.train()
        ray.kill(algorithm.self_play.runners[0], no_restart=False)
        assert algorithm.train()["training_iteration"] == 2


def test_without_matches_every_network_takes_over_and_games_grow_deep(
    ray_with_games: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ((0.5, SelfPlaySettings(7, 7)), (0.5, SelfPlaySettings(7, 7, 3)))
    for module in (exit, exit_self_play):
        monkeypatch.setattr(module, "GAME_MIX", quick)
    for name in ("NODE_CHOICES", "SHARED_TREE_NODE_CHOICES"):
        monkeypatch.setattr(exit_self_play, name, (30,))
    monkeypatch.setattr(exit_self_play, "DEEP_NODE_CHOICES", (31,))
    config = exit.EXITConfig()
    few: dict[str, Any] = {"moves_per_iteration": 3000, "moves_per_fragment": 1000}
    few |= {"match_pairs": 0, "buffer_iterations": 3, "bootstrap_buffer_iterations": 2}
    few |= {"bootstrap_epochs": 1.0, "deep_search_after_moves": 5000, "kept_fraction": 0.5}
    config.update_from_dict(few | {"ladder_cpu_fraction": 0.0, "elo0": 0.0, "elo1": 20.0})
    with built(config) as algorithm:
        # A run may be stopped in its first iteration.
        assert algorithm.play_sample_game().last.turn > 0
        asked, kept = [], []
        for iteration in (1, 2, 3):
            result = algorithm.train()
            assert (result["match"]["pairs"], result["promotions"]) == (0, iteration)
            assert math.isnan(result["env_runners"]["episode_return_mean"])
            assert 0 < result["learners"]["loss_quantized"] < 1
            asked.append(algorithm.self_play.choose_game(algorithm.champion)[2][0].nodes)
            kept.append(algorithm.sample_buffer[:])
        played = [
            games.rows.tobytes()
            for _ in range(2)
            for _, games in algorithm.self_play.collect(algorithm.champion, algorithm.promotions)
        ]
        assert len(set(played)) == len(played) >= 4, "no game is played twice"
        algorithm.save_to_path(str(tmp_path))
        assert asked == [30, 31, 31]
        # The first iteration's samples leave after two, all others after three.
        assert [len(samples) for samples in kept] == [1, 2, 2]
        assert all(1500 <= len(samples.living) < 2900 for samples in kept[2])
        assert kept[2] == [kept[1][1], algorithm.sample_buffer[-1]]
        assert len(list(tmp_path.glob("network-*"))) == 3
    with built(config) as again:
        again.restore_from_path(str(tmp_path))
        assert again.progress == algorithm.progress
        assert any(again.progress.moves_behind)
        assert again.self_play.choose_game(again.champion)[0] == np.argmax(
            np.add(again.progress.moves_behind, again.self_play._shares)
        )
        assert again.champion.network_bytes == algorithm.champion.network_bytes
        for samples, before in zip(again.sample_buffer, algorithm.sample_buffer, strict=True):
            assert (samples.target == before.target).all()
        assert again.train()["promotions"] == 4
        assert len(again.sample_buffer) == 3
        assert again.champion.network_bytes != algorithm.champion.network_bytes
    known = Evaluation.load(tmp_path / "champion.evaluation").metadata
    assert known["trained_for"]["sizes"] == [[7, 7]]
    assert known["trained_for"]["snakes"] == [2, 3]
    assert known["trained_for"]["maps"] == ["standard"]
    assert known["moves"] >= 9000
    assert known["settings"]["deep_search_after_moves"] == 5000


def test_a_placement_is_kept_and_paid_for(ray_with_games: None) -> None:
    config = EXITConfig()
    config.update_from_dict({"ladder_cpu_fraction": 0.1, "ladder_nodes": 10})
    with built(config) as algorithm:
        algorithm.progress.cpu_seconds = 15.0
        algorithm._place_champion(least=1.0)
        assert not algorithm.strength.measurements, "there is no champion"
        algorithm.champion = Evaluation.load(BUILTIN_PATH)
        algorithm._place_champion(least=2.0)
        assert not algorithm.strength.measurements, "1.5 seconds are owed"
        algorithm._place_champion(least=1.0)
        algorithm._place_champion(least=1.0)
        (measured,) = algorithm.strength.measurements
        spent = algorithm.strength.ladder_seconds
        assert spent > 0.5
        assert algorithm.progress.cpu_seconds == 15 + spent
        assert measured.cpu_minutes == pytest.approx(algorithm.progress.cpu_seconds / 60, abs=1e-3)
        results: dict[str, object] = {}
        algorithm.conclude(results)
        assert results == algorithm.strength.to_metrics()
        algorithm._promote(algorithm.champion)
        assert algorithm.strength.best is None


def test_a_stop_request_cancels_the_last_placement() -> None:
    def stop(*_: object) -> None:
        raise IterationStoppedError

    algorithm: Any = EXIT.__new__(EXIT)
    algorithm.settings, algorithm.strength = EXITSettings(), StrengthHistory()
    algorithm.progress, algorithm.promotions = ExitProgress(cpu_seconds=1000.0), 1
    algorithm.champion, algorithm.self_play = "champion", SimpleNamespace(run_placement=stop)
    results: dict[str, float] = {}
    algorithm.conclude(results)
    assert results["cpu_minutes"] == pytest.approx(1000 / 60)
    assert not algorithm.strength.measurements


def test_the_smallest_buffer_has_a_size() -> None:
    config = algorithms.configure("EXIT", {})
    check_memory(config.update_from_dict({"moves_per_iteration": 1, "kept_fraction": 1e-4}))

"""The MXNet baseline: what it learns, its policy as ONNX, resumed and interrupted runs."""

import functools
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.env.seat_memory import onnx_score_fn
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_rl.commands import evaluate_command
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.mxnet_dqn.mxnet_dqn import MXNET, _SnakeReplayBuffer
from battlesnake_rl.mabs.policy import policy_loader
from battlesnake_rl.mabs.strength import ladder_evaluator
from battlesnake_server.strategy_loader import _PolicySnake
from sagemaker_rl.job import pinned_wheels
from sagemaker_rl.runs.divergence import DivergedError
from tests.mabs.conftest import SMALL
from tests.progress_csv import rows

pytestmark = pytest.mark.filterwarnings("default")

QUICK = {"turns_per_iteration": 40, "batch_size": 8, "warmup_batches": 1, "update_every": 8}
"""Settings that learn within one short iteration."""

COMMAND = [
    *("--algorithm", "MXNET", "--name", "run", "--board-size", "5", "--num-snakes", "2"),
    *(f"--rl.training.config.{name}={value}" for name, value in QUICK.items()),
]


@pytest.fixture
def needs_mxnet(monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNet on one thread; without it the test is skipped.

    Commands that other tests called have set the variable, but too late for OpenMP. MXNet itself
    limits OpenMP only if the variable is not set.
    """
    if reason := pinned_wheels.MXNET.missing_reason():
        pytest.skip(reason)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    from battlesnake_rl.mabs.mxnet_dqn import mxnet_network

    mxnet_network._import_mxnet()


@pytest.fixture
def make(needs_mxnet: None) -> Any:
    """A function that makes a small baseline with such settings."""

    def make(env_config: dict[str, Any] | None = None, **settings: Any) -> MXNET:
        config = algorithms.configure("MXNET", SMALL | (env_config or {})).debugging(seed=3)
        made: MXNET = config.update_from_dict(QUICK | settings).build_algo()
        return made

    return make


def train(runs: Path, *arguments: str) -> int:
    return main([*COMMAND, "--runs-dir", str(runs), *arguments])


# -- Settings and packages -------------------------------------------------------------------------


def test_without_the_package_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pinned_wheels, "find_spec", lambda name: None)
    monkeypatch.setattr(pinned_wheels._PinnedWheels, "unavailable_reason", lambda self: "")
    assert train(tmp_path, "--num-iters", "1") == 2
    assert "algorithm MXNET needs the package mxnet: mxnet is not installed; run `make mxnet`" in (
        capsys.readouterr().err
    )
    assert train(tmp_path, "--num-iters", "1", "--dry-run") == 0, "a job is checked elsewhere"


# -- Learning --------------------------------------------------------------------------------------


def test_the_buffer_replaces_the_oldest() -> None:
    buffer = _SnakeReplayBuffer(3, (1,))
    for move in range(5):
        buffer.add([move], move % 4, move, [move + 1], [True] * 4, False)
    assert len(buffer) == 3
    assert sorted(buffer.rows["reward"]) == [2, 3, 4]
    assert buffer.rows["next"]["obs"][:, 0].tolist() == [4, 5, 3]


def test_values_become_the_reward_and_half_of_what_follows(make: Any) -> None:
    """In "here", each move ends the game with its number as reward; "there" leads to "here"."""
    baseline = make(gamma=0.5, tau=0.3, lr=5e-3)
    here = np.zeros(baseline.shape, np.uint8)
    there = np.full(baseline.shape, 50, np.uint8)
    buffer, allowed = baseline.buffers[0], np.array([True, False, True, False])
    for move in range(4):
        buffer.add(here, move, float(move), here, allowed, True)
        buffer.add(there, move, 0.0, here, allowed, False)
    for _ in range(160):
        baseline.learn(buffer)
    values = baseline._values(baseline.network, np.stack([here, there]))
    np.testing.assert_allclose(values[0], [0, 1, 2, 3], atol=0.25)
    np.testing.assert_allclose(values[1], 1, atol=0.25)  # The best allowed move there is 2.


def test_an_iteration_counts_explores_less_and_moves_the_target(make: Any) -> None:
    baseline = make(tau=0.1)
    before = baseline._get_arrays()
    results = baseline.train()
    after, games = baseline._get_arrays(), results["env_runners"]
    assert games["num_env_steps_sampled_lifetime"] == 40
    assert results["epsilon"] == pytest.approx(0.995 ** games["num_episodes"])
    # Survival: a snake is paid for each turn but that of its elimination.
    assert 0 < games["episode_return_mean"] < games["episode_len_mean"]
    moves = [buffer.num_added for buffer in baseline.buffers]
    assert games["num_agent_steps_sampled_lifetime"] == {"default_agent": sum(moves)}
    # A snake trains at each eighth of its moves, from the first with more than eight on.
    updates = sum(count // 8 - 1 for count in moves)
    trained = results["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    assert trained == 8 * updates > 0
    name = "values.weight"
    np.testing.assert_array_equal(before[f"network/{name}"], before[f"target/{name}"])
    moved = np.abs(after[f"target/{name}"] - before[f"target/{name}"]).sum()
    changed = np.abs(after[f"network/{name}"] - before[f"network/{name}"]).sum()
    assert 0 < moved < 0.5 * changed


def test_a_training_that_diverges_keeps_the_weights_before(make: Any) -> None:
    baseline = make(lr=1e30)
    before = baseline._get_export_weights()
    with pytest.raises(DivergedError, match="not finite"):
        baseline.train()
    after = baseline._get_export_weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_a_snake_alone_learns_to_avoid_walls(make: Any) -> None:
    """On a board of 5x5 without an action mask, the first games last 2.4 to 3.7 turns."""
    game = {"num_snakes": 1, "ruleset": "solo", "action_mask": "none", "max_turns": 60}
    settings = {"update_every": 1, "batch_size": 16, "gamma": 0.8, "tau": 0.05, "lr": 2e-3}
    settings |= {"epsilon_start": 0.5, "epsilon_decay": 0.98, "turns_per_iteration": 100}
    baseline = make(game, **settings)
    first = baseline.train()["env_runners"]["episode_len_mean"]
    for _ in range(7):
        last = baseline.train()["env_runners"]["num_episodes"]
    assert first < 4
    assert 100 / last > 1.5 * first  # Two seeds reached 2.0 and 3.4 times the first length.


# -- Policies and checkpoints ----------------------------------------------------------------------


def test_the_onnx_files_equal_the_networks_and_the_best_is_kept(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder_evaluator, "MIN_MEASUREMENT_S", 0.0)
    monkeypatch.setattr(ladder_evaluator, "MIN_BEST_GAMES", 2)
    few = functools.partial(ladder_evaluator.place_policy, games=2)
    monkeypatch.setattr(ladder_evaluator, "place_policy", few)
    baseline = make({"width": 7}, turns_per_iteration=10, ladder_cpu_fraction=0.5)
    results = baseline.train()
    assert results["elo_low"] < results["elo"] < results["elo_high"]
    assert results["elo_games"] == 2
    boards = np.random.default_rng(1).integers(251, size=(33, *baseline.shape), dtype=np.uint8)
    best = baseline._values(baseline.network, boards)
    assert np.ptp(best, axis=0).min() > 1e-3  # It does tell boards apart.
    baseline.parameters["values.weight"].set_data(0 * baseline.parameters["values.weight"].data())
    latest = baseline._values(baseline.network, boards)
    baseline._policy_from_weights(baseline._get_export_weights())  # As for a sample game.
    baseline.save_to_path(str(tmp_path))
    for last, expected in ((False, best), (True, latest)):
        path = policy_loader.PolicyCheckpoint(tmp_path, last).onnx_file
        assert path is not None
        values = onnx_score_fn(path.read_bytes(), path)
        for count in (1, len(boards)):
            np.testing.assert_allclose(values(boards[:count]), expected[:count], atol=1e-6)


def test_a_checkpoint_resumes_with_all_but_the_buffers(make: Any, tmp_path: Path) -> None:
    baseline, again = make(lr_halved_every=3), make(lr_halved_every=3)
    baseline.train()
    baseline.save_to_path(str(tmp_path))
    again.restore_from_path(str(tmp_path))
    assert again.progress == baseline.progress
    assert again.progress.updates > 3
    assert list(again._recent_games.iterations) == list(baseline._recent_games.iterations)
    assert not any(map(len, again.buffers))
    # With the same buffers and random numbers, both continue equally.
    for one in (baseline, again):
        one.random = np.random.default_rng(1)
        for _ in range(2):
            one.learn(baseline.buffers[0])
    ours, theirs = baseline._get_arrays(), again._get_arrays()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_an_interrupted_run_is_resumed_exported_and_evaluated(
    needs_mxnet: None,
    ray_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play_turn = MXNET.play_turn

    def interrupt(baseline: MXNET) -> None:
        play_turn(baseline)
        if baseline.progress.turns == 50:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(MXNET, "play_turn", interrupt)
        assert train(tmp_path, "--num-iters", "3") == 143
    assert train(tmp_path, "--num-iters", "3") == 0
    table = rows(tmp_path / "run")
    assert [row["env_steps"] for row in table] == ["40", "50", "90"]
    assert all(float(row["loss"]) >= 0 for row in table)
    assert float(table[2]["transitions_trained"]) > float(table[1]["transitions_trained"]) > 0

    policy = OnnxPolicy.load(tmp_path / "run" / "model" / "policy.onnx")
    assert policy.metadata["versions"]["mxnet"] == "1.9.1"
    board = Board.new(5, 5, 2)
    board.you_id = board.snakes[0].id
    assert _PolicySnake(policy)(board).move in board.safe_moves()
    capsys.readouterr()
    assert evaluate_command.main([str(tmp_path / "run"), "--games", "2"]) == 0
    assert "in 2 duels" in capsys.readouterr().out

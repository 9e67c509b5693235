"""The reference of expert iteration says what the fast one does: labels and losses are equal."""

# ruff: noqa: E402
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra rllib")
pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_gym.boards.board import Board
from battlesnake_heuristics.search.evaluation import Evaluation, load_builtin
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import (
    ROW_RANDOM,
    ROW_SEARCHED,
    ROW_SEARCHED_RANDOM,
    SearchPlayer,
    SelfPlayBatch,
    SelfPlaySettings,
    play_games,
)
from battlesnake_rl.mabs.exit import evaluation_fit, exit_self_play
from battlesnake_rl.mabs.exit.evaluation_fit import EvaluationModel, Samples
from battlesnake_rl.mabs.settings.algorithm_settings import EXITSettings
from reference import exit

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def games() -> SelfPlayBatch:
    """Duels and games of four; some are stopped before they end."""
    setups = (
        SelfPlaySettings(),
        SelfPlaySettings(num_snakes=4),
        SelfPlaySettings(7, 7, 4, max_turns=60),
        SelfPlaySettings(max_turns=80),
    )
    parts = [
        play_games(1 + 1000 * number, setup, [SearchPlayer(nodes=60)] * setup.num_snakes, 6000)
        for number, setup in enumerate(setups)
    ]
    return SelfPlayBatch.concatenate(parts)


def test_the_labels_are_those_of_the_fast_one(games: SelfPlayBatch) -> None:
    assert set(games.rows["kind"].tolist()) == {ROW_RANDOM, ROW_SEARCHED, ROW_SEARCHED_RANDOM}
    assert {2, 3, 4} <= set(games.rows["living"].tolist())
    assert set(games.finished.tolist()) == {True, False}
    inputs, living, label = exit.label_positions(games)
    fast = Samples.from_games(games)
    np.testing.assert_array_equal(inputs, fast.inputs)
    np.testing.assert_array_equal(living, fast.living)
    np.testing.assert_allclose(label, fast.target, rtol=0, atol=1e-6)
    assert fast.target.std() > 0.1


def test_the_fit_is_that_of_the_fast_one(games: SelfPlayBatch) -> None:
    """Begun with the same weights, it has the same losses and makes the same whole numbers."""
    torch.manual_seed(1)
    model, nets = EvaluationModel(), exit.create_networks()
    for stack, net in zip(model.stacks, nets, strict=True):
        net.load_state_dict(stack.state_dict())
    fast = Samples.from_games(games)
    few = Samples(fast.inputs[:9000], fast.living[:9000], fast.target[:9000])
    # the second goes on from the first, and not all have positions enough in it
    for samples, epochs, rate in ((few, 3.0, 3e-3), (fast, 2.0, 1.5e-3)):
        said = model.fit(samples, epochs, rate, seed=5)
        arrays = samples.inputs, samples.living, samples.target
        told = exit.fit_networks(nets, arrays, epochs, rate, 5)
        np.testing.assert_allclose(told, said, rtol=1e-5)
    assert np.isfinite(said).all()
    made = model.to_evaluation({}).network_bytes
    mine = exit.quantize_evaluation(nets, 0).network_bytes
    off = np.frombuffer(made, np.int16).astype(int) - np.frombuffer(mine, np.int16)
    assert (np.abs(off) <= 1).mean() > 0.99


def test_both_are_set_alike() -> None:
    settings = EXITSettings()
    assert exit.NODE_CHOICES == exit_self_play.NODE_CHOICES
    assert exit.TD_LAMBDA == evaluation_fit.TD_LAMBDA
    assert (settings.buffer_iterations, settings.match_pairs) == (
        exit.BUFFER_ITERATIONS,
        exit.MAX_MATCH_PAIRS,
    )
    assert settings.match_nodes == exit.MATCH_NODES


def test_the_match_knows_the_stronger() -> None:
    untrained = exit.quantize_evaluation(exit.create_networks(), 0)
    assert exit.passes_sprt(load_builtin(), None, seed=5)
    assert not exit.passes_sprt(untrained, load_builtin(), seed=5)


def test_it_runs_alone(tmp_path: Path) -> None:
    """A round of it: what it makes may not be as good as the hand-set weights."""
    file = tmp_path / "exit.evaluation"
    done = subprocess.run(
        [sys.executable, str(ROOT / "reference" / "exit.py"), "--minutes", "0.01", "--file", file],
        capture_output=True, text=True, timeout=600, cwd=tmp_path,
    )  # fmt: skip
    assert re.match(r"iteration 1: 3\d{4} .* 0\.\d+ 0\.\d+ 0\.\d+", done.stdout), done
    assert done.returncode == (0 if file.exists() else 1)
    assert file.exists() == (", promoted" in done.stdout)
    assert file.exists() or done.stderr


def test_its_champion_plays_in_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit, "MOVES_PER_ITERATION", 12_000)
    monkeypatch.setattr(exit, "passes_sprt", lambda *_, seed: True)
    file = tmp_path / "exit.evaluation"
    exit.main(["--minutes", "0.01", "--file", str(file)])
    board = Board.new(11, 11, 2)
    board.you_id = board.snakes[0].id
    learned = Search(nodes=300, evaluation=Evaluation.load(file))(board)
    assert "expected score" in learned.reasons[0].note
    assert learned.scores != Search(nodes=300)(board).scores

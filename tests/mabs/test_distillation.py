"""What the search says of moves, the policy that learns it, and rounds that go on."""

# ruff: noqa: E402
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

torch = pytest.importorskip("torch", reason="needs the extra rllib")
pytest.importorskip("battlesnake_heuristics.search._search")
pytestmark = [pytest.mark.rllib, pytest.mark.usefixtures("one_thread")]

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_heuristics.search.selfplay import SelfPlaySetup
from battlesnake_rl.mabs.exit import distillation
from battlesnake_rl.mabs.exit.distillation import (
    OTHERS,
    POLICY,
    SEARCH,
    WORST,
    DistillationRun,
    Labels,
    Learner,
    loss,
    main,
    play,
)
from battlesnake_server.onnx_policy import Policy, PolicyError


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[float, SelfPlaySetup], ...]:
    mix = ((0.7, SelfPlaySetup(7, 7)), (0.3, SelfPlaySetup(9, 9, 3, "wrapped")))
    monkeypatch.setattr(distillation, "MIX", mix)
    monkeypatch.setattr(distillation, "AT_ONCE", 4)
    return mix


def labels_of(setup: SelfPlaySetup, count: int, **options: Any) -> Labels:
    return play(setup, count, 60, options.get("policy"), 3, tqdm(disable=True))


def test_the_best_move_is_not_worse_and_forbidden_ones_are_as_bad_as_can_be() -> None:
    labels = labels_of(SelfPlaySetup(7, 7), 300)
    assert labels.frames.shape[1:] == (16, 7, 7)
    assert (labels.worse.min(1) == 0).all()
    assert (labels.worse.max(1) <= WORST).all()
    rows, columns = np.unravel_index(labels.frames[:, 6].reshape(-1, 49).argmax(1), (7, 7))
    for move, off in enumerate((rows == 6, rows == 0, columns == 0, columns == 6)):
        assert off.any()
        assert (labels.worse[off, move] == WORST).all()
    # and a choice is always left
    assert ((labels.worse < WORST).sum(1) >= 1).all()


def test_the_policy_plays_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def policy(frames: Any) -> Any:
        asked.append(len(frames))
        return np.zeros((len(frames), 4), np.float32)

    labels_of(SelfPlaySetup(7, 7), 40, policy=policy)
    assert asked
    shares = {SEARCH: 0.1, POLICY: 0.7, OTHERS: 0.2}
    assert tuple(shares[kind] for kind in (SEARCH, POLICY, OTHERS)) == distillation.LATER_ROUNDS


def test_the_loss_is_the_cross_entropy_to_the_softmax_of_the_values() -> None:
    rng = np.random.default_rng(1)
    values, worse = rng.normal(size=(5, 4)), rng.uniform(0, 9, (5, 4))
    wanted = np.exp(-worse) / np.exp(-worse).sum(1, keepdims=True)
    told = np.log(np.exp(values) / np.exp(values).sum(1, keepdims=True))
    found = loss(torch.from_numpy(values).float(), torch.from_numpy(worse))
    assert float(found) == pytest.approx(-(wanted * told).sum(1).mean(), rel=1e-5)


def test_it_learns_what_is_said() -> None:
    """Of random planes with a mark, the move that the mark names."""
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 60, (600, 16, 7, 7)).astype(np.uint8)
    frames[:, 0] = 255
    best = rng.integers(4, size=600)
    frames[:, 12:16] = 0
    frames[np.arange(600), 12 + best] = 255
    worse = np.full((600, 4), 20, np.float16)
    worse[np.arange(600), best] = 0
    learner = Learner(16, seed=1)
    for _ in range(15):  # of 4 CPU seconds, of which a fast processor needs one
        told = learner.fit([Labels(frames, worse)], 4.0)
        if told["best"] > 0.9 and told["regret"] < 2:
            return
    pytest.fail(f"it did not learn: {told}")


def test_rounds_go_on_where_they_were(
    tmp_path: Path, quick: tuple[tuple[float, SelfPlaySetup], ...]
) -> None:
    options = ["--folder", str(tmp_path), "--moves", "60", "--positions", "30", "--fit-minutes",
               "0.01"]  # fmt: skip
    main([*options, "--minutes", "0.0001"])
    first = json.loads((tmp_path / "rounds.jsonl").read_text())
    assert first["round"] == 0
    assert len(list(tmp_path.glob("labels-00-*.npz"))) == len(quick)
    # a round that was interrupted keeps what was played
    kept = tmp_path / "labels-01-0.npz"
    Labels.load(tmp_path / "labels-00-0.npz").save(kept)
    before = kept.stat().st_mtime_ns
    run = DistillationRun(tmp_path, seed=1)
    told = run.round(60, 30, 0.01)
    assert told["round"] == 1
    assert told["positions"] > first["positions"]
    assert kept.stat().st_mtime_ns == before

    policy = Policy.load(tmp_path / "policy.onnx")
    assert policy.board_sizes == {(7, 7), (9, 9)}
    assert policy.rulesets == ("standard", "wrapped")
    for side in (7, 9):
        board = Board.new(side, side, 2, game=Game("wrapped"))
        policy.check_game(board)
        seen = policy.observation.encode(board, board.snakes[0].id)
        assert policy.shape(side, side) == seen.shape
        said = policy.q_values(seen[None])
        with torch.no_grad():
            thought = run.learner.mean(torch.from_numpy(seen[None])).numpy()
        np.testing.assert_allclose(said, thought, rtol=1e-3, atol=1e-4)
    with pytest.raises(PolicyError, match="plays the rules 'standard' and 'wrapped'"):
        policy.check_game(Board.new(7, 7, 2, game=Game("royale")))

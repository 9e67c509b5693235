"""Labels of the search's games, and the fit."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_heuristics.search.evaluation import NUM_INPUTS
from battlesnake_heuristics.search.self_play import ROW_DTYPE, ROW_SEARCHED, SelfPlayBatch
from battlesnake_rl.mabs.exit.evaluation_fit import (
    EvaluationModel,
    Samples,
    _expected_scores,
    _stack_indices,
)


def test_values_become_the_points_that_came_of_them() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 15_000, 50_000).astype(np.int32)
    truth = 1 / (1 + np.exp(-(0.5 * values / 10_000 - 1)))
    points = (rng.random(len(values)) < truth).astype(float)
    living = np.full(len(values), 4, np.uint8)
    assert np.abs(_expected_scores(values, living, points) - truth).max() < 0.03


def test_proofs_that_do_not_hold_are_taken_for_what_they_are() -> None:
    kinds = (-999_990, -499_995, 999_990, -10_000, 10_000)
    values = np.repeat(np.array(kinds, np.int32), 1000)
    shares = (0.25, 0.4, 1.0, 0.1, 0.3)
    points = np.concatenate([np.arange(1000) < 1000 * share for share in shares]).astype(float)
    told = _expected_scores(values, np.full(5000, 4, np.uint8), points)
    np.testing.assert_allclose(told[::1000], shares, atol=0.01)


def test_a_snake_that_died_before_the_turn_limit_has_lost() -> None:
    rows = np.zeros(5, ROW_DTYPE)
    rows["kind"], rows["living"], rows["value"] = ROW_SEARCHED, 3, 30_000
    rows["seat"], rows["turn"] = (0, 1, 2, 1, 2), (0, 0, 0, 1, 1)
    games = SelfPlayBatch(
        rows, np.zeros(5, np.int32), rows["seat"], np.array([[0, 0.5, 0.5]]), np.zeros(1, bool), 2
    )
    assert (Samples.from_games(games, 1.0).target > 0).tolist() == [False, *[True] * 4]


def made_up_samples(count: int, seed: int) -> Samples:
    """Points follow from the inputs by a rule that no linear sum finds."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(-512, 512, (count, NUM_INPUTS)).astype(np.int16)
    logits = 3 * np.abs(inputs[:, 0] / 256) - 2 * inputs[:, 20] / 256
    target = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return Samples(inputs, rng.choice([2, 3, 4, 7], count).astype(np.uint8), target)


def test_a_fit_learns_and_whole_numbers_lose_little_of_it() -> None:
    torch.manual_seed(0)
    model, samples = EvaluationModel(), made_up_samples(15_000, 1)
    before = model.fit(samples, epochs=0.1, batch=256)
    after = model.fit(samples, epochs=15, batch=256)
    fresh = made_up_samples(4000, 2)
    base = np.full(len(fresh.target), np.log(fresh.target.mean() / (1 - fresh.target.mean())))
    truth = np.log(fresh.target / (1 - fresh.target))
    in_floats = np.empty(len(truth))
    for number, stack in enumerate(model.stacks):
        those = _stack_indices(fresh.living) == number
        inputs = torch.from_numpy(fresh.inputs[those][:, : stack.first.in_features])
        in_floats[those] = stack(inputs.float() / 256).detach().numpy()
    rounded = fresh.quantized_loss(model.to_evaluation({}))
    assert max(after) < min(before)
    assert loss(in_floats, fresh) < 0.4 * loss(base, fresh) + 0.6 * loss(truth, fresh)
    assert rounded == pytest.approx(loss(in_floats, fresh), abs=0.003)


def loss(logits: NDArray[Any], samples: Samples) -> float:
    return float((np.logaddexp(0, logits) - samples.target * logits).mean())
